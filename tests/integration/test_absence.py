"""Deleted objects, and objects that are only no longer watched: the cost of the difference."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import orjson
import pytest

from frameworkcontroller.api.names import FRAMEWORK_NAME
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, Resource
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import read_until
from tests.support.frameworks import Frameworks, codes, role, tasks
from tests.support.frontdoor import FrontDoor, front_door
from tests.support.objects import read

pytestmark = pytest.mark.newest

TASKS = 20


class World(NamedTuple):
    """A controller, the door through which it goes to the API server, and a user."""

    door: FrontDoor
    frameworks: Frameworks
    controller: Controller

    async def unlabel(self, resource: Resource, name: str) -> None:
        """Another client removes the labels of an object."""
        client, namespace = self.frameworks.client, self.frameworks.namespace
        bare = orjson.dumps({"metadata": {"labels": None}})
        await client.patch(resource, name, bare, namespace, content_type=MERGE_PATCH)

    def reads(self) -> dict[str, int]:
        """How many live reads of Pods and ConfigMaps there were."""
        sent = self.door.count(0)
        return {resource: sent["get", resource] for resource in ("pods", "configmaps")}


@pytest.fixture
async def world(cluster: Cluster, pods: SimulatedRuntime) -> AsyncIterator[World]:
    async with front_door(await cluster.connection()) as door:
        config = Config(namespace=cluster.namespace)
        async with Controller(config, door.connection, wall=cluster.wall) as controller:
            yield World(door, Frameworks(await cluster.client(), cluster.namespace), controller)


@pytest.mark.virtual_clock
async def test_tasks_that_end_by_themselves_cost_no_read_of_a_pod(world: World) -> None:
    await world.frameworks.create("f", role(number=TASKS, simulate={"run-seconds": 0.5}))
    assert codes(tasks(await world.frameworks.until_state("f", "Completed", within=90))) == [0] * TASKS
    assert world.reads() == {"pods": 0, "configmaps": 1}


@pytest.mark.virtual_clock
async def test_tasks_that_are_scaled_down_or_stopped_cost_no_read_of_a_pod(world: World) -> None:
    await world.frameworks.create("f", role(number=TASKS, simulate={"stop-seconds": 0.5}))
    await world.frameworks.until_running("f", TASKS)
    await world.frameworks.set("f", taskRoles__0__taskNumber=1)
    await world.frameworks.until_running("f", 1)
    await world.frameworks.set("f", executionType="Stop")
    await world.frameworks.until_state("f", "Completed")
    assert world.reads() == {"pods": 0, "configmaps": 1}


@pytest.mark.parametrize(("resource", "name"), [(PODS, "f-a-0"), (CONFIGMAPS, "f-attempt")], ids=["pod", "configmap"])
async def test_an_object_that_loses_its_label_while_it_ends_is_waited_for(
    world: World, pods: SimulatedRuntime, resource: Resource, name: str
) -> None:
    frameworks = world.frameworks
    await frameworks.create("f", role(simulate={"stop-seconds": "forever"}))
    await frameworks.until_running("f", 1)
    await frameworks.set("f", executionType="Stop")
    await frameworks.until("f", lambda status: tasks(status)[0]["state"] == "AttemptDeleting")
    await world.unlabel(resource, name)
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
async def test_an_attempt_whose_configmap_does_not_wait_ends_after_its_pods(world: World, propagation: str) -> None:
    frameworks = world.frameworks
    await frameworks.create("f", role(number=3, simulate={"stop-seconds": 3}))
    await frameworks.until_running("f", 3)
    await frameworks.client.delete(CONFIGMAPS, "f-attempt", frameworks.namespace, propagation=propagation)
    status = await frameworks.until("f", lambda status: status["state"] in ("AttemptCompleted", "Completed"))
    assert not await frameworks.pods()
    assert status["attemptStatus"]["completionStatus"]["code"] == -100
