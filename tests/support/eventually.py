"""Waiting for the state of a cluster to become what a test expects."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.support.virtual_clock import VirtualClockLoop

T = TypeVar("T")


async def eventually(probe: Callable[[], Awaitable[T]], *, within: float = 30.0, every: float = 0.05) -> T:
    """Call `probe` every so many seconds until it neither raises AssertionError nor returns False; return its result.

    When the time is up, its last AssertionError is raised. On virtual time, calls are left out while nothing happens.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        try:
            result = await probe()
            assert result is not False, f"{probe} still says no after {within:g} s"
        except AssertionError:
            if loop.time() >= deadline:
                raise
        else:
            return result
        if isinstance(loop, VirtualClockLoop):
            await loop.pause(every, deadline)
        else:
            await asyncio.sleep(every)
