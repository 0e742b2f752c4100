"""Trainings that are notified of their end on the embedded cluster: by simulated Pods, and by programs in real ones."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.config.config import Config, Kueue, KueueMode, ProgressReports, shipped_config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import CONFIGMAPS, WORKLOADS
from frameworkcontroller.local.cluster import LocalCluster
from frameworkcontroller.local.kubelet import process
from frameworkcontroller.manager.app import Controller
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, condition
from tests.support.localqueue import in_queue, needing
from tests.support.objects import items, read
from tests.support.reportingprograms import SENDS
from tests.support.site import LocalSite, local_site
from tests.support.virtual_clock import wall
from tests.support.writtenreports import write_report

GRACE: Final = 300
SDK: Final = Path(process.__file__).parents[2] / "sdk"


def config(**more: Any) -> Config:
    """A controller with queues."""
    return shipped_config().model_copy(update={"kueue": Kueue(mode=KueueMode.ENABLED), **more})


def training(*, pod: Json | None = None, **simulate: Any) -> Json:
    """A role of two Tasks that need all of the quota."""
    return needing(4, 2, simulate={"stop-seconds": 5, **simulate}, pod=pod)


class Trainings(LocalSite):
    """A local cluster with a queue for eight processors."""

    async def create(self, name: str, priority: str = "", *roles: Json, **spec: Any) -> None:
        """Create a Framework in the queue, and wait until it runs."""
        await self.frameworks.create(name, *(roles or (training(),)), metadata=in_queue(priority), **spec)

    async def until_noticed(self, name: str, reason: str) -> str:
        """Wait until Pods can see the notice. Return its deadline."""

        async def probe() -> str:
            data = (await read(self.client, CONFIGMAPS, names.configmap_name(name), "default")).get("data") or {}
            text: str = data.get(names.NOTICE_KEY, "")
            found, _, deadline = text.partition(" ")
            assert found == reason, data
            return deadline

        return await eventually(probe)

    async def workload(self, name: str) -> Json:
        """The Workload of the Framework."""
        (found,) = [one for one in await items(self.client, WORKLOADS) if f"-{name}-" in one["metadata"]["name"]]
        return found


@pytest.fixture
async def trainings(tmp_path: Path) -> AsyncIterator[Trainings]:
    async with local_site(tmp_path, Trainings, config(), quota={"cpu": "8"}) as site:
        yield site


@pytest.mark.virtual_clock
async def test_a_preempted_training_checkpoints_first(trainings: Trainings) -> None:
    await trainings.create("low", checkpointGraceSeconds=GRACE, progress={})
    await trainings.frameworks.until_running("low", 2)
    await write_report(trainings.frameworks, wall(), "low", step=40, checkpoint=True)
    await trainings.frameworks.until("low", lambda found: found.get("progress", {}).get("step") == 40, within=300)
    annotation = (await trainings.workload("low"))["metadata"]["annotations"][names.LAST_CHECKPOINT]
    assert annotation == (await trainings.frameworks.status("low"))["progress"]["lastCheckpointTime"]
    await asyncio.sleep(5)

    await trainings.create("high", "high")
    deadline = await trainings.until_noticed("low", "Eviction")
    status = await trainings.frameworks.status("low")
    assert status["notice"] == {
        "frameworkAttemptID": 0,
        "reason": "Eviction",
        "time": status["notice"]["time"],
        "deadline": deadline,
    }
    assert parse_time(deadline) - parse_time(status["notice"]["time"]) == GRACE
    message = f"waits for a checkpoint before the eviction from the queue, until {deadline}"
    assert status["message"] == message
    # Its quota is still its own.
    assert len(await trainings.frameworks.pods()) == 2
    assert condition(await trainings.frameworks.status("high"), "Admitted")["status"] == "False"

    await asyncio.sleep(5)
    await write_report(trainings.frameworks, wall(), "low", step=47, checkpoint=True)
    await trainings.frameworks.until_running("high", 2)
    low = await trainings.frameworks.status("low")
    assert (low["attemptStatus"]["id"], low["retryPolicyStatus"]["accountableRetriedCount"]) == (1, 0)
    assert (low["progress"]["step"], "notice" in low) == (47, False)


@pytest.mark.virtual_clock
async def test_a_suspended_training_waits_for_the_grace_at_most(trainings: Trainings) -> None:
    await trainings.create("low", checkpointGraceSeconds=GRACE)
    await trainings.frameworks.until_running("low", 2)
    begun = wall()
    await trainings.frameworks.set("low", suspend=True)
    deadline = await trainings.until_noticed("low", "Suspension")
    found = condition(await trainings.frameworks.status("low"), "Suspended")
    assert (found["status"], found["reason"]) == ("False", "CheckpointPending")
    assert found["message"] == f"spec.suspend is true; waits before the suspension, until {deadline}"
    await trainings.frameworks.until(
        "low", lambda found: condition(found, "Suspended").get("status") == "True", within=GRACE + 60
    )
    assert GRACE <= wall() - begun < GRACE + 30


@pytest.mark.virtual_clock
async def test_a_suspension_that_is_taken_back_changes_nothing(trainings: Trainings) -> None:
    await trainings.create("low", checkpointGraceSeconds=GRACE)
    before = (await trainings.frameworks.until_running("low", 2))["attemptStatus"]["configMapUID"]
    await trainings.frameworks.set("low", suspend=True)
    await trainings.until_noticed("low", "Suspension")
    await trainings.frameworks.set("low", suspend=False)
    await trainings.until_noticed("low", "")
    status = await trainings.frameworks.until("low", lambda found: "notice" not in found)
    assert (status["state"], status["attemptStatus"]["configMapUID"]) == ("AttemptRunning", before)


TRAINING: Final = """
from pathlib import Path

sys.path.insert(0, {sdk!r})
from taskrunner import notice

store = Path({store!r})
checkpoint, log = store / "checkpoint", store / "log"
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
with log.open("a") as file:
    file.write("begins %d\\n" % step)

while True:
    step += 1
    time.sleep(0.02)
    found = notice()
    if found is not None:
        checkpoint.write_text(str(step))
        with log.open("a") as file:
            file.write("saves %d: %s\\n" % (step, found.reason))
        assert send({{"step": step, "checkpoint": True}}) == 200
        time.sleep(600)
"""


async def test_a_preempted_program_loses_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two Frameworks, real processes, tokens, reports and files."""
    monkeypatch.setattr(process, "_RENEW_DATA_SECONDS", 0.2)
    source = SENDS + TRAINING.format(sdk=str(SDK), store=str(tmp_path))
    log = tmp_path / "log"

    def role(command: list[str]) -> Json:
        container = {
            "name": "main",
            "image": "none",
            "command": command,
            "resources": {"requests": {"cpu": "2"}},
        }
        spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        return {"name": "a", "taskNumber": 1, "task": {"pod": {"spec": spec}}}

    reports = config(progress_reports=ProgressReports(bind_address="127.0.0.1:0"), namespace="default")
    async with (
        LocalCluster(tmp_path / "cluster", quota={"cpu": "2"}) as cluster,
        Controller(reports, cluster.connect()),
        KubeClient(cluster.connect()) as client,
    ):
        frameworks = Frameworks(client, "default")
        low = role([sys.executable, "-c", source])
        await frameworks.create("low", low, metadata=in_queue(), checkpointGraceSeconds=3600, progress={})
        await frameworks.until_running("low", 1)

        async def begun() -> None:
            assert log.exists()

        await eventually(begun)
        high = role([sys.executable, "-c", "pass"])
        await frameworks.create("high", high, metadata=in_queue("high"))
        await frameworks.until_state("high", "Completed", within=120)
        await frameworks.until("low", lambda found: found["attemptStatus"]["id"] == 1, within=120)
        await frameworks.until_running("low", 1)

        async def resumed() -> None:
            assert log.read_text().count("\n") == 3

        await eventually(resumed)
        first, saved, second = log.read_text().splitlines()
        step = saved.partition(":")[0].removeprefix("saves ")
        assert (first, second, saved) == ("begins 0", f"begins {step}", f"saves {step}: Eviction")
        status = await frameworks.status("low")
        assert str(status["progress"]["step"]) == step
        assert status["retryPolicyStatus"]["accountableRetriedCount"] == 0
        await frameworks.set("low", executionType="Stop")
        await frameworks.until_state("low", "Completed")
