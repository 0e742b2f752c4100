"""Loopback addresses: who is at the other end of a connection, and whether a Host header names one."""

from __future__ import annotations

import os
from asyncio import BaseTransport
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from aiohttp import web

from frameworkcontroller.webaccess.peer_credentials import (
    ROOT,
    Address,
    PeersUnknownError,
    distinguishes_users,
    peer_user,
)

_LOCALHOST: Final = "localhost"


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


def is_loopback_address(host: str) -> bool:
    """Whether a server that listens on ``host`` is reachable from this machine only. "" means every address."""
    try:
        return host == _LOCALHOST or ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)
def names_loopback(host: str) -> bool:
    """Whether a Host header is a loopback address or ``localhost``, with or without a port."""
    try:
        url = urlsplit(f"//{host}")
        return url.netloc == host and "@" not in host and is_loopback_address(url.hostname or "")
    except ValueError:
        return False


def foreign_host(request: web.BaseRequest) -> str | None:
    """The first Host header that does not name loopback, None if there is none.

    DNS rebinding: a web page whose own host name resolves to loopback may read the answers.
    """
    return next((host for host in request.headers.getall("Host", ()) if not names_loopback(host)), None)
