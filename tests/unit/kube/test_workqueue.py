"""The work queue on a virtual-time event loop, and properties that its model (tests/property) leaves out."""

import asyncio
import random

import pytest
import uvloop

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.kube.workqueue import ShutDown, WorkQueue
from tests.support.virtual_clock import HandClock, VirtualClockLoop


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


@pytest.fixture
def core(hand: HandClock) -> WorkQueue[str]:
    return WorkQueue(hand, retry=Backoff(1.0, 8.0), rng=random.Random(7))


def drain(core: WorkQueue[str]) -> list[str]:
    keys = []
    while (key := core.get_nowait()) is not None:
        keys.append(key)
    return keys


def backed_off(core: WorkQueue[str], hand: HandClock, key: str) -> float:
    """Have the key fail, and wait until it is due; return the seconds."""
    core.add_rate_limited(key)
    due = core.next_due
    assert due is not None
    waited, hand.now = due - hand.now, due
    core.promote_due()
    assert drain(core) == [key]
    core.done(key)
    return waited


def test_keys_of_namespaces_alternate_and_the_least_work_goes_first(hand: HandClock) -> None:
    work = {"x/a": 5, "x/b": 1, "x/c": 3, "y/a": 7}
    core: WorkQueue[str] = WorkQueue(hand, namespace=lambda key: key[0], work=work.__getitem__)
    for key in ("x/a", "x/b", "x/c", "y/a"):
        core.add(key)
    assert core.get_nowait(lambda namespace: namespace == "z") is None
    assert core.get_nowait(lambda namespace: namespace == "y") == "y/a"
    assert core.get_nowait() == "x/b"
    work["y/a"] = 2
    core.add("y/a")
    core.done("y/a")
    assert drain(core) == ["x/c", "y/a", "x/a"]


def test_done_without_get_is_an_error(core: WorkQueue[str]) -> None:
    core.add("a")
    with pytest.raises(KeyError):
        core.done("a")


def test_jitter_tells_keys_apart(core: WorkQueue[str], hand: HandClock) -> None:
    assert len({backed_off(core, hand, key) for key in "abcdefgh"}) == 8


def test_figures(core: WorkQueue[str], hand: HandClock) -> None:
    waited: list[float] = []
    worked: list[float] = []
    core.on_get, core.on_done = waited.append, worked.append
    core.add("a")
    core.add("a")
    core.add("b")
    hand.now += 2
    core.get_nowait()
    hand.now += 1
    core.get_nowait()
    hand.now += 4
    assert (core.adds, len(core._processing), len(core), core.delayed) == (2, 2, 0, 0)
    assert core.longest_running_seconds == 5
    assert core.unfinished_seconds == 9
    core.add("a")
    core.done("a")
    core.done("b")
    assert (waited, worked) == ([2, 3], [5, 4])
    assert core.adds == 3
    assert core.longest_running_seconds == 0


# --- on a loop ---


async def test_shorter_delay_brings_the_timer_forward(clock: VirtualClockLoop) -> None:
    queue: WorkQueue[str] = WorkQueue()
    start = clock.time()
    queue.add_after("a", 60)
    queue.add_after("a", 7)
    assert await queue.get() == "a"
    assert clock.time() - start == pytest.approx(7)


async def test_each_delayed_key_wakes_a_getter_of_its_own(clock: VirtualClockLoop) -> None:
    queue: WorkQueue[str] = WorkQueue()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await clock.settled()
    for key in "abc":
        queue.add_after(key, 5)
    assert sorted(await asyncio.gather(*getters)) == ["a", "b", "c"]


async def test_cancelled_getter_loses_no_key(clock: VirtualClockLoop) -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await clock.settled()
    queue.add("a")
    first.cancel()
    assert await second == "a"
    assert first.cancelled() or first.cancelling()


async def test_getter_cancelled_while_waiting_is_removed(clock: VirtualClockLoop) -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await clock.settled()
    first.cancel()
    await clock.settled()
    queue.add("a")
    assert await second == "a"


async def test_shut_down_ends_all_getters_once_nothing_is_ready(clock: VirtualClockLoop) -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await clock.settled()
    queue.add("a")
    queue.add_after("late", 5)
    queue.shut_down()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert sorted(str(type(end).__name__) for end in ended) == ["ShutDown", "ShutDown", "str"]
    with pytest.raises(ShutDown):
        await queue.get()


def test_a_key_that_is_due_at_once_may_be_postponed_or_hastened_on_uvloop() -> None:
    async def main() -> list[str]:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 1e-9)
        queue.add_after("b", 0)
        queue.add_after("c", 1e-10)
        return sorted([await queue.get() for _ in range(3)])

    assert uvloop.run(main()) == ["a", "b", "c"]
