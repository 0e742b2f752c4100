"""Deletes Events an hour after their last write."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.object_records import Change, Origin
from frameworkcontroller.local.apiserver.storage import ObjectStorage

_EVENTS: Final = builtin_resources.EVENTS.resource


class EventExpiry:
    """Deletes Events that were not written for ``seconds`` (of the event loop's time)."""

    def __init__(self, storage: ObjectStorage, seconds: float = 3600.0) -> None:
        self._storage = storage
        self._seconds = seconds
        self._due: deque[tuple[float, str, int]] = deque()
        """Time, key and expected revision; in order, because the lifetime is constant."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start on the running event loop; existing Events count as just written."""
        self._loop = asyncio.get_running_loop()
        self._unobserve = self._storage.observe(self._observe)
        for record in self._storage.records(_EVENTS):
            self._note(record.key, record.revision)

    def stop(self) -> None:
        """Stop."""
        if self._loop is not None:
            self._unobserve()
            self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _observe(self, change: Change) -> None:
        if change.record.resource == _EVENTS and change.new is not None:
            self._note(change.record.key, change.revision)

    def _note(self, key: str, revision: int) -> None:
        if self._loop is not None:
            self._due.append((self._loop.time() + self._seconds, key, revision))
            self._schedule()

    def _schedule(self) -> None:
        if self._timer is None and self._due and self._loop is not None:
            self._timer = self._loop.call_at(self._due[0][0], self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self._loop is None:
            return
        now = self._loop.time()
        while self._due and self._due[0][0] <= now:
            _, key, revision = self._due.popleft()
            record = self._storage.get(_EVENTS, key)
            if record is not None and record.revision == revision:
                self._storage.delete(record, Origin("delete", agent="event-expiry"))
        self._schedule()
