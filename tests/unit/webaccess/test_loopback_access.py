"""Access on loopback, and the headers of every response."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from frameworkcontroller.webaccess.loopback_access import LoopbackAccess, TokenFileError, token_in
from frameworkcontroller.webaccess.middleware import SECURITY_HEADERS, protect
from frameworkcontroller.webaccess.viewers import VIEWER, Viewer, WebAccess
from tests.support.access import Everyone


def test_every_server_has_its_own_token() -> None:
    assert LoopbackAccess().token != LoopbackAccess().token
    assert len(LoopbackAccess().token) >= 40


def test_a_token_stays_the_same_in_its_file(tmp_path: Path) -> None:
    """Which other users cannot read, also if it was there before."""
    path = tmp_path / "token"
    umask = os.umask(0)
    try:
        token = token_in(path)
    finally:
        os.umask(umask)
    assert (path.stat().st_mode & 0o777, len(token) >= 40, token_in(path)) == (0o600, True, token)
    path.write_text(" given\n")
    path.chmod(0o644)
    assert (token_in(path), path.stat().st_mode & 0o777) == ("given", 0o600)
    path.write_text("\n")
    assert token_in(path) == token_in(path) != token
    path.write_text("two words")
    with pytest.raises(TokenFileError, match="must hold one token, without spaces"):
        token_in(path)
    with pytest.raises(TokenFileError, match="cannot be used: Is a directory"):
        token_in(tmp_path)


async def page(request: web.Request) -> web.Response:
    viewer = request[VIEWER]
    assert await viewer.readable(["a"]) is None
    return web.Response(text="page")


async def health(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def broken(_request: web.Request) -> web.Response:
    raise RuntimeError("secret")


@asynccontextmanager
async def serving(access: WebAccess) -> AsyncIterator[str]:
    app = web.Application()
    protect(app, access)
    app.router.add_get("/", page)
    app.router.add_post("/v1/records", page)
    app.router.add_get("/metrics", page)
    app.router.add_get("/healthz", health)
    app.router.add_get("/broken", broken)
    async with TestServer(app) as server:
        yield f"{server.make_url('/')}"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def ask(
    session: aiohttp.ClientSession, url: str, path: str = "", method: str = "GET", **options: Any
) -> tuple[int, str, Mapping[str, str]]:
    async with session.request(method, url + path, **options) as response:
        return response.status, await response.text(), response.headers


async def test_the_token_is_needed(session: aiohttp.ClientSession) -> None:
    access = LoopbackAccess()
    async with serving(access) as url:
        for path in ("", "v1/records", "metrics", "none", "broken"):
            status, text, headers = await ask(session, url, path)
            assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "this server needs its token" in text
        for value in ("Bearer", "Bearer wrong", f"Basic {access.token}", access.token, "Bearer é"):
            assert (await ask(session, url, headers={"Authorization": value}))[0] == 401
        assert (await ask(session, url, headers={"Authorization": f"Bearer {access.token}"}))[:2] == (200, "page")
        assert (await ask(session, url, "healthz"))[:2] == (200, "ok")


@pytest.mark.parametrize(
    "host", ["example.com", "localhost.example.com:80", "192.0.2.1", "127.0.0.1@example.com", "[::1", "[2001:db8::1]:1"]
)
async def test_a_rebound_name_is_refused(session: aiohttp.ClientSession, host: str) -> None:
    async with serving(Everyone()) as url:
        for path in ("", "healthz", "none"):
            status, text, _ = await ask(session, url, path, headers={"Host": host})
            assert (status, "this server is on loopback only" in text) == (403, True)


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:10281", "LOCALHOST"])
async def test_names_of_loopback_are_served(session: aiohttp.ClientSession, host: str) -> None:
    async with serving(Everyone()) as url:
        assert (await ask(session, url, headers={"Host": host}))[0] == 200


LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("method", "headers", "served"),
    [
        ("GET", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, True),
        ("GET", {"Sec-Fetch-Site": "none", **LINK}, True),
        ("GET", {"Sec-Fetch-Site": "cross-site", **LINK}, True),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, False),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, False),
        ("HEAD", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, False),
        ("POST", {"Sec-Fetch-Site": "cross-site", **LINK}, False),
        ("POST", {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:1"}, False),
        ("POST", {"Origin": "null"}, False),
        ("POST", {"Origin": "http://example.com"}, False),
        ("POST", {"Origin": "http://localhost:1", "Host": "localhost:2"}, False),
        ("POST", {"Origin": "http://localhost:1", "Host": "localhost:1"}, True),
        ("POST", {"Origin": "https://example.com", "X-Forwarded-Host": "example.com"}, True),
        ("POST", {}, True),
    ],
)
async def test_pages_of_other_origins_are_refused(
    session: aiohttp.ClientSession, method: str, headers: dict[str, str], served: bool
) -> None:
    async with serving(Everyone()) as url:
        path = "v1/records" if method == "POST" else ""
        status, _, _ = await ask(session, url, path, method, headers=headers)
        assert status == (200 if served else 403)


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND"])
async def test_other_methods_are_refused(session: aiohttp.ClientSession, method: str) -> None:
    async with serving(LoopbackAccess()) as url:
        status, _, headers = await ask(session, url, "", method, headers={"X-Test": "echo me"})
        assert status in (400, 405)
        assert "Access-Control-Allow-Origin" not in headers
        if status == 405:
            assert headers["Allow"] == "GET, HEAD, POST"


async def test_every_response_has_the_security_headers(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Everyone()) as url:
        for path, method, expected in (
            ("", "GET", 200), ("", "HEAD", 200), ("none", "GET", 404), ("broken", "GET", 500), ("", "PUT", 405),
            ("", "POST", 405),
        ):  # fmt: skip
            status, text, headers = await ask(session, url, path, method)
            assert status == expected
            assert {name: headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
            assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
            assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
            assert "secret" not in text
    assert "secret" in caplog.text


class BrokenAccess(LoopbackAccess):
    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        raise RuntimeError("a fault")


async def test_a_fault_refuses_the_request_and_is_logged(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(BrokenAccess()) as url:
        status, text, _ = await ask(session, url)
        assert (status, "page" in text, "a fault" in text) == (503, False, False)
    assert "a fault" in caplog.text
