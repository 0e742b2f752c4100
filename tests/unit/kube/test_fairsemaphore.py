"""FairSemaphore: never more at once than there are, fair between flows, and none is ever lost."""

import asyncio
import itertools
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.kube.fairness import LATE_SEC, FairSemaphore
from frameworkcontroller.kube.turns import AGED_TURN

pytestmark = pytest.mark.virtual_clock


async def turns(flows: Iterable[str]) -> list[str]:
    """In which order those get the only slot that ask for it in this one."""
    slots, order = FairSemaphore(1), list[str]()

    async def work(flow: str) -> None:
        async with slots.taken(flow):
            order.append(flow)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for flow in flows:
            group.create_task(work(flow))
    return order


async def test_the_flow_with_the_least_work_gets_the_next_slot() -> None:
    slots, order = FairSemaphore(1), list[int]()

    async def take(work: int) -> None:
        async with slots.taken(f"x/{work}", work):
            order.append(work)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for work in (4, 3, 9, 1, 2):
            group.create_task(take(work))
    assert order == [4, 1, 2, 3, 9]


async def test_a_large_flow_continues_among_small_ones_that_keep_coming() -> None:
    """In each of two namespaces, small flows of three requests come faster than they are served."""
    slots, served = FairSemaphore(1), list[str]()

    async def flow(name: str, requests: int) -> None:
        for left in range(requests, 0, -1):
            async with slots.taken(name, left):
                served.append(name)
                await asyncio.sleep(0.01)

    async with asyncio.timeout(600), asyncio.TaskGroup() as group:
        large = [group.create_task(flow(f"{namespace}/large", 20)) for namespace in "xy"]
        number = 0
        while not all(task.done() for task in large):
            number += 1
            for namespace in "xy":
                group.create_task(flow(f"{namespace}/{number}", 3))
            await asyncio.sleep(0.05)
    namespaces = [name[0] for name in served]
    assert sum(first == second for first, second in itertools.pairwise(namespaces)) <= 2
    for namespace in "xy":
        turns = [name for name in served if name.startswith(namespace)]
        places = [place for place, name in enumerate(turns) if name.endswith("large")]
        # Every eighth turn goes by age: only earlier small ones come before it.
        assert len(places) == 20
        assert max(second - first for first, second in itertools.pairwise(places)) <= AGED_TURN * (number + 1)
        assert any(not name.endswith("large") for name in turns[places[0] + 1 : places[-1]])


async def hold(slots: FairSemaphore, flow: str, seconds: float) -> float:
    """Hold a slot for this time. Return the seconds until it came."""
    clock = asyncio.get_running_loop().time
    began = clock()
    async with slots.taken(flow):
        waited = clock() - began
        await asyncio.sleep(seconds)
    return waited


async def test_namespaces_take_turns_and_flows_within_each() -> None:
    order = await turns(["x/a", "x/a", "x/a", "x/b", "x/c", "y/a", "y/a"])
    assert order == [
        "x/a",
        "x/a",
        "y/a",
        "x/b",
        "y/a",
        "x/c",
        "x/a",
    ]


async def test_one_namespace_that_takes_long_delays_another_for_a_moment_and_is_as_fast_as_it_would_be_alone() -> None:
    slots = FairSemaphore(5)
    async with asyncio.TaskGroup() as group:
        slow = [group.create_task(hold(slots, f"x/{number}", 10)) for number in range(20)]
        quick = [group.create_task(hold(slots, "y/a", 0.5)) for _ in range(10)]
    assert [task.result() for task in slow] == [0] * 5 + [10] * 5 + [20] * 5 + [30] * 5
    assert [task.result() for task in quick] == [LATE_SEC] * 5 + [LATE_SEC + 0.5] * 5


async def test_slow_holders_are_bounded_too() -> None:
    slots, held, most = FairSemaphore(3), 0, 0

    async def work(flow: str) -> None:
        nonlocal held, most
        async with slots.taken(flow):
            held += 1
            most = max(most, held)
            await asyncio.sleep(60)
            held -= 1

    async with asyncio.TaskGroup() as group:
        for number in range(60):
            group.create_task(work(f"{number % 20}/f"))
    assert most == 9
    assert await asyncio.wait_for(hold(slots, "z/f", 0), 1) == 0


@given(
    number=st.integers(1, 3),
    jobs=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.none() | st.integers(0, 6)), max_size=12),
)
def test_cancellation_loses_no_slot(number: int, jobs: list[tuple[str, int, int | None]]) -> None:
    """Each job: its flow, for how many turns of the loop it holds its slot, and after how many it is cancelled."""

    async def run() -> None:
        slots, held = FairSemaphore(number), 0

        async def work(flow: str, turns: int) -> None:
            nonlocal held
            async with slots.taken(f"{flow}/f"):
                held += 1
                assert held <= number
                try:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                finally:
                    held -= 1

        tasks = [asyncio.create_task(work(flow, turns)) for flow, turns, _ in jobs]
        for turn in range(8):
            for task, (_, _, cancelled) in zip(tasks, jobs, strict=True):
                if cancelled == turn:
                    task.cancel()
            await asyncio.sleep(0)
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await asyncio.wait_for(task, 300)
        # All of them can be held again at once.
        async with asyncio.timeout(300), asyncio.TaskGroup() as group:
            barrier = asyncio.Barrier(number)

            async def meet() -> None:
                async with slots.taken("d"):
                    await barrier.wait()

            for _ in range(number):
                group.create_task(meet())

    asyncio.run(run())
