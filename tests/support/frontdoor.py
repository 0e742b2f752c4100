"""What stands before an API server: passes requests on, keeps a record of them, and can be told to misbehave.

It works with the embedded API server and with real ones, on virtual time and on real time. The record is of what the
API server was sent, whatever a client says of itself.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import aiohttp
import orjson
from aiohttp import web
from yarl import URL

from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.local.apiserver.listening import accept_no_more
from frameworkcontroller.local.apiserver.paths import parse_resource_path

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "host"})


@dataclass(frozen=True)
class Request:
    """One request, in the words of RBAC rules."""

    at: float
    """Seconds of the event loop."""
    verb: str
    group: str
    resource: str
    """Plural, with ``/subresource`` if there is one; the path, if it is about no resource."""
    namespace: str
    name: str

    def __str__(self) -> str:
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.at:9.2f} {self.verb:8} {self.resource} {where}"


Rule = Callable[[Request], web.Response | None]
"""What is answered instead of the API server; None if it is to answer."""


class FrontDoor:
    """See the module. Made by `front_door`."""

    def __init__(self, upstream: Connection) -> None:
        self._upstream = upstream
        self._rules: list[Rule] = []
        self._delays: list[Callable[[Request], float]] = []
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=upstream.tls or True), auto_decompress=False
        )
        self._port = 0
        self.requests: list[Request] = []
        self.refused: list[tuple[Request, int]] = []
        """Those that were not answered with success, and the code."""

    @property
    def connection(self) -> Connection:
        """Where a client finds the API server behind it."""
        return Connection.to_address(f"http://127.0.0.1:{self._port}")

    def since(self, moment: float) -> list[Request]:
        """The requests from that moment on (seconds of the event loop)."""
        return [request for request in self.requests if request.at >= moment]

    def count(self, since: float) -> Counter[tuple[str, str]]:
        """How many requests of each verb and resource there were."""
        return Counter((request.verb, request.resource) for request in self.since(since))

    @contextmanager
    def answering(self, rule: Rule) -> Iterator[None]:
        """For a while, have this rule looked at first."""
        self._rules.insert(0, rule)
        try:
            yield
        finally:
            self._rules.remove(rule)

    @contextmanager
    def delaying(self, delay: Callable[[Request], float]) -> Iterator[None]:
        """For a while, have requests wait for so many seconds before they are looked at."""
        self._delays.append(delay)
        try:
            yield
        finally:
            self._delays.remove(delay)

    async def open(self) -> None:
        """Listen, always on the same port."""
        # Cancellation: a client that ends a watch ends it at the API server, too.
        server = web.Server(self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=3600)
        self._listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]
        self._server = server

    async def shut(self) -> None:
        """Refuse connections, and cut those that there are."""
        assert self._listener is not None
        assert self._server is not None
        await accept_no_more(self._listener.sockets)
        self._listener.close()
        for connection in self._server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._server.shutdown(0.001)

    async def close(self) -> None:
        """For good."""
        await self.shut()
        await self._session.close()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        request = _request(incoming)
        self.requests.append(request)
        body = await incoming.content.read()
        for delay in list(self._delays):
            await asyncio.sleep(delay(request))
        for rule in self._rules:
            answer = rule(request)
            if answer is not None:
                self.refused.append((request, answer.status))
                return answer
        headers = [(name, value) for name, value in incoming.headers.items() if name.lower() not in _HOP_BY_HOP]
        credentials = await self._upstream.headers()
        async with self._session.request(
            incoming.method,
            URL(f"{self._upstream.server}{incoming.raw_path}", encoded=True),
            headers=[*headers, *credentials.items()],
            data=body or None,
            timeout=aiohttp.ClientTimeout(total=None),
            allow_redirects=False,
        ) as answered:
            if answered.status >= 400:
                self.refused.append((request, answered.status))
            outgoing = web.StreamResponse(status=answered.status)
            for name, value in answered.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    outgoing.headers.add(name, value)
            if request.verb == "watch":
                outgoing.enable_chunked_encoding()
                await outgoing.prepare(incoming)
                async for chunk in answered.content.iter_any():
                    await outgoing.write(chunk)
            else:
                content = await answered.read()
                outgoing.content_length = len(content)
                await outgoing.prepare(incoming)
                await outgoing.write(content)
            await outgoing.write_eof()
            return outgoing


@asynccontextmanager
async def front_door(upstream: Connection) -> AsyncIterator[FrontDoor]:
    """A front door that is open; clients of it are whoever ``upstream`` says."""
    door = FrontDoor(upstream)
    await door.open()
    try:
        yield door
    finally:
        await door.close()


def refusal(code: int, reason: str, message: str, **headers: str) -> web.Response:
    """An answer as an API server refuses; header names are written with underscores."""
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
        if incoming.query.get("watch") == "true":
            verb = "watch"
    resource = f"{found.plural}/{found.subresource}" if found.subresource else found.plural
    return Request(now, verb, found.group, resource, found.namespace, found.name)
