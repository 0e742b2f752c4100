"""What clients send that is no HTTP, and what of it is logged."""

import asyncio
import logging

import pytest
from aiohttp import web

from frameworkcontroller.dashboard.serving import serve
from frameworkcontroller.webaccess.loopback_access import LoopbackAccess
from frameworkcontroller.webaccess.middleware import protect

TOKEN = "secret-token-" + "a" * 40_000


@pytest.mark.parametrize(
    "request_text",
    [
        f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nAuthorization: {TOKEN[:90]}\r\n\r\n",
        f"{TOKEN[:90]}\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_without_a_log(request_text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = web.Application()
    protect(app, LoopbackAccess())
    async with serve(app, "127.0.0.1", 0) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2].rstrip("/")))
        writer.write(request_text.encode())
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert "secret-token" not in caplog.text
