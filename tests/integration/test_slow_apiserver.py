"""Many Frameworks at once at a slow API server: few statuses are written, and clients see all that is promised."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster, embedded_cluster, simulated_node
from tests.support.exposure import Exposure
from tests.support.frameworks import Frameworks, role, states
from tests.support.frontdoor import FrontDoor, Request, front_door
from tests.support.virtual_clock import VirtualClockLoop

NUMBER: Final = 40
WRITES: Final = 4.4
"""Of a Framework whose two Tasks succeed, at most; the guarantees need four."""

REQUEST_SEC: Final = 0.01
STATUS_SEC: Final = 0.02


class Queue:
    """An API server that answers one request after the other."""

    def __init__(self) -> None:
        self.factor = 1.0
        self._free_at = 0.0

    def delay(self, request: Request) -> float:
        """The seconds until the request is answered."""
        if request.verb == "watch":
            return 0.0
        now = asyncio.get_running_loop().time()
        cost = STATUS_SEC if is_status(request) else REQUEST_SEC
        self._free_at = max(now, self._free_at) + cost * self.factor
        return self._free_at - now


def is_status(request: Request) -> bool:
    return (request.verb, request.resource) == ("patch", "frameworks/status")


class World:
    """A controller before a door, behind which the API server is slow."""

    def __init__(self, controller: Controller, door: FrontDoor, frameworks: Frameworks, seen: Exposure) -> None:
        self.controller = controller
        self.door = door
        self.frameworks = frameworks
        self.seen = seen
        self.queue = Queue()

    async def storm(self, number: int) -> float:
        """Create Frameworks whose two Pods end soon. Return the number of status writes of each."""
        both = role("a", 2, simulate={"run-seconds": 0.1})
        with self.door.delaying(self.queue.delay):
            async with asyncio.TaskGroup() as group:
                for index in range(number):
                    group.create_task(self.frameworks.create(f"f{index}", both))
            for index in range(number):
                await self.frameworks.until_state(f"f{index}", "Completed", within=600, every=1.0)
        return self.statuses(number)

    def statuses(self, number: int) -> float:
        """How many statuses of each Framework were written."""
        return sum(map(is_status, self.door.requests)) / number


@asynccontextmanager
async def _behind(cluster: Cluster, door: FrontDoor, kubeconfig: Path) -> AsyncIterator[Cluster]:
    """The cluster, used through the door."""
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(cluster.url, door.url))
    behind = replace(cluster, kubeconfig=kubeconfig, _clients=[])
    yield behind
    await behind.close()


@pytest.fixture
async def world(clock: VirtualClockLoop, tmp_path: Path) -> AsyncIterator[World]:
    async with (
        embedded_cluster(tmp_path) as cluster,
        front_door(await cluster.connection()) as door,
        _behind(cluster, door, tmp_path / "door.yaml") as behind,
        simulated_node(behind),
        Controller(Config(), door.connection, wall=cluster.wall, rng=random.Random(3)) as controller,
    ):
        client = await cluster.client()
        seen = Exposure(client, cluster.namespace)
        async with seen.following():
            yield World(controller, door, Frameworks(client, cluster.namespace), seen)
        seen.check()


async def test_few_statuses_are_written_in_a_storm(world: World) -> None:
    assert 4.0 <= await world.storm(NUMBER) <= WRITES


async def test_where_nothing_is_slow_each_state_is_shown_at_once(world: World) -> None:
    world.queue.factor = 0.0
    assert await world.storm(NUMBER) > WRITES


async def test_running_tasks_are_shown_at_a_slow_api_server_too(world: World) -> None:
    with world.door.delaying(world.queue.delay):
        async with asyncio.TaskGroup() as group:
            for index in range(NUMBER):
                group.create_task(world.frameworks.create(f"f{index}", role("a", 2)))
        for index in range(NUMBER):
            await world.frameworks.until(
                f"f{index}", lambda status: states(status) == ["AttemptRunning"] * 2, within=30, every=0.5
            )
    assert 2.0 <= world.statuses(NUMBER) <= 3.0
