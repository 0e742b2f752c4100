"""A cache of objects with indices, after client-go's Lister and Indexer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
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

    def __init__(self, indexers: Mapping[str, Callable[[T], Iterable[Hashable]]] | None = None) -> None:
        self._indexers = dict(indexers or {})
        self._items: dict[str, T] = {}
        self._buckets: dict[str, dict[Hashable, dict[str, T]]] = {index: {} for index in self._indexers}

    def get(self, key: str) -> T | None:
        """Return the object of that key, or None."""
        return self._items.get(key)

    def by_index(self, index: str, value: Hashable) -> Mapping[str, T]:
        """Return the objects with this value in the index, by key, valid until the next await.

        Raises KeyError if there is no such index.
        """
        return self._buckets[index].get(value, _NOTHING)

    def keys(self) -> KeysView[str]:
        return self._items.keys()

    def values(self) -> ValuesView[T]:
        return self._items.values()

    def items(self) -> ItemsView[str, T]:
        return self._items.items()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)


class Indexer(Lister[T]):
    """Write access, for the informer."""

    def __init__(self, indexers: Mapping[str, Callable[[T], Iterable[Hashable]]] | None = None) -> None:
        super().__init__(indexers)
        # The indexed values of each object are kept: computed again on removal, they might differ and leave entries.
        self._filed: dict[str, tuple[frozenset[Hashable] | tuple[Hashable, ...], ...]] = {}

    def put(self, item: T) -> T | None:
        """Add or replace, and return the replaced object. If an index function raises, nothing changes."""
        key = item.key
        old = self._items.get(key)
        if self._indexers:
            filed = tuple(_distinct(indexer(item)) for indexer in self._indexers.values())
            if self._filed.get(key) != filed:
                self._unfile(key)
            for buckets, values in zip(self._buckets.values(), filed, strict=True):
                for value in values:
                    bucket = buckets.get(value)
                    if bucket is None:
                        buckets[value] = {key: item}
                    else:
                        bucket[key] = item
            self._filed[key] = filed
        self._items[key] = item
        return old

    def remove(self, key: str) -> T | None:
        """Remove and return the object of that key; None if there is none."""
        old = self._items.pop(key, None)
        if old is not None and self._indexers:
            self._unfile(key)
            del self._filed[key]
        return old

    def clear(self) -> None:
        """Remove all objects."""
        self._items.clear()
        self._filed.clear()
        for buckets in self._buckets.values():
            buckets.clear()

    def _unfile(self, key: str) -> None:
        for buckets, values in zip(self._buckets.values(), self._filed.get(key, ()), strict=False):
            for value in values:
                bucket = buckets[value]
                del bucket[key]
                if not bucket:
                    # Values (Framework names) come and go: empty buckets would accumulate.
                    del buckets[value]


def _distinct(values: Iterable[Hashable]) -> frozenset[Hashable] | tuple[Hashable, ...]:
    found = tuple(values)
    if len(found) > 1:
        return frozenset(found)
    hash(found)  # raises before any change if the value is not hashable
    return found
