"""Timers by key on one timer of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from frameworkcontroller.deadlines import Deadlines

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """At most one timer per key; ``fire`` is called with the key when it is due."""

    def __init__(self, fire: Callable[[K], None]) -> None:
        self._fire = fire
        self._deadlines: Deadlines[K] = Deadlines()
        self._timer: asyncio.Handle | None = None
        self._timer_due: float | None = None
        """uvloop's handle of a timer that is due at once has no ``when``."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: K, due: float | None) -> None:
        """Set the timer of ``key`` to ``due`` (loop seconds); None cancels it."""
        if due is None:
            self._deadlines.discard(key)
        elif self._deadlines.get(key) != due:
            self._deadlines.set(key, due)
            self._arm()

    def clear(self) -> None:
        """Cancel all timers."""
        self._deadlines.clear()
        self._arm()

    def _arm(self) -> None:
        due = self._deadlines.next()
        if self._timer is not None:
            if self._timer_due == due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer, self._timer_due = asyncio.get_running_loop().call_at(due, self._on_timer), due

    def _on_timer(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while (key := self._deadlines.pop_due(now)) is not None:
            self._fire(key)
        self._arm()
