"""A bounded mapping."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """A mapping of at most ``capacity`` items. ``get`` and ``put`` use an item; the least recently used is evicted."""

    __slots__ = ("_capacity", "_items")

    def __init__(self, capacity: int) -> None:
        self._items: OrderedDict[K, V] = OrderedDict()
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> list[tuple[K, V]]:
        """A copy of all items, the least recently used first."""
        return list(self._items.items())

    def get(self, key: K) -> V | None:
        """Return the value of ``key``, None if there is none."""
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        """Set the value of ``key``, and return it."""
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._capacity:
            self._items.popitem(last=False)
        return value

    def pop(self, key: K) -> V | None:
        """Remove ``key``, and return its value, None if there is none."""
        return self._items.pop(key, None)
