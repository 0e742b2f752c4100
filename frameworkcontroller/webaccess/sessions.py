"""Logins of browsers: the cookie holds a random key, the token stays in this process."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from frameworkcontroller.lru import LRUCache
from frameworkcontroller.webaccess.origins import is_https

LIFETIME_SECONDS: Final = 12 * 3600.0
"""Tokens mostly expire sooner."""
_SESSIONS: Final = 1_000
_SESSIONS_OF_ONE: Final = 50
"""Of one viewer, who must not log the others out."""


class Sessions:
    """The tokens of logged-in browsers. They end with this process.

    Browsers send cookies to all ports of a host, so to other servers on localhost: a cookie with the token would show
    it to them. And a name of its own keeps the logins of several servers on localhost apart.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds."""
        self._clock = clock
        self._cookie = f"frameworkcontroller-{secrets.token_hex(8)}"
        self._tokens: LRUCache[str, tuple[float, str, str]] = LRUCache(_SESSIONS)

    def token(self, request: web.BaseRequest) -> str | None:
        """Return the token of the browser that sent ``request``; None if it is not logged in."""
        key = request.cookies.get(self._cookie, "")
        expires, token, _ = self._tokens.get(key) or (0.0, None, "")
        if token is not None and self._clock() >= expires:
            self._tokens.pop(key)
            return None
        return token

    def begin(self, request: web.BaseRequest, response: web.Response, token: str, owner: str) -> None:
        """Log the browser in by the response. ``owner``: of the viewer."""
        self._tokens.pop(request.cookies.get(self._cookie, ""))
        own = [key for key, (_, _, name) in self._tokens.items() if name == owner]
        for oldest in own[: max(len(own) - _SESSIONS_OF_ONE + 1, 0)]:
            self._tokens.pop(oldest)
        key = secrets.token_urlsafe(32)
        self._tokens.put(key, (self._clock() + LIFETIME_SECONDS, token, owner))
        self._set(request, response, key)

    def end(self, request: web.BaseRequest, response: web.Response) -> None:
        """Log the browser out."""
        self._tokens.pop(request.cookies.get(self._cookie, ""))
        self._set(request, response, "", "Max-Age=0")

    def _set(self, request: web.BaseRequest, response: web.Response, value: str, *attributes: str) -> None:
        # Without a path, the cookie is for the folder of the login page: the prefix of a reverse proxy, unknown here.
        parts = [f"{self._cookie}={value}", "HttpOnly", "SameSite=Strict", *attributes]
        if is_https(request):
            parts.append("Secure")
        response.headers.add("Set-Cookie", "; ".join(parts))
