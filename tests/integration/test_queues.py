"""Frameworks in a queue on API servers, with the local queue in the place of Kueue."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config, Kueue, KueueMode
from frameworkcontroller.kube.resources import EVENTS, WORKLOADS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.queues.setup import LOCAL_QUEUE
from frameworkcontroller.machine import passes
from frameworkcontroller.machine.kernel.model import InvariantError, Plan
from frameworkcontroller.machine.plan import plan
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until
from tests.support.frameworks import Frameworks, Json, condition, stalled, states
from tests.support.frontdoor import FrontDoor, Request, refusal
from tests.support.localqueue import holds_quota, in_queue, needing, objects_of_queue, queue_on
from tests.support.objects import items

pytestmark = pytest.mark.newest

QUEUED = Config(kueue=Kueue(mode=KueueMode.ENABLED))
FINALIZER = "kueue.x-k8s.io/resource-in-use"


@pytest.fixture
async def queued(cluster: Cluster) -> AsyncIterator[Controller]:
    """A controller by which queues count."""
    async with Controller(QUEUED, await cluster.connection(), wall=cluster.wall) as controller:
        yield controller


async def workloads(frameworks: Frameworks) -> dict[str, Json]:
    """The Workloads, by name of the Framework."""
    found = await items(frameworks.client, WORKLOADS, frameworks.namespace)
    return {one["metadata"]["labels"]["FC_FRAMEWORK_NAME"]: one for one in found}


async def until_collected(frameworks: Frameworks, name: str) -> None:
    """Wait until the Workload is gone. A garbage collector may learn its kind half a minute after its definition."""
    await read_until(lambda: workloads(frameworks), lambda found: name not in found, within=120)


async def in_use(frameworks: Frameworks) -> set[str]:
    """The Frameworks whose Workloads have quota, or the finalizer."""
    found = await workloads(frameworks)
    return {
        name for name, one in found.items() if holds_quota(one) or FINALIZER in one["metadata"].get("finalizers", ())
    }


async def running(frameworks: Frameworks, name: str, count: int, *, attempt: int = 0) -> Json:
    return await frameworks.until(
        name,
        lambda status: status["attemptStatus"]["id"] == attempt and states(status).count("AttemptRunning") == count,
    )


def waits(status: Json) -> bool:
    """Whether it has no quota, as its condition says."""
    return condition(status, "QuotaReserved").get("status") == "False"


async def test_frameworks_run_one_after_the_other(
    cluster: Cluster, frameworks: Frameworks, queued: Controller, pods: SimulatedRuntime
) -> None:
    async with queue_on(cluster, {"cpu": "4"}):
        await frameworks.create("one", needing(2, 2), metadata=in_queue())
        status = await running(frameworks, "one", 2)
        assert condition(status, "Admitted")["status"] == "True"
        assert status["admission"]["podSets"][0]["count"] == 2
        found = await frameworks.pods()
        assert found["one-a-0"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "a"
        await frameworks.create("two", needing(1), metadata=in_queue())
        status = await frameworks.until(
            "two", lambda status: "insufficient unused quota" in condition(status, "QuotaReserved").get("message", "")
        )
        assert "waits in Kueue's LocalQueue" in condition(status, "Running")["message"]
        assert "two-a-0" not in await frameworks.pods()
        for index in range(2):
            pods.finish(f"{cluster.namespace}/one-a-{index}")
        await running(frameworks, "two", 1)
        status = await frameworks.until_state("one", "Completed")
        assert "admission" not in status

        async def finished() -> None:
            one = (await workloads(frameworks))["one"]
            conditions = {item["type"]: item["reason"] for item in one["status"]["conditions"]}
            assert conditions.get("Finished") == "Succeeded"
            assert not one["metadata"].get("finalizers")

        await eventually(finished)
        await frameworks.delete("two")
        await frameworks.until_gone("two")
        await until_collected(frameworks, "two")


async def test_quota_moves_on_only_when_the_last_container_has_ended(
    cluster: Cluster, frameworks: Frameworks, queued: Controller, pods: SimulatedRuntime
) -> None:
    """The Pods of the preempted one take their time to save."""
    async with queue_on(cluster, {"cpu": "4"}):
        await frameworks.create("low", needing(2, 2, simulate={"stop-seconds": "forever"}), metadata=in_queue("low"))
        await running(frameworks, "low", 2)
        await frameworks.create("high", needing(3), metadata=in_queue("high"))
        status = await frameworks.until(
            "low", lambda status: (status["attemptStatus"]["completionStatus"] or {}).get("code") == -241
        )
        assert "Preempted" in status["attemptStatus"]["completionStatus"]["diagnostics"]
        pods.finish(f"{cluster.namespace}/low-a-0")
        await frameworks.until("high", waits)
        assert "low" in await in_use(frameworks)
        assert "high-a-0" not in await frameworks.pods()
        pods.finish(f"{cluster.namespace}/low-a-1")
        await running(frameworks, "high", 1)
        status = await frameworks.until("low", lambda status: status["state"] == "AttemptCreationPending")
        retries = status["retryPolicyStatus"]
        assert (retries["totalRetriedCount"], retries["accountableRetriedCount"]) == (1, 0)
        pods.finish(f"{cluster.namespace}/high-a-0")
        await running(frameworks, "low", 2, attempt=1)


async def test_a_framework_in_quarantine_is_preempted(
    cluster: Cluster, frameworks: Frameworks, queued: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(subject: Any, *args: Any) -> Plan:
        if subject.name == "low":
            raise InvariantError("it is odd")
        return plan(subject, *args)

    async with queue_on(cluster, {"cpu": "4"}):
        await frameworks.create("low", needing(2, 2), metadata=in_queue("low"))
        await running(frameworks, "low", 2)
        monkeypatch.setattr(passes, "plan", fail)
        await frameworks.set("low", description="x")
        await frameworks.until("low", lambda status: stalled(status) == "Quarantined")
        await frameworks.create("high", needing(3), metadata=in_queue("high"))
        await running(frameworks, "high", 1)
        assert set(await frameworks.pods()) == {"high-a-0"}
        assert stalled(await frameworks.status("low")) == "Quarantined"


@pytest.mark.parametrize("code", [403, 404])
async def test_without_workloads_nothing_starts_until_they_are_served(
    cluster: Cluster, frameworks: Frameworks, door: FrontDoor, code: int
) -> None:
    """Others run on, and no restart is needed."""

    def refuse(request: Request) -> Any:
        if request.resource == "workloads":
            return refusal(code, "Forbidden" if code == 403 else "NotFound", "not for this controller")
        return None

    async with queue_on(cluster, {"cpu": "4"}), Controller(QUEUED, door.connection, wall=cluster.wall) as controller:
        with door.answering(refuse):
            await frameworks.create("f", needing(1), metadata=in_queue())
            await frameworks.create("g", needing(1))
            await running(frameworks, "g", 1)
            status = await frameworks.until("f", lambda status: stalled(status) == "QueueUnavailable")
            assert "not for this controller" in condition(status, "Stalled")["message"]
            assert controller.ready
            assert "f-a-0" not in await frameworks.pods()
        await running(frameworks, "f", 1)
        assert not stalled(await frameworks.status("f"))


async def test_the_workload_of_a_deleted_framework_is_released_when_its_pods_are_gone(
    cluster: Cluster, frameworks: Frameworks, pods: SimulatedRuntime, queued: Controller
) -> None:
    """It was deleted in the background, so nothing of it waits for its Pods but its quota."""
    async with queue_on(cluster, {"cpu": "4"}):
        await frameworks.create("f", needing(4, simulate={"stop-seconds": "forever"}), metadata=in_queue())
        await running(frameworks, "f", 1)
        await frameworks.delete("f", "Background")

        async def is_deleting() -> None:
            assert "deletionTimestamp" in (await frameworks.pods())["f-a-0"]["metadata"]
            assert "deletionTimestamp" in (await workloads(frameworks))["f"]["metadata"]

        await eventually(is_deleting)
        await frameworks.create("g", needing(1), metadata=in_queue())
        await frameworks.until("g", waits)
        assert "f" in await in_use(frameworks)
        pods.finish(f"{cluster.namespace}/f-a-0")
        await running(frameworks, "g", 1)
        await until_collected(frameworks, "f")


async def test_an_earlier_orphan_is_found_at_the_start(
    cluster: Cluster, frameworks: Frameworks, pods: SimulatedRuntime
) -> None:
    async with queue_on(cluster, {"cpu": "4"}):
        async with Controller(QUEUED, await cluster.connection(), wall=cluster.wall):
            await frameworks.create("f", needing(1), metadata=in_queue())
            await running(frameworks, "f", 1)
        await frameworks.delete("f", "Background")
        await frameworks.until_gone("f")
        assert "f" in await in_use(frameworks)
        async with Controller(QUEUED, await cluster.connection(), wall=cluster.wall):
            await until_collected(frameworks, "f")


async def test_labels_are_followed_though_they_have_no_generation(
    cluster: Cluster, frameworks: Frameworks, queued: Controller
) -> None:
    async with queue_on(cluster, {"cpu": "1"}):
        await frameworks.create("f", needing(2), metadata=in_queue())
        await frameworks.until("f", lambda status: condition(status, "QuotaReserved").get("reason") == "Pending")
        await label(frameworks, "f", queue="nowhere")
        await read_until(lambda: workloads(frameworks), lambda found: found["f"]["spec"]["queueName"] == "nowhere")
        await label(frameworks, "f", queue=None)
        status = await running(frameworks, "f", 1)
        assert "admission" not in status
        assert "f" not in await workloads(frameworks)
        assert not condition(status, "QuotaReserved")


async def label(frameworks: Frameworks, name: str, *, queue: str | None) -> None:
    """Set the label of the queue."""
    await frameworks.merge(FRAMEWORKS, name, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": queue}}})


async def ignored(frameworks: Frameworks) -> None:
    """An Event says that the label means nothing."""
    events = await items(frameworks.client, EVENTS, frameworks.namespace)
    texts = [one["message"] for one in events if one["reason"] == "QueueIgnored"]
    assert len(texts) == 1
    assert f"queue-name: {LOCAL_QUEUE} means nothing, as kueue.mode is disabled" in texts[0]


async def test_with_the_mode_disabled_nothing_of_kueue_is_asked_for(
    cluster: Cluster, frameworks: Frameworks, watched: Controller, door: FrontDoor
) -> None:
    async with objects_of_queue(cluster, {"cpu": "1"}):
        await frameworks.create("f", needing(2), metadata=in_queue())
        await running(frameworks, "f", 1)
        await eventually(lambda: ignored(frameworks))
        await frameworks.delete("f")
        await frameworks.until_gone("f")
    assert not {request.resource for request in door.requests} & {"workloads", "resourceflavors"}


async def test_a_quarantined_framework_can_be_deleted(
    cluster: Cluster,
    frameworks: Frameworks,
    pods: SimulatedRuntime,
    queued: Controller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its deletion waits for the finalizer of the Workload, and that for its Pods, though no plan is made."""

    def fail(*_: Any) -> Any:
        raise InvariantError("two of the same")

    async with queue_on(cluster, {"cpu": "4"}):
        await frameworks.create("f", needing(4, simulate={"stop-seconds": "forever"}), metadata=in_queue())
        await running(frameworks, "f", 1)
        monkeypatch.setattr(passes, "plan", fail)
        await frameworks.set("f", taskRoles__0__taskNumber=2)
        await frameworks.until("f", lambda status: condition(status, "Stalled").get("reason") == "Quarantined")
        await frameworks.delete("f", "Foreground")
        await read_until(frameworks.pods, lambda found: "deletionTimestamp" in found["f-a-0"]["metadata"])
        assert "f" in await in_use(frameworks)
        pods.finish(f"{cluster.namespace}/f-a-0")
        await frameworks.until_gone("f")
        await until_collected(frameworks, "f")
