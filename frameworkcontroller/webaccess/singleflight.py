"""Concurrent calls that share one result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Runs one call per key at a time; callers that come meanwhile get its result or exception.

    The cancellation of a caller does not cancel the call.
    """

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[V]] = {}

    async def run(self, key: K, call: Callable[[], Awaitable[V]]) -> V:
        """Return the result of ``call``, or of the one that runs for ``key``."""
        task = self._running.get(key)
        if task is None:

            async def running() -> V:
                try:
                    return await call()
                finally:
                    del self._running[key]

            task = self._running[key] = asyncio.create_task(running(), name="shared call")
            task.add_done_callback(_retrieve)
        return await asyncio.shield(task)


def _retrieve(task: asyncio.Task[V]) -> None:
    """Mark an exception as seen: all callers may have gone."""
    if not task.cancelled():
        task.exception()
