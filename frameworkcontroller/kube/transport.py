"""HTTP to one API server: sessions, credentials, timeouts, and the mapping of failures to errors."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from frameworkcontroller import __version__
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import SilenceError, TransportError, error_from_answer
from frameworkcontroller.kube.lineframer import LineFramer, LineTooLong

USER_AGENT: Final = f"frameworkcontroller/{__version__}"

_CONNECT_TIMEOUT_SECONDS: Final = 10.0
# Longer than the 60 s after which an API server answers 504 by itself.
_READ_TIMEOUT_SECONDS: Final = 65.0
# For watches without bookmarks.
WATCH_SILENCE_SECONDS: Final = 3600.0
# API servers close idle connections after 90 s, some proxies after 75 s. The side that closes first never sends a
# request into a connection that is being closed.
_KEEPALIVE_SECONDS: Final = 60.0

_READ_BUFFER_BYTES: Final = 512 * 1024
# The event loop handles a full buffer in one step: for a watch some dozens of Pods, two milliseconds.
_WATCH_BUFFER_BYTES: Final = 128 * 1024
_LARGE_BODY_BYTES: Final = 1024 * 1024
_BROKEN: Final = (aiohttp.ClientError, asyncio.TimeoutError, OSError, EOFError)


@dataclass(frozen=True, slots=True)
class Request:
    """A request. ``verb`` and ``resource`` are as in `Exchange`."""

    verb: str
    resource: str
    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str] | None = None
    body: bytes | None = None
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
        observe: Callable[[Exchange], None] | None,
        user_agent: str,
        max_connections: int,
        wall: Callable[[], float],
        check: Callable[[], None] | None = None,
    ) -> None:
        """``check`` is called before a request is written to its connection; if it raises, nothing is written."""
        self._check = check
        self._connection = connection
        self._observe = observe
        self._max_connections = max_connections
        # Within a cluster, compression costs the API server more than the network gains.
        self._fixed_headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._wall = wall
        self._pools: dict[bool, _Pool] = {}
        self._retired: list[_Pool] = []
        self._generation = connection.generation
        self._closed = False

    async def close(self) -> None:
        """Close all connections. Pending requests fail with TransportError."""
        self._closed = True
        for pool in (*self._pools.values(), *self._retired):
            await pool.session.close()
        self._pools.clear()
        self._retired.clear()

    async def exchange(self, request: Request) -> bytes:
        """Return the body of a 2xx answer. Raises ApiError for any other, TransportError for no whole answer."""
        async with self._answered(request) as answer:
            body = await self._read(request, answer.response)
            answer.received_bytes = len(body)
            if not 200 <= answer.response.status < 300:
                raise self._refusal(request, answer.response, body)
            return body

    @asynccontextmanager
    async def lines(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines of a watch. They end when the server ends it; TransportError if it breaks off."""
        async with self._streamed(request) as answer, aclosing(self._each_line(request, answer)) as lines:
            yield lines

    @asynccontextmanager
    async def chunks(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the chunks of a possibly endless answer, such as a log. Raises the errors of `lines`."""
        async with self._streamed(request) as answer, aclosing(self._each_chunk(request, answer.response)) as chunks:
            yield chunks

    async def _each_line(self, request: Request, answer: _Answer) -> AsyncGenerator[bytes, None]:
        framer = LineFramer()
        try:
            while chunk := await answer.response.content.readany():
                answer.received_bytes += len(chunk)
                for line in framer.feed(chunk):
                    yield line
            if framer.pending:
                raise EOFError("the last line is incomplete")
        except (*_BROKEN, LineTooLong) as error:
            raise self._failure(request, error) from error

    async def _each_chunk(self, request: Request, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        try:
            while chunk := await response.content.readany():
                yield chunk
        except _BROKEN as error:
            raise self._failure(request, error) from error

    @asynccontextmanager
    async def _streamed(self, request: Request) -> AsyncIterator[_Answer]:
        async with self._answered(request) as answer:
            if answer.response.status != 200:
                raise self._refusal(request, answer.response, await self._read(request, answer.response))
            yield answer

    @asynccontextmanager
    async def _answered(self, request: Request) -> AsyncIterator[_Answer]:
        """Yield an answer after its status and headers, and call ``observe`` at the end."""
        clock = asyncio.get_running_loop().time
        began = clock()
        code = received = 0
        try:
            pool, response = await self._open(request)
            code = response.status
            answer = _Answer(response)
            try:
                yield answer
            finally:
                received = answer.received_bytes
                await self._leave(pool, response)
        finally:
            if self._observe is not None:
                sent = 0 if request.body is None else len(request.body)
                self._observe(Exchange(request.verb, request.resource, code, clock() - began, sent, received))

    async def _open(self, request: Request) -> tuple[_Pool, aiohttp.ClientResponse]:
        """Return an answer after its status and headers; `_leave` must follow."""
        body, silence = request.body, request.silence
        text = f"{self._connection.server}{request.path}"
        url = URL(f"{text}?{urlencode(request.query)}" if request.query else text, encoded=True)
        renewed = False
        while True:
            credentials = await self._connection.headers()
            pool = await self._pool(watch=silence is not None)
            pool.users += 1
            try:
                sending = pool.session.request(
                    request.method,
                    url,
                    headers=[*request.headers.items(), *credentials.items()],
                    # A large body written at once would block the event loop.
                    data=io.BytesIO(body) if body is not None and len(body) >= _LARGE_BODY_BYTES else body,
                    allow_redirects=False,
                    timeout=_TIMEOUT if silence is None else _timeout(silence),
                    server_hostname=self._connection.tls_server_name,
                )
                if silence is None:
                    response = await sending
                else:
                    # A stream may be silent for long, but its headers must arrive within the usual timeout.
                    async with asyncio.timeout(None if request.begins_late else _READ_TIMEOUT_SECONDS):
                        response = await sending
            except BaseException as error:
                pool.users -= 1
                await self._close_unused()
                if isinstance(error, _BROKEN):
                    raise self._failure(request, error) from error
                raise
            if response.status != 401 or renewed:
                return pool, response
            try:
                await self._read(request, response)
                # After a 401 nothing was done: repeating the request is safe for every verb.
                renewed = await self._connection.renew_after_refusal(credentials)
            except BaseException:
                await self._leave(pool, response)
                raise
            if not renewed:
                return pool, response
            await self._leave(pool, response)

    async def _leave(self, pool: _Pool, response: aiohttp.ClientResponse) -> None:
        """Return the connection to the pool if the answer was read to its end, else close it."""
        response.release()
        pool.users -= 1
        if self._retired:
            await self._close_unused()

    async def _close_unused(self) -> None:
        unused = [pool for pool in self._retired if not pool.users]
        self._retired = [pool for pool in self._retired if pool.users]
        for pool in unused:
            await pool.session.close()

    async def _pool(self, *, watch: bool) -> _Pool:
        if self._generation != self._connection.generation:
            # New TLS credentials: pending requests finish on the old connections, which are closed then.
            self._generation = self._connection.generation
            self._retired += self._pools.values()
            self._pools.clear()
            await self._close_unused()
        if self._closed:
            raise TransportError("the client is closed", maybe_sent=False)
        if watch in self._pools:
            return self._pools[watch]
        connector = _Connector(
            self._check,
            # Watches keep connections for minutes, and must not use up those of other requests.
            limit=0 if watch else self._max_connections,
            ssl=self._connection.tls or True,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            socket_factory=_make_socket,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            headers=self._fixed_headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_WATCH_BUFFER_BYTES if watch else _READ_BUFFER_BYTES,
            trust_env=False,
            proxy=self._connection.proxy,
        )
        pool = self._pools[watch] = _Pool(session)
        return pool

    async def _read(self, request: Request, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await response.read()
        except _BROKEN as error:
            raise self._failure(request, error) from error

    def _refusal(self, request: Request, response: aiohttp.ClientResponse, body: bytes) -> Exception:
        return error_from_answer(
            response.status,
            body,
            request=f"{request.method} {self._connection.server}{request.path}",
            now=self._wall(),
            retry_after=response.headers.get("Retry-After"),
            location=response.headers.get("Location"),
        )

    def _failure(self, request: Request, error: Exception) -> TransportError:
        server = f"{self._connection.server} ({self._connection.origin})"
        match error:
            case aiohttp.ConnectionTimeoutError():
                return TransportError(f"{request}: {server} did not accept a connection in time", maybe_sent=False)
            case aiohttp.ClientConnectorError():
                return TransportError(f"{request}: cannot connect to {server}: {error}", maybe_sent=False)
            case aiohttp.ClientHttpProxyError():
                return TransportError(
                    f"{request}: the proxy refused to connect to {server}: {error.status} {error.message}",
                    maybe_sent=False,
                )
            case asyncio.TimeoutError():
                return SilenceError(f"{request}: {server} fell silent")
            case aiohttp.ClientPayloadError():
                return TransportError(f"{request}: {server} broke off its answer")
            case aiohttp.ServerDisconnectedError():
                return TransportError(f"{request}: {server} closed the connection without an answer")
            case _:
                return TransportError(f"{request}: {server}: {type(error).__name__}: {error}")


@dataclass(slots=True)
class _Answer:
    """An answer after its status and headers, and the bytes of its body so far."""

    response: aiohttp.ClientResponse
    received_bytes: int = 0


class _Connector(aiohttp.TCPConnector):
    """Calls ``check`` after it has made a connection, right before the request is written.

    It bounds the time to make one: aiohttp has no timeout for the answer of a proxy to CONNECT.
    """

    def __init__(self, check: Callable[[], None] | None, **options: Any) -> None:
        super().__init__(**options)
        self._check = check

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.client_proto.ResponseHandler:
        async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
            return await super()._create_connection(req, traces, timeout)

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """As the base class. Also raises the exceptions of ``check``."""
        connection = await super().connect(req, traces, timeout)
        if self._check is not None:
            try:
                self._check()
            except BaseException:
                connection.release()
                raise
        return connection


@dataclass(slots=True, eq=False)
class _Pool:
    """A session and the number of its pending requests."""

    session: aiohttp.ClientSession
    users: int = 0


def _timeout(silence: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS, sock_read=silence)


_TIMEOUT: Final = _timeout(_READ_TIMEOUT_SECONDS)


def _make_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that detects within about 30 s that its peer has vanished."""
    family, kind, protocol, _, _ = info
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not all systems have these; without them, read timeouts must do.
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        option = getattr(socket, name, None)
        if option is not None:
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock
