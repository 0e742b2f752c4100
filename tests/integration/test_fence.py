"""A client with a fence: waiting requests, and requests that already hold a connection."""

import asyncio

import pytest

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.leaderelection import NotLeading
from frameworkcontroller.kube.resources import PODS
from tests.support.faulty_server import answer, faulty_server
from tests.support.virtual_clock import VirtualClockLoop


class Fence:
    """Open or closed; and, if so told, closed between the wait and the check."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.opened.set()
        self.closes_late = False

    async def wait_leading(self) -> None:
        await self.opened.wait()

    def check(self) -> None:
        if self.closes_late or not self.opened.is_set():
            raise NotLeading


async def test_requests_wait_until_it_opens(clock: VirtualClockLoop) -> None:
    fence = Fence()
    async with faulty_server() as server, KubeClient(Connection.to_address(server.url), fence=fence) as client:
        server.otherwise = answer()
        fence.opened.clear()
        waiting = asyncio.create_task(client.delete(PODS, "p", "n"))
        await asyncio.sleep(60)
        assert server.seen == []
        fence.opened.set()
        await waiting
        assert len(server.seen) == 1


@pytest.mark.parametrize("connected", [False, True])
async def test_nothing_is_written_to_a_connection_that_came_too_late(clock: VirtualClockLoop, connected: bool) -> None:
    fence = Fence()
    async with faulty_server() as server, KubeClient(Connection.to_address(server.url), fence=fence) as client:
        server.otherwise = answer()
        if connected:
            await client.delete(PODS, "before", "n")
        fence.closes_late = True
        with pytest.raises(NotLeading) as caught:
            await client.delete(PODS, "p", "n")
        assert not caught.value.maybe_sent
        await asyncio.sleep(1)
        assert [seen.path for seen in server.seen] == ["/api/v1/namespaces/n/pods/before"] * connected
        fence.closes_late = False
        await client.delete(PODS, "after", "n")
        # The connection was not lost over it.
        assert server.connections == 1
