"""Follows some Frameworks until the last of them has completed, or is as far as was waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.informer import Informer


@dataclass(frozen=True, slots=True)
class _Seen:
    key: str
    uid: str
    resource_version: str
    body: Mapping[str, Any]


class Follower:
    """Watches the Frameworks of these UIDs (by ``namespace/name``); tells ``changed(key, object)`` of each change.

    ``until`` says of an object whether that Framework is as far as is waited for; to have completed always is.
    """

    def __init__(
        self,
        client: KubeClient,
        uids: Mapping[str, str],
        changed: Callable[[str, Mapping[str, Any]], None],
        *,
        until: Callable[[Mapping[str, Any]], bool] = lambda _body: False,
    ) -> None:
        self._uids = dict(uids)
        self._changed = changed
        self._until = until
        self._unfinished = set(uids)
        self._all_ended = asyncio.Event()
        namespaces = {key.partition("/")[0] for key in uids}
        self._informer: Informer[_Seen] = Informer(
            client,
            FRAMEWORKS,
            _seen,
            namespace=namespaces.pop() if len(namespaces) == 1 else None,
            field_selector=f"metadata.name={next(iter(uids)).partition('/')[2]}" if len(uids) == 1 else None,
        )
        self._informer.add_handler(
            on_add=self._on_present,
            on_update=lambda _old, new: self._on_present(new),
            on_delete=lambda old, _final: self._on_gone(old),
        )
        self.last: dict[str, Mapping[str, Any] | None] = {key: {} for key in uids}
        """Each Framework as it was seen last; None once it is gone without having completed."""

    async def run(self) -> None:
        """Follow until all have completed, are as far as is waited for, or are gone."""
        watching = asyncio.create_task(self._informer.run(), name="following Frameworks")
        ended = asyncio.create_task(self._wait_for_all(), name="all Frameworks have ended")
        try:
            await asyncio.wait([watching, ended], return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            watching.cancel()
            ended.cancel()
            await asyncio.wait([watching, ended])

    async def _wait_for_all(self) -> None:
        await self._informer.wait_synced()
        for key, uid in self._uids.items():
            seen = self._informer.lister.get(key)
            if seen is None or seen.uid != uid:
                self._end(key, gone=True)
        await self._all_ended.wait()

    def _on_present(self, seen: _Seen) -> None:
        if self._uids.get(seen.key) == seen.uid:
            self.last[seen.key] = seen.body
            self._changed(seen.key, seen.body)
            if (seen.body.get("status") or {}).get("state") == State.COMPLETED or self._until(seen.body):
                self._end(seen.key)

    def _on_gone(self, seen: _Seen) -> None:
        if self._uids.get(seen.key) == seen.uid:
            self._end(seen.key, gone=True)

    def _end(self, key: str, *, gone: bool = False) -> None:
        if gone and key in self._unfinished:
            self.last[key] = None
        self._unfinished.discard(key)
        if not self._unfinished:
            self._all_ended.set()


def _seen(body: dict[str, Any]) -> _Seen:
    metadata = body["metadata"]
    return _Seen(f"{metadata['namespace']}/{metadata['name']}", metadata["uid"], metadata["resourceVersion"], body)
