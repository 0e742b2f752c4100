"""The pool of syncs: bounds, failures, stopping. On an event loop of virtual time."""

import asyncio
import itertools
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.controller.syncworkers import SyncWorkers
from frameworkcontroller.kube.concurrency import LEAST
from frameworkcontroller.kube.fairness import LATE_SEC, namespace_of
from frameworkcontroller.kube.turns import AGED_TURN
from frameworkcontroller.kube.workqueue import WorkQueue
from frameworkcontroller.machine.kernel.protocol import RequeueError
from tests.support.virtual_clock import VirtualClockLoop

pytestmark = pytest.mark.virtual_clock


class Driver:
    """Keeps when each key was synced, and checks that no key is synced by two at once."""

    def __init__(self, behave: Callable[[str, int], Awaitable[float | None]]) -> None:
        self.behave = behave
        self.loop = asyncio.get_running_loop()
        self.times: dict[str, list[float]] = {}
        self.running: Counter[str] = Counter()
        self.most = 0

    async def reconcile(self, key: str) -> float | None:
        times = self.times.setdefault(key, [])
        times.append(self.loop.time())
        self.running[key] += 1
        assert self.running[key] == 1
        self.most = max(self.most, self.running.total())
        try:
            return await self.behave(key, len(times))
        finally:
            self.running[key] -= 1


def pool(
    sync: Callable[[str, int], Awaitable[float | None]], number: int, **options: Any
) -> tuple[WorkQueue[str], Driver, SyncWorkers, asyncio.Task[None]]:
    """Run workers. ``options``: of the queue."""
    queue: WorkQueue[str] = WorkQueue(**options)
    driver = Driver(sync)
    workers = SyncWorkers(queue, driver.reconcile, number=number)
    return queue, driver, workers, asyncio.create_task(workers.run())


async def nothing(_key: str, _time: int) -> float | None:
    return None


async def test_each_key_is_synced_within_the_limit(clock: VirtualClockLoop) -> None:
    async def work(_key: str, _time: int) -> None:
        await asyncio.sleep(1)

    queue, driver, workers, running = pool(work, 3)
    for number in range(10):
        queue.add(f"f{number}")
    start = clock.time()
    await asyncio.sleep(3.5)
    assert workers.busy == 1
    assert len(driver.times) == 10
    assert driver.most == 3
    assert [times[0] - start for times in driver.times.values()] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert await workers.stop(10)
    await running


async def test_others_get_the_loop_between_the_syncs_of_many_ready_keys() -> None:
    synced: list[str] = []

    async def work(key: str, _time: int) -> None:
        synced.append(key)

    queue, _, workers, running = pool(work, 200)
    for number in range(100):
        queue.add(f"f{number}")
    in_a_turn = []
    while len(synced) < 100:
        before = len(synced)
        await asyncio.sleep(0)
        in_a_turn.append(len(synced) - before)
    assert max(in_a_turn) <= 8
    assert await workers.stop(10)
    await running


async def test_those_that_take_long_do_not_keep_another_namespace_waiting(clock: VirtualClockLoop) -> None:
    async def work(key: str, _time: int) -> None:
        await asyncio.sleep(100 if key.startswith("slow/") else 1)

    queue, driver, workers, running = pool(work, 3, namespace=namespace_of)
    start = clock.time()
    slow = [f"slow/f{number}" for number in range(7)]
    for key in slow:
        queue.add(key)
    await clock.settled()
    queue.add("other/f")
    await asyncio.sleep(50)
    # A key that waits for its namespace is there once after any number of additions.
    for key in slow * 2:
        queue.add(key)
    queue.add("other/g")
    await asyncio.sleep(1.5)
    assert driver.times["other/f"] == [start + LATE_SEC]
    assert driver.times["other/g"] == [start + 50]
    assert workers.busy == 3
    await asyncio.sleep(1000)
    times = {key: [time - start for time in driver.times[key]] for key in slow}
    # The first three were added again while in progress.
    assert [len(times[key]) for key in slow] == [2, 2, 2, 1, 1, 1, 1]
    assert sorted(itertools.chain(*times.values())) == [0] * 3 + [100] * 3 + [200] * 3 + [300]
    assert workers.busy == len(queue._processing) == len(queue) == 0
    assert not workers._under_way
    assert await workers.stop(10)
    await running


async def test_a_namespace_has_as_many_at_once_as_the_limit_allows_and_those_with_the_least_work_first(
    clock: VirtualClockLoop,
) -> None:
    async def work(_key: str, _time: int) -> None:
        await asyncio.sleep(1)

    queue, driver, workers, running = pool(
        work, 200, namespace=namespace_of, work=lambda key: int(key.partition("/")[2])
    )
    for number in reversed(range(3 * LEAST)):
        queue.add(f"x/{number}")
    start = clock.time()
    await asyncio.sleep(0.5)
    queue.add("y/0")
    await asyncio.sleep(10)
    assert driver.most == LEAST + 1
    assert driver.times["y/0"] == [start + 0.5]
    first = [number for number in range(3 * LEAST) if driver.times[f"x/{number}"] == [start]]
    # Except the turns by age.
    assert len(set(first) & set(range(LEAST))) == LEAST - LEAST // AGED_TURN
    assert not workers._prompt
    await workers.stop(1)
    await running


async def test_key_added_while_it_is_synced_is_synced_again_afterwards(clock: VirtualClockLoop) -> None:
    async def work(_key: str, _time: int) -> None:
        await asyncio.sleep(1)

    queue, driver, workers, running = pool(work, 3)
    queue.add("f")
    await asyncio.sleep(0.5)
    queue.add("f")
    queue.add("f")
    await asyncio.sleep(5)
    first, second = driver.times["f"]
    assert second - first == 1
    await workers.stop(1)
    await running


