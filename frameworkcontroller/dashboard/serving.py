"""The web server of the pages, and their watch."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.dashboard.past import PastSource
from frameworkcontroller.dashboard.server import Pages
from frameworkcontroller.webaccess.access import Access
from frameworkcontroller.webaccess.middleware import protect

# What is no HTTP must not fill the log; its header lines may be tokens.
_peers_log: Final = logging.getLogger(f"{__name__}.peers")
_peers_log.setLevel(logging.CRITICAL + 1)

_MAX_LINE_BYTES: Final = 16 << 10
_SHUTDOWN_SEC: Final = 1.0


class ServingError(Exception):
    """The server cannot listen on its address. The text says why."""


@asynccontextmanager
async def serve(app: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Serve an application while inside. Yield the URL of its root on this machine.

    Args:
        host: a name or address of this machine, "" for all addresses.
        port: 0 for any free one.

    Raises:
        ServingError: the port is in use, or the address does not belong to this machine.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_peers_log,
        shutdown_timeout=_SHUTDOWN_SEC,
        max_line_size=_MAX_LINE_BYTES,
        max_field_size=_MAX_LINE_BYTES,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port, reuse_address=True)
        try:
            await site.start()
        except OSError as error:
            known = error.errno is not None and error.errno > 0
            raise ServingError(os.strerror(error.errno) if known and error.errno else str(error)) from None
        number = runner.addresses[0][1]
        named = host or "127.0.0.1"
        yield f"http://{f'[{named}]' if ':' in named else named}:{number}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serve_pages(
    live: LiveFrameworks | None, past: PastSource | None, access: Access, host: str, port: int
) -> AsyncIterator[tuple[str, asyncio.Task[None] | None]]:
    """Serve the pages, and watch Frameworks, while inside. Yield the URL, and the watch, which does not end by itself.

    Raises:
        ServingError: see `serve`.
    """
    app = Pages(live, past).application()
    protect(app, access)
    watch = None if live is None else asyncio.create_task(live.run(), name="pages")
    try:
        async with serve(app, host, port) as url:
            yield url, watch
    finally:
        if watch is not None:
            watch.cancel()
            await asyncio.wait([watch])
