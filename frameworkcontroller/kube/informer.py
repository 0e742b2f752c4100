"""An always current local copy of a collection. (Signatures are final; the bodies follow.)"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.kube.store import Item, Store

T = TypeVar("T", bound=Item)


class Informer(Generic[T]):
    """Lists and watches one collection, keeps ``store`` current and tells handlers what changed.

    ``decode`` gets one object as a parsed dict, its ``managedFields`` cut out: bytes would have to be parsed twice,
    since its version and the event around it are needed before it.
    """

    store: Store[T]

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        decode: Callable[[dict[str, Any]], T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page_size: int = 500,
        indexers: Mapping[str, Callable[[T], Iterable[Hashable]]] | None = None,
        rng: random.Random | None = None,
        on_undecodable: Callable[[str, Exception, dict[str, Any]], None] | None = None,
    ) -> None:
        raise NotImplementedError

    def add_handler(
        self,
        *,
        on_add: Callable[[T], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T, T | None], None] | None = None,
    ) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        """Run until cancelled."""
        raise NotImplementedError

    async def wait_synced(self) -> None:
        """Wait until the first full list is in the store and the handlers have been told of it."""
        raise NotImplementedError

    @property
    def synced(self) -> bool:
        raise NotImplementedError
