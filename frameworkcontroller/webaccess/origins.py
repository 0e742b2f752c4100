"""Requests that pages of other origins make a browser send, with its user's connections and cookies."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from frameworkcontroller.webaccess.viewers import RequestRefused

_READS: Final = frozenset({"GET", "HEAD"})
_PROBLEM: Final = "a page of another origin sent this request"


def refuse_other_pages(request: web.BaseRequest) -> None:
    """Raise `RequestRefused` for requests of pages of other origins, except links that are followed.

    Clients that are not browsers send none of these headers, and pages cannot set them.
    """
    if request.method in _READS:
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("same-origin", "none") and not _is_followed_link(request):
            # Whether such a resource loads would tell the page which names there are.
            raise RequestRefused(_PROBLEM)
    elif from_own_page(request) is False:
        raise RequestRefused(_PROBLEM)


def from_own_page(request: web.BaseRequest) -> bool | None:
    """Whether a page of this server sent a POST; None if no browser did."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site == "same-origin"
    if origin is None:
        return None
    # Browsers send no Sec-Fetch-Site over plain HTTP to other machines. A reverse proxy may have changed the host.
    hosts = [*request.headers.getall("Host", ()), *request.headers.getall("X-Forwarded-Host", ())]
    return _host_of(origin) in {host.strip().lower() for host in hosts}


def is_https(request: web.BaseRequest) -> bool:
    """Whether the browser uses HTTPS, also if a reverse proxy terminates it."""
    forwarded = request.headers.get("X-Forwarded-Proto", "").partition(",")[0]
    return request.secure or forwarded.strip().lower() == "https"


def _is_followed_link(request: web.BaseRequest) -> bool:
    headers = request.headers
    return headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"


def _host_of(origin: str) -> str | None:
    """The host and port of an Origin header; None for ``null``."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
