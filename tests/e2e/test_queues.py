"""Queues and gangs on real nodes: real containers while quota is granted, reclaimed and released.

The queue is the one of ``local up --queue``, as a client of this cluster. The kube-scheduler is one of 1.20, which
knows nothing of gangs.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.workloads import IN_USE_FINALIZER
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.resources import RESOURCEFLAVORS, WORKLOADS
from frameworkcontroller.local.queues.queue_controller import QueueController
from frameworkcontroller.local.queues.setup import FLAVOR, LOCAL_QUEUE, provide_queue
from tests.e2e.stage import CONTROLLER, WITHIN, Play, play
from tests.e2e.witness import Instance
from tests.support.eventually import eventually
from tests.support.frameworks import codes, condition, tasks
from tests.support.objects import items

Json = dict[str, Any]

QUOTA: Final = {"cpu": "10m", "memory": "16Mi"}
"""For two of the plays' containers."""


@asynccontextmanager
async def queue(play: Play, node: str) -> AsyncIterator[None]:
    """A queue whose quota is on that node. There is one for the whole cluster."""
    await provide_queue(play.client, QUOTA, namespace=play.namespace)
    labels = orjson.dumps({"spec": {"nodeLabels": {"kubernetes.io/hostname": node}}})
    await play.client.patch(RESOURCEFLAVORS, FLAVOR, labels, content_type=MERGE_PATCH)
    work = asyncio.create_task(QueueController(play.client).run())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.wait([work])


def in_queue(priority: str) -> Json:
    """The metadata of a Framework in the queue."""
    return {"labels": {names.QUEUE_NAME: LOCAL_QUEUE, names.PRIORITY_CLASS: priority}}


def most_at_once(instances: Sequence[Instance]) -> int:
    """How many of them ran at the same time, at most."""
    # Among equal times, the first line comes first.
    changes = sorted([(one.first, 0, 1) for one in instances] + [(one.last, 1, -1) for one in instances])
    return max(accumulate(change for _, _, change in changes), default=0)


async def workloads(play: Play) -> dict[str, Json]:
    """The Workloads of the play, by Framework."""
    listed = await items(play.client, WORKLOADS, play.namespace) or ()
    return {one["metadata"]["labels"][names.FRAMEWORK_NAME]: one for one in listed}


def is_admitted(status: Json) -> bool:
    return bool(condition(status, "Admitted").get("status") == "True")


def follows_eviction(status: Json) -> bool:
    """Whether the attempt that was evicted is over, and the next one waits for quota."""
    waits = status["state"] == "AttemptCreationPending" and status["attemptStatus"]["id"] == 1
    return waits and condition(status, "QuotaReserved").get("status") == "False"


