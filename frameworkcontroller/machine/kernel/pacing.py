"""When to write a changed status: soon for readers, but seldom enough for the API server.

Source: docs/architecture.md, "The machine" (urgency).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.kernel.tracker import Tracker

BREATH_FACTOR: Final = 1.0
BREATH_MAX_SEC: Final = 2.0
"""Pause after a write, as a multiple of its duration: writes of a large status take at most half of the time."""

QUIET_SEC: Final = 1.0
"""Time without a write after which a change is written at once, as probably no others follow."""

FLOW_FACTOR: Final = 10.0
FLOW_MAX_SEC: Final = 4.0
"""Time for which a change of a large status waits while more Tasks change, as a multiple of the duration of the last
write: it is written once no other has changed for that duration."""

RIDE_SEC: Final = 1.0
RIDE_FACTOR: Final = 10.0
RIDE_MAX_SEC: Final = 10.0
"""Time that a change with urgency LATER waits for the next one, which takes longer if the API server is slow."""

FAST_SEC: Final = 0.05
"""Time of answers up to which the API server is fast: nothing below waits for others' sake."""

SHOW_FACTOR: Final = 20.0
SHOW_MAX_SEC: Final = 10.0
"""Time that a change with urgency SHOWN waits at a slow API server: at a short Task's next step it is written with that
one. As a multiple of the time of answers, divided by the number of Tasks: one write for 1,000 Tasks is worth it."""

RUN_FACTOR: Final = 20.0
RUN_MAX_SEC: Final = 5.0
"""Time after the last creation for which a large status waits for the Pods to run, as a multiple of the duration of its
last write."""

UNSHOWN_MAX_SEC: Final = 10.0
"""Time for which a large status may show no new state because more Pods were created."""

JOIN_FACTOR: Final = 8.0
JOIN_MAX_SEC: Final = 4.0
"""Likewise for the ends of other Tasks with urgency SOON."""

ANSWER_WEIGHT: Final = 1 / 32
ANSWERS_FORGOTTEN_SEC: Final = 8.0
"""An API server is slow if it answers many writes slowly now: few, or long ago, count little."""

LARGE_STATUS_BYTES: Final = 32_768
"""Size from which a status takes long by itself."""


@dataclass(slots=True)
class AnswerTimes:
    """The smoothed time of answers to status writes, over all Frameworks of this process: how slow the API server is.

    Other requests do not count, as a webhook for Pods of one namespace may delay them.
    """

    mean: float = 0.0
    at: float = 0.0
    """Monotonic seconds of the last answer."""

    def note(self, began: float, clock: float, size: int) -> None:
        """Note the answer, at ``clock``, to a write of this number of bytes that began at ``began``."""
        if size < LARGE_STATUS_BYTES:
            before = self.smoothed(clock)
            self.mean, self.at = before + ANSWER_WEIGHT * (clock - began - before), clock

    def smoothed(self, clock: float) -> float:
        """The time in seconds at ``clock``."""
        return self.mean * math.exp(min(0.0, self.at - clock) / ANSWERS_FORGOTTEN_SEC)


@dataclass(slots=True)
class Pacing:
    """The time of the next status write, in monotonic seconds."""

    rested: bool = False
    """Whether the last written status was at rest (``TaskStates.are_at_rest``)."""
    unwritten_since: float | None = None
    write_sec: float = 0.0
    """Duration of the last write."""
    next_write: float = 0.0
    size: int = 0
    """Bytes of the last written status."""
    changed: int = 0
    """Number of changed Tasks when it was asked for last."""
    changed_at: float = 0.0
    """When that number grew."""
    urgency: Urgency = Urgency.NONE
    """The urgency of the unwritten changes when it was asked for last."""
    urgent_since: float = 0.0
    """Since when there have been changes of this urgency."""
    created_at: float = -math.inf
    """When the last batch of creations ended."""

    @property
    def is_large(self) -> bool:
        """Whether the last written status was large."""
        return self.size >= LARGE_STATUS_BYTES

    def due(self, tracker: Tracker, clock: float, answer_sec: float = 0.0) -> float:
        """The time to write the tracked status. ``answer_sec``: see ``Env``."""
        urgency = tracker.urgency
        if urgency is Urgency.NOW:
            return 0.0
        if self.unwritten_since is None:
            self.unwritten_since, self.urgency, self.changed = clock, Urgency.NONE, 0
        if tracker.changed_count > self.changed:
            self.changed, self.changed_at = tracker.changed_count, clock
        if urgency > self.urgency:
            self.urgency, self.urgent_since = urgency, clock
        return max(self._due_at_least(tracker), self.urgent_since + _patience(tracker, answer_sec))

    def _due_at_least(self, tracker: Tracker) -> float:
        urgency, since = tracker.urgency, self.unwritten_since or 0.0
        if urgency is not Urgency.LATER and tracker.task_states.are_at_rest and not self.rested:
            # The last expected change has come: there is no other to wait for.
            return 0.0
        wait, running_at = 0.0, -math.inf
        if urgency is Urgency.LATER:
            wait = min(RIDE_MAX_SEC, max(RIDE_SEC, RIDE_FACTOR * self.write_sec))
        elif since - self.next_write < QUIET_SEC:
            wait = min(BREATH_MAX_SEC, self.write_sec)
            if self.is_large and tracker.changed_count < tracker.task_states.total:
                flow = self.changed_at + self.write_sec - since
                wait = min(FLOW_MAX_SEC, FLOW_FACTOR * self.write_sec, max(wait, flow))
        if urgency is Urgency.SHOWN and self.write_sec > FAST_SEC:
            # The Pods that were created last will run soon, and a write now would delay the one that shows them all.
            running_at = self.created_at + min(RUN_MAX_SEC, RUN_FACTOR * self.write_sec)
        return max(self.next_write, since + wait, min(running_at, since + UNSHOWN_MAX_SEC))

    def wrote(self, began: float, clock: float, size: int) -> None:
        """Note an accepted write of this number of bytes that began at ``began``."""
        self.write_sec, self.size = clock - began, size
        self.next_write = clock + min(BREATH_MAX_SEC, BREATH_FACTOR * self.write_sec)


def _patience(tracker: Tracker, answer_sec: float) -> float:
    """Time that the changes wait for others that may follow, so that a slow API server gets fewer writes."""
    slow = max(0.0, answer_sec - FAST_SEC) / max(1, tracker.task_states.total)
    if not slow:
        return -math.inf
    if tracker.urgency is Urgency.LATER:
        return min(RIDE_MAX_SEC, SHOW_FACTOR * slow)
    if tracker.urgency is Urgency.SHOWN:
        return min(SHOW_MAX_SEC, SHOW_FACTOR * slow)
    return min(JOIN_MAX_SEC, JOIN_FACTOR * slow) if tracker.task_states.have_unended_pods else -math.inf
