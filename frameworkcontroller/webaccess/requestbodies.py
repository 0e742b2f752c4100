"""Bodies of requests, which must arrive at a least rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import StreamReader

IDLE_SEC: Final = 15.0
"""Longest time without a byte of the body."""

GRACE_SEC: Final = 10.0
LEAST_BYTES_PER_SEC: Final = 128 * 1024
"""Least rate, except for the first ``GRACE_SEC``. Half of the rate below which a controller gives up."""


class SlowBodyError(Exception):
    """A body arrives too slowly. The text is for its sender."""


async def pieces(content: StreamReader, most_bytes: int) -> AsyncIterator[bytes]:
    """Yield the body in pieces of at most ``most_bytes``. The time between two pieces is the caller's.

    Raises:
        SlowBodyError: it arrives too slowly.
    """
    loop = asyncio.get_running_loop()
    left = GRACE_SEC
    while True:
        began = loop.time()
        try:
            async with asyncio.timeout(min(IDLE_SEC, left)):
                piece = await content.read(most_bytes)
        except TimeoutError:
            rate = f"{LEAST_BYTES_PER_SEC // 1024} KiB/s"
            raise SlowBodyError(f"the body arrives too slowly: at least {rate} are required") from None
        if not piece:
            return
        left += len(piece) / LEAST_BYTES_PER_SEC - (loop.time() - began)
        yield piece
