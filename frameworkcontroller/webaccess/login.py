"""The login page, which takes a pasted token, or on loopback the printed address.

All its links are relative, so it works below any prefix. A pasted token is sent in the body of a POST and kept in this
process: it is in no URL, no cookie and no log.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qs, quote, unquote

from aiohttp import web
from jinja2 import Environment, PackageLoader, Template

from frameworkcontroller.webaccess.origins import from_own_page
from frameworkcontroller.webaccess.requestbodies import SlowBodyError, pieces
from frameworkcontroller.webaccess.sessions import Sessions
from frameworkcontroller.webaccess.viewers import AccessError, RequestRefused, WebAccess

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
STYLE: Final = "/login.css"
PATHS: Final = frozenset({LOGIN, LOGOUT, STYLE})
"""Need no viewer."""

_MAX_BODY_BYTES: Final = 64 << 10
_MAX_NEXT: Final = 2_000
# The characters of paths and queries; no backslash, which browsers take for a slash.
_RELATIVE: Final = re.compile(r"[A-Za-z0-9._~%!$&'()*+,;=:@/?-]*", re.ASCII)


class Login:
    """The routes of the login page."""

    def __init__(self, access: WebAccess, sessions: Sessions) -> None:
        self._access = access
        self._sessions = sessions

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get(LOGIN, self._show)
        app.router.add_post(LOGIN, self._log_in)
        app.router.add_post(LOGOUT, self._log_out)
        app.router.add_get(STYLE, _style)

    async def _show(self, request: web.Request) -> web.Response:
        token = self._sessions.token(request)
        target = _checked(request.query.get("next", ""))
        if self._access.by_link and "token" in request.query:
            return await self._follow_link(request, request.query["token"], target)
        if token is not None:
            try:
                viewer = await self._access.identify(request, token)
            except AccessError:
                pass
            else:
                return _page("Logged in", target=target, user=viewer.name)
        return self._form(target)

    async def _follow_link(self, request: web.Request, token: str, target: str) -> web.Response:
        try:
            viewer = await self._access.identify(request, token)
        except AccessError as error:
            return self._form(target, str(error), error.status)
        response = _page("Logged in", target=target)
        # After a redirect, browsers would not send the cookie if a page of another origin has the link.
        response.headers.update({"Refresh": f"0; url=./{target}", "Referrer-Policy": "no-referrer"})
        self._sessions.begin(request, response, token, viewer.owner)
        return response

    async def _log_in(self, request: web.Request) -> web.Response:
        _require_own_page(request)
        form = await _read_form(request)
        target, token = _checked(form.get("next", "")), form.get("token", "").strip()
        try:
            viewer = await self._access.identify(request, token or None)
        except AccessError as error:
            return self._form(target, str(error), error.status)
        response = _redirect(f"./{target}")
        self._sessions.begin(request, response, token, viewer.owner)
        return response

    async def _log_out(self, request: web.Request) -> web.Response:
        _require_own_page(request)
        response = _redirect(f".{LOGIN}")
        self._sessions.end(request, response)
        return response

    def _form(self, target: str, problem: str = "", status: int = 200) -> web.Response:
        by_link = self._access.by_link
        return _page("Log in", status, form=True, by_link=by_link, target=target, problem=problem)


def login_redirect(request: web.BaseRequest) -> web.Response:
    """Return a redirect to the login page, and from there back to the request's URL."""
    path = request.rel_url.raw_path
    query = request.rel_url.raw_query_string
    target = _checked(path.lstrip("/") + (f"?{query}" if query else ""))
    return _redirect(f"{_root(request)}{LOGIN[1:]}" + (f"?next={quote(target, safe='')}" if target else ""))


def wants_page(request: web.BaseRequest) -> bool:
    """Whether a browser asks for a page, and sends no token of its own."""
    return (
        request.method in ("GET", "HEAD")
        and "text/html" in request.headers.get("Accept", "")
        and "Authorization" not in request.headers
    )


def problem_page(request: web.BaseRequest, error: AccessError) -> web.Response:
    """Return a page that states the problem."""
    return _page(error.title, error.status, root=_root(request), problem=str(error))


def _root(request: web.BaseRequest) -> str:
    """The relative URL of the root of the site."""
    return "../" * (request.rel_url.raw_path.count("/") - 1) or "./"


def _checked(target: str) -> str:
    """Return a path and query below the prefix; "" for anything that could lead elsewhere."""
    path = unquote(target.partition("?")[0])
    if len(target) > _MAX_NEXT or not _RELATIVE.fullmatch(target) or ".." in path or "\\" in path:
        return ""
    return target.lstrip("/")


def _require_own_page(request: web.BaseRequest) -> None:
    # Login CSRF: another page must not log a browser in with a token of its own choice.
    if from_own_page(request) is not True:
        raise RequestRefused("the form must be sent by a browser, from the login page; other clients send a header")


async def _read_form(request: web.Request) -> dict[str, str]:
    body = bytearray()
    if request.content_type != "application/x-www-form-urlencoded":
        raise RequestRefused("the form must be application/x-www-form-urlencoded")
    try:
        async for part in pieces(request.content, 1 << 14):
            body += part
            if len(body) > _MAX_BODY_BYTES:
                raise RequestRefused("the form is too large")
    except SlowBodyError as error:
        raise RequestRefused(str(error)) from None
    try:
        fields = parse_qs(body.decode(), max_num_fields=10)
    except ValueError:
        raise RequestRefused("the form is malformed") from None
    return {name: values[0] for name, values in fields.items()}


def _redirect(location: str) -> web.Response:
    return web.Response(status=303, headers={"Location": location})


@cache
def _template() -> Template:
    return Environment(loader=PackageLoader("frameworkcontroller.webaccess"), autoescape=True).get_template(
        "login.html"
    )


def _page(title: str, status: int = 200, *, root: str = "./", **content: object) -> web.Response:
    text = _template().render(title=title, root=root, **content)
    # With no-referrer, browsers would send the origin "null" with the form.
    return web.Response(text=text, status=status, content_type="text/html", headers={"Referrer-Policy": "same-origin"})


async def _style(_request: web.Request) -> web.Response:
    style = files("frameworkcontroller.webaccess").joinpath("static/login.css").read_text(encoding="utf-8")
    return web.Response(text=style, content_type="text/css", headers={"Cache-Control": "max-age=3600"})
