"""A reverse proxy in front of an API server, embedded or real, on virtual or real time; subclasses misbehave."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp
import orjson
from aiohttp import web
from yarl import URL

from frameworkcontroller.local.apiserver.listening import accept_no_more
from frameworkcontroller.local.apiserver.paths import parse_resource_path
from tests.support.abruptconnector import AbruptConnector

_HOP_BY_HOP: Final = frozenset({"connection", "host", "transfer-encoding", "content-length", "keep-alive"})
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


@dataclass(frozen=True)
class Request:
    """A request in the terms of RBAC rules."""

    at: float
    """Seconds of the event loop."""
    verb: str
    group: str
    resource: str
    """Plural, with ``/subresource`` if there is one; the path of a request that is not for a resource."""
    namespace: str
    name: str

    def __str__(self) -> str:
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.at:9.2f} {self.verb:8} {self.resource} {where}"

    @property
    def plural(self) -> str:
        """The resource without subresource; "" if it is not for a resource."""
        return "" if self.resource.startswith("/") else self.resource.partition("/")[0]


class ConnectionDropped(Exception):
    """The connection of the client is to be dropped."""


class ReverseProxy:
    """Listens on one port of loopback and forwards to ``upstream``; ``async with``. Subclasses override `respond`."""

    def __init__(
        self,
        upstream: str,
        *,
        tls: ssl.SSLContext | None = None,
        credentials: Callable[[], Awaitable[list[tuple[str, str]]]] | None = None,
    ) -> None:
        """``upstream``: ``http[s]://host:port``, with ``tls`` for https. ``credentials`` returns headers to add."""
        self._upstream = upstream
        self._tls = tls
        self._credentials = credentials
        self._port = 0
        self._bound: socket.socket | None = None
        self._turn = asyncio.Lock()
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        # No keep-alive: aiohttp must not repeat requests.
        connector = AbruptConnector(ssl=self._tls or True, limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=60)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )
        await self.accept()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.refuse()
        if self._bound is not None:
            self._bound.close()
        if self._session is not None:
            await self._session.close()

    async def accept(self) -> None:
        """Listen (again)."""
        async with self._turn:
            if self._listener is None:
                # Cancellation: a client that ends a watch ends it at the API server, too.
                self._server = web.Server(
                    self._handle,
                    access_log=None,
                    handler_cancellation=True,
                    keepalive_timeout=3600.0,
                    tcp_keepalive=False,
                )
                bound, self._bound = self._bound or self._bind(), None
                self._port = bound.getsockname()[1]
                # In two steps: a cancellation in between must not lose the socket, which would keep the port.
                self._listener = await asyncio.get_running_loop().create_server(
                    self._server, sock=bound, start_serving=False
                )
                await self._listener.start_serving()

    async def refuse(self) -> None:
        """Refuse connections and abort the open ones, as if the server did not run."""
        async with self._turn:
            listener, self._listener = self._listener, None
            server, self._server = self._server, None
            if listener is None or server is None:
                return
            await accept_no_more(listener.sockets)
            listener.close()
            # A port that is bound without listening refuses connections, and is reserved.
            self._bound = self._bind()
            for connection in list(server.connections):
                if connection.transport is not None:
                    connection.transport.abort()
            await server.shutdown(0.001)

    def _bind(self) -> socket.socket:
        made = socket.socket()
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(("127.0.0.1", self._port))
        except OSError:
            made.close()
            raise
        return made

    async def respond(self, request: Request, incoming: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """Answer a request. ConnectionDropped and errors of the upstream connection drop the client's."""
        if request.verb == "watch" or request.resource == "pods/log":
            return await self.watch(incoming)
        return await self.forward(incoming, body)

    async def forward(self, incoming: web.BaseRequest, body: bytes) -> web.Response:
        """Send the request upstream, and return the answer."""
        async with self._send(incoming, body, await self._headers(incoming)) as answer:
            return web.Response(status=answer.status, headers=_passed_on(answer.headers), body=await answer.read())

    async def watch(
        self, incoming: web.BaseRequest, edit: Callable[[bytes], AsyncIterator[bytes]] | None = None
    ) -> web.StreamResponse:
        """Send a watch upstream, and pass on its lines, or those that ``edit`` yields for each."""
        async with self._send(incoming, b"", await self._headers(incoming)) as upstream:
            headers = _passed_on(upstream.headers)
            if upstream.status != 200:
                return web.Response(status=upstream.status, headers=headers, body=await upstream.read())
            response = web.StreamResponse(headers=headers)
            response.enable_chunked_encoding()
            await response.prepare(incoming)
            async for line in _lines(upstream.content):
                if edit is None:
                    await response.write(line)
                    continue
                async for edited in edit(line):
                    await response.write(edited)
            return response

    def _send(self, incoming: web.BaseRequest, body: bytes, headers: Mapping[str, str]) -> Any:
        assert self._session is not None
        url = URL(self._upstream + incoming.raw_path, encoded=True)
        return self._session.request(
            incoming.method,
            url,
            data=body or None,
            headers=headers,
            # Clients may send none.
            skip_auto_headers=("Content-Type",),
            allow_redirects=False,
        )

    async def _headers(self, incoming: web.BaseRequest) -> dict[str, str]:
        added = [] if self._credentials is None else await self._credentials()
        return {**_passed_on(incoming.headers), **dict(added)}

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        request = _request(incoming)
        body = await incoming.content.read()
        try:
            return await self.respond(request, incoming, body)
        except (TimeoutError, ConnectionDropped, aiohttp.ClientError, OSError):
            abort(incoming)
            raise ConnectionResetError from None


def abort(incoming: web.BaseRequest) -> None:
    """Drop the connection of a request."""
    if incoming.transport is not None:
        incoming.transport.abort()


def refusal(code: int, reason: str, message: str, **headers: str) -> web.Response:
    """A refusal as API servers send it; header names are written with underscores."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    content = orjson.dumps({**body, "code": code, "reason": reason, "message": message})
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(status=code, body=content, content_type="application/json", headers=named)


def _request(incoming: web.BaseRequest) -> Request:
    now = asyncio.get_running_loop().time()
    path, _, _ = incoming.raw_path.partition("?")
    found = parse_resource_path(path)
    if found is None:
        return Request(now, incoming.method.lower(), "", path, "", "")
    verb = _VERBS[incoming.method]
    if not found.name:
        verb = {"get": "list", "delete": "deletecollection"}.get(verb, verb)
        if incoming.query.get("watch") in ("true", "1"):
            verb = "watch"
    resource = f"{found.plural}/{found.subresource}" if found.subresource else found.plural
    return Request(now, verb, found.group, resource, found.namespace, found.name)


def _passed_on(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
