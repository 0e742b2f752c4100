"""Watches Frameworks until all have completed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.views.apiobjects import CachedObject, key_of, state_of


class FrameworkFollower:
    """Watches Frameworks until each has completed, meets ``until``, or is deleted.

    ``changed`` is called with the key and the object at each change.
    """

    def __init__(
        self,
        client: KubeClient,
        frameworks: Iterable[Mapping[str, Any]],
        changed: Callable[[str, Mapping[str, Any]], None] = lambda _key, _body: None,
        *,
        until: Callable[[Mapping[str, Any]], bool] = lambda _body: False,
    ) -> None:
        self.last: dict[str, Mapping[str, Any] | None] = {key_of(body): body for body in frameworks}
        """The last object of each Framework; None after a deletion before its completion."""
        self._uids: dict[str, str] = {key: body["metadata"]["uid"] for key, body in self.last.items() if body}
        self._changed = changed
        self._until = until
        self._unfinished = set(self._uids)
        self._all_ended = asyncio.Event()
        namespaces = {key.partition("/")[0] for key in self._uids}
        name = next(iter(self._uids)).partition("/")[2]
        self._informer: Informer[CachedObject[Mapping[str, Any]]] = Informer(
            client,
            FRAMEWORKS,
            lambda body: CachedObject.of(body, body),
            namespace=namespaces.pop() if len(namespaces) == 1 else None,
            field_selector=f"metadata.name={name}" if len(self._uids) == 1 else None,
        )
        self._informer.add_handler(
            on_add=self._on_change,
            on_update=lambda _old, new: self._on_change(new),
            on_delete=lambda old, _final: self._on_deleted(old.key, old.uid),
        )

    @property
    def failing_since(self) -> float | None:
        """The time of the event loop since which the API server answers nothing useful; None while it does."""
        return self._informer.failing_since

    async def run(self) -> None:
        """Watch until all have ended. Outages are waited out."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._informer.run())
            await self._informer.wait_synced()
            for key, uid in self._uids.items():
                record = self._informer.lister.get(key)
                if record is None or record.uid != uid:
                    self._on_deleted(key, uid)
            await self._all_ended.wait()
            watching.cancel()

    def _on_change(self, record: CachedObject[Mapping[str, Any]]) -> None:
        key, body = record.key, record.value
        if self._uids.get(key) == record.uid:
            self.last[key] = body
            self._changed(key, body)
            if state_of(body) == State.COMPLETED or self._until(body):
                self._end(key)

    def _on_deleted(self, key: str, uid: str) -> None:
        if key in self._unfinished and self._uids[key] == uid:
            self.last[key] = None
            self._end(key)

    def _end(self, key: str) -> None:
        self._unfinished.discard(key)
        if not self._unfinished:
            self._all_ended.set()
