"""Frameworks whose status is large: stored compressed where that is on, and said to be too large where it is not."""

import asyncio
import base64
import gzip
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api.codec import COMPRESSION_THRESHOLD_BYTES
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import JSON_PATCH
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.machine.statuswriter import TOO_LARGE_RETRY_SEC
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, codes, condition, policy, role, states, tasks

pytestmark = pytest.mark.newest

LIMIT: Final = 1_572_864
"""Bytes that etcd takes of an object."""

FAST: Final = Config(kube_client_qps=10000, kube_client_burst=10000)
COMPRESSING: Final = Config(kube_client_qps=10000, kube_client_burst=10000, large_framework_compression=True)

NUMBER: Final = "taskRoles__0__taskNumber"


def controller_with(config: Config, cluster: Cluster, connection: Any) -> Controller:
    return Controller(config, connection, wall=cluster.wall)


def readable(status: Json) -> Json:
    """The status with its roles raw, as a reader of the API makes it."""
    attempt = status["attemptStatus"]
    if attempt["taskRoleStatuses"] is None:
        attempt["taskRoleStatuses"] = orjson.loads(
            gzip.decompress(base64.b64decode(attempt["taskRoleStatusesCompressed"]))
        )
    return status


class Sizes:
    """Looks at a Framework all the time, and at how large its status is and how it is stored."""

    def __init__(self, frameworks: Frameworks, name: str) -> None:
        self.frameworks = frameworks
        self.name = name
        self.largest = 0
        self.largest_raw = 0
        self.smallest_compressed = 1 << 62

    async def run(self) -> None:
        """Look until the Framework is completed."""
        while True:
            status = await self.frameworks.status(self.name)
            if status:
                self.see(status)
            if status.get("state") == "Completed":
                return
            await asyncio.sleep(0.5)

    def see(self, status: Json) -> None:
        """Take in one look."""
        self.largest = max(self.largest, len(orjson.dumps(status)))
        attempt = status["attemptStatus"]
        if attempt["taskRoleStatuses"] is not None:
            assert "taskRoleStatusesCompressed" not in attempt
            self.largest_raw = max(self.largest_raw, len(orjson.dumps(attempt["taskRoleStatuses"])))
        else:
            size = len(gzip.decompress(base64.b64decode(attempt["taskRoleStatusesCompressed"])))
            self.smallest_compressed = min(self.smallest_compressed, size)
        seen = states(readable(status))
        # They show values that kubectl get, which unpacks nothing, cannot count.
        counts = {"total": len(seen), "running": seen.count("AttemptRunning")}
        assert counts.items() <= status["taskCounts"].items()


@pytest.mark.virtual_clock
async def test_with_compression_on_a_large_framework_runs_to_its_end(cluster: Cluster, frameworks: Frameworks) -> None:
    number = 1100
    async with controller_with(COMPRESSING, cluster, await cluster.connection()):
        worker = role("a", number, simulate={"run-seconds": 5}, frameworkAttemptCompletionPolicy=policy(1, -1))
        await frameworks.create("f", worker)
        sizes = Sizes(frameworks, "f")
        await asyncio.wait_for(sizes.run(), 300)
        status = readable(await frameworks.status("f"))
    assert [task["state"] for task in tasks(status)] == ["Completed"] * number
    assert status["attemptStatus"]["completionStatus"]["diagnostics"].startswith(f"CompletedTaskCount {number} has")
    assert sizes.largest < LIMIT
    assert sizes.largest_raw < COMPRESSION_THRESHOLD_BYTES <= sizes.smallest_compressed
    await frameworks.assert_nothing_left("f")


