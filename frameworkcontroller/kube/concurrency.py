"""How many syncs run at once: fewer while the API server is the bottleneck. Pure.

A saturated API server does not answer more requests because more are in flight: each takes longer, and all Frameworks
end late instead of one after the other. All namespaces have the same API server, so there is one limit. But a namespace
may always have its share of it: none waits for the syncs of another one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

LEAST: Final = 16
"""Enough for 1,000 requests a second if an answer takes 16 ms."""

LEAST_SHARE: Final = 2
"""Per namespace, for any number: one sync behind a slow webhook does not stop it."""

FLAT: Final = 4.0
"""A factor: up to this multiple of the fastest answer of its kind, an answer is not one of a busy API server."""

SATURATED: Final = 6.0

WINDOW_SEC: Final = 300.0
"""The fastest answer comes from the last one or two windows."""

_MOST: Final = 20.0
"""A webhook that takes long says little about the API server."""

_SMOOTHING: Final = 1 / 16
_STEP: Final = 0.5


class ConcurrencyLimit:
    """Between ``LEAST`` and ``most``. It grows while it holds syncs back although answers are as fast as ever."""

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self._limit = float(min(LEAST, most))
        self._slowness = 1.0
        self._held_back = False
        self._fastest: dict[Hashable, float] = {}
        self._previous: dict[Hashable, float] = {}
        self._window_ends = 0.0

    def allows(self, running: int, total: int, namespaces: int) -> bool:
        """Whether one more of a namespace may run. It is asked only if one more is to run.

        ``running`` are those of the namespace, ``total`` those of all, ``namespaces`` those that have any, or shall.
        """
        limit = int(self._limit)
        self._held_back = total >= limit and running >= max(LEAST_SHARE, limit // namespaces)
        return not self._held_back

    def answered(self, kind: Hashable, seconds: float, now: float) -> None:
        """Note the time of an answer to a request of that kind. ``now``: monotonic seconds."""
        if now >= self._window_ends:
            self._previous, self._fastest = self._fastest, {}
            self._window_ends = now + WINDOW_SEC
        fastest = self._fastest[kind] = min(seconds, self._fastest.get(kind, seconds))
        fastest = max(1e-4, min(fastest, self._previous.get(kind, fastest)))
        self._slowness += (min(seconds / fastest, _MOST) - self._slowness) * _SMOOTHING
        if self._slowness > SATURATED:
            step = -1.0
        elif self._slowness > FLAT:
            step = 0.0
        else:
            step = _STEP if self._held_back else -_STEP
        self._limit = max(min(LEAST, self._most), min(self._most, self._limit + step))
