"""Since when a process would know of every report. Pure.

A hang is the absence of reports, so it is certain only while no report can have escaped: while the process holds the
lease, sees the ConfigMaps as they are, takes and writes reports, and runs at all. Each has its own begin, and the
latest one counts; when one ends, nothing is known until it begins again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

PAUSE_SEC: Final = 5.0
"""A process that did not run for this long has missed events, and its lease and watches may have ended."""

TICK_SEC: Final = 1.0


def latest(*begins: float | None) -> float | None:
    """The time since when all hold, None if one does not. ``begins``: since when each does."""
    found = 0.0
    for begin in begins:
        if begin is None:
            return None
        found = max(found, begin)
    return found


class Spell:
    """Notes since when something holds. It is to be asked every `TICK_SEC`, or an end would go unnoticed."""

    __slots__ = ("_clock", "_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic seconds."""
        self._clock = clock
        self._since: float | None = None

    def since(self, *, holds: bool) -> float | None:
        """The time since when it has held, None if it does not hold now."""
        if not holds:
            self._since = None
        elif self._since is None:
            self._since = self._clock()
        return self._since


class Wakefulness:
    """Notices that the process did not run: it was stopped, its machine was paused, or its event loop was blocked.

    ``tick`` is to be called every `TICK_SEC`.
    """

    __slots__ = ("_clock", "_since", "_ticked_at")

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic seconds, which pass while the process does not run."""
        self._clock = clock
        self._since = self._ticked_at = clock()

    def tick(self) -> None:
        """Note that the process runs."""
        self._since = self.since
        self._ticked_at = self._clock()

    @property
    def since(self) -> float:
        """The time since when the process has run without a pause. After one, the time of the first look."""
        now = self._clock()
        if now - self._ticked_at > PAUSE_SEC:
            # Timers may ring in any order after a pause: the first look may come before the next tick.
            self._since = self._ticked_at = now
        return self._since
