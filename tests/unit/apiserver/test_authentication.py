"""Authentication by the connection, the token, and the headers of browsers."""

import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from frameworkcontroller.local.apiserver import authentication, peer_credentials
from frameworkcontroller.local.apiserver.authentication import Authenticator
from frameworkcontroller.local.apiserver.peer_credentials import PeersUnknownError
from frameworkcontroller.local.apiserver.restserver import ApiServer
from tests.support.api import config_map
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
NOBODY = "this local cluster serves only the user who runs it, root, and clients with its token"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def ask(
    session: aiohttp.ClientSession, server: ApiServer, method: str = "GET", path: str = "/version", **options: Any
) -> tuple[int, str]:
    """The answer's code, and the message of its Status."""
    async with session.request(method, server.url + path, **options) as response:
        body = await response.read()
        if response.ok:
            return response.status, ""
        status = orjson.loads(body)
        assert (status["kind"], status["code"]) == ("Status", response.status)
        return response.status, status["message"]


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_the_own_user_needs_no_token_and_others_do(session: aiohttp.ClientSession) -> None:
    async with ApiServer(wall=wall) as server:
        assert await ask(session, server) == (200, "")
        assert await ask(session, server, headers=bearing("wrong")) == (200, "")
    async with ApiServer(wall=wall, authenticator=Authenticator(users={os.geteuid() + 1})) as server:
        for headers in ({}, bearing("wrong"), bearing(""), bearing("é"), {"Authorization": server.authenticator.token}):
            code, message = await ask(session, server, headers=headers)
            assert code == 401
            assert NOBODY in message
        assert await ask(session, server, headers=bearing(server.authenticator.token)) == (200, "")
        assert await ask(session, server, path="/readyz") == (200, "")


async def test_every_cluster_has_its_own_token() -> None:
    assert Authenticator().token != Authenticator().token
    assert len(Authenticator().token) >= 40


async def test_a_connection_is_looked_up_once(session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    def look(*ends: object) -> int:
        looked.append(ends)
        return os.geteuid()

    monkeypatch.setattr(authentication, "peer_user", look)
    async with ApiServer(wall=wall) as server:
        for _ in range(3):
            assert await ask(session, server) == (200, "")
        assert len(looked) == 1
        async with aiohttp.ClientSession() as another:
            assert await ask(another, server) == (200, "")
        assert len(looked) == 2


async def test_where_the_machine_does_not_tell_the_token_does(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_look(*_: object) -> int:
        raise PeersUnknownError

    monkeypatch.setattr(authentication, "peer_user", no_look)
    async with ApiServer(wall=wall) as server:
        assert (await ask(session, server))[0] == 401
        assert await ask(session, server, headers=bearing(server.authenticator.token)) == (200, "")


async def test_without_sock_diag_the_tables_are_read(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(peer_credentials, "ask_kernel", denied)
    async with ApiServer(wall=wall) as server:
        assert await ask(session, server) == (200, "")


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Origin": "http://example.com"}, "it has the header Origin"),
        ({"origin": "null"}, "it has the header Origin"),
        ({"Sec-Fetch-Site": "cross-site"}, "it has the header Sec-Fetch-Site"),
        ({"Sec-Fetch-Site": "none"}, "it has the header Sec-Fetch-Site"),
        ({"Host": "rebound.example.com"}, "its host is 'rebound.example.com'"),
        ({"Host": "rebound.example.com:80"}, "its host is"),
        ({"Host": "192.0.2.1"}, "its host is"),
        ({"Host": "localhost.example.com"}, "its host is"),
        ({"Host": "127.0.0.1@example.com"}, "its host is"),
        ({"Host": "example.com@127.0.0.1"}, "its host is"),
        ({"Host": "127.0.0.1/"}, "its host is"),
        ({"Host": "[::1"}, "its host is"),
        ({"Host": ""}, "its host is"),
    ],
)
@pytest.mark.parametrize("path", ["/version", "/healthz"])
async def test_web_pages_are_refused(
    session: aiohttp.ClientSession, headers: dict[str, str], why: str, path: str
) -> None:
    async with ApiServer(wall=wall) as server:
        for given in (headers, {**headers, **bearing(server.authenticator.token)}):
            code, message = await ask(session, server, path=path, headers=given)
            assert code == 403
            assert message.startswith(f"the request is forbidden: {why}")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.9.8.7:1", "[::1]", "[::1]:8080"])
async def test_names_of_loopback(session: aiohttp.ClientSession, host: str) -> None:
    async with ApiServer(wall=wall) as server:
        assert await ask(session, server, headers={"Host": host}) == (200, "")


@pytest.mark.parametrize(
    ("method", "media_type", "code"),
    [
        ("POST", "application/json; charset=utf-8", 201),
        ("POST", "application/yaml", 201),
        ("POST", "text/plain", 415),
        ("POST", "application/x-www-form-urlencoded", 415),
        ("POST", "multipart/form-data; boundary=application/json", 415),
        ("POST", "", 415),
        ("PATCH", "application/merge-patch+json", 200),
        ("PATCH", "text/plain", 415),
        ("PUT", "text/plain", 415),
        ("DELETE", "text/plain", 415),
        ("DELETE", "application/json", 200),
    ],
)
async def test_bodies_that_any_page_can_send_are_refused(
    session: aiohttp.ClientSession, method: str, media_type: str, code: int
) -> None:
    async with ApiServer(wall=wall) as server:
        path = CONFIG_MAPS
        body = b"{}" if method == "DELETE" else orjson.dumps(config_map("c"))
        if method != "POST":
            assert await ask(session, server, "POST", path, json=config_map("c")) == (201, "")
            path += "/c"
        headers = {"Content-Type": media_type} if media_type else {}
        got, _ = await ask(
            session, server, method, path, data=body, headers=headers, skip_auto_headers=["Content-Type"]
        )
        assert got == code


@pytest.mark.parametrize(("method", "code"), [("POST", 201), ("PUT", 200), ("PATCH", 415), ("DELETE", 200)])
async def test_with_the_token_a_body_without_media_type_is_json(
    session: aiohttp.ClientSession, method: str, code: int
) -> None:
    async with ApiServer(wall=wall) as server:
        path = CONFIG_MAPS
        body = b"{}" if method in ("DELETE", "PATCH") else orjson.dumps(config_map("c"))
        if method != "POST":
            assert await ask(session, server, "POST", path, json=config_map("c")) == (201, "")
            path += "/c"
        more: dict[str, Any] = {"data": body, "skip_auto_headers": ["Content-Type"]}
        got, _ = await ask(session, server, method, path, headers=bearing(server.authenticator.token), **more)
        assert got == code
        got, _ = await ask(session, server, method, path, headers=bearing("another"), **more)
        assert got == 415


async def test_a_deletion_needs_no_body_and_no_media_type(session: aiohttp.ClientSession) -> None:
    async with ApiServer(wall=wall) as server:
        assert await ask(session, server, "POST", CONFIG_MAPS, json=config_map("c")) == (201, "")
        assert await ask(session, server, "DELETE", f"{CONFIG_MAPS}/c") == (200, "")
