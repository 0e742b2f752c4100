"""An indexed cache of objects, changed only by its informer. (Signatures are final; the bodies follow.)"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, KeysView, Mapping, ValuesView
from typing import Generic, Protocol, TypeVar


class Item(Protocol):
    """What a cached object must say of itself. ``key`` is ``namespace/name``, or ``name`` if cluster-scoped."""

    @property
    def key(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


T = TypeVar("T", bound=Item)


class Store(Generic[T]):
    """What the informer has seen, by key and by index. Reading never suspends and never copies."""

    def get(self, key: str) -> T | None:
        raise NotImplementedError

    def by_index(self, index: str, value: Hashable) -> Mapping[str, T]:
        raise NotImplementedError

    def keys(self) -> KeysView[str]:
        raise NotImplementedError

    def values(self) -> ValuesView[T]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __contains__(self, key: object) -> bool:
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError
