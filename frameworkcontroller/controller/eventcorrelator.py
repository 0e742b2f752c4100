"""The event correlator: deduplicates Events, aggregates similar ones and limits their rate.

Rules and figures come from client-go (tools/record), which users know from other controllers. A repeated Event raises
the count of the first. Of Events that differ only in their message, the tenth and later ones within ten minutes become
one. A Framework has a token bucket of 25 Events, which gets one token every five minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from frameworkcontroller.lru import LRUCache
from frameworkcontroller.tokenbucket import TokenBucket

CACHE_CAPACITY: Final = 4096
"""The number of Events, and of objects of Events, to remember."""

SIMILAR: Final = 10
SIMILAR_SEC: Final = 600.0
COMBINED: Final = "(combined from similar events): "

BURST: Final = 25
REFILL_SEC: Final = 300.0

RESERVE: Final = 10
"""Tokens that Events about single Tasks cannot take, so that those about the whole Framework still can."""


class Priority(IntEnum):
    """Which Events the spam filter drops first."""

    TASK = 0
    """Leaves ``RESERVE`` tokens."""
    FRAMEWORK = 1
    FINAL = 2
    """Never dropped: there is one in the life of a Framework."""


@dataclass(frozen=True, slots=True)
class InvolvedObject:
    """The Framework that an Event is about."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CorrelatedEvent:
    """A Kubernetes Event. Timestamps are in seconds since the epoch; with ``name``, the correlator sets them."""

    involved_object: InvolvedObject
    reason: str
    message: str
    warning: bool
    name: str = ""
    count: int = 1
    first_timestamp: float = 0.0
    last_timestamp: float = 0.0


_Kind = tuple[InvolvedObject, str, bool]


@dataclass(slots=True)
class _Similar:
    """The messages of Events that differ in nothing else."""

    messages: set[str] = field(default_factory=set)
    last: float = float("-inf")


class EventCorrelator:
    """Decides which Events are created, updated and dropped."""

    def __init__(self, new_name: Callable[[InvolvedObject], str], *, capacity: int = CACHE_CAPACITY) -> None:
        """``new_name`` returns the name of a new Event about an object."""
        self._new_name = new_name
        self._events: LRUCache[tuple[_Kind, str], CorrelatedEvent] = LRUCache(capacity)
        self._similar: LRUCache[_Kind, _Similar] = LRUCache(capacity)
        self._buckets: LRUCache[InvolvedObject, TokenBucket] = LRUCache(capacity)

    def correlate(
        self, event: CorrelatedEvent, now: float, priority: Priority = Priority.FRAMEWORK
    ) -> CorrelatedEvent | None:
        """Return the Event to create or, with a ``count`` above 1, to update; None if the spam filter drops it.

        ``now`` is in seconds since the epoch.
        """
        kind = (event.involved_object, event.reason, event.warning)
        combined = self._is_combined(kind, event.message, now)
        if not self._allows(event.involved_object, now, priority):
            return None
        key = (kind, COMBINED if combined else event.message)
        message = COMBINED + event.message if combined else event.message
        known = self._events.get(key)
        if known is None:
            name = self._new_name(event.involved_object)
            new = replace(event, message=message, name=name, first_timestamp=now, last_timestamp=now)
        else:
            new = replace(known, message=message, count=known.count + 1, last_timestamp=now)
        return self._events.put(key, new)

    def _is_combined(self, kind: _Kind, message: str, now: float) -> bool:
        similar = self._similar.get(kind)
        if similar is None or now - similar.last > SIMILAR_SEC:
            similar = self._similar.put(kind, _Similar())
        similar.last = now
        if message not in similar.messages and len(similar.messages) >= SIMILAR - 1:
            return True
        similar.messages.add(message)
        return False

    def _allows(self, involved_object: InvolvedObject, now: float, priority: Priority) -> bool:
        bucket = self._buckets.get(involved_object)
        if bucket is None:
            bucket = self._buckets.put(involved_object, TokenBucket(BURST, 1 / REFILL_SEC))
        bucket.refill(now)
        if priority is Priority.FINAL:
            return True
        if bucket.left < (1 + RESERVE if priority is Priority.TASK else 1):
            return False
        bucket.left -= 1
        return True
