"""Stops accepting connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

_ACCEPTED_TO_MADE: Final = 3
"""Turns of the event loop after accepting a connection until its server knows it."""


async def accept_no_more(listeners: Iterable[socket.socket]) -> None:
    """Wait, before closing the asyncio server of these listeners, for connections that were just accepted.

    The server's owner can then close them. asyncio would lose them, and up to Python 3.12 leave their sockets open.
    """
    loop = asyncio.get_running_loop()
    for listener in listeners:
        loop.remove_reader(listener)
    for _ in range(_ACCEPTED_TO_MADE):
        await asyncio.sleep(0)
