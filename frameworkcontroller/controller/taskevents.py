"""Batches records of Tasks into Events, one for all Tasks of a TaskRole to which the same happened.

A batch is delayed by a second, and by twice as long each time while more records come. An Event about the Framework
as a whole flushes the batch first, which keeps Events in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from frameworkcontroller.controller.eventcorrelator import CACHE_CAPACITY, CorrelatedEvent, InvolvedObject
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.machine.kernel.context import summarize
from frameworkcontroller.machine.kernel.model import Record
from frameworkcontroller.machine.kernel.reasons import Reason

DELAY_SEC: Final = 1.0
MAX_DELAY_SEC: Final = 300.0
RESET_SEC: Final = 600.0
"""After this time without records of a Framework the delay starts at ``DELAY_SEC`` again."""

_NAMED: Final = 5
"""The number of Tasks that an Event names."""


@dataclass(slots=True)
class _Group:
    """Records of Tasks of one role with the same reason and completion code."""

    first: Record
    indexes: dict[int | None, None] = field(default_factory=dict)
    """The indexes of the Tasks, in the order of their first records."""
    count: int = 0

    def message(self, reason: Reason, role: str, completion: str) -> str:
        tasks = len(self.indexes)
        first = f"{role}[{self.first.index}]"
        if tasks == 1:
            times = f" ({self.count} times)" if self.count > 1 else ""
            return f"Task {first}{times}: {self.first.message}"
        named = ", ".join(f"{role}[{index}]" for index in sorted(index or 0 for index in islice(self.indexes, _NAMED)))
        more = f" and {tasks - _NAMED} more" if tasks > _NAMED else ""
        what = f"{tasks} Tasks of TaskRole {role} {reason.many} {completion}"
        return f"{what}: {named}{more}; {first}: {self.first.message}"


@dataclass(slots=True)
class _Batch:
    """The records of one Framework's Tasks since the last flush."""

    groups: dict[tuple[Reason, str, str], _Group] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    delay: float = DELAY_SEC
    last: float = float("-inf")


class TaskEventBatcher:
    """Holds the batches of all Frameworks."""

    def __init__(self, post: Callable[[CorrelatedEvent], None], *, wall: Callable[[], float]) -> None:
        """``post`` takes the Events of a batch. ``wall`` returns seconds since the epoch."""
        self._post = post
        self._wall = wall
        self._batches: LRUCache[InvolvedObject, _Batch] = LRUCache(CACHE_CAPACITY)

    def add(self, involved_object: InvolvedObject, record: Record) -> None:
        batch = self._batches.get(involved_object) or self._batches.put(involved_object, _Batch())
        now = self._wall()
        if now - batch.last > RESET_SEC:
            batch.delay = DELAY_SEC
        batch.last = now
        completion = "" if record.completion is None else summarize(record.completion)
        group = batch.groups.setdefault((record.reason, record.role or "", completion), _Group(record))
        group.indexes[record.index] = None
        group.count += 1
        if batch.timer is None:
            batch.timer = asyncio.get_running_loop().call_later(batch.delay, self._flush, involved_object, batch)
            batch.delay = min(MAX_DELAY_SEC, 2 * batch.delay)

    def flush(self, involved_object: InvolvedObject) -> None:
        batch = self._batches.get(involved_object)
        if batch is not None:
            self._flush(involved_object, batch)

    def flush_all(self) -> None:
        for involved_object, batch in self._batches.items():
            self._flush(involved_object, batch)

    def _flush(self, involved_object: InvolvedObject, batch: _Batch) -> None:
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None
        groups, batch.groups = batch.groups, {}
        for (reason, role, completion), group in groups.items():
            message = group.message(reason, role, completion)
            self._post(CorrelatedEvent(involved_object, reason, message, group.first.warning))
