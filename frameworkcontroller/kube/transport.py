"""HTTP to one API server: connections, credentials, timeouts, and the mapping of failures to errors."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, Self
from urllib.parse import urlencode, urlsplit

from frameworkcontroller import __version__
from frameworkcontroller.kube import errors
from frameworkcontroller.kube.answerparser import BadAnswer, Head
from frameworkcontroller.kube.connection import Connection, Headers
from frameworkcontroller.kube.connector import Connector, ProxyRefused, Security
from frameworkcontroller.kube.httpconnection import BrokenOff, HttpConnection, NoAnswer, TooManyBytes
from frameworkcontroller.kube.lineframer import LineFramer, LineTooLong
from frameworkcontroller.kube.ratelimiter import RateLimiter

# Longer than the 60 s after which an API server answers 504 by itself.
_READ_TIMEOUT_SECONDS: Final = 65.0
# API servers close idle connections after 90 s, some proxies after 75 s. The side that closes first never sends a
# request into a connection that is being closed.
_KEEPALIVE_SECONDS: Final = 60.0

_MAX_RENDERED: Final = 64
_NOT_IN_HEADERS: Final = re.compile(r"[\r\n\0]")
_NOT_IN_PATHS: Final = re.compile(r"[^!-~]")
_BROKEN: Final = (OSError, BadAnswer)


class ApiRequest(NamedTuple):
    """A request. ``verb`` and ``resource`` are as in `Exchange`, ``flow`` is as in `RateLimiter`."""

    verb: str
    resource: str
    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str] | None = None
    body: bytes | None = None
    flow: str = ""
    silence: float | None = None
    """The read timeout of a stream, in seconds; None: not a stream."""
    begins_late: bool = False
    """The headers of the stream may be as late as its first byte."""
    at_most: float = math.inf
    """The bytes that its answer may have."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Exchange(NamedTuple):
    """One finished request, for metrics.

    ``verb`` and ``resource`` are as in RBAC rules, for example ``get`` and ``pods/status``. ``code`` is 0 without an
    answer. ``seconds`` excludes the wait for the rate limit; for a watch, it is the time for which it was open.
    """

    verb: str
    resource: str
    code: int
    seconds: float
    sent_bytes: int
    received_bytes: int


class Fence(Protocol):
    """Decides when requests may be sent, for example only while this process is the leader."""

    async def wait_leading(self) -> None:
        """Wait until requests may be sent."""

    def check(self) -> None:
        """Raise a KubeError, with which the request then fails, unless requests may be sent now."""


