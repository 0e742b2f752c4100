"""A bound on what is under way at once, shared fairly between those on whose behalf it is done."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """So many at once. While there are free ones, taking one costs nothing and never suspends.

    When there are none, owners (Frameworks, say) take turns in getting those that become free: one with a thousand
    waiting delays the next owner by one, not by a thousand. Cancelling never loses a slot.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        # Owners in the order of their turns.
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def taken(self, owner: str) -> AsyncIterator[None]:
        """Hold a slot for ``owner``."""
        await self._take(owner)
        try:
            yield
        finally:
            self._give()

    async def _take(self, owner: str) -> None:
        if self._free and not self._lines:
            self._free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(owner, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                # The slot came in the same moment as the cancellation: it is the next one's.
                self._give()
            # Otherwise it stays in its line as cancelled, and is passed over when its turn comes.
            raise

    def _give(self) -> None:
        while self._lines:
            owner, line = next(iter(self._lines.items()))
            del self._lines[owner]
            while line:
                future = line.popleft()
                if not future.done():
                    if line:
                        self._lines[owner] = line
                    future.set_result(None)
                    return
        self._free += 1
