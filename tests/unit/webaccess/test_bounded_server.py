"""Limits of the server: slow, silent and too many clients, and bytes that are not HTTP."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from frameworkcontroller.webaccess.boundedserver import BoundedServer
from frameworkcontroller.webaccess.loopback_access import LoopbackAccess
from frameworkcontroller.webaccess.middleware import SECURITY_HEADERS, protect

TOKEN = "secret-token-" + "a" * 40_000
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def healthy(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def begun(request: web.Request) -> web.Response:
    """Fail, or answer again, after a response has begun."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"first")
    if "fail" in request.query:
        raise web.HTTPNotFound
    return web.Response(text="second")


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[BoundedServer]:
    app = web.Application()
    app.router.add_get("/healthz", healthy)
    app.router.add_get("/begun", begun)
    protect(app, LoopbackAccess(), public={"/healthz", "/begun"})
    async with BoundedServer(app, "127.0.0.1", 0, **options) as server:
        yield server


async def connect(server: BoundedServer, sent: bytes = b"") -> Connected:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    return reader, writer


async def is_closed(connected: Connected) -> bool:
    """Wait until the other side closes the connection. Return whether it did without a word."""
    try:
        return await connected[0].read() == b""
    except ConnectionError:
        return True
    finally:
        connected[1].close()


async def is_served(connected: Connected) -> bool:
    connected[1].write(HEALTH)
    head = await connected[0].readuntil(b"\r\n\r\nok")
    return head.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: loc"])
async def test_a_slow_head_ends(sent: bytes) -> None:
    async with serving(head_sec=0.2) as server:
        assert await is_closed(await connect(server, sent))


async def test_the_longest_idle_connection_makes_room() -> None:
    """Half-open connections keep no other client out."""
    async with serving(max_connections=10) as server:
        honest = await connect(server)
        for _ in range(5):
            half_open = [await connect(server, b"GET / HTTP/1.1\r\nHost: loc") for _ in range(9)]
            assert await is_served(honest)
            new = await connect(server)
            assert await is_served(new)
            assert await is_closed(half_open[0])
            for _, writer in half_open[1:]:
                writer.close()
            new[1].close()
        honest[1].close()


@pytest.mark.parametrize(
    "sent",
    [
        f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nAuthorization: {TOKEN[:90]}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {TOKEN}",
        "GET / HTTP/1.1\r\nHost: localhost\r\n" + "".join(f"X-{n}: 1\r\n" for n in range(100)) + "\r\n",
        f"{TOKEN[:90]}\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
    ],
    ids=["long", "two hosts", "endless", "many headers", "no http", "version"],
)
async def test_bytes_that_are_not_http_are_refused_without_a_log(sent: str, caplog: pytest.LogCaptureFixture) -> None:
    """The answer names no versions of the server's libraries."""
    caplog.set_level(logging.INFO)
    async with serving() as server:
        reader, writer = await connect(server, sent.encode())
        answer = await reader.read()
        writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.0 400 ")
    assert body == "400 Bad Request\n"
    assert [line for line in head.split("\r\n") if line.startswith("Server:")] == ["Server: frameworkcontroller"]
    assert all(f"{name}: {value}" in head for name, value in SECURITY_HEADERS.items())
    assert "secret-token" not in caplog.text + answer.decode()


@pytest.mark.parametrize("query", ["", "?fail"])
async def test_a_response_that_has_begun_is_not_followed_by_another(query: str) -> None:
    """Its connection ends, so that the client sees that it is incomplete."""
    async with serving() as server:
        request = f"GET /begun{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        reader, writer = await connect(server, request + HEALTH)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)) as raised:
            await reader.readuntil(b"HTTP/1.1 200 OK\r\n" * 2)
        if isinstance(raised.value, asyncio.IncompleteReadError):
            assert raised.value.partial.count(b"HTTP/1.1 ") == 1
        writer.close()
