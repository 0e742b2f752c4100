"""An estimate of the requests that a Framework needs until it rests: all its Tasks run, or it is completed.

Those with the least go first (kube/turns.py). So a Framework that has begun comes before a new one of its size, one
that ends before both, and a small one before a large one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from frameworkcontroller.api.objects import FrameworkRecord, Parsed
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.tracker import Tracker

FRAMEWORK: Final[Mapping[State, int]] = {
    State.CREATION_PENDING: 6,
    State.CREATION_REQUESTED: 5,
    State.PREPARING: 4,
    State.RUNNING: 1,
    State.DELETION_PENDING: 3,
    State.DELETION_REQUESTED: 2,
    State.DELETING: 2,
    State.ATTEMPT_COMPLETED: 1,
    State.COMPLETED: 0,
}
"""By the state of the Framework."""

TASK: Final[Mapping[State, int]] = {
    State.CREATION_PENDING: 3,
    State.CREATION_REQUESTED: 2,
    State.PREPARING: 2,
    State.RUNNING: 0,
    State.DELETION_PENDING: 2,
    State.DELETION_REQUESTED: 1,
    State.DELETING: 1,
    State.ATTEMPT_COMPLETED: 1,
    State.COMPLETED: 0,
}
"""By the state of each of its Tasks."""

NEW: Final = 8
"""Of a Framework without a status, in addition to its Tasks."""

UNREAD: Final = 1000
"""Of a Framework with a status that no reconciler has read: most of them rest, and new ones need not wait for them.

Also of a key whose Framework is not known: it is not listed yet, or gone.
"""

ENDED: Final = 2000
"""Of one that is completed by such a status: it needs no more than to be read."""

_TASK_NUMBER: Final = re.compile(rb'"taskNumber":\s*(\d{1,9})')


def of_tracker(tracker: Tracker) -> int:
    """Of a Framework with that status."""
    if tracker.status is None:
        return NEW
    tasks = sum(TASK[state] * number for state, number in tracker.task_states.items() if number)
    return FRAMEWORK[tracker.status.state] + tasks


def of_record(record: FrameworkRecord | None) -> int:
    """Of a Framework without a reconciler; None: it is not in the cache."""
    if record is None:
        return UNREAD
    if record.state == State.COMPLETED:
        return ENDED
    stored = record.status_json
    if stored.value if isinstance(stored, Parsed) else stored not in (None, b"null", b"{}"):
        return UNREAD
    return NEW + TASK[State.CREATION_PENDING] * sum(map(int, _TASK_NUMBER.findall(record.spec_json)))
