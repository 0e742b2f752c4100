import asyncio

import pytest

from frameworkcontroller.kube.fairness import FairQueue, namespace_of

pytestmark = pytest.mark.virtual_clock


class Waiters:
    """Tasks that wait in one queue, and the order in which they were granted."""

    def __init__(self) -> None:
        self.queue = FairQueue()
        self.granted: list[str] = []
        self.given_back = 0

    def add(self, *flows: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._wait(flow)) for flow in flows]

    async def _wait(self, flow: str) -> None:
        """The work of a flow is the number after its name, if there is one."""
        await self.queue.wait(flow, self._give_back, int(flow.partition("=")[2] or 0))
        self.granted.append(flow)

    def _give_back(self) -> None:
        self.given_back += 1


async def test_namespaces_then_flows_take_turns() -> None:
    waiters = Waiters()
    waiters.add("x/a", "x/a", "x/b", "y/a", "y/a")
    await asyncio.sleep(0)
    assert len(waiters.queue) == 5
    assert [waiters.queue.grant() for _ in range(6)] == ["x", "y", "x", "y", "x", None]
    await asyncio.sleep(0)
    assert waiters.granted == ["x/a", "y/a", "x/b", "y/a", "x/a"]
    assert not waiters.queue


async def test_flows_with_less_work_go_first_but_none_waits_for_ever() -> None:
    waiters = Waiters()
    waiters.add("x/a=9", *["x/b=5"] * 20, "x/c=1", "y/d=9")
    await asyncio.sleep(0)
    assert "".join(waiters.queue.grant() or "" for _ in range(12)) == "xyxxxxxxxxxx"
    await asyncio.sleep(0)
    assert waiters.granted == ["x/c=1", "y/d=9", *["x/b=5"] * 6, "x/a=9", *["x/b=5"] * 3]


async def test_a_namespace_that_may_not_keeps_its_turn() -> None:
    waiters = Waiters()
    waiters.add("x/a", "y/a")
    await asyncio.sleep(0)
    assert waiters.queue.grant(lambda namespace: namespace == "y") == "y"
    assert waiters.queue.grant(lambda namespace: namespace == "y") is None
    assert waiters.queue.grant() == "x"


async def test_cancelled_waiters_are_skipped() -> None:
    waiters = Waiters()
    first, second = waiters.add("x/a", "x/b")
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert len(waiters.queue) == 1
    assert waiters.queue.grant() == "x"
    assert waiters.queue.grant() is None
    await second
    assert (waiters.granted, waiters.given_back) == (["x/b"], 0)


async def test_what_is_granted_to_a_task_that_is_cancelled_meanwhile_is_given_back() -> None:
    waiters = Waiters()
    (task,) = waiters.add("x/a")
    await asyncio.sleep(0)
    assert waiters.queue.grant() == "x"
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), waiters.granted, waiters.given_back) == (True, [], 1)


def test_namespace_of() -> None:
    assert [namespace_of(flow) for flow in ("ns/f", "ns", "")] == ["ns", "ns", ""]
