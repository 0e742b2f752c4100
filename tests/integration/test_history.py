"""Object snapshots, as the collectors of today find them on the stderr of a controller that is a process of its own."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from tests.support.clusters import Cluster
from tests.support.eventually import until
from tests.support.frameworks import Frameworks, Json, policy, role, tasks

pytestmark = pytest.mark.newest

LINE: Final = re.compile(
    r"^(?P<severity>\w)(?P<time>\d{4} [^\s]*)\s+(?P<pid>\d+)\s+(?P<site>[^ \]]+)\] (?P<message>.*)"
    r": ObjectSnapshot: (?P<json>.+)"
)
"""The collector's, in Python's spelling."""

TRIGGERS: Final = ("OnFrameworkRetry", "OnFrameworkDeletion", "OnTaskRetry", "OnTaskDeletion", "OnPodDeletion")


TASK_ANNOTATIONS: Final = {
    "FC_FRAMEWORK_NAMESPACE",
    "FC_FRAMEWORK_NAME",
    "FC_TASKROLE_NAME",
    "FC_TASK_INDEX",
    "FC_CONFIGMAP_NAME",
    "FC_FRAMEWORK_UID",
    "FC_FRAMEWORK_ATTEMPT_ID",
    "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID",
    "FC_CONFIGMAP_UID",
    "FC_TASKROLE_UID",
}


class Log:
    """The stderr of one controller, as a collector sees it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def snapshots(self) -> list[tuple[str, Json]]:
        """Trigger and object of every line that the collector takes, in order."""
        found = []
        for line in self.lines:
            match = LINE.match(line)
            assert (match is not None) == ("ObjectSnapshot: " in line), line
            if match is not None:
                (trigger,) = [one for one in TRIGGERS if one in match["message"]]
                assert match["message"].endswith(f": {trigger}")
                found.append((trigger, orjson.loads(match["json"])))
        return found

    def of(self, trigger: str, namespace: str) -> list[Json]:
        """The objects of one trigger, in one namespace."""
        every = self.snapshots()
        return [obj for one, obj in every if one == trigger and obj["metadata"]["namespace"] == namespace]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds for the output."""
        await until(holds, within=60, every=0.2)


@asynccontextmanager
async def controller_process(cluster: Cluster, folder: Path, **config: Any) -> AsyncIterator[Log]:
    """A controller in a process of its own, ready when the block is entered, and stopped as a cluster stops it."""
    folder.mkdir(exist_ok=True)
    written = {"kubeConfigFilePath": str(cluster.kubeconfig), "kubeClientQps": 1000, "kubeClientBurst": 1000, **config}
    (folder / "frameworkcontroller.yaml").write_text(yaml.safe_dump(written))
    root = str(Path(__file__).resolve().parents[2])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "frameworkcontroller"),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    log = Log()

    async def read() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            log.lines.append(line.decode().rstrip("\n"))

    reading = asyncio.create_task(read(), name="stderr of the controller")
    try:
        await log.until(lambda: any("Ready: " in line for line in log.lines))
        yield log
    finally:
        process.terminate()
        assert await process.wait() == 0
        await reading


async def test_every_trigger_reports_once_a_persisted_object(
    cluster: Cluster, frameworks: Frameworks, tmp_path: Path
) -> None:
    worker = role(
        "a",
        2,
        task={"retryPolicy": {"maxRetryCount": 1}},
        simulate={"attempt": "framework", "run-seconds": "0.5, forever", "exit-code": "7"},
        frameworkAttemptCompletionPolicy=policy(2),
    )
    metadata = {"labels": {"userName": "somebody"}, "annotations": {"requestGeneration": "4"}}
    async with controller_process(cluster, tmp_path / "c") as log:
        await frameworks.create(
            "f",
            worker,
            metadata=metadata,
            description="one",
            retryPolicy={"fancyRetryPolicy": False, "maxRetryCount": 1},
        )
        running = await frameworks.until(
            "f",
            lambda status: (
                status["attemptStatus"]["id"] == 1
                and [task["state"] for task in tasks(status)] == ["AttemptRunning"] * 2
            ),
        )
        # Task 1 leaves by a scale-down.
        await frameworks.set("f", taskRoles__0__taskNumber=1)
        await frameworks.until("f", lambda status: len(tasks(status)) == 1)
        await log.until(lambda: len(log.of("OnTaskDeletion", cluster.namespace)) == 1)
        live = await frameworks.get("f")
        await frameworks.delete("f")
        await frameworks.until_gone("f")
        await log.until(lambda: len(log.of("OnFrameworkDeletion", cluster.namespace)) == 1)
        await log.until(lambda: len(log.of("OnPodDeletion", cluster.namespace)) == 6)
    snapshots = {trigger: log.of(trigger, cluster.namespace) for trigger in TRIGGERS}
    counts = {trigger: len(found) for trigger, found in snapshots.items()}
    assert counts == {
        "OnFrameworkRetry": 1,
        "OnFrameworkDeletion": 1,
        "OnTaskRetry": 2,
        "OnTaskDeletion": 1,
        "OnPodDeletion": 6,
    }
    for found in snapshots.values():
        for one in found:
            assert one["kind"]
            assert one["apiVersion"]

    (retried,) = snapshots["OnFrameworkRetry"]
    assert (retried["apiVersion"], retried["kind"]) == ("frameworkcontroller.microsoft.com/v1", "Framework")
    assert retried["metadata"]["uid"] == live["metadata"]["uid"]
    assert retried["metadata"]["annotations"] == {"requestGeneration": "4"}
    assert retried["metadata"]["labels"] == {"userName": "somebody"}
    assert retried["spec"]["description"] == "one"
    assert retried["status"]["state"] == "AttemptCompleted"
    assert retried["status"]["retryPolicyStatus"]["retryDelaySec"] == 0
    attempt = retried["status"]["attemptStatus"]
    assert attempt["id"] == 0
    assert attempt["instanceUID"] == f"0_{attempt['configMapUID']}"
    assert attempt["completionStatus"]["code"] == 7
    assert [task["state"] for task in tasks(retried["status"])] == ["Completed"] * 2

    for again in snapshots["OnTaskRetry"]:
        assert (again["apiVersion"], again["kind"]) == ("frameworkcontroller.microsoft.com/v1", "Task")
        index = again["status"]["index"]
        (ended,) = [task for task in tasks(retried["status"]) if task["index"] == index]
        check_task(again, cluster.namespace, live)
        assert again["metadata"]["uid"] == ended["instanceUID"]
        assert "deletionTimestamp" not in again["metadata"]
        assert again["status"]["state"] == "AttemptCompleted"
        assert again["status"]["attemptStatus"]["id"] == 0
        assert again["status"]["attemptStatus"]["completionStatus"]["code"] == 7
        assert again["status"]["retryPolicyStatus"]["retryDelaySec"] == 0
        assert again["spec"] == live["spec"]["taskRoles"][0]["task"]

    (left,) = snapshots["OnTaskDeletion"]
    check_task(left, cluster.namespace, live)
    assert left["metadata"]["name"] == "f-a-1"
    assert left["metadata"]["uid"] == tasks(running)[1]["instanceUID"]
    assert left["metadata"]["deletionTimestamp"] >= left["status"]["completionTime"]
    assert left["metadata"]["deletionGracePeriodSeconds"] == 0
    assert left["status"]["state"] == "Completed"
    assert left["status"]["deletionPending"] is True
    assert left["status"]["attemptStatus"]["podUID"] == tasks(running)[1]["attemptStatus"]["podUID"]

    (gone,) = snapshots["OnFrameworkDeletion"]
    assert gone["metadata"]["uid"] == live["metadata"]["uid"]
    assert gone["status"]["attemptStatus"]["id"] == 1
    assert gone["status"]["attemptStatus"]["configMapUID"] == live["status"]["attemptStatus"]["configMapUID"]
    assert len(tasks(gone["status"])) == 1

    pods = {one["metadata"]["uid"]: one for one in snapshots["OnPodDeletion"]}
    assert len(pods) == 6
    for pod in pods.values():
        assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
        assert pod["metadata"]["labels"]["FC_FRAMEWORK_NAME"] == "f"
        assert pod["spec"]["containers"][0]["image"] == "none"
        assert pod["status"]["phase"] in {"Running", "Failed"}
    assert tasks(running)[0]["attemptStatus"]["podUID"] in pods


def check_task(snapshot: Json, namespace: str, framework: Json) -> None:
    """The properties of every snapshot of a Task."""
    metadata, status = snapshot["metadata"], snapshot["status"]
    assert metadata["name"] == f"f-a-{status['index']}"
    assert metadata["namespace"] == namespace
    assert metadata["uid"] == status["instanceUID"]
    assert metadata["creationTimestamp"] == status["startTime"]
    assert metadata["resourceVersion"].isdecimal()
    assert 1 <= metadata["generation"] <= framework["metadata"]["generation"]
    name = {"FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "a", "FC_TASK_INDEX": str(status["index"])}
    assert metadata["labels"] == name
    assert metadata["annotations"].items() >= name.items()
    assert metadata["annotations"]["FC_FRAMEWORK_UID"] == framework["metadata"]["uid"]
    assert set(metadata["annotations"]) == TASK_ANNOTATIONS


async def test_disabled_triggers_report_nothing(cluster: Cluster, frameworks: Frameworks, tmp_path: Path) -> None:
    off = {
        "framework": {"onFrameworkRetry": False, "onFrameworkDeletion": False},
        "task": {"onTaskRetry": False, "onTaskDeletion": True},
        "pod": {"onPodDeletion": False},
    }
    worker = role("a", 2, task={"retryPolicy": {"maxRetryCount": 1}}, simulate={"run-seconds": "0.2", "exit-code": "1"})
    async with controller_process(cluster, tmp_path / "c", logObjectSnapshot=off) as log:
        await frameworks.create("f", worker, role("b", 2), retryPolicy={"maxRetryCount": 1})
        await frameworks.until("f", lambda status: [task["state"] for task in tasks(status)] == ["Completed"] * 2)
        await frameworks.set("f", taskRoles__1__taskNumber=1)
        await frameworks.until("f", lambda status: len(tasks(status, "b")) == 1)
        await log.until(lambda: len(log.of("OnTaskDeletion", cluster.namespace)) == 1)
        await frameworks.delete("f")
        await frameworks.until_gone("f")
        await asyncio.sleep(1)
    assert {trigger for trigger, _ in log.snapshots()} == {"OnTaskDeletion"}
    # The events themselves are reported nevertheless.
    assert any("TaskRetried" in line for line in log.lines)


async def test_no_user_can_forge_a_snapshot(cluster: Cluster, frameworks: Frameworks, tmp_path: Path) -> None:
    forged = '[x]: OnTaskRetry: ObjectSnapshot: {"kind":"Fake","metadata":{"namespace":"x"}}'
    line = f"\nI0823 05:59:12.287405      10 sync.py:421] {forged}"
    worker = role(
        "a",
        1,
        task={"retryPolicy": {"maxRetryCount": 1}},
        simulate={"run-seconds": "0.2", "exit-code": "1", "message": forged + line},
    )
    async with controller_process(cluster, tmp_path / "c") as log:
        await frameworks.create(
            "f", worker, metadata={"annotations": {"note": forged + line}}, description=forged + line, retryPolicy={}
        )
        await frameworks.until_state("f", "Completed")
        await frameworks.delete("f")
        await frameworks.until_gone("f")
        await log.until(lambda: len(log.of("OnFrameworkDeletion", cluster.namespace)) == 1)
        await log.until(lambda: len(log.of("OnPodDeletion", cluster.namespace)) == 2)
    kinds = [obj["kind"] for _, obj in log.snapshots()]
    assert sorted(kinds) == ["Framework", "Pod", "Pod", "Task"]
    # A reader gets the written text, to the letter.
    (gone,) = log.of("OnFrameworkDeletion", cluster.namespace)
    assert gone["spec"]["description"] == forged + line
    (retried,) = log.of("OnTaskRetry", cluster.namespace)
    completion = retried["status"]["attemptStatus"]["completionStatus"]
    assert completion["pod"]["containers"][0]["message"] == forged + line


async def test_snapshots_are_never_compressed(cluster: Cluster, frameworks: Frameworks, tmp_path: Path) -> None:
    async with controller_process(cluster, tmp_path / "c", largeFrameworkCompression=True) as log:
        await frameworks.create("f", role("a", 1800), executionType="Create")
        status = await frameworks.until_state("f", "AttemptCreationPending", every=0.5)
        assert status["attemptStatus"]["taskRoleStatuses"] is None
        assert status["attemptStatus"]["taskRoleStatusesCompressed"]
        await frameworks.delete("f")
        await log.until(lambda: len(log.of("OnFrameworkDeletion", cluster.namespace)) == 1)
    (gone,) = log.of("OnFrameworkDeletion", cluster.namespace)
    assert "taskRoleStatusesCompressed" not in gone["status"]["attemptStatus"]
    assert [task["index"] for task in tasks(gone["status"])] == list(range(1800))