class Transport:
    """Sends requests to the server of a connection. Belongs to one event loop.

    It repeats requests only where that is safe: once after a 401, with renewed credentials; and idempotent requests,
    which are neither POST nor PATCH, while kept-alive connections are closed without an answer, the last time on a new
    connection. Redirects are not followed.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        limiter: RateLimiter | None = None,
        fence: Fence | None = None,
        observe: Callable[[Exchange], None] | None = None,
        user_agent: str = f"frameworkcontroller/{__version__}",
        max_connections: int = 300,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """The ``limiter`` is fair between the flows of requests. Requests wait for the ``fence``, which is checked
        again once they have a connection. ``observe`` is called after each request, successful or not, and must not
        raise.

        ``max_connections`` must exceed the number of concurrent requests, or slow requests delay the others. It does
        not count streams, which keep connections for minutes. ``wall`` returns seconds since the epoch.
        """
        self._connection = connection
        self._limiter = limiter
        self._fence = fence
        self._observe = observe
        self._wall = wall
        self._connector = Connector(connection.server, connection.proxy)
        self._path = urlsplit(connection.server).path
        self._slots = asyncio.Semaphore(max_connections)
        # Within a cluster, compression costs the API server more than the network gains.
        self._fixed_headers = (
            f"Host: {self._connector.host}\r\n{self._connector.headers}"
            f"User-Agent: {user_agent}\r\nAccept-Encoding: identity\r\n"
        )
        self._rendered: dict[tuple[tuple[str, str], ...], str] = {}
        self._rendered_for: Headers | None = None
        self._open: dict[HttpConnection, Security] = {}
        self._idle: list[HttpConnection] = []
        self._all_closed: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Pending and later requests fail with TransportError."""
        self._all_closed = asyncio.Event()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            await self._all_closed.wait()

    async def exchange(self, request: ApiRequest) -> bytes:
        """Return the body of a 2xx answer. Raises ApiError for any other, TransportError for no whole answer."""
        call = await self._admit(request)
        try:
            async with self._slots:
                connection, head = await self._answered(call)
                body = await self._read(request, connection)
        finally:
            self._end(call)
        if not 200 <= head.status < 300:
            raise self._refusal(request, head, body)
        return body

    @asynccontextmanager
    async def stream(self, request: ApiRequest, framer: LineFramer | None) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines, or without a ``framer`` the chunks, of a possibly endless answer.

        They end when the server ends it. Raises TransportError if it breaks off.
        """
        call = await self._admit(request)
        try:
            connection, head = await self._answered(call)
            if head.status != 200:
                raise self._refusal(request, head, await self._read(request, connection))
            async with aclosing(self._each_part(request, connection, framer)) as parts:
                yield parts
        finally:
            self._end(call)

    async def _each_part(
        self, request: ApiRequest, connection: HttpConnection, framer: LineFramer | None
    ) -> AsyncGenerator[bytes, None]:
        try:
            while chunk := await connection.read():
                for part in (chunk,) if framer is None else framer.feed(chunk):
                    yield part
            if framer is not None and framer.pending:
                raise BrokenOff("the last line is incomplete")
        except (*_BROKEN, LineTooLong) as error:
            raise self._failure(request, error) from error

    async def _admit(self, request: ApiRequest) -> _Call:
        if self._limiter is not None:
            await self._limiter.acquire(request.flow)
        if self._fence is not None:
            await self._fence.wait_leading()
        return _Call(request, asyncio.get_running_loop().time())

    def _end(self, call: _Call) -> None:
        self._release(call)
        if self._observe is not None:
            request, body = call.request, call.request.body
            seconds = asyncio.get_running_loop().time() - call.began
            sent = 0 if body is None else len(body)
            self._observe(Exchange(request.verb, request.resource, call.code, seconds, sent, call.received))

    async def _answered(self, call: _Call) -> tuple[HttpConnection, Head]:
        """Send the request. Return its connection and the head of the answer."""
        renewed = False
        while True:
            credentials = await self._connection.headers()
            connection, head = await self._ask(call, credentials)
            call.code = head.status
            if head.status != 401 or renewed:
                return connection, head
            # After a 401 nothing was done: repeating the request is safe for every verb.
            await self._read(call.request, connection)
            renewed = await self._connection.renew_after_refusal(credentials)
            if not renewed:
                return connection, head
            self._release(call)

    async def _ask(self, call: _Call, credentials: Headers) -> tuple[HttpConnection, Head]:
        request = call.request
        line, body = self._first_bytes(request, credentials), request.body or b""
        # A stream may be silent for long, but its headers must arrive within the usual timeout.
        silence = request.silence
        limit = silence if silence is not None and request.begins_late else _READ_TIMEOUT_SECONDS
        while True:
            connection, is_new = await self._connected(request)
            call.connection = connection
            if self._fence is not None:
                self._fence.check()
            try:
                await connection.send(line, body, limit=limit, at_most=request.at_most)
                head = await connection.opened(whole=silence is None)
            except NoAnswer as error:
                if is_new or request.method in ("POST", "PATCH"):
                    raise self._failure(request, error) from error
                self._release(call)
            except _BROKEN as error:
                raise self._failure(request, error) from error
            else:
                if silence is not None:
                    connection.set_limit(silence)
                return connection, head

    async def _connected(self, request: ApiRequest) -> tuple[HttpConnection, bool]:
        """Return a connection and whether it is new."""
        if self._all_closed is not None:
            raise errors.TransportError("the client is closed", maybe_sent=False)
        security = Security(self._connection.tls, self._connection.access.tls.server_name)
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and self._open[connection] == security:
                return connection, False
            # Connections with earlier TLS settings get no further requests.
            connection.abort()
        try:
            # The connector does not bound DNS lookups and a proxy's answer to CONNECT.
            async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
                connection = await self._connector.connect(security, self._on_closed)
        except _BROKEN as error:
            raise self._failure(request, error, connected=False) from error
        self._open[connection] = security
        if not connection.is_open or self._all_closed is not None:
            self._open.pop(connection)
            connection.abort()
            raise errors.TransportError(f"{request}: the connection was closed", maybe_sent=False)
        return connection, True

    def _on_closed(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._all_closed is not None and not self._open:
            self._all_closed.set()

    def _release(self, call: _Call) -> None:
        """Keep the connection if the answer was read to its end, else close it."""
        connection, call.connection = call.connection, None
        if connection is not None:
            call.received = connection.received
            if connection.release(_KEEPALIVE_SECONDS):
                self._idle.append(connection)

    def _first_bytes(self, request: ApiRequest, credentials: Headers) -> bytes:
        if self._rendered_for is not credentials or len(self._rendered) > _MAX_RENDERED:
            self._rendered.clear()
            self._rendered_for = credentials
        named = tuple(request.headers.items())
        headers = self._rendered.get(named)
        if headers is None:
            pairs = [f"{name}: {value}" for name, value in (*named, *credentials)]
            if any(map(_NOT_IN_HEADERS.search, pairs)):
                raise ValueError("a header has a line break or a null character")
            headers = self._rendered[named] = self._fixed_headers + "".join(f"{pair}\r\n" for pair in pairs)
        path = f"{self._connector.target}{self._path}{request.path}"
        if request.query:
            path = f"{path}?{urlencode(request.query)}"
        if _NOT_IN_PATHS.search(path):
            raise ValueError(f"not percent-encoded: {path!r}")
        length = "" if request.body is None else f"Content-Length: {len(request.body)}\r\n"
        return f"{request.method} {path} HTTP/1.1\r\n{headers}{length}\r\n".encode()

    async def _read(self, request: ApiRequest, connection: HttpConnection) -> bytes:
        try:
            return await connection.read_all()
        except _BROKEN as error:
            raise self._failure(request, error) from error

    def _refusal(self, request: ApiRequest, head: Head, body: bytes) -> errors.ApiError:
        named = f"{request.method} {self._connection.server}{request.path}"
        headers = {name.title(): value for name, value in head.headers.items() if name in ("retry-after", "location")}
        return errors.error_from_answer(head.status, body, headers, request=named, now=self._wall())

    def _failure(self, request: ApiRequest, error: Exception, *, connected: bool = True) -> errors.TransportError:
        server = f"{self._connection.server} ({self._connection.origin})"
        reason = f" ({error})" if str(error) else ""
        match error:
            case ProxyRefused():
                problem = f"the proxy refused to connect to {server}: {error}"
            case TimeoutError() if not connected:
                problem = f"{server} did not accept a connection in time"
            case _ if not connected:
                problem = f"cannot connect to {server}: {str(error) or type(error).__name__}"
            case TimeoutError():
                return errors.SilenceError(f"{request}: {server} fell silent")
            case TooManyBytes():
                return errors.AnswerTooLargeError(f"{request}: the answer of {server} has {error}")
            case BrokenOff():
                problem = f"{server} broke off its answer{reason}"
            case NoAnswer():
                problem = f"{server} closed the connection without an answer{reason}"
            case BadAnswer():
                problem = f"{server} sent an invalid answer: {error}"
            case _:
                problem = f"{server}: {type(error).__name__}: {error}"
        return errors.TransportError(f"{request}: {problem}", maybe_sent=connected)


@dataclass(slots=True)
class _Call:
    """One exchange or stream."""

    request: ApiRequest
    began: float
    connection: HttpConnection | None = None
    code: int = 0
    received: int = 0
