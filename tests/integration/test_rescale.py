"""Scaling up and down while the Framework runs: the walk-through that users know, and what it must not disturb."""

import pytest

from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, codes, policy, role, states, tasks

NUMBER = "taskRoles__0__taskNumber"
MIN_FAILED = "taskRoles__0__frameworkAttemptCompletionPolicy__minFailedTaskCount"


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime, controller: Controller) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


async def test_the_walk_through(frameworks: Frameworks, pods: SimulatedRuntime) -> None:
    hangs = {"stop-seconds": "forever"}

    def end(index: int) -> None:
        pods.fail(f"{frameworks.namespace}/f-a-{index}", 143)

    async def delete(*indexes: int) -> None:
        for index in indexes:
            await frameworks.delete_pod(f"f-a-{index}")
        await frameworks.until("f", lambda status: {codes(tasks(status))[index] for index in indexes} == {-101})
        for index in indexes:
            end(index)

    await frameworks.create("f", role("a", 4, simulate=hangs, frameworkAttemptCompletionPolicy=policy(4, 1)))
    first = await frameworks.until_running("f", 4)
    await delete(2, 3)
    status = await frameworks.until("f", lambda status: states(status).count("Completed") == 2)
    assert codes(tasks(status)) == [None, None, -101, -101]

    # The two completed Tasks vanish and count no more: two failed ones would complete the attempt now.
    await frameworks.set("f", **{NUMBER: 2, MIN_FAILED: 2})
    status = await frameworks.until("f", lambda status: len(tasks(status)) == 2)
    assert states(status) == ["AttemptRunning"] * 2

    await frameworks.set("f", **{NUMBER: 4, MIN_FAILED: 4})
    second = await frameworks.until_running("f", 4)
    assert uids(second)[:2] == uids(first)[:2]
    assert not set(uids(second)[2:]) & set(uids(first)[2:])

    await delete(2)
    await frameworks.until("f", lambda status: states(status)[2] == "Completed")
    await frameworks.set("f", **{NUMBER: 2})
    await frameworks.until("f", lambda status: leaving(status) == [2, 3])
    await frameworks.set("f", **{NUMBER: 3})
    third = await frameworks.until("f", lambda status: leaving(status) == [3])
    assert uids(third)[2] != uids(second)[2]
    end(3)
    await frameworks.until("f", lambda status: states(status) == ["AttemptRunning"] * 3)

    await frameworks.set("f", **{NUMBER: 4})
    await frameworks.until_running("f", 4)
    await delete(2)
    before = await frameworks.until("f", lambda status: states(status)[2] == "Completed")
    await frameworks.set("f", **{NUMBER: 2})
    await frameworks.until("f", lambda status: leaving(status) == [2, 3])
    await frameworks.set("f", **{NUMBER: 5})
    now = await frameworks.until("f", lambda status: leaving(status) == [3] and len(tasks(status)) == 5)
    assert uids(now)[2] != uids(before)[2]
    assert uids(now)[3] == uids(before)[3]
    end(3)
    last = await frameworks.until_running("f", 5)
    assert uids(last)[:2] == uids(first)[:2]
    assert uids(last)[3] != uids(before)[3]
    assert last["state"] == "AttemptRunning"
    assert last["attemptStatus"]["id"] == 0
    assert last["attemptStatus"]["instanceUID"] == first["attemptStatus"]["instanceUID"]


async def test_a_leaving_task_is_replaced_only_after_its_pod_is_gone(
    frameworks: Frameworks, pods: SimulatedRuntime
) -> None:
    await frameworks.create("f", role("a", 2, simulate={"stop-seconds": "forever"}))
    before = await frameworks.until_running("f", 2)
    await frameworks.set("f", **{NUMBER: 1})
    leaving = await frameworks.until("f", lambda status: states(status)[1:] == ["AttemptDeleting"])
    assert tasks(leaving)[1]["deletionPending"] is True
    assert codes(tasks(leaving)) == [None, -230]
    changed = await frameworks.set("f", **{NUMBER: 2})
    generation = changed["metadata"]["generation"]
    still = await frameworks.until("f", lambda status: status["observedGeneration"] == generation)
    assert uids(still) == uids(before)
    pods.fail(f"{frameworks.namespace}/f-a-1", 143)
    after = await frameworks.until("f", lambda status: states(status) == ["AttemptRunning"] * 2)
    assert uids(after)[1] != uids(before)[1]
    assert tasks(after)[1]["deletionPending"] is False


async def test_roles_come_and_go(frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 1), role("b", 2))
    await frameworks.until_running("f", 3)
    await frameworks.set("f", taskRoles=[role("a", 1), role("c", 1)])
    status = await frameworks.until(
        "f", lambda status: not tasks(status, "b") and states(status) == ["AttemptRunning"] * 2
    )
    assert [item["name"] for item in status["attemptStatus"]["taskRoleStatuses"]] == ["a", "c"]
    assert sorted(await frameworks.pods()) == ["f-a-0", "f-c-0"]


async def test_scaling_down_to_what_has_succeeded_completes_the_attempt(
    frameworks: Frameworks, pods: SimulatedRuntime
) -> None:
    await frameworks.create("f", role("a", 3))
    await frameworks.until_running("f", 3)
    pods.finish(f"{frameworks.namespace}/f-a-0")
    await frameworks.until("f", lambda status: states(status)[0] == "Completed")
    await frameworks.set("f", **{NUMBER: 1})
    status = await frameworks.until_state("f", "Completed")
    assert status["attemptStatus"]["completionStatus"]["diagnostics"].startswith(
        "CompletedTaskCount 1 has reached TotalTaskCount 1 "
    )
    await frameworks.assert_nothing_left("f")


def leaving(status: Json) -> list[int]:
    """Indexes of the Tasks that are marked deletionPending."""
    return [task["index"] for task in tasks(status) if task["deletionPending"]]


def uids(status: Json) -> list[str]:
    """Which instances the Tasks are."""
    return [task["instanceUID"] for task in tasks(status)]
