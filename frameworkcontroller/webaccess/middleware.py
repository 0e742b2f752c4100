"""The aiohttp middleware that finds the viewer of each request, and the headers of every response.

app = web.Application()
protect(app, LoopbackAccess())
...
async def handler(request: web.Request) -> web.Response:
    if not await request[VIEWER].may_read(namespace):
        raise web.HTTPNotFound
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware

from frameworkcontroller.webaccess.login import PATHS, Login, login_redirect, problem_page, wants_page
from frameworkcontroller.webaccess.loopback import names_loopback
from frameworkcontroller.webaccess.origins import is_https, refuse_other_pages
from frameworkcontroller.webaccess.sessions import Sessions
from frameworkcontroller.webaccess.viewers import (
    VIEWER,
    AccessError,
    AccessUnavailable,
    AuthenticationRequired,
    RequestRefused,
    Viewer,
    WebAccess,
)

PUBLIC: Final = frozenset({"/healthz", "/readyz"})
"""Paths of probes, which have no token. Their answers must not name or count anything."""

METRICS: Final = "/metrics"
"""Needs the permission that Prometheus has for Kubernetes' own components: to get this nonResourceURL."""

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The default names the versions of Python and aiohttp.
    "Server": "frameworkcontroller",
}
DEFAULT_HEADERS: Final = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
"""Set unless the handler has set them."""

_log: Final = logging.getLogger(__name__)

_METHODS: Final = frozenset({"GET", "HEAD", "POST"})
_RETRY_AFTER_SECONDS: Final = 5

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def protect(app: web.Application, access: WebAccess, *, public: Collection[str] = PUBLIC) -> None:
    """Let only those use ``app`` whom ``access`` admits, with a login page for browsers, and add the security headers.

    To be called once, before the application starts. ``public``: paths that need no viewer.
    """
    sessions = Sessions()
    Login(access, sessions).add_to(app)
    app.middlewares.insert(0, _checking(access, sessions, frozenset(public) | PATHS))
    app.on_response_prepare.append(_add_headers)


def _checking(access: WebAccess, sessions: Sessions, open_paths: frozenset[str]) -> Middleware:
    """Return a middleware that sets ``request[VIEWER]``, and answers refused requests with a problem.

    Browsers without a login are sent to the login page.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            access.check_address(request)
            if request.method not in _METHODS:
                return _problem(405, "Method not allowed", "GET, HEAD and POST are", {"Allow": "GET, HEAD, POST"})
            refuse_other_pages(request)
            if request.path not in open_paths:
                token = _bearer_token(request) or sessions.token(request)
                request[VIEWER] = await _identify(access, request, token)
                if request.path == METRICS and not await request[VIEWER].may_get(METRICS):
                    raise RequestRefused(f"this needs the permission to get the nonResourceURL {METRICS}")
            return await handler(request)
        except AccessError as error:
            return _refusal(request, error)

    return check


async def _identify(access: WebAccess, request: web.Request, token: str | None) -> Viewer:
    try:
        return await access.identify(request, token)
    except AccessError:
        raise
    except Exception:  # noqa: BLE001 - an error concerns this request only
        _log.exception("Cannot check access")
        raise AccessUnavailable("the log of the server has the details") from None


def _bearer_token(request: web.Request) -> str | None:
    given = request.headers.getall("Authorization", ())
    if not given:
        return None
    scheme, _, token = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise AuthenticationRequired("the header Authorization must be: Bearer TOKEN")
    return token.strip()


def _refusal(request: web.BaseRequest, error: AccessError) -> web.Response:
    if wants_page(request):
        if isinstance(error, AuthenticationRequired):
            return login_redirect(request)
        return problem_page(request, error)
    headers = {}
    if isinstance(error, AuthenticationRequired):
        headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, AccessUnavailable):
        headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return _problem(error.status, error.title, str(error), headers)


def _problem(status: int, title: str, detail: str, headers: dict[str, str]) -> web.Response:
    body = orjson.dumps({"title": title, "detail": detail}, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(status=status, body=body, content_type="application/problem+json", headers=headers)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SECURITY_HEADERS)
    if is_https(request) or names_loopback(request.host):
        # Elsewhere browsers ignore it, with a warning for each page.
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
    for name, value in DEFAULT_HEADERS.items():
        response.headers.setdefault(name, value)
