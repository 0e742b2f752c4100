"""The login of browsers: the cookie, the form, the way back, and their misuse."""

import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import urljoin

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from frameworkcontroller.webaccess import sessions
from frameworkcontroller.webaccess.loopback_access import LoopbackAccess
from frameworkcontroller.webaccess.middleware import SECURITY_HEADERS, protect
from frameworkcontroller.webaccess.viewers import VIEWER, Viewer, WebAccess

TOKEN = "the-token_of.ann"
PAGE = {"Accept": "text/html,application/xhtml+xml"}
COOKIE = re.compile(r"(frameworkcontroller-[0-9a-f]{16})=([A-Za-z0-9_-]{43}); HttpOnly; SameSite=Strict")


async def page(request: web.Request) -> web.Response:
    return web.Response(text=f"secret of {request[VIEWER].name}")


@asynccontextmanager
async def serving(access: WebAccess | None = None) -> AsyncIterator[str]:
    app = web.Application()
    protect(app, access or LoopbackAccess(TOKEN))
    for path in ("/", "/frameworks/{namespace}/{name}", "/events"):
        app.router.add_get(path, page)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    # Cookies are sent by the tests themselves, as browsers would.
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as opened:
        yield opened


async def ask(
    session: aiohttp.ClientSession, url: str, path: str = "", method: str = "GET", **options: Any
) -> tuple[int, str, Mapping[str, str]]:
    async with session.request(method, url + path, allow_redirects=False, **options) as response:
        return response.status, await response.text(), response.headers


async def log_in(
    session: aiohttp.ClientSession, url: str, token: str = TOKEN, **headers: str
) -> tuple[int, str, Mapping[str, str]]:
    sent = {"Sec-Fetch-Site": "same-origin", **{name.replace("_", "-"): value for name, value in headers.items()}}
    form = {"token": token, "next": "frameworks/a/b?attempt=1"}
    return await ask(session, url, "login", "POST", data=form, headers={k: v for k, v in sent.items() if v})


