"""An HTTP server that answers exactly as a test tells it, also in ways that no decent server does."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from frameworkcontroller.local.apiserver.listening import accept_no_more

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Seen:
    """A request as it arrived. Of a header that came several times, the values are joined by commas."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float

    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class FaultyServer:
    """Answers come from ``answers``, in order, and when those are used up from ``otherwise``.

    ``seen`` are the requests so far. ``connections`` counts the connections that were ever made.
    """

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque)
    otherwise: Answer | None = None
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0

    def then(self, *answers: Answer) -> None:
        """Answer the next requests so."""
        self.answers.extend(answers)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen.append(
            Seen(
                request.method,
                request.raw_path.partition("?")[0],
                dict(request.query),
                {name: ", ".join(request.headers.getall(name)) for name in request.headers},
                await request.content.read(),  # not request.read(), which has a limit
                asyncio.get_running_loop().time(),
            )
        )
        answer = self.answers.popleft() if self.answers else self.otherwise
        if answer is None:
            return web.Response(status=418, text="the test has no answer for this")
        return await answer(request)


@asynccontextmanager
async def faulty_server(port: int = 0, **tls: Any) -> AsyncIterator[FaultyServer]:
    """A running server on loopback; ``ssl_context=`` makes it https."""
    faulty = FaultyServer()
    server = web.Server(faulty.handle, access_log=None)

    def connected() -> asyncio.Protocol:
        faulty.connections += 1
        return server()

    listener = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", port, ssl=tls.get("ssl_context"))
    address = listener.sockets[0].getsockname()
    faulty.url = f"{'https' if tls.get('ssl_context') else 'http'}://127.0.0.1:{address[1]}"
    try:
        yield faulty
    finally:
        await accept_no_more(listener.sockets)
        listener.close()
        # Not 0, which waits for handlers without end.
        await server.shutdown(0.001)


def answer(body: bytes | dict[str, Any] | str = b"{}", code: int = 200, **headers: str) -> Answer:
    """A whole answer. Header names are written with underscores."""

    async def whole(request: web.BaseRequest) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = orjson.dumps(body) if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
        return web.Response(status=code, body=content, headers=named)

    return whole


def status(code: int, reason: str, message: str = "told to refuse", **more: Any) -> Answer:
    """A refusal with a proper Status. ``headers`` may be among the rest."""
    headers = more.pop("headers", {})
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, **more}
    return answer({**body, "message": message}, code, **headers)


def cut(body: bytes, announced: int) -> Answer:
    """Announces more bytes than come, and drops the connection."""

    async def half(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(announced)})
        await response.prepare(request)
        await response.write(body)
        drop_connection(request)
        return response

    return half


def drop() -> Answer:
    """Takes the request and drops the connection without an answer."""

    async def nothing(request: web.BaseRequest) -> web.StreamResponse:
        drop_connection(request)
        raise ConnectionResetError

    return nothing


def silence(seconds: float = 10_000.0) -> Answer:
    """Takes the request and answers nothing for ``seconds``."""

    async def silent(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return web.Response(status=200, body=b"{}")

    return silent


def stream(*chunks: bytes | float, end: str = "close") -> Answer:
    """A watch: chunks as they are, numbers as pauses in seconds; then ``close``, ``drop`` or ``hang``."""

    async def lines(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            if isinstance(chunk, bytes):
                await response.write(chunk)
            else:
                await asyncio.sleep(chunk)
        if end == "drop":
            drop_connection(request)
        elif end == "hang":
            await asyncio.sleep(1_000_000)
        return response

    return lines


def event(kind: str, obj: dict[str, Any]) -> bytes:
    """A watch event as its line."""
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def drop_connection(request: web.BaseRequest) -> None:
    """End the connection so that the client sees it break off, while earlier bytes still arrive."""
    if request.transport is not None:
        request.transport.close()
