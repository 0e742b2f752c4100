"""The end of listening."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

_ACCEPTED_TO_MADE: Final = 3
"""So many turns of the event loop after it was accepted, a connection is one that its server knows of."""


async def accept_no_more(listeners: Iterable[socket.socket]) -> None:
    """To be awaited before a server that asyncio made of these is closed.

    It waits for the connections that have just been accepted, so that whoever serves them can close them, too. asyncio
    itself loses them when their server is closed, and up to Python 3.12 leaves the socket of each open and unowned.
    """
    loop = asyncio.get_running_loop()
    for listener in listeners:
        loop.remove_reader(listener)
    for _ in range(_ACCEPTED_TO_MADE):
        await asyncio.sleep(0)