async def test_a_browser_logs_in_and_comes_back(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as url:
        status, text, headers = await ask(session, url, "frameworks/a/b?attempt=1", headers=PAGE)
        assert (status, headers["Location"], text) == (
            303, "../../login?next=frameworks%2Fa%2Fb%3Fattempt%3D1", "",
        )  # fmt: skip
        status, text, headers = await ask(session, url, "login?next=frameworks%2Fa%2Fb%3Fattempt%3D1")
        assert (status, headers["Referrer-Policy"]) == (200, "same-origin")
        assert 'name="next" value="frameworks/a/b?attempt=1"' in text
        status, text, headers = await log_in(session, url, f"\n {TOKEN}\r\n")
        assert (status, headers["Location"]) == (303, "./frameworks/a/b?attempt=1")
        found = COOKIE.fullmatch(headers["Set-Cookie"])
        assert found is not None
        assert TOKEN not in str(headers)
        cookie = {"Cookie": f"{found[1]}={found[2]}; other=1"}
        assert (await ask(session, url, headers=cookie))[:2] == (200, "secret of local")
        assert "Log out" in (await ask(session, url, "login", headers=cookie))[1]
        for wrong in (f"{found[1]}={found[2]}x", f"{found[1]}={TOKEN}", f"x={found[2]}", f"{found[1]}="):
            assert (await ask(session, url, headers={"Cookie": wrong}))[0] == 401
        own = {**cookie, "Sec-Fetch-Site": "same-origin"}
        status, _, headers = await ask(session, url, "logout", "POST", headers=own)
        assert (status, headers["Location"]) == (303, "./login")
        assert headers["Set-Cookie"] == f"{found[1]}=; HttpOnly; SameSite=Strict; Max-Age=0"
        assert (await ask(session, url, headers=cookie))[0] == 401
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    "path",
    [
        "",
        "frameworks/a/b",
        "frameworks/secret/b",
        "no-such-page",
        "no-such-page/",
        "events",
        "static/pages.css",
        "metrics",
    ],
)
async def test_without_a_login_nothing_is_learnt(session: aiohttp.ClientSession, path: str) -> None:
    async with serving() as url:
        for headers in (PAGE, {}, {"Accept": "text/event-stream"}):
            status, text, answered = await ask(session, url, path, headers=headers)
            assert status == (303 if headers is PAGE else 401)
            if headers is PAGE:
                assert urljoin(url + path, answered["Location"]).startswith(url + "login")
            assert "secret of" not in text
            assert {name: answered[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
        refused = {**PAGE, "Authorization": "Bearer wrong"}
        assert (await ask(session, url, path, headers=refused))[0] == 401


class Shared(LoopbackAccess):
    """Not on loopback, so that a link could log a browser in as another user."""

    by_link = False


@pytest.mark.parametrize("path", ["", "frameworks/a/b?attempt=1", "../x"])
async def test_the_printed_address_logs_in(session: aiohttp.ClientSession, path: str) -> None:
    access = LoopbackAccess()
    async with serving(access) as url:
        link = access.link(url.rstrip("/"))
        assert link.startswith(url)
        target = "" if ".." in path else path
        _, _, headers = await ask(session, "", link, params={"next": path, "token": access.token})
        assert (headers["Refresh"], headers["Referrer-Policy"]) == (f"0; url=./{target}", "no-referrer")
        found = COOKIE.fullmatch(headers["Set-Cookie"])
        assert found is not None
        cookie = {"Cookie": f"{found[1]}={found[2]}"}
        assert (await ask(session, url, headers=cookie))[:2] == (200, "secret of local")
        status, text, headers = await ask(session, url, "login?token=wrong")
        assert (status, "Set-Cookie" in headers, "wrong" in text) == (401, False, False)
        assert "The address that the server has printed" in text


async def test_elsewhere_no_link_logs_in(session: aiohttp.ClientSession) -> None:
    async with serving(Shared(TOKEN)) as url:
        status, text, headers = await ask(session, url, f"login?token={TOKEN}")
        assert (status, "Set-Cookie" in headers, "kubectl create token" in text) == (200, False, True)
        assert TOKEN not in text


@pytest.mark.parametrize(
    "target",
    [
        "https://example.com/", "//example.com", "/\\example.com", "\\\\example.com", "../../elsewhere", "%2e%2e/x",
        "a/%2E%2e/%2e./x", "javascript:alert(1)", ".//example.com", "///example.com/%2f..", "a\r\nSet-Cookie: x=1",
        "a\tb", "@example.com", "é", "a" * 3000, "?next=//example.com", "http:example.com", "%5c%5cexample.com",
    ],
)  # fmt: skip
async def test_the_way_back_stays_here(session: aiohttp.ClientSession, target: str) -> None:
    async with serving() as url:
        form = {"token": TOKEN, "next": target}
        own = {"Sec-Fetch-Site": "same-origin"}
        status, _, headers = await ask(session, url, "login", "POST", data=form, headers=own)
        assert status == 303
        location = headers["Location"]
        assert location.startswith("./")
        assert urljoin("https://here.example/prefix/login", location).startswith("https://here.example/prefix/")
        assert "\\" not in location
        status, text, _ = await ask(session, url, "login", params={"next": target})
        (link,) = re.findall(r'<a href="([^"]*)">Continue', text)
        assert urljoin("https://here.example/prefix/login", unescape(link)).startswith("https://here.example/prefix/")


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"Sec_Fetch_Site": "same-origin"}, True),
        ({"Sec_Fetch_Site": "cross-site"}, False),
        ({"Sec_Fetch_Site": "same-site"}, False),
        ({"Sec_Fetch_Site": "none"}, False),
        ({"Sec_Fetch_Site": ""}, False),
        ({"Sec_Fetch_Site": "", "Origin": "null"}, False),
        ({"Sec_Fetch_Site": "", "Origin": "http://127.0.0.1:1"}, False),
        ({"Sec_Fetch_Site": "", "Origin": "http://localhost:1", "Host": "localhost:1"}, True),
        ({"Sec_Fetch_Site": "", "Origin": "https://x.example", "X_Forwarded_Host": "x.example"}, True),
    ],
)
async def test_another_page_cannot_log_a_browser_in_or_out(
    session: aiohttp.ClientSession, headers: dict[str, str], allowed: bool
) -> None:
    async with serving() as url:
        status, _, answered = await log_in(session, url, **headers)
        assert (status, "Set-Cookie" in answered) == ((303, True) if allowed else (403, False))
        sent = {name.replace("_", "-"): value for name, value in headers.items() if value}
        status, _, answered = await ask(session, url, "logout", "POST", headers=sent)
        assert (status, "Set-Cookie" in answered) == ((303, True) if allowed else (403, False))


