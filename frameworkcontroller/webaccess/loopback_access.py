"""Access on loopback: the kernel knows the user at the other end of a connection."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable

from aiohttp import web

from frameworkcontroller.webaccess.access import Access, AuthenticationRequired, Refused, Viewer
from frameworkcontroller.webaccess.loopback import LocalUsers, foreign_host


class LoopbackAccess(Access):
    """Admits this process's user, root, and holders of ``token``, to everything. Refuses other hosts than loopback."""

    def __init__(self, token: str | None = None, *, users: Iterable[int] | None = None) -> None:
        """``token``: None for a random one. ``users`` need no token: see `LocalUsers`."""
        self.token = token or secrets.token_urlsafe(32)
        self._users = LocalUsers(users)

    def check_address(self, request: web.BaseRequest) -> None:
        """Refuse Host headers that do not name loopback."""
        host = foreign_host(request)
        if host is not None:
            raise Refused(f"the host is {host[:100]!r}, but this server is on loopback only")

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        """Look up the user at the other end of the connection, else compare the token."""
        if self._users.include_sender(request) or (
            # Bytes: the value may not be ASCII.
            token is not None and hmac.compare_digest(token.encode(errors="replace"), self.token.encode())
        ):
            return _LocalViewer()
        raise AuthenticationRequired("this server admits the user who runs it, root, and clients with its token")


class _LocalViewer(Viewer):
    """May do everything."""

    name = "local"
    token = None

    async def may_read(self, namespace: str) -> bool:
        del namespace
        return True

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str] | None:
        del namespaces
        return None

    async def may_write_history(self, namespaces: Iterable[str]) -> bool:
        del namespaces
        return True

    async def may_get(self, path: str) -> bool:
        del path
        return True
