"""Keys to be looked at, one slice of them per turn of the event loop, so that no amount of them stops the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

K = TypeVar("K")

_log = logging.getLogger(__name__)
_SLICE: Final = 32


class WorkQueue(Generic[K]):
    """Calls ``handle`` with each key that was added, once for however often that was, in the order of adding.

    What is added before :meth:`start` waits for it.
    """

    def __init__(self, handle: Callable[[K], None], *, delay: float = 0.0) -> None:
        """``delay``: seconds between adding and handling, for those who want to see the time in between."""
        self._handle = handle
        self._delay = delay
        self._keys: dict[K, None] = {}
        self._timer: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, key: K) -> None:
        """Notes that ``key`` is to be looked at."""
        self._keys[key] = None
        self._schedule(self._delay)

    def drain(self, limit: int | None = None) -> bool:
        """Handles up to ``limit`` keys now, all of them and all that they lead to if it is None; whether any."""
        handled = 0
        while self._keys and (limit is None or handled < limit):
            self._handle_next()
            handled += 1
        return handled > 0

    def start(self) -> None:
        """Begins to work, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        if self._keys:
            self._schedule(self._delay)

    def stop(self) -> None:
        """Ends work; what has not been handled stays noted."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, delay: float) -> None:
        if self._loop is not None and self._timer is None:
            self._timer = self._loop.call_later(delay, self._work) if delay else self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._timer = None
        self.drain(_SLICE)
        if self._keys:
            self._schedule(0.0)

    def _handle_next(self) -> None:
        key = next(iter(self._keys))
        del self._keys[key]
        try:
            self._handle(key)
        except Exception:  # noqa: BLE001 -- one object that cannot be handled must not stop the others
            _log.exception("%r could not be handled", key)
