"""Slots: never more at once than there are, fair between owners, and none is ever lost."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.controller.slots import Slots

pytestmark = pytest.mark.virtual_clock


async def test_owners_take_turns() -> None:
    slots, order = Slots(1), []

    async def work(owner: str) -> None:
        async with slots.taken(owner):
            order.append(owner)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for owner in "aaaabbc":
            group.create_task(work(owner))
    # The first came before anybody waited.
    assert "".join(order) == "aabcaba"


@given(
    number=st.integers(1, 3),
    jobs=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.none() | st.integers(0, 6)), max_size=12),
)
def test_whoever_is_cancelled_whenever_no_slot_is_lost(number: int, jobs: list[tuple[str, int, int | None]]) -> None:
    """Each job: its owner, for how many turns of the loop it holds its slot, and after how many it is cancelled."""

    async def run() -> None:
        slots, held = Slots(number), 0

        async def work(owner: str, turns: int) -> None:
            nonlocal held
            async with slots.taken(owner):
                held += 1
                assert held <= number
                try:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                finally:
                    held -= 1

        tasks = [asyncio.create_task(work(owner, turns)) for owner, turns, _ in jobs]
        for turn in range(8):
            for task, (_, _, cancelled) in zip(tasks, jobs, strict=True):
                if cancelled == turn:
                    task.cancel()
            await asyncio.sleep(0)
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await asyncio.wait_for(task, 5)
        # All of them can be held again at once.
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            barrier = asyncio.Barrier(number)

            async def meet() -> None:
                async with slots.taken("d"):
                    await barrier.wait()

            for _ in range(number):
                group.create_task(meet())

    asyncio.run(run())
