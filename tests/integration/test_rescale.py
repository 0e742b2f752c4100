"""Scaling up and down on API servers; tests/unit/machine/test_rescale.py has the rules."""

import pytest

from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.frameworks import Frameworks, Json, codes, role, states, tasks

pytestmark = [pytest.mark.usefixtures("controller"), pytest.mark.newest]

NUMBER = "taskRoles__0__taskNumber"


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


def leaving(status: Json) -> list[int]:
    """Indexes of the Tasks that are marked deletionPending."""
    return [task["index"] for task in tasks(status) if task["deletionPending"]]


def uids(status: Json) -> list[str]:
    """Which instances the Tasks are."""
    return [task["instanceUID"] for task in tasks(status)]
