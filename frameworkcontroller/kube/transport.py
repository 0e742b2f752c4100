"""HTTP to one API server: sessions, credentials, timeouts, and the mapping of failures to errors."""

from __future__ import annotations

import asyncio
import io
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, Self
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from frameworkcontroller import __version__
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import ApiError, SilenceError, TransportError, error_from_answer
from frameworkcontroller.kube.lineframer import LineFramer, LineTooLong
from frameworkcontroller.kube.ratelimiter import RateLimiter

_CONNECT_TIMEOUT_SECONDS: Final = 10.0
# Longer than the 60 s after which an API server answers 504 by itself.
_READ_TIMEOUT_SECONDS: Final = 65.0
# API servers close idle connections after 90 s, some proxies after 75 s. The side that closes first never sends a
# request into a connection that is being closed.
_KEEPALIVE_SECONDS: Final = 60.0

_READ_BUFFER_BYTES: Final = 512 * 1024
# The event loop handles a full buffer in one step: for a watch some dozens of Pods, two milliseconds.
_STREAM_BUFFER_BYTES: Final = 128 * 1024
_LARGE_BODY_BYTES: Final = 1024 * 1024
_BROKEN: Final = (aiohttp.ClientError, asyncio.TimeoutError, OSError, EOFError)


class Request(NamedTuple):
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

    It repeats requests only where that is safe: once after a 401, with renewed credentials; and (by aiohttp) idempotent
    requests, which are neither POST nor PATCH, whose kept-alive connection was closed. Proxies and credentials come
    from the connection alone: aiohttp's ``trust_env`` also applies ``~/.netrc``, does not support networks in
    ``NO_PROXY``, and costs two thread switches per request.
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

        ``max_connections`` must exceed the number of concurrent requests, or slow requests delay the others.
        ``wall`` returns seconds since the epoch.
        """
        self._connection = connection
        self._limiter = limiter
        self._fence = fence
        self._observe = observe
        self._max_connections = max_connections
        # Within a cluster, compression costs the API server more than the network gains.
        self._fixed_headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._wall = wall
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Pending and later requests fail with TransportError."""
        self._closed = True
        for session in self._sessions.values():
            await session.close()

    async def exchange(self, request: Request) -> bytes:
        """Return the body of a 2xx answer. Raises ApiError for any other, TransportError for no whole answer."""
        async with self._answered(request) as response:
            body = await self._read(request, response)
            if not 200 <= response.status < 300:
                raise self._refusal(request, response, body)
            return body

    @asynccontextmanager
    async def stream(self, request: Request, framer: LineFramer | None) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines, or without a ``framer`` the chunks, of a possibly endless answer.

        They end when the server ends it. Raises TransportError if it breaks off.
        """
        async with self._answered(request) as response:
            if response.status != 200:
                raise self._refusal(request, response, await self._read(request, response))
            async with aclosing(self._each_part(request, response.content, framer)) as parts:
                yield parts

    async def _each_part(
        self, request: Request, content: aiohttp.StreamReader, framer: LineFramer | None
    ) -> AsyncGenerator[bytes, None]:
        try:
            while chunk := await content.readany():
                for part in (chunk,) if framer is None else framer.feed(chunk):
                    yield part
            if framer is not None and framer.pending:
                raise EOFError("the last line is incomplete")
        except (*_BROKEN, LineTooLong) as error:
            raise self._failure(request, error) from error

    @asynccontextmanager
    async def _answered(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request once it may be sent, and yield the answer after its status and headers."""
        if self._limiter is not None:
            await self._limiter.acquire(request.flow)
        if self._fence is not None:
            await self._fence.wait_leading()
        clock = asyncio.get_running_loop().time
        began = clock()
        response = None
        try:
            try:
                response = await self._open(request)
            except _BROKEN as error:
                raise self._failure(request, error) from error
            yield response
        finally:
            code = received = 0
            if response is not None:
                code, received = response.status, response.content.total_bytes
                # Keeps the connection if the answer was read to its end, else closes it.
                response.release()
            if self._observe is not None:
                sent = 0 if request.body is None else len(request.body)
                self._observe(Exchange(request.verb, request.resource, code, clock() - began, sent, received))

    async def _open(self, request: Request) -> aiohttp.ClientResponse:
        """Return an answer after its status and headers."""
        body, silence = request.body, request.silence
        text = f"{self._connection.server}{request.path}"
        url = URL(f"{text}?{urlencode(request.query)}" if request.query else text, encoded=True)
        late = silence is None or request.begins_late
        renewed = False
        while True:
            credentials = await self._connection.headers()
            # A stream may be silent for long, but its headers must arrive within the usual timeout.
            async with nullcontext() if late else asyncio.timeout(_READ_TIMEOUT_SECONDS):
                response = await self._session(stream=silence is not None).request(
                    request.method,
                    url,
                    headers=[*request.headers.items(), *credentials],
                    # A large body written at once would block the event loop.
                    data=io.BytesIO(body) if body is not None and len(body) >= _LARGE_BODY_BYTES else body,
                    allow_redirects=False,
                    timeout=_timeout(silence or _READ_TIMEOUT_SECONDS),
                    # Connections with earlier TLS settings get no further requests, and are closed once idle.
                    ssl=self._connection.tls or True,
                    server_hostname=self._connection.access.tls.server_name,
                )
            if response.status != 401 or renewed:
                return response
            # After a 401 nothing was done: repeating the request is safe for every verb.
            await response.read()
            renewed = await self._connection.renew_after_refusal(credentials)
            if not renewed:
                return response

    def _session(self, *, stream: bool) -> aiohttp.ClientSession:
        if self._closed:
            raise TransportError("the client is closed", maybe_sent=False)
        if stream not in self._sessions:
            self._sessions[stream] = aiohttp.ClientSession(
                connector=_Connector(
                    self._fence,
                    # Streams keep connections for minutes, and must not use up those of other requests.
                    limit=0 if stream else self._max_connections,
                    keepalive_timeout=_KEEPALIVE_SECONDS,
                    socket_factory=_make_socket,
                ),
                headers=self._fixed_headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_STREAM_BUFFER_BYTES if stream else _READ_BUFFER_BYTES,
                proxy=self._connection.proxy,
            )
        return self._sessions[stream]

    async def _read(self, request: Request, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await response.read()
        except _BROKEN as error:
            raise self._failure(request, error) from error

    def _refusal(self, request: Request, response: aiohttp.ClientResponse, body: bytes) -> ApiError:
        named = f"{request.method} {self._connection.server}{request.path}"
        return error_from_answer(response.status, body, response.headers, request=named, now=self._wall())

    def _failure(self, request: Request, error: Exception) -> TransportError:
        server = f"{self._connection.server} ({self._connection.origin})"
        maybe_sent = True
        match error:
            case aiohttp.ConnectionTimeoutError():
                problem, maybe_sent = f"{server} did not accept a connection in time", False
            case aiohttp.ClientConnectorError():
                problem, maybe_sent = f"cannot connect to {server}: {error}", False
            case aiohttp.ClientHttpProxyError():
                problem = f"the proxy refused to connect to {server}: {error.status} {error.message}"
                maybe_sent = False
            case asyncio.TimeoutError():
                return SilenceError(f"{request}: {server} fell silent")
            case aiohttp.ClientPayloadError():
                problem = f"{server} broke off its answer"
            case aiohttp.ServerDisconnectedError():
                problem = f"{server} closed the connection without an answer"
            case _:
                problem = f"{server}: {type(error).__name__}: {error}"
        return TransportError(f"{request}: {problem}", maybe_sent=maybe_sent)


class _Connector(aiohttp.TCPConnector):
    """Checks the fence after it has made a connection, right before the request is written."""

    def __init__(self, fence: Fence | None, **options: Any) -> None:
        super().__init__(**options)
        self._fence = fence

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """As the base class. Also raises the error of the fence."""
        connection = await super().connect(req, traces, timeout)
        if self._fence is not None:
            try:
                self._fence.check()
            except BaseException:
                connection.release()
                raise
        return connection

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        """As the base class, which ends TLS with the server's consent, and does not wait for that when it closes."""
        if self._force_close or should_close or protocol.should_close:
            protocol.abort()
        super()._release(key, protocol, should_close=should_close)


@lru_cache(16)
def _timeout(silence: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None,
        # Also bounds what sock_connect does not: the answer of a proxy to CONNECT, the wait for a free connection.
        connect=_READ_TIMEOUT_SECONDS,
        sock_connect=_CONNECT_TIMEOUT_SECONDS,
        sock_read=silence,
    )


def _make_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that detects within about 30 s that its peer has vanished."""
    family, kind, protocol, _, _ = info
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        # Not all systems have these; without them, read timeouts must do.
        with suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
