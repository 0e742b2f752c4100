"""Many timers on one event-loop timer."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_SLACK: Final = 64
"""Number of stale entries below which no clean-up is worthwhile."""


class Timers(Generic[K]):
    """At most one timer per key, in the running event loop's time; ``fire`` gets the key."""

    def __init__(self, fire: Callable[[K], None]) -> None:
        self._fire = fire
        self._due: dict[K, float] = {}
        # Entries outlive their replacement in _due; one is valid only while it equals the one in _due.
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: K, due: float | None) -> None:
        """Set or replace the timer of ``key`` to ``due`` (loop seconds); None removes it."""
        if due is None:
            self._due.pop(key, None)
            return
        if self._due.get(key) == due:
            return
        self._due[key] = due
        self._count += 1
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0] and entry[2] != key]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (due, self._count, key))
        if self._heap[0][2] is key:
            self._arm()

    def clear(self) -> None:
        """Remove all timers."""
        self._due.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self._fire(key)
        if self._timer is None:
            self._arm()
