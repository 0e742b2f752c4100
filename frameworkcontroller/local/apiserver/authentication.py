"""Who may speak to the API server: its user, root, and whoever has its token; and never a web page.

An address on loopback is reached by every user of the machine, and by every page that one of them has open in a
browser. There is no TLS, so a kubeconfig cannot prove who somebody is: kubectl keeps credentials to itself over plain
HTTP. What proves it is the connection, of whose other end the kernel knows the user.
"""

from __future__ import annotations

import hmac
import os
import secrets
from asyncio import BaseTransport
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from aiohttp import web

from frameworkcontroller.local.apiserver import api_errors
from frameworkcontroller.local.apiserver.bodies import ACCEPTED
from frameworkcontroller.local.apiserver.patch import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from frameworkcontroller.local.apiserver.peer_credentials import (
    ROOT,
    Address,
    PeersUnknownError,
    distinguishes_users,
    peer_user,
)

_BROWSERS_HEADERS: Final = ("Origin", "Sec-Fetch-Site")
_MEDIA_TYPES: Final = frozenset({*ACCEPTED, APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH})
_READS: Final = frozenset({"GET", "HEAD"})


class Callers:
    """Lets requests in or refuses them. ``token`` lets in whoever bears it."""

    def __init__(self, token: str | None = None, *, users: Iterable[int] | None = None) -> None:
        """``token``: None for a random one. ``users``: who needs none, by default this process's user and root."""
        self.token = token or secrets.token_urlsafe(32)
        if users is None:
            users = {ROOT, os.geteuid()} if distinguishes_users() else {ROOT}
        self._users = frozenset(users)
        self._known: WeakKeyDictionary[BaseTransport, bool] = WeakKeyDictionary()

    def check(self, http: web.BaseRequest, *, public: bool = False) -> None:
        """Raises StatusError if the request is not to be answered. ``public``: it is for everybody but web pages."""
        _refuse_web_pages(http)
        if not (public or self._is_users(http) or self._bears_token(http)):
            raise api_errors.unauthorized(
                "this local cluster serves the user who runs it, root, and whoever bears its token; "
                "this request comes from none of them"
            )

    def _is_users(self, http: web.BaseRequest) -> bool:
        """Whether the connection is that of a user who needs no token; found out once for each connection."""
        transport = http.transport
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

    def _bears_token(self, http: web.BaseRequest) -> bool:
        scheme, _, given = http.headers.get("Authorization", "").partition(" ")
        # Bytes, since what is given may be no ASCII; it may even be no Unicode.
        given_bytes = given.strip().encode(errors="surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(given_bytes, self.token.encode())


def _refuse_web_pages(http: web.BaseRequest) -> None:
    """Raises StatusError for what a web page could have a browser send, whose connections are its user's."""
    headers = http.headers
    for name in _BROWSERS_HEADERS:
        if name in headers:
            raise api_errors.forbidden_request(f"it has the header {name}, and web pages are not answered")
    for host in headers.getall("Host", ()):
        if not _is_loopback(host):
            # A page whose own host name has been made to lead here is let by the browser to read the answers, too.
            raise api_errors.forbidden_request(f"it is for the host {host!r}, and this server is on loopback only")
    if http.method not in _READS:
        media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        # Any page may send these, or none; of what is known here, browsers ask the server first.
        if media_type not in _MEDIA_TYPES and (media_type or http.body_exists):
            raise (
                api_errors.unsupported_patch_type()
                if http.method == "PATCH"
                else api_errors.unsupported_media_type(ACCEPTED)
            )


@lru_cache(maxsize=64)
def _is_loopback(host: str) -> bool:
    """Whether a Host header names loopback by an address, or as ``localhost``, with a port or without."""
    try:
        url = urlsplit(f"//{host}")
        name = url.hostname or ""
        return url.netloc == host and "@" not in host and (name == "localhost" or ip_address(name).is_loopback)
    except ValueError:
        return False
