"""Loopback addresses, and Host headers that name one."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

_LOCALHOST: Final = "localhost"


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
