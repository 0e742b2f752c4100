"""A namespace in which every creation of a Pod takes ten seconds (a webhook does not answer): others notice nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.kube.resources import NAMESPACES
from frameworkcontroller.machine.passes import BATCH_SEC
from tests.support.frameworks import Frameworks, role, states
from tests.support.frontdoor import Request, Rule, refusal
from tests.support.site import Site, site
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


class World(Site):
    """Frameworks in a namespace that is slow, and in one that is not."""

    @property
    def slow(self) -> Frameworks:
        return Frameworks(self.client, SLOW)

    async def runs(self, name: str) -> float:
        """After how many seconds a new Framework runs where nothing is slow."""
        clock = asyncio.get_running_loop().time
        began = clock()
        await self.frameworks.create(name, role(number=3))
        await self.frameworks.until(name, lambda status: states(status) == ["AttemptRunning"] * 3, within=600)
        return clock() - began


@pytest.fixture
async def world(clock: VirtualClockLoop, tmp_path: Path) -> AsyncIterator[World]:
    async with site(tmp_path, World) as world:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SLOW}}
        await world.client.create(NAMESPACES, orjson.dumps(body))
        yield world


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
