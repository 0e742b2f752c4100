"""Deleted objects, and objects that are only no longer watched: the cost of the difference."""

import pytest

from frameworkcontroller.api.names import FRAMEWORK_NAME
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, Resource
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.eventually import read_until
from tests.support.frameworks import Frameworks, codes, role, tasks
from tests.support.frontdoor import FrontDoor
from tests.support.objects import read

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("watched")]

TASKS = 20


def reads(door: FrontDoor) -> dict[str, int]:
    """How many live reads of Pods and ConfigMaps there were."""
    sent = door.count(0)
    return {resource: sent["get", resource] for resource in ("pods", "configmaps")}


@pytest.mark.virtual_clock
async def test_tasks_that_end_by_themselves_cost_no_read_of_a_pod(frameworks: Frameworks, door: FrontDoor) -> None:
    await frameworks.create("f", role(number=TASKS, simulate={"run-seconds": 0.5}))
    assert codes(tasks(await frameworks.until_state("f", "Completed", within=90))) == [0] * TASKS
    assert reads(door) == {"pods": 0, "configmaps": 1}


@pytest.mark.virtual_clock
async def test_tasks_that_are_scaled_down_or_stopped_cost_no_read_of_a_pod(
    frameworks: Frameworks, door: FrontDoor
) -> None:
    await frameworks.create("f", role(number=TASKS, simulate={"stop-seconds": 0.5}))
    await frameworks.until_running("f", TASKS)
    await frameworks.set("f", taskRoles__0__taskNumber=1)
    await frameworks.until_running("f", 1)
    await frameworks.set("f", executionType="Stop")
    await frameworks.until_state("f", "Completed")
    assert reads(door) == {"pods": 0, "configmaps": 1}


@pytest.mark.parametrize(("resource", "name"), [(PODS, "f-a-0"), (CONFIGMAPS, "f-attempt")], ids=["pod", "configmap"])
async def test_an_object_that_loses_its_label_while_it_ends_is_waited_for(
    frameworks: Frameworks, pods: SimulatedRuntime, resource: Resource, name: str
) -> None:
    await frameworks.create("f", role(simulate={"stop-seconds": "forever"}))
    await frameworks.until_running("f", 1)
    await frameworks.set("f", executionType="Stop")
    await frameworks.until("f", lambda status: tasks(status)[0]["state"] == "AttemptDeleting")
    await frameworks.merge(resource, name, {"metadata": {"labels": None}})
    await read_until(
        lambda: read(frameworks.client, resource, name, frameworks.namespace),
        lambda found: found["metadata"].get("labels") == {FRAMEWORK_NAME: "f"},
    )
    pods.fail(f"{frameworks.namespace}/f-a-0", 143)
    over = ("AttemptCompleted", "Completed")
    await frameworks.until("f", lambda status: status["state"] in over or tasks(status)[0]["state"] in over)
    assert "f-a-0" not in await frameworks.pods()
    await frameworks.until_state("f", "Completed")


@pytest.mark.parametrize("propagation", ["Background", "Orphan"])
async def test_an_attempt_whose_configmap_does_not_wait_ends_after_its_pods(
    frameworks: Frameworks, propagation: str
) -> None:
    await frameworks.create("f", role(number=3, simulate={"stop-seconds": 3}))
    await frameworks.until_running("f", 3)
    await frameworks.client.delete(CONFIGMAPS, "f-attempt", frameworks.namespace, propagation=propagation)
    status = await frameworks.until("f", lambda status: status["state"] in ("AttemptCompleted", "Completed"))
    assert not await frameworks.pods()
    assert status["attemptStatus"]["completionStatus"]["code"] == -100
