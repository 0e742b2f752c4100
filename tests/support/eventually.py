"""Waiting for an expected state of a cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tests.support.virtual_clock import VirtualClockLoop

T = TypeVar("T")

_REAL_SECONDS: Final = 300.0
"""The shortest wait on real time, which is long only where something is wrong: a busy machine may take a minute for
what takes a second elsewhere."""


async def eventually(probe: Callable[[], Awaitable[T]], *, within: float = 30.0, every: float = 0.05) -> T:
    """Call `probe` every ``every`` seconds until it neither raises AssertionError nor returns False; return its result.

    When the time is up, its last AssertionError is raised. On virtual time, calls are left out while nothing happens.
    On real time, ``within`` is five minutes at least.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            result = await probe()
            assert result is not False, f"{probe} still says no after {within:g} s"
        except AssertionError:
            flows = not isinstance(loop, VirtualClockLoop) or loop.flows
            if loop.time() >= began + (max(within, _REAL_SECONDS) if flows else within):
                raise
        else:
            return result
        if isinstance(loop, VirtualClockLoop):
            await loop.pause(every, began + within)
        else:
            await asyncio.sleep(every)


async def until(holds: Callable[[], object], *, within: float = 30.0, every: float = 0.05) -> None:
    """Wait until ``holds`` returns something true, and raises no AssertionError."""

    async def probe() -> bool:
        return bool(holds())

    await eventually(probe, within=within, every=every)


async def read_until(
    read: Callable[[], Awaitable[T]], holds: Callable[[T], object], *, within: float = 30.0, every: float = 0.05
) -> T:
    """Read again until ``holds`` is true for the result. Return the result."""

    async def probe() -> tuple[T]:
        found = await read()
        assert holds(found), found
        return (found,)

    (found,) = await eventually(probe, within=within, every=every)
    return found
