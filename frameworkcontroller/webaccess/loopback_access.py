"""Access on loopback: by a token that the server prints, and keeps in a file that only its user can read."""

from __future__ import annotations

import fcntl
import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from aiohttp import web

from frameworkcontroller.webaccess.loopback import foreign_host
from frameworkcontroller.webaccess.viewers import (
    AuthenticationRequired,
    RequestRefused,
    SimpleViewer,
    Viewer,
    WebAccess,
)

_TOKEN: Final = re.compile(rb"[\x21-\x7e]+")


class TokenFileError(Exception):
    """The file of a token cannot be used. The text names it and the reason."""


def token_in(path: Path) -> str:
    """Return the token in a file. Without one, write a random one, so that addresses stay the same after a restart.

    Raises:
        TokenFileError: the file cannot be read or written, or has no token.
    """
    try:
        with open(path, "a+b", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, 0o600)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Another user's file is not changed.
            with suppress(PermissionError):
                os.fchmod(file.fileno(), 0o600)
            file.seek(0)
            token = file.read().strip()
            if not token:
                token = secrets.token_urlsafe(32).encode()
                file.write(token + b"\n")
            if not _TOKEN.fullmatch(token):
                raise TokenFileError(f"{path}: must hold one token, without spaces")
            return token.decode()
    except OSError as error:
        raise TokenFileError(f"{path}: cannot be used: {error.strerror}") from None


class LoopbackAccess(WebAccess):
    """Admits holders of ``token`` to everything. Refuses other hosts than loopback."""

    by_link = True

    def __init__(self, token: str | None = None) -> None:
        """``token``: None for a random one."""
        self.token = token or secrets.token_urlsafe(32)

    def link(self, url: str) -> str:
        """Return the address that logs a browser in. ``url``: of the server, without a path."""
        return f"{url}/login?token={quote(self.token, safe='')}"

    def check_address(self, request: web.BaseRequest) -> None:
        """Refuse Host headers that do not name loopback."""
        host = foreign_host(request)
        if host is not None:
            raise RequestRefused(f"the host is {host[:100]!r}, but this server is on loopback only")

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        """Compare the token."""
        del request
        # Bytes: the value may not be ASCII.
        if token is not None and hmac.compare_digest(token.encode(errors="replace"), self.token.encode()):
            return SimpleViewer("local", reads=True)
        raise AuthenticationRequired("this server needs its token: open the address that it printed at its start")
