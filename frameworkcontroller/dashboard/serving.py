"""The web server of the pages, and their watch."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.dashboard.pages import Pages
from frameworkcontroller.history.reads import ArchiveSource
from frameworkcontroller.webaccess.boundedserver import BoundedServer
from frameworkcontroller.webaccess.middleware import protect
from frameworkcontroller.webaccess.viewers import WebAccess

_DRAIN_SEC: Final = 1.0


@asynccontextmanager
async def serve_pages(
    live: LiveFrameworks | None,
    past: ArchiveSource | None,
    access: WebAccess,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[str, asyncio.Task[None] | None]]:
    """Serve the pages, and watch Frameworks, while inside. Yield the URL without a path, and
    the watch, which does not end by itself.

    Raises:
        ServerError: see `BoundedServer`.
    """
    app = Pages(live, past).application()
    protect(app, access)
    watch = None if live is None else asyncio.create_task(live.run(), name="pages")
    try:
        async with BoundedServer(app, host, port, tls=tls, drain_sec=_DRAIN_SEC) as server:
            yield server.url, watch
    finally:
        if watch is not None:
            watch.cancel()
            await asyncio.wait([watch])
