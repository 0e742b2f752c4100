"""A worker that processes the keys of a work queue without blocking the server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from frameworkcontroller.kube.workqueue import WorkQueue

K = TypeVar("K", bound=Hashable)

_log: Final = logging.getLogger(__name__)
_SLICE: Final = 32


class Worker(Generic[K]):
    """Calls ``handle`` with each added key, a limited number of keys per turn of the event loop.

    Keys that are added before :meth:`start` wait for it.
    """

    def __init__(self, handle: Callable[[K], None], *, delay: float = 0.0) -> None:
        """``delay``: seconds between adding and handling, for tests of the state in between."""
        self._handle = handle
        self._delay = delay
        self._queue: WorkQueue[K] = WorkQueue(time.monotonic)
        self._timer: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, key: K) -> None:
        """Have ``key`` handled."""
        self._queue.add(key)
        self._schedule(self._delay)

    def drain(self, limit: int | None = None) -> bool:
        """Handle up to ``limit`` keys now, including those added meanwhile; None for all. Return whether any was."""
        handled = 0
        while (limit is None or handled < limit) and (key := self._queue.get_nowait()) is not None:
            try:
                self._handle(key)
            except Exception:  # noqa: BLE001 - one bad object must not stop the others
                _log.exception("Cannot handle %r", key)
            finally:
                self._queue.done(key)
            handled += 1
        return handled > 0

    def start(self) -> None:
        """Begin to work, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        if self._queue:
            self._schedule(self._delay)

    def stop(self) -> None:
        """Stop; keys that are not handled yet stay queued."""
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
        if self._queue:
            self._schedule(0.0)


class ObjectController(Worker[K]):
    """A worker whose keys come from an observer of the store, which ends with it."""

    _unobserve: Callable[[], None]

    def stop(self) -> None:
        """Stop, and observe no more."""
        super().stop()
        self._unobserve()
