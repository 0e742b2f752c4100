"""Server-sent events: a page that has changed gets a message, and fetches itself.

Messages carry no content, so only the page must check the viewer's permissions. Changes are coalesced in a bounded set
for each viewer: at most two messages a second. A viewer that does not read them is disconnected, reconnects by itself,
and gets one message for all changes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import orjson
from aiohttp import web

from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.webaccess.viewers import AccessError, Viewer

MAX_STREAMS: Final = 500

MAX_STREAMS_OF_ONE: Final = 100
"""Of one viewer, so that the others have some."""

INTERVAL_SEC: Final = 0.5
"""Between two messages."""

HEARTBEAT_SEC: Final = 15.0
"""Less than the idle timeout of common proxies. An idle stream then also checks its viewer's permissions."""

_WRITE_SEC: Final = 10.0
_RETRY_MS: Final = 2000


class EventStreams:
    """The streams of all viewers."""

    def __init__(
        self, live: LiveFrameworks, *, interval: float = INTERVAL_SEC, heartbeat: float = HEARTBEAT_SEC
    ) -> None:
        self._live = live
        self._interval = interval
        self._heartbeat = heartbeat
        self._streams: dict[asyncio.Task[object], str] = {}
        """Each with the owner of its viewer."""

    def __len__(self) -> int:
        return len(self._streams)

    def close(self) -> None:
        """End all streams: the server stops."""
        for stream in list(self._streams):
            stream.cancel()

    async def serve(self, request: web.Request, viewer: Viewer) -> web.StreamResponse:
        """Answer with a stream, until its viewer leaves or loses access.

        The query has ``namespace`` and ``uid`` of one Framework, or for the list an optional ``namespace``. ``seen`` is
        the fingerprint of the shown state, and so is ``Last-Event-ID``.
        """
        namespace, uid = request.query.get("namespace", ""), request.query.get("uid", "")
        if (namespace or uid) and not (namespace and await viewer.may_read(namespace)):
            raise web.HTTPNotFound
        own = sum(owner == viewer.owner for owner in self._streams.values())
        if len(self._streams) >= MAX_STREAMS or own >= MAX_STREAMS_OF_ONE:
            raise web.HTTPServiceUnavailable(text="too many pages are open", headers={"Retry-After": "30"})
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        stream = asyncio.current_task()
        if stream is None:
            raise RuntimeError("a request is served by a task")
        self._streams[stream] = viewer.owner
        try:
            await response.prepare(request)
            seen = request.headers.get("Last-Event-ID") or request.query.get("seen", "")
            await self._send(response, viewer, namespace, uid, seen)
        except AccessError:
            # The stream ends. The next request gets the answer that says why.
            pass
        except (ConnectionError, TimeoutError):
            # The viewer has left, or does not read.
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._streams.pop(stream, None)
        return response

    async def _send(self, response: web.StreamResponse, viewer: Viewer, namespace: str, uid: str, seen: str) -> None:
        live = self._live
        changes = live.subscribe()
        loop = asyncio.get_running_loop()
        try:
            await _write(response, f"retry: {_RETRY_MS}\n\n".encode())
            found: list[tuple[str, str]] = []
            due = loop.time() + self._heartbeat
            while True:
                scope = frozenset({namespace}) if namespace else await viewer.readable(live.namespaces)
                if namespace and not await viewer.may_read(namespace):
                    return
                if (mark := self._live.fingerprint(scope, uid)) != seen:
                    names = [one for where, one in found if scope is None or where in scope]
                    seen = mark
                    data = orjson.dumps({"changed": [uid] if uid else names})
                    await _write(response, b"event: changed\nid: %b\ndata: %b\n\n" % (mark.encode(), data))
                    due = loop.time() + self._heartbeat
                elif loop.time() >= due:
                    # Also while other Frameworks change: proxies end idle streams.
                    await _write(response, b": heartbeat\n\n")
                    due = loop.time() + self._heartbeat
                await asyncio.sleep(self._interval)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await changes.wait()
                found = changes.take()
        finally:
            live.unsubscribe(changes)


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(_WRITE_SEC):
        await response.write(data)