@play()
async def test_a_job_of_higher_priority_takes_the_quota_and_gives_it_back(play: Play) -> None:
    """The other one saves its state first, waits, and runs again: no retry is used up, and quota is never exceeded."""
    node = play.nodes.names[0]
    async with queue(play, node):
        saves = "trap 'checkpoint 5 0' TERM; line holds; until_there .over"
        await play.create("low", play.saving(number=2, script=saves), metadata=in_queue("low"))
        await play.until_said("low", "holds", 2)
        status = await play.until_running("low", 2)
        assert is_admitted(status)
        admission = status["admission"]
        assert (admission["queueName"], admission["podSets"][0]["count"]) == (LOCAL_QUEUE, 2)
        pods = play.recorder.pods(play.namespace).values()
        assert [pod["spec"]["nodeSelector"] for pod in pods] == [{"kubernetes.io/hostname": node}] * 2
        assert {pod["spec"]["nodeName"] for pod in pods} == {node}

        await play.create(
            "high",
            play.role("a", 2, script="line holds; until_there .over-high"),
            metadata=in_queue("high"),
        )
        (ended, *_) = await play.until_said("low", "saved", 2)
        assert ended.framework_attempt == 0
        await play.until_said("high", "holds", 2)
        status = await play.until("low", follows_eviction)
        retries = status["retryPolicyStatus"]
        assert (retries["totalRetriedCount"], retries["accountableRetriedCount"]) == (1, 0)
        assert condition(status, "Running")["status"] == "False"
        assert condition(status, "QuotaReserved")["message"]
        before, after = play.instances("low"), play.instances("high")
        assert [bool(one.said("saved")) for one in before] == [True, True]
        assert min(one.first for one in after) > max(one.last for one in before)
        # It stays so while the other one has the quota.
        assert {one.framework_attempt for one in play.instances("low")} == {0}

        (play.folder / ".over-high").touch()
        assert codes(tasks(await play.until_completed("high"))) == [0, 0]
        await play.until_said("low", "holds", 4)
        await play.until_running("low", 2)
        play.say_over()
        status = await play.until_completed("low")
        assert (codes(tasks(status)), status["attemptStatus"]["id"]) == ([0, 0], 1)
        retries = status["retryPolicyStatus"]
        assert (retries["totalRetriedCount"], retries["accountableRetriedCount"]) == (1, 0)

        ran = play.instances()
        assert sorted((one.framework, one.framework_attempt) for one in ran) == [
            *[("high", 0)] * 2,
            *[("low", 0)] * 2,
            *[("low", 1)] * 2,
        ]
        assert most_at_once(ran) == 2
        history = [
            stored.status["attemptStatus"]["completionStatus"]
            for stored in play.recorder.statuses[play.namespace]
            if stored.status is not None
            and stored.uid == ran[0].framework_uid
            and stored.status["attemptStatus"]["id"] == 0
        ]
        assert {one["code"] for one in history if one} == {-241}
        logged = await play.stage.kubectl(CONTROLLER)("logs", f"{CONTROLLER}-0", "--tail=-1")
        snapshots = [line for line in logged.out.splitlines() if "ObjectSnapshot: " in line and play.namespace in line]
        assert any('"code":-241' in line.replace(" ", "") for line in snapshots)

        async def quota_is_free() -> None:
            for name, workload in (await workloads(play)).items():
                finished = {one["type"]: one["status"] for one in workload["status"]["conditions"]}.get("Finished")
                assert finished == "True", f"the Workload of {name} is not finished: {workload['status']}"
                assert IN_USE_FINALIZER not in workload["metadata"].get("finalizers", ())

        await eventually(quota_is_free, within=WITHIN, every=0.5)
        assert sorted(await workloads(play)) == ["high", "low"]


@play()
async def test_a_gang_of_a_cluster_that_knows_none(play: Play) -> None:
    """The status reports that nothing of it starts, and running Tasks continue. Without the gang it starts."""
    gang: Json = {"schedulingPolicy": {"gang": {}}}
    await play.create("runs", play.role(number=2, script="line holds; until_there .over"))
    await play.until_said("runs", "holds", 2)
    await play.create("gang", play.role(number=2, script="sleep 1"), scheduling=gang)
    # API servers of 1.20 do not know that it is immutable.
    await play.frameworks.set("runs", scheduling=gang)
    status = await play.until("gang", lambda status: stalled_by(status) == "GangUnsupported")
    assert "podgroups.scheduling.k8s.io" in condition(status, "Stalled")["message"]
    assert status["state"] == "AttemptCreationPending"

    await play.create("single", play.role(script="sleep 1"))
    await play.until_completed("single")
    assert {one.framework for one in play.instances()} == {"runs", "single"}
    await play.until_running("runs", 2, attempts=[0, 0])
    play.say_over()
    status = await play.until_completed("runs")
    assert (codes(tasks(status)), status["attemptStatus"]["id"]) == ([0, 0], 0)

    await play.frameworks.set("gang", scheduling=None)
    status = await play.until_completed("gang")
    assert (codes(tasks(status)), status["attemptStatus"]["id"]) == ([0, 0], 0)
    assert len(play.instances()) == 5


def stalled_by(status: Json) -> str:
    """The reason of the condition Stalled, "" if it is not True."""
    stalled = condition(status, "Stalled")
    return stalled["reason"] if stalled.get("status") == "True" else ""