async def test_a_wrong_token_is_refused_and_not_repeated(session: aiohttp.ClientSession) -> None:
    async with serving() as url:
        for token in ("wrong-token", "", "<script>alert(1)</script>"):
            status, text, headers = await log_in(session, url, token)
            assert status == 401
            assert "Set-Cookie" not in headers
            assert 'role="alert"' in text
            assert token == "" or token not in text
            assert 'value="frameworks/a/b?attempt=1"' in text


async def test_an_invalid_form_is_refused(session: aiohttp.ClientSession) -> None:
    async with serving() as url:
        own = {"Sec-Fetch-Site": "same-origin"}
        for data, kind in (
            (b"token=a", "text/plain"), (b'{"token":"a"}', "application/json"),
            (b"token=" + b"a" * 70_000, "application/x-www-form-urlencoded"),
            (b"a=1&" * 100, "application/x-www-form-urlencoded"), (b"token=\xff", "application/x-www-form-urlencoded"),
        ):  # fmt: skip
            headers = {**own, "Content-Type": kind}
            status, _, answered = await ask(session, url, "login", "POST", data=data, headers=headers)
            assert (status, "Set-Cookie" in answered) == (403, False)


async def test_the_cookie_is_secure_under_https_and_has_no_path(session: aiohttp.ClientSession) -> None:
    async with serving() as url:
        for given, secure in (("https", True), ("https, http", True), ("http", False), ("", False)):
            _, _, headers = await log_in(session, url, X_Forwarded_Proto=given)
            assert headers["Set-Cookie"].endswith("; Secure") == secure
            # Browsers take the folder of the login page for it, so the prefix of a reverse proxy.
            assert "path" not in headers["Set-Cookie"].lower()


async def test_a_login_ends_and_logins_are_bounded(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_SESSIONS", 2)
    now = [0.0]
    monkeypatch.setattr(sessions.Sessions.__init__, "__defaults__", (lambda: now[0],))
    async with serving() as url:
        cookies = []
        for _ in range(3):
            _, _, headers = await log_in(session, url)
            cookies.append({"Cookie": headers["Set-Cookie"].partition(";")[0]})
        assert [(await ask(session, url, headers=cookie))[0] for cookie in cookies] == [401, 200, 200]
        now[0] += sessions.LIFETIME_SECONDS
        assert [(await ask(session, url, headers=cookie))[0] for cookie in cookies] == [401, 401, 401]


async def test_the_style_is_a_file_and_nothing_is_inline(session: aiohttp.ClientSession) -> None:
    async with serving() as url:
        _, text, _ = await ask(session, url, "login?next=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
        assert "<script" not in text
        assert "style=" not in text
        assert "<style" not in text
        assert not re.search(r"\son[a-z]+=", text)
        status, text, headers = await ask(session, url, "login.css")
        assert (status, headers["Content-Type"]) == (200, "text/css; charset=utf-8")


class Anyone(LoopbackAccess):
    """The token is the name of the user."""

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        viewer = await super().identify(request, token and self.token)
        viewer.name = token or ""
        return viewer


@pytest.mark.parametrize("greedy", [["bob"] * 3, [f"system:serviceaccount:bobs:{number}" for number in range(3)]])
async def test_who_logs_in_a_thousand_times_logs_no_one_else_out(
    session: aiohttp.ClientSession, greedy: list[str]
) -> None:
    async with serving(Anyone()) as url:

        async def begin(name: str) -> dict[str, str]:
            _, _, headers = await log_in(session, url, name)
            return {"Cookie": headers["Set-Cookie"].partition(";")[0]}

        ann, first = await begin("ann"), await begin(greedy[0])
        last = first
        for number in range(999):
            last = await begin(greedy[number % 3])
        assert (await ask(session, url, headers=ann))[:2] == (200, "secret of ann")
        assert (await ask(session, url, headers=last))[0] == 200
        # Of its own logins, the oldest end.
        assert (await ask(session, url, headers=first))[0] == 401
