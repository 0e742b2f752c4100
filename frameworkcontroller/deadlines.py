"""A priority queue of keys by their deadlines. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_STALE_ALLOWANCE: Final = 64


class Deadlines(Generic[K]):
    """A deadline for each key, by any clock. Keys of the same deadline come in the order in which it was set."""

    __slots__ = ("_entries", "_heap", "_order")

    def __init__(self) -> None:
        # An entry of the heap is stale unless it is also the entry of its key.
        self._entries: dict[K, tuple[float, int, K]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> float | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def items(self) -> list[tuple[K, float]]:
        """Return the keys with their deadlines, the earliest first."""
        return [(key, when) for when, _, key in sorted(self._entries.values(), key=lambda entry: entry[:2])]

    def set(self, key: K, when: float) -> None:
        self._order += 1
        entry = self._entries[key] = (when, self._order, key)
        if len(self._heap) > 2 * len(self._entries) + _STALE_ALLOWANCE:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, entry)

    def discard(self, key: K) -> None:
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()
        self._heap.clear()

    def next(self) -> float | None:
        """Return the earliest deadline, None if there is none."""
        heap, entries = self._heap, self._entries
        while heap and entries.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> K | None:
        """Remove and return the key of the earliest deadline that is not after ``now``, None if there is none."""
        when = self.next()
        if when is None or when > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._entries[key]
        return key
