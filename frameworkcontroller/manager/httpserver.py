"""An HTTP/1.1 server for probes and scrapes: one GET or HEAD a connection, answered at once, without a body in it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple, cast

_log: Final = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
"""With more, the oldest is closed: idle connections must not keep out the probes of the kubelet."""

CONNECTION_SEC: Final = 10.0
"""Maximum life of a connection. Each serves one request: scrapes and probes are too rare to keep one open."""

_MAX_HEAD_BYTES: Final = 16 * 1024

_REQUEST_LINE: Final = re.compile(r"([A-Z]+) (?:https?://[^/? ]*)?(/[^? ]*)(?:\?[^ ]*)? HTTP/1\.[01]", re.ASCII)

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Connection": "close",
    # Without versions, which would help an attacker.
    "Server": "frameworkcontroller",
    "X-Content-Type-Options": "nosniff",
}


class HttpRequest(NamedTuple):
    """A request: the path without its query, and the header Accept."""

    path: str
    accept: str


class Response(NamedTuple):
    """The answer to a GET. That to a HEAD is the same without the body."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


class HttpServer:
    """Serves the responses of ``respond``, from ``start`` until ``close``."""

    def __init__(self, respond: Callable[[HttpRequest], Response | None]) -> None:
        """``respond`` returns None for a path that is not served."""
        self.respond = respond
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server
        self._connections: OrderedDict[_Connection, asyncio.TimerHandle] = OrderedDict()

    async def start(self, host: str | None, port: int) -> int:
        """Listen. Return the port. Raises OSError."""
        self._server = await self._loop.create_server(lambda: _Connection(self), host, port, reuse_address=True)
        used: int = self._server.sockets[0].getsockname()[1]
        return used

    def close(self) -> None:
        """Stop listening and abort all connections."""
        self._server.close()
        for connection in list(self._connections):
            self._abort(connection)

    def opened(self, connection: _Connection) -> None:
        """Limit the number of connections and the life of this one."""
        self._connections[connection] = self._loop.call_later(CONNECTION_SEC, self._abort, connection)
        if len(self._connections) > MAX_CONNECTIONS:
            self._abort(next(iter(self._connections)))

    def lost(self, connection: _Connection) -> None:
        """Forget the connection."""
        if connection in self._connections:
            self._connections.pop(connection).cancel()

    def _abort(self, connection: _Connection) -> None:
        self.lost(connection)
        connection.transport.abort()


class _Connection(asyncio.Protocol):
    """After its response it is half-closed: closed with bytes of the request unread, the client might lose that."""

    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = b""
        self._responded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport does not inherit from asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio has it
        self._server.lost(self)

    def data_received(self, data: bytes) -> None:
        if self._responded:
            return
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if end or len(head) > _MAX_HEAD_BYTES or not head[:1].isupper():
            self._responded = True
            self.transport.write(_answer(head.decode("latin-1"), self._server.respond))
            self.transport.write_eof()
            self._head = b""


def _answer(head: str, respond: Callable[[HttpRequest], Response | None]) -> bytes:
    """The whole answer to the request line and the header lines."""
    request_line, *lines = head.split("\r\n")
    parts = _REQUEST_LINE.fullmatch(request_line)
    if parts is None or len(head) > _MAX_HEAD_BYTES:
        return _encode(_error(HTTPStatus.BAD_REQUEST))
    method, path = parts.groups()
    if method not in ("GET", "HEAD"):
        return _encode(_error(HTTPStatus.METHOD_NOT_ALLOWED), {"Allow": "GET, HEAD"})
    fields = [line.partition(":") for line in lines]
    accept = ",".join(value.strip() for name, _, value in fields if name.lower() == "accept")
    try:
        response = respond(HttpRequest(path, accept)) or _error(HTTPStatus.NOT_FOUND)
    except Exception:  # noqa: BLE001 - an error concerns this request only
        _log.exception("Cannot serve %s", path)
        response = _error(HTTPStatus.INTERNAL_SERVER_ERROR)
    return _encode(response, has_body=method != "HEAD")


def _error(status: HTTPStatus) -> Response:
    return Response(f"{status.value}: {status.phrase}".encode(), status=status)


def _encode(response: Response, headers: dict[str, str] | None = None, *, has_body: bool = True) -> bytes:
    fields = _HEADERS | (headers or {})
    fields["Content-Type"] = response.content_type
    fields["Content-Length"] = str(len(response.body))
    fields["Date"] = formatdate(usegmt=True)
    lines = [f"HTTP/1.1 {response.status.value} {response.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    head = "\r\n".join([*lines, "", ""]).encode()
    return head + response.body if has_body else head