async def test_a_status_that_never_fits_stalls_its_framework_and_no_other(
    cluster: Cluster, frameworks: Frameworks, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first status would be 4 MB: it gets one without Tasks, that says why, and no Pod."""
    async with controller_with(FAST, cluster, await cluster.connection()):
        await frameworks.create("f", role("a", 10_000))
        status = await frameworks.until("f", lambda status: condition(status, "Stalled").get("status") == "True")
        await frameworks.create("other", role("a", 2, simulate={"run-seconds": 0.5}))
        await frameworks.until_state("other", "Completed")
        assert status["state"] == "AttemptCreationPending"
        assert status["attemptStatus"]["taskRoleStatuses"] == []
        stalled = condition(status, "Stalled")
        assert stalled["reason"] == "StatusTooLarge"
        assert "set largeFrameworkCompression: true in the controller's configuration" in stalled["message"]
        lines = [one for one in caplog.messages if one.startswith(f"[{cluster.namespace}/f]: StatusTooLarge: ")]
        assert len(lines) == 1
        assert stalled["message"] in lines[0]
        await frameworks.assert_nothing_left("f")
        before = await frameworks.get("f")
        # An unstored status justifies no action, at any time.
        await asyncio.sleep(TOO_LARGE_RETRY_SEC * 1.5 if cluster.embedded else 2)
        await frameworks.assert_nothing_left("f")

        # A smaller one is taken at once.
        await frameworks.set("f", **{NUMBER: 2})
        status = await frameworks.until_running("f", 2)
        assert status["startTime"] == before["status"]["startTime"]
        assert condition(status, "Stalled")["status"] == "False"


@pytest.mark.virtual_clock
async def test_a_status_that_outgrows_the_limit_continues_once_compression_is_on(
    cluster: Cluster, frameworks: Frameworks, pods: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """A rejected status justifies no action, and earlier actions are not lost."""
    last_words = {"run-seconds": "1", "exit-code": 1, "message": "so it ends " * 400}
    async with controller_with(FAST, cluster, await cluster.connection()) as controller:
        await frameworks.create("f", role("a", 200, simulate=last_words))
        status = await frameworks.until(
            "f", lambda status: condition(status, "Stalled").get("status") == "True", every=0.5
        )
        assert condition(status, "Stalled")["reason"] == "StatusTooLarge"
        assert len(orjson.dumps(status)) < LIMIT
        await until_quiet(frameworks, controller)
        stored, left = await frameworks.get("f"), await frameworks.pods()
        # A Pod was deleted only after its completion was stored.
        there = {pod["metadata"]["uid"] for pod in left.values()}
        for task in (item["attemptStatus"] for item in tasks(stored["status"])):
            assert task["podUID"] in {None, *there} or task["completionStatus"] is not None
        # No wake-up makes it work, and the API server gets no requests.
        asked = len([line for line in caplog.messages if "StatusTooLarge" in line])
        controller.queue.add(f"{cluster.namespace}/f")
        await asyncio.sleep(TOO_LARGE_RETRY_SEC * 3.5)
        again = len([line for line in caplog.messages if "StatusTooLarge" in line])
        assert again == asked
        assert (await frameworks.get("f"))["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]

    async with controller_with(COMPRESSING, cluster, await cluster.connection()):
        status = readable(await frameworks.until_state("f", "Completed", every=0.5))
    assert condition(status, "Stalled")["status"] == "False"
    assert codes(tasks(status)) == [1] * 200
    assert [task["attemptStatus"]["id"] for task in tasks(status)] == [0] * 200
    known = {task["index"]: task["attemptStatus"]["podUID"] for task in tasks(stored["status"])}
    known.update({int(name.rpartition("-")[2]): pod["metadata"]["uid"] for name, pod in left.items()})
    for task in tasks(status):
        assert known[task["index"]] in {None, task["attemptStatus"]["podUID"]}


async def until_quiet(frameworks: Frameworks, controller: Controller) -> None:
    """Wait until all Pods have ended and change no more, and the controller rests."""
    known: list[set[str]] = [set()]

    async def quiet() -> None:
        pods = await frameworks.pods()
        known.append({pod["metadata"]["resourceVersion"] for pod in pods.values()})
        assert known[-1] == known[-2]
        assert {pod["status"]["phase"] for pod in pods.values()} <= {"Failed"}
        assert controller.workers.busy == 0

    await eventually(quiet, every=3)


@pytest.mark.virtual_clock
async def test_a_change_by_another_client_does_not_hide_that_the_status_is_too_large(
    cluster: Cluster, frameworks: Frameworks
) -> None:
    async with controller_with(FAST, cluster, await cluster.connection()) as controller:
        await frameworks.create("f", role("a", 10_000), executionType="Create")
        key = f"{cluster.namespace}/f"
        for number in range(3):
            annotation = [{"op": "add", "path": "/metadata/annotations", "value": {"number": str(number)}}]
            await frameworks.client.patch(
                FRAMEWORKS, "f", orjson.dumps(annotation), cluster.namespace, content_type=JSON_PATCH
            )
            controller.queue.add(key)
        status = await frameworks.until("f", lambda status: condition(status, "Stalled").get("status") == "True")
        assert condition(status, "Stalled")["reason"] == "StatusTooLarge"
        await frameworks.set("f", **{NUMBER: 1, "executionType": "Stop"})
        await frameworks.until_state("f", "Completed")
