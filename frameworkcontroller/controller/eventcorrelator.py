"""What keeps Events from becoming a flood: the same ones are counted, similar ones combined, and those about one
Framework rationed.

The rules and figures are those of client-go's event correlator (tools/record), which users know from every other
controller: an Event that only repeats another raises its count; of more than ten in ten minutes that differ only in
their message, the rest become one; and of one object there are 25 at once, and then one in five minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from frameworkcontroller.lru import LRUCache

CACHE_CAPACITY: Final = 4096
"""Of so many Events, and objects, it is remembered what was told; longest unheard of, first forgotten."""

SIMILAR: Final = 10
SIMILAR_SEC: Final = 600.0
COMBINED: Final = "(combined from similar events): "

BURST: Final = 25
REFILL_SEC: Final = 300.0

RESERVE: Final = 10
"""Of the burst, so much is not for Events about single Tasks: what becomes of the Framework can always be told."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The Framework that an Event is about."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Draft:
    """Something to be told of a Framework. ``minor``: it is about single Tasks. ``vital``: it happens but once."""

    subject: Subject
    reason: str
    message: str
    warning: bool
    minor: bool = False
    vital: bool = False


@dataclass(slots=True)
class Telling:
    """An Event as it is to be on the API server. ``first`` and ``last``: seconds since the epoch."""

    draft: Draft
    name: str
    message: str
    count: int
    first: float
    last: float

    @property
    def fresh(self) -> bool:
        """Whether it is told for the first time."""
        return self.count == 1


@dataclass(slots=True)
class _Similar:
    messages: set[str] = field(default_factory=set)
    last: float = float("-inf")


@dataclass(slots=True)
class _Ration:
    tokens: float
    counted: float


class EventCorrelator:
    """Decides what becomes of each thing to be told. Pure but for what it remembers."""

    def __init__(self, new_name: Callable[[Subject], str], *, most: int = CACHE_CAPACITY) -> None:
        """``new_name``: a name for a new Event about that object."""
        self._new_name = new_name
        self._told: LRUCache[tuple[Subject, str, bool, str], Telling] = LRUCache(most)
        self._similar: LRUCache[tuple[Subject, str, bool], _Similar] = LRUCache(most)
        self._rations: LRUCache[Subject, _Ration] = LRUCache(most)

    @property
    def is_full(self) -> bool:
        """Whether it remembers as much as it ever will."""
        return all(cache.is_full for cache in (self._told, self._similar, self._rations))

    def correlate(self, draft: Draft, now: float) -> Telling | None:
        """The Event that tells it, to be created or (if it is not ``fresh``) to be changed; None: there were too many.

        ``now``: seconds since the epoch.
        """
        key, message = self._combine(draft, now)
        if not self._accept(draft, now):
            return None
        known = self._told.get(key)
        if known is None:
            return self._told.put(key, Telling(draft, self._new_name(draft.subject), message, 1, now, now))
        told = Telling(draft, known.name, message, known.count + 1, known.first, now)
        return self._told.put(key, told)

    def _combine(self, draft: Draft, now: float) -> tuple[tuple[Subject, str, bool, str], str]:
        kind = (draft.subject, draft.reason, draft.warning)
        similar = self._similar.get(kind)
        if similar is None or now - similar.last > SIMILAR_SEC:
            similar = self._similar.put(kind, _Similar())
        similar.last = now
        if draft.message in similar.messages or len(similar.messages) < SIMILAR - 1:
            similar.messages.add(draft.message)
            return (*kind, draft.message), draft.message
        return (*kind, COMBINED), COMBINED + draft.message

    def _accept(self, draft: Draft, now: float) -> bool:
        ration = self._rations.get(draft.subject) or self._rations.put(draft.subject, _Ration(BURST, now))
        ration.tokens = min(float(BURST), ration.tokens + max(0.0, now - ration.counted) / REFILL_SEC)
        ration.counted = now
        if draft.vital:
            return True
        if ration.tokens < 1 + (RESERVE if draft.minor else 0):
            return False
        ration.tokens -= 1
        return True
