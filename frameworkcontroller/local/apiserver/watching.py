"""Watches: the initial state if requested, then every change, until the client or a timeout ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from aiohttp import web

from frameworkcontroller.api import gojson
from frameworkcontroller.local.apiserver import api_errors
from frameworkcontroller.local.apiserver.endpoints import Endpoint, Endpoints
from frameworkcontroller.local.apiserver.object_records import Change, ObjectRecord
from frameworkcontroller.local.apiserver.options import ListOptions
from frameworkcontroller.local.apiserver.representations import Representation, bookmark, event_encoder
from frameworkcontroller.local.apiserver.selectors import Predicate
from frameworkcontroller.local.apiserver.storage import ObjectStorage
from frameworkcontroller.local.apiserver.watch_cache import CompactedError, Cursor

_BATCH: Final = 500
_BEFORE_END: Final = 2.0
"""Seconds before its end at which a watch sends a bookmark, for the next watch to continue from."""

Encode = Callable[[bytes, ObjectRecord], bytes]


class Bell:
    """Wakes one waiter; if rung earlier, the next wait returns at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._rung = False

    def ring(self) -> None:
        """Wake the current or next waiter."""
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, until: float) -> None:
        """Wait for a ring, or until the loop time ``until``."""
        if not self._rung:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_at(until, self.ring)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        self._rung = False


class WatchStream:
    """One watch request."""

    def __init__(
        self,
        storage: ObjectStorage,
        endpoints: Endpoints,
        endpoint: Endpoint,
        prefix: str,
        matches: Predicate | None,
        options: ListOptions,
        view: Representation,
        *,
        wall: Callable[[], float],
        timeout: float,
        bookmark_interval: float,
    ) -> None:
        """``prefix`` is the prefix of the watched keys. ``timeout``, ``bookmark_interval``: seconds."""
        self._storage = storage
        self._endpoints = endpoints
        self._endpoint = endpoint
        self._prefix = prefix
        self._matches = matches
        self._options = options
        self._view = view
        self._encode: Encode = event_encoder(view, endpoint, wall)
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + timeout
        self._interval = bookmark_interval
        self.bell = Bell(self._loop)
        self.closing = False
        """Set it and ring the bell to end the watch."""

    async def stream(self, response: web.StreamResponse) -> None:
        """Write events to the prepared ``response`` until the watch ends."""
        start = self._storage.revision
        initial: list[ObjectRecord] | None = None
        if self._begins_with_state():
            initial = self._storage.page(self._endpoint.resource, self._prefix, matches=self._matches).records
        elif self._options.version:
            start = self._options.version
        try:
            cursor = self._storage.follow(self._endpoint.resource, start, self.bell.ring)
        except CompactedError as error:
            await response.write(_error_line(error))
            return
        try:
            if initial is not None:
                await self._write_state(response, initial, start)
            await self._write_changes(response, cursor, start)
        finally:
            cursor.close()

    def _begins_with_state(self) -> bool:
        if self._options.initial_events is not None:
            return self._options.initial_events
        return not self._options.version

    async def _write_state(self, response: web.StreamResponse, records: list[ObjectRecord], revision: int) -> None:
        for start in range(0, len(records), _BATCH):
            await response.write(b"".join(self._encode(b"ADDED", one) for one in records[start : start + _BATCH]))
        if self._options.initial_events and self._options.bookmarks:
            await response.write(bookmark(self._view, self._endpoint, revision, initial_end=True))

    async def _write_changes(self, response: web.StreamResponse, cursor: Cursor, start: int) -> None:
        seen = start
        marked = self._loop.time()
        while not self.closing and self._served():
            changes = cursor.take(_BATCH)
            if changes is None:
                return  # Too slow: the client must restart, and gets a 410.
            if changes:
                lines = b"".join(self._lines(changes, start))
                if lines:
                    await response.write(lines)
                continue
            seen = max(seen, self._storage.revision)
            now = self._loop.time()
            if now >= self._end:
                return
            mark = self._next_bookmark(marked)
            if now >= mark:
                marked = now
                await response.write(bookmark(self._view, self._endpoint, seen))
                continue
            await self.bell.wait(min(mark, self._end))

    def _next_bookmark(self, marked: float) -> float:
        if not self._options.bookmarks:
            return self._end
        last = self._end - _BEFORE_END
        regular = marked + self._interval
        return min(regular, last) if marked < last else self._end

    def _served(self) -> bool:
        t = self._endpoint.type
        return self._endpoints.find(t.group, t.version, t.plural) is self._endpoint

    def _lines(self, changes: list[Change], start: int) -> Iterator[bytes]:
        for change in changes:
            if change.revision <= start or not change.record.key.startswith(self._prefix):
                continue
            if self._matches is None:
                yield self._encode(change.type.encode(), change.record)
                continue
            # With a selector, objects appear and vanish as they start and stop matching.
            was = change.old is not None and self._matches(change.old)
            if change.new is not None and self._matches(change.new):
                yield self._encode(b"MODIFIED" if was else b"ADDED", change.new)
            elif was and change.old is not None:
                yield self._encode(b"DELETED", change.old.at(change.revision))


def _error_line(error: CompactedError) -> bytes:
    body = api_errors.too_old(error.requested, error.oldest).body()
    return b'{"type":"ERROR","object":%s}\n' % gojson.encode(body)
