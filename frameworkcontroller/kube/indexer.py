"""A cache of objects with an index, after client-go's Lister and Indexer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, ValuesView
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeVar


class Item(Protocol):
    """A cached object. ``key`` is ``namespace/name``, or ``name`` if cluster-scoped."""

    @property
    def key(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


T = TypeVar("T", bound=Item)

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Lister(Generic[T]):
    """Read access by key and by index, without copies.

    All results are views of the content, which changes only between two awaits. Do not modify them or the items.
    """

    def __init__(self, index: Callable[[T], Hashable] | None = None) -> None:
        """``index`` returns the value by which `by_index` finds an object."""
        self._index = index
        self._items: dict[str, T] = {}
        self._buckets: dict[Hashable, dict[str, T]] = {}
        # The value of each object: computed again on removal, it might differ and leave an entry.
        self._filed: dict[str, Hashable] = {}

    def get(self, key: str) -> T | None:
        return self._items.get(key)

    def by_index(self, value: Hashable) -> Mapping[str, T]:
        """Return the objects with this value of the index, by key, valid until the next await."""
        return self._buckets.get(value, _NOTHING)

    def values(self) -> ValuesView[T]:
        return self._items.values()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)


class Indexer(Lister[T]):
    """Write access, for the informer."""

    def put(self, item: T) -> None:
        """Add or replace. If ``index`` raises, nothing changes."""
        key = item.key
        if self._index is not None:
            value = self._index(item)
            bucket = self._buckets.get(value)
            if bucket is None or key not in bucket:
                self._unfile(key)
                bucket = self._buckets.setdefault(value, {})
                self._filed[key] = value
            bucket[key] = item
        self._items[key] = item

    def remove(self, key: str) -> T | None:
        """Remove and return the object of that key; None if there is none."""
        self._unfile(key)
        return self._items.pop(key, None)

    def clear(self) -> None:
        self._items.clear()
        self._filed.clear()
        self._buckets.clear()

    def _unfile(self, key: str) -> None:
        if key in self._filed:
            value = self._filed.pop(key)
            bucket = self._buckets[value]
            del bucket[key]
            if not bucket:
                # Values (Framework names) come and go: empty buckets would accumulate.
                del self._buckets[value]
