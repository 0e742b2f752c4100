"""A namespace in which every creation of a Pod takes ten seconds (a webhook does not answer): others notice nothing."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import NAMESPACES
from frameworkcontroller.machine.passes import BATCH_SEC
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import embedded_cluster, simulated_node
from tests.support.frameworks import Frameworks, role, states
from tests.support.frontdoor import FrontDoor, Request, Rule, front_door, refusal
from tests.support.virtual_clock import VirtualClockLoop

SLOW = "slow"
ANSWER_SEC = 10.0


def is_slow(request: Request) -> bool:
    return (request.verb, request.resource, request.namespace) == ("create", "pods", SLOW)


def delay(request: Request) -> float:
    return ANSWER_SEC if is_slow(request) else 0.0


def timed_out(request: Request) -> web.Response | None:
    """As of a webhook that has to answer; one that has not is passed over in the end."""
    text = 'Internal error occurred: failed calling webhook "x.example": context deadline exceeded'
    return refusal(500, "InternalError", text) if is_slow(request) else None


class World:
    """A controller before a door, and Frameworks in a namespace that is slow, and in one that is not."""

    def __init__(self, controller: Controller, door: FrontDoor, client: KubeClient, namespace: str) -> None:
        self.controller = controller
        self.door = door
        self.slow = Frameworks(client, SLOW)
        self.quick = Frameworks(client, namespace)

    async def runs(self, name: str) -> float:
        """After how many seconds a new Framework runs where nothing is slow."""
        clock = asyncio.get_running_loop().time
        began = clock()
        await self.quick.create(name, role(number=3))
        await self.quick.until(name, lambda status: states(status) == ["AttemptRunning"] * 3, within=600)
        return clock() - began


@pytest.fixture
async def world(clock: VirtualClockLoop, tmp_path: Path) -> AsyncIterator[World]:
    async with (
        embedded_cluster(tmp_path) as cluster,
        simulated_node(cluster),
        front_door(await cluster.connection()) as door,
        Controller(Config(), door.connection, wall=cluster.wall, rng=random.Random(3)) as controller,
    ):
        client = await cluster.client()
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SLOW}}
        await client.create(NAMESPACES, orjson.dumps(body))
        yield World(controller, door, client, cluster.namespace)


@pytest.mark.parametrize(("count", "number"), [(1, 200), (250, 1)])
@pytest.mark.parametrize("rule", [timed_out, lambda _request: None])
async def test_others_do_not_wait_for_it(world: World, count: int, number: int, rule: Rule) -> None:
    with world.door.delaying(delay), world.door.answering(rule):
        for index in range(count):
            await world.slow.create(f"s{index}", role(number=number))
        for index in range(15):
            assert await world.runs(f"q{index}") < 3.0
            await asyncio.sleep(1)


async def test_no_sync_takes_so_long_that_it_looks_as_if_it_hung(world: World) -> None:
    # At fifty at once this takes six minutes; and 10,000 Tasks would take more than half an hour.
    number, answer_sec, longest = 600, 30.0, 0.0
    with world.door.delaying(lambda request: answer_sec if is_slow(request) else 0.0):
        await world.slow.create("s", role(number=number))

        async def created() -> int:
            return len(await world.slow.pods())

        while await created() < number:
            await asyncio.sleep(5)
            longest = max(longest, world.controller.queue.longest_running_seconds)
    assert BATCH_SEC < longest < BATCH_SEC + 3 * answer_sec
