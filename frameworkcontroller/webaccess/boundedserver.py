"""A web server with limits, for the archive and for the pages.

A client must not hold a connection by doing nothing: a slow head, a slow body and an unread answer end with
their connection. If there are too many connections, the one that has been idle the longest makes room.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Self

from aiohttp import web

from frameworkcontroller.webaccess.middleware import DEFAULT_HEADERS, SECURITY_HEADERS

_log: Final = logging.getLogger(__name__)

# Any client may send bytes that are not HTTP. They must neither fill the log nor forge lines in it; header lines may be
# tokens.
_peers_log: Final = logging.getLogger(f"{__name__}.peers")
_peers_log.setLevel(logging.CRITICAL + 1)

MAX_CONNECTIONS: Final = 1000

HEAD_SEC: Final = 20.0
"""Longest time from the connection to the end of the head of its first request, and for a TLS handshake."""

IDLE_SEC: Final = 60.0
"""Longest time without a request, between two requests."""

ANSWER_SEC: Final = 300.0
"""Longest time for a request with its answer, except streams of events: a client may stop reading."""

DRAIN_SEC: Final = 20.0
"""A stopping server waits at most this long for requests in progress."""

_REAP_EVERY_SEC: Final = 5.0
_BACKLOG: Final = 256
_MAX_LINE_BYTES: Final = 16384
_MAX_HEADERS: Final = 64
_EVENT_STREAM: Final = "text/event-stream"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ListenError(Exception):
    """The server cannot listen on its address. The text names the address and the reason."""


class BoundedServer:
    """Serves an application within ``async with``."""

    def __init__(
        self,
        app: web.Application,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        connected: Callable[[int], None] | None = None,
        head_sec: float = HEAD_SEC,
        idle_sec: float = IDLE_SEC,
        answer_sec: float = ANSWER_SEC,
        drain_sec: float = DRAIN_SEC,
        max_connections: int = MAX_CONNECTIONS,
        max_of_address: int | None = None,
    ) -> None:
        """``host`` "": every address of this machine. ``port`` 0: any free one; ``self.port`` has it then.

        ``connected``: is called with the number of connections, every few seconds. ``max_of_address``: connections of
        one client, from their TLS handshake on; more are closed.
        """
        self.host = host
        self.port = port
        self._connected = connected
        self._tls = tls
        self._head_sec = head_sec
        self._answer_sec = answer_sec
        self._max_connections = max_connections
        self._max_of_address = max_of_address
        self._accepted: Counter[str] = Counter()
        """Connections by address of the client, with ``max_of_address``."""
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        app.middlewares.insert(0, self._track)
        app.on_response_prepare.append(self._exempt_streams)
        self._options: dict[str, Any] = {
            "access_log": None,
            "logger": _peers_log,
            "max_line_size": _MAX_LINE_BYTES,
            "max_field_size": _MAX_LINE_BYTES,
            "max_headers": _MAX_HEADERS,
            # Limits of bodies apply to decompressed bytes.
            "auto_decompress": False,
            "keepalive_timeout": idle_sec,
        }
        self._runner = web.AppRunner(app, shutdown_timeout=drain_sec, **self._options)
        self._server: asyncio.Server
        self._reaping: asyncio.Task[None]
        self._active: dict[web.RequestHandler, None] = {}
        """All connections, in the order of the ends of their last requests, or of their own begin."""
        self._deadlines: dict[web.RequestHandler, float] = {}
        self._busy: set[web.RequestHandler] = set()

    @property
    def url(self) -> str:
        """Its URL on this machine, without a path."""
        host = self.host or "127.0.0.1"
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        """Start serving.

        Raises:
            ListenError: the port is in use, or the address does not belong to this machine.
        """
        await self._runner.setup()
        try:
            self._server = await self._loop.create_server(
                self._connection,
                self.host or None,
                self.port,
                reuse_address=True,
                start_serving=self._max_of_address is None,
                **self._tls_options,
            )
        except OSError as error:
            await self._runner.cleanup()
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)
            raise ListenError(f"{self.host or '*'}:{self.port}: {reason}") from None
        self.port = self._server.sockets[0].getsockname()[1]
        if self._max_of_address is not None:
            for listener in self._server.sockets:
                # A socket of its own: asyncio allows no other use of the one of the server.
                own = socket.socket(fileno=os.dup(listener.fileno()))
                own.setblocking(False)
                own.listen(_BACKLOG)
                accepting = self._accept(own, self._max_of_address)
                self._accepting.append(asyncio.create_task(accepting, name="accepting"))
        self._reaping = asyncio.create_task(self._reap(), name="idle connections")
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop listening, wait for the requests in progress, and close the connections."""
        self._server.close()
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        try:
            await self._runner.cleanup()
        finally:
            self._reaping.cancel()

    def _connection(self, lost: Callable[[web.RequestHandler], None] | None = None) -> web.RequestHandler:
        if self._runner.server is None:
            raise RuntimeError("the web server does not run")
        return _Connection(self._runner.server, self._opened, lost or self._lost, loop=self._loop, **self._options)

    @property
    def _tls_options(self) -> dict[str, Any]:
        return {} if self._tls is None else {"ssl": self._tls, "ssl_handshake_timeout": self._head_sec}

    async def _accept(self, listener: socket.socket, most: int) -> None:
        """Accept connections until cancelled. asyncio's own way has no limit of TLS handshakes in progress."""
        with listener:
            while True:
                try:
                    client, peer = await self._loop.sock_accept(listener)
                except OSError as error:
                    # Such as too many open files.
                    _log.warning("Cannot accept a connection: %s", error)
                    await asyncio.sleep(1.0)
                    continue
                address = str(peer[0])
                if self._accepted[address] >= most or self._accepted.total() >= 2 * self._max_connections:
                    client.close()
                    continue
                self._accepted[address] += 1
                task = asyncio.create_task(self._shake_hands(client, address))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, client: socket.socket, address: str) -> None:
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                self._accepted[address] -= 1
                if not self._accepted[address]:
                    del self._accepted[address]

        def lost(connection: web.RequestHandler) -> None:
            release()
            self._lost(connection)

        try:
            await self._loop.connect_accepted_socket(partial(self._connection, lost), client, **self._tls_options)
        except (OSError, asyncio.CancelledError):
            # Of the client, or by a stop of the server.
            client.close()
            release()

    def _opened(self, connection: web.RequestHandler) -> None:
        self._active[connection] = None
        self._deadlines[connection] = self._loop.time() + self._head_sec
        if len(self._active) > self._max_connections:
            # The one that has been idle the longest; if all have requests in progress, the new one.
            self._abort(next(one for one in self._active if one not in self._busy))

    def _lost(self, connection: web.RequestHandler) -> None:
        self._active.pop(connection, None)
        self._deadlines.pop(connection, None)
        self._busy.discard(connection)

    @web.middleware
    async def _track(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = request.protocol
        if connection in self._active:
            self._deadlines[connection] = self._loop.time() + self._answer_sec
            self._busy.add(connection)
        try:
            response = await handler(request)
            if request.writer.output_size and not response.prepared:
                raise ConnectionError("another response to this request has begun")
            return response
        except Exception:
            if request.writer.output_size:
                # An error page would become a part of the response that has begun.
                self._abort(connection)
            raise
        finally:
            if connection in self._active:
                # Now the last one.
                del self._active[connection]
                self._active[connection] = None
            self._busy.discard(connection)

    async def _exempt_streams(self, request: web.Request, response: web.StreamResponse) -> None:
        if response.content_type == _EVENT_STREAM and request.protocol in self._active:
            self._deadlines[request.protocol] = math.inf

    async def _reap(self) -> None:
        """Close connections that exceed the head, idle or answer timeout."""
        while True:
            await asyncio.sleep(min(_REAP_EVERY_SEC, self._head_sec / 4))
            now = self._loop.time()
            for connection in [one for one, deadline in self._deadlines.items() if deadline <= now]:
                self._abort(connection)
            if self._connected is not None:
                self._connected(len(self._active))

    def _abort(self, connection: web.RequestHandler) -> None:
        if connection.transport is not None:
            connection.transport.abort()
        self._lost(connection)


class _Connection(web.RequestHandler):
    """A connection that reports its begin and end. Its answers to malformed requests name no versions."""

    def __init__(
        self,
        server: web.Server,
        opened: Callable[[web.RequestHandler], None],
        lost: Callable[[web.RequestHandler], None],
        **options: Any,
    ) -> None:
        super().__init__(server, **options)
        self._opened = opened
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)
        headers = {**DEFAULT_HEADERS, **SECURITY_HEADERS}
        response = web.Response(status=status, text=f"{status} {HTTPStatus(status).phrase}\n", headers=headers)
        response.force_close()
        return response
