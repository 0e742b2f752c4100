"""Authentication: admits the cluster's user, root, and holders of the token; refuses web pages.

Every user of the machine can reach a loopback address, and so can web pages in their browsers. There is no TLS, and
kubectl sends no credentials over plain HTTP. So the kernel authenticates: it knows the user of the other end of a
connection.
"""

from __future__ import annotations

import hmac
import os
import secrets
from asyncio import BaseTransport
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from aiohttp import web

from frameworkcontroller.local.apiserver import api_errors
from frameworkcontroller.local.apiserver.http_bodies import ACCEPTED
from frameworkcontroller.local.apiserver.patches import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from frameworkcontroller.local.apiserver.peer_credentials import (
    ROOT,
    Address,
    PeersUnknownError,
    distinguishes_users,
    peer_user,
)
from frameworkcontroller.webaccess.loopback import foreign_host

_BROWSERS_HEADERS: Final = ("Origin", "Sec-Fetch-Site")
_MEDIA_TYPES: Final = frozenset({*ACCEPTED, APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH})
_READS: Final = frozenset({"GET", "HEAD"})


class LocalUsers:
    """Tells whether a request comes from one of a set of users of this machine."""

    def __init__(self, users: Iterable[int] | None = None) -> None:
        """``users``: user ids; by default this process's user and root, or root alone where ids are not distinct."""
        if users is None:
            users = {ROOT, os.geteuid()} if distinguishes_users() else {ROOT}
        self._users = frozenset(users)
        self._known: WeakKeyDictionary[BaseTransport, bool] = WeakKeyDictionary()

    def include_sender(self, request: web.BaseRequest) -> bool:
        """Whether one of the users sent the request; looked up once per connection."""
        transport = request.transport
        if transport is None or not self._users:
            return False
        known = self._known.get(transport)
        if known is None:
            known = self._known[transport] = self._connects(transport)
        return known

    def _connects(self, transport: BaseTransport) -> bool:
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if not peer or not own:
            return False
        try:
            return peer_user(Address(*peer[:2]), Address(*own[:2])) in self._users
        except PeersUnknownError:
            return False


class Authenticator:
    """Accepts or refuses requests. ``token`` authenticates every user."""

    def __init__(self, token: str | None = None, *, users: Iterable[int] | None = None) -> None:
        """``token``: None for a random one. ``users`` need no token; by default this process's user and root."""
        self.token = token or secrets.token_urlsafe(32)
        self._users = LocalUsers(users)

    def check(self, http: web.BaseRequest, *, public: bool = False) -> None:
        """Raise StatusError if the request is refused. ``public``: open to all clients except web pages."""
        has_token = self._bears_token(http)
        _refuse_web_pages(http, has_token=has_token)
        if not (public or has_token or self._users.include_sender(http)):
            raise api_errors.unauthorized(
                "this local cluster serves only the user who runs it, root, and clients with its token"
            )

    def _bears_token(self, http: web.BaseRequest) -> bool:
        scheme, _, given = http.headers.get("Authorization", "").partition(" ")
        # Bytes: the value may not be ASCII, or even Unicode.
        given_bytes = given.strip().encode(errors="surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(given_bytes, self.token.encode())


def _refuse_web_pages(http: web.BaseRequest, *, has_token: bool) -> None:
    """Raise StatusError for requests that a web page can make a browser send, with its user's connections."""
    headers = http.headers
    for name in _BROWSERS_HEADERS:
        if name in headers:
            raise api_errors.forbidden_request(
                f"it has the header {name}, which indicates a web page; web pages are refused"
            )
    if (host := foreign_host(http)) is not None:
        raise api_errors.forbidden_request(f"its host is {host!r}, but this server is on loopback only")
    if http.method not in _READS:
        media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        # Pages may send a missing or simple Content-Type without preflight; for the API's own, browsers ask first. No
        # page has the token: with it, a body without Content-Type is JSON, as on a real server.
        missing = not media_type and http.body_exists and not has_token
        if missing or (media_type and media_type not in _MEDIA_TYPES):
            raise (
                api_errors.unsupported_patch_type()
                if http.method == "PATCH"
                else api_errors.unsupported_media_type(ACCEPTED)
            )
