"""The checks of the probes; outages are no reason for a restart."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from frameworkcontroller.api.objects import pod_record
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import TooManyRequests
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.kube.workqueue import WorkQueue
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.manager.health import INFORMER_STUCK_SEC, SYNC_STUCK_SEC, Health
from tests.support.virtual_clock import VirtualClockLoop, wall

pytestmark = pytest.mark.virtual_clock

NOBODY = "http://127.0.0.1:1"


class Hanging(KubeClient):
    """Sends a request, and waits forever."""

    async def list(self, *args: Any, **kwargs: Any) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError


class Throttled(KubeClient):
    """Gets a Retry-After of hours, and obeys."""

    asked = 0

    async def list(self, *args: Any, **kwargs: Any) -> bytes:
        self.asked += 1
        raise TooManyRequests("not now", code=429, retry_after=3 * 3600)


@asynccontextmanager
async def informing(client: KubeClient) -> AsyncIterator[Informer[Any]]:
    informer = Informer(client, PODS, pod_record, rng=random.Random(1))
    running = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        running.cancel()
        await asyncio.wait([running])
        await client.close()


def problems(health: Health) -> list[str]:
    return [f"{check.name} {check.problem}" for check in health.live() if check.problem is not None]


@pytest.mark.parametrize("situation", ["away", "throttling", "idle"])
async def test_hours_without_news_are_no_reason(clock: VirtualClockLoop, situation: str) -> None:
    async with ApiServer(wall=wall) as server:
        client = (
            Throttled(Connection.to_address(NOBODY))
            if situation == "throttling"
            else KubeClient(Connection.to_address(server.url if situation == "idle" else NOBODY))
        )
        async with informing(client) as informer:
            health = Health([informer], WorkQueue[str](), clock=clock.time)
            for _ in range(120):
                assert problems(health) == []
                await asyncio.sleep(60)
    assert getattr(client, "asked", 1) == 1


async def test_an_informer_that_hangs_is_one(clock: VirtualClockLoop) -> None:
    async with informing(Hanging(Connection.to_address(NOBODY))) as informer:
        health = Health([informer], WorkQueue[str](), clock=clock.time)
        await asyncio.sleep(1)
        assert problems(health) == []
        await asyncio.sleep(INFORMER_STUCK_SEC)
        assert problems(health) == []
        await asyncio.sleep(5)
        assert problems(health) == ["informer-pods no activity for 605 s"]


async def test_an_informer_that_does_not_run_does_not_hang(clock: VirtualClockLoop) -> None:
    client = KubeClient(Connection.to_address(NOBODY))
    health = Health([Informer(client, PODS, pod_record)], WorkQueue[str](), clock=clock.time)
    for _ in range(10):
        assert problems(health) == []
        await asyncio.sleep(INFORMER_STUCK_SEC)
    assert [check.problem for check in health.ready()] == ["not filled yet", None]


async def test_a_sync_that_hangs_is_one(clock: VirtualClockLoop) -> None:
    queue = WorkQueue[str]()
    health = Health([], queue, clock=clock.time)
    queue.add("default/a")
    await asyncio.sleep(2 * SYNC_STUCK_SEC)
    assert problems(health) == []
    await queue.get()
    await asyncio.sleep(SYNC_STUCK_SEC - 1)
    assert problems(health) == []
    await asyncio.sleep(2)
    assert problems(health) == ["workers a sync has been running for 1801 s"]
    queue.done("default/a")
    assert problems(health) == []


async def test_a_leader_that_waits_for_its_lease_for_hours_is_none(clock: VirtualClockLoop) -> None:
    queue = WorkQueue[str]()
    leading = False
    health = Health([], queue, clock=clock.time, may_act=lambda: leading)
    queue.add("default/a")
    await queue.get()
    await asyncio.sleep(3 * 3600)
    assert problems(health) == []
    # The sync continues, and has its whole time.
    leading = True
    assert problems(health) == []
    await asyncio.sleep(SYNC_STUCK_SEC + 1)
    assert problems(health) == ["workers a sync has been running for 1801 s"]


async def test_ready_is_who_has_its_caches_and_is_not_stopping(clock: VirtualClockLoop) -> None:
    queue = WorkQueue[str]()
    async with (
        ApiServer(wall=wall) as server,
        informing(KubeClient(Connection.to_address(server.url))) as informer,
    ):
        health = Health([informer], queue, clock=clock.time)
        assert [check.problem for check in health.ready()] == ["not filled yet", None]
        await informer.wait_synced()
        assert [check.problem for check in health.ready()] == [None, None]
    # Who has caches can act as soon as the API server is back.
    assert [check.problem for check in health.ready()] == [None, None]
    queue.shut_down()
    assert [check.problem for check in health.ready()] == [None, "stopping"]