async def test_sync_that_says_when_is_repeated_then(clock: VirtualClockLoop) -> None:
    async def work(_key: str, time: int) -> float | None:
        return {1: 30.0, 2: 0.0}.get(time)

    queue, driver, workers, running = pool(work, 1)
    queue.add("f")
    await asyncio.sleep(1000)
    start, *later = driver.times["f"]
    assert [time - start for time in later] == pytest.approx([30, 30])
    await workers.stop(1)
    await running


async def test_failing_key_backs_off_and_the_others_continue(
    clock: VirtualClockLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(key: str, time: int) -> None:
        if key == "bad" and time <= 5:
            if time == 2:
                raise RequeueError("connection reset")
            if time == 3:
                raise ZeroDivisionError("a bug")
            raise RequeueError("not yet")

    queue: WorkQueue[str] = WorkQueue(retry=Backoff(1.0, 4.0))
    driver = Driver(work)
    ended: list[tuple[str, str]] = []
    workers = SyncWorkers(
        queue, driver.reconcile, number=2, synced=lambda key, result, _seconds: ended.append((key, result))
    )
    running = asyncio.create_task(workers.run())
    with caplog.at_level(logging.INFO):
        queue.add("bad")
        for number in range(20):
            queue.add(f"f{number}")
        await asyncio.sleep(100)
    assert all(len(times) == 1 for key, times in driver.times.items() if key != "bad")
    times = driver.times["bad"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(gaps) == 5
    for gap, whole in zip(gaps, (1, 2, 4, 4, 4), strict=True):
        assert whole / 2 <= gap <= whole
    assert queue.snapshot(1)["failures"] == {}
    assert [result for key, result in ended if key == "bad"] == ["retry", "retry", "failed", "retry", "retry", "done"]
    assert len(ended) == 26
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("INFO", "[bad]: Retrying the sync after failure 1 in a row: not yet"),
        ("INFO", "[bad]: Retrying the sync after failure 2 in a row: connection reset"),
        ("ERROR", "[bad]: Sync failed (failure 3 in a row)"),
        ("WARNING", "[bad]: Retrying the sync after failure 4 in a row: not yet"),
        ("WARNING", "[bad]: Retrying the sync after failure 5 in a row: not yet"),
    ]
    assert caplog.records[2].exc_info is not None
    await workers.stop(1)
    await running


async def test_server_that_asks_for_a_pause_gets_it(clock: VirtualClockLoop) -> None:
    async def work(_key: str, time: int) -> None:
        if time == 1:
            raise RequeueError("cannot write the status", 17.0)

    queue, driver, workers, running = pool(work, 2)
    queue.add("f")
    await asyncio.sleep(100)
    first, second = driver.times["f"]
    assert second - first == pytest.approx(17)
    await workers.stop(1)
    await running


async def test_stop_waits_for_running_syncs_and_starts_none(clock: VirtualClockLoop) -> None:
    finished: list[str] = []

    async def work(key: str, _time: int) -> float | None:
        await asyncio.sleep(3)
        finished.append(key)
        return 1.0

    queue, driver, workers, running = pool(work, 2)
    for key in "abcd":
        queue.add(key)
    await asyncio.sleep(1)
    start = clock.time()
    assert await workers.stop(10)
    assert clock.time() - start == 2
    await running
    await asyncio.sleep(100)
    assert finished == ["a", "b"]
    assert set(driver.times) == {"a", "b"}


async def test_stop_cancels_slow_syncs(clock: VirtualClockLoop, caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def work(_key: str, _time: int) -> None:
        await asyncio.sleep(3600)

    queue: WorkQueue[str] = WorkQueue()
    workers = SyncWorkers(
        queue, Driver(work).reconcile, number=2, synced=lambda _key, result, _seconds: ended.append(result)
    )
    running = asyncio.create_task(workers.run())
    queue.add("a")
    await asyncio.sleep(1)
    start = clock.time()
    assert not await workers.stop(10)
    assert clock.time() - start == 10
    await running
    assert (workers.busy, ended, len(queue._processing)) == (0, ["cancelled"], 0)
    assert re.search(r"cancelling 1 syncs", caplog.text)


async def test_stop_while_idle_is_at_once(clock: VirtualClockLoop) -> None:
    _, _, workers, running = pool(nothing, 2)
    await clock.settled()
    start = clock.time()
    assert await workers.stop(10)
    await running
    assert clock.time() == start


async def test_cancelled_pool_cancels_its_syncs(clock: VirtualClockLoop) -> None:
    async def work(_key: str, _time: int) -> None:
        await asyncio.sleep(3600)

    queue, _, workers, running = pool(work, 2)
    queue.add("a")
    await asyncio.sleep(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert workers.busy == 0


async def test_a_sync_that_is_due_within_less_than_the_clock_can_tell_does_not_circle(clock: VirtualClockLoop) -> None:
    """Found as a circle without end: timers fire early by up to a clock tick, and the sync asks for that tick again."""
    due = clock.time() + 1.0

    async def work(_key: str, time: int) -> float | None:
        if time == 1:
            return 1.0 - 1e-12
        assert time < 10, "it circles"
        left = due - clock.time()
        return left if left > 0 else None

    queue, _, workers, running = pool(work, 1)
    queue.add("f")
    await asyncio.sleep(2)
    assert len(queue) == queue.delayed == len(queue._processing) == 0
    await workers.stop(1)
    await running
    assert clock.time() >= due
