"""The log endpoint of the simulated node, which API servers ask: each container has written the same."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tests.support.certificates import make_certificates

_STAMP: Final = b"2026-01-01T00:00:00.000000000Z "
_LINE: Final = b"step 12345, loss 0.123456, 1234.5 tokens a second, learning rate 0.000123, node bench\n"
_LINES: Final = 100_000
_REQUEST: Final = re.compile(rb"GET (\S+) HTTP/1\.1\r\n")


@asynccontextmanager
async def log_endpoint(folder: Path) -> AsyncIterator[int]:
    """Serve logs on 127.0.0.1, with certificates in the folder. Yields the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*make_certificates(folder).pair("server"))
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            found = _REQUEST.match(await reader.readuntil(b"\r\n\r\n"))
            assert found is not None
            query = parse_qs(urlsplit(found[1].decode()).query)
            lines = min(_LINES, int(query.get("tailLines", [str(_LINES)])[0]))
            text = (_STAMP + _LINE) * lines
            text = text[: int(query.get("limitBytes", [str(len(text))])[0])]
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(text) + text
            )
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()
