"""When to write a changed status: soon for readers, but seldom enough for the API server.

Source: docs/architecture.md, "The machine" (urgency).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frameworkcontroller.machine.model import Urgency
from frameworkcontroller.machine.tracker import Tracker

BREATH_FACTOR: Final = 1.0
BREATH_MAX_SEC: Final = 2.0
"""Pause after a write, as a multiple of its duration: writes of a large status take at most half of the time."""

QUIET_SEC: Final = 1.0
"""Time without a write after which a change is written at once, as probably no others follow."""

RIDE_SEC: Final = 1.0
RIDE_FACTOR: Final = 10.0
RIDE_MAX_SEC: Final = 10.0
"""Time that a change with urgency LATER waits for the next one, which takes longer if the API server is slow."""


@dataclass(slots=True)
class Pacing:
    """The time of the next status write, in monotonic seconds."""

    rested: bool = False
    """Whether the last written status was at rest (``Tracker.is_at_rest``)."""
    unwritten_since: float | None = None
    write_sec: float = 0.0
    """Duration of the last write."""
    next_write: float = 0.0

    def due(self, tracker: Tracker, clock: float) -> float:
        """The time to write the tracked status."""
        urgency = tracker.urgency
        if urgency is Urgency.NOW:
            return 0.0
        if self.unwritten_since is None:
            self.unwritten_since = clock
        if urgency is Urgency.SOON and tracker.is_at_rest and not self.rested:
            # The last expected change has come: there is no other to wait for.
            return 0.0
        wait = 0.0
        if urgency is Urgency.LATER:
            wait = min(RIDE_MAX_SEC, max(RIDE_SEC, RIDE_FACTOR * self.write_sec))
        elif self.unwritten_since - self.next_write < QUIET_SEC:
            wait = min(BREATH_MAX_SEC, self.write_sec)
        return max(self.next_write, self.unwritten_since + wait)

    def wrote(self, began: float, clock: float) -> None:
        """Note an accepted write that began at ``began``."""
        self.write_sec = clock - began
        self.next_write = clock + min(BREATH_MAX_SEC, BREATH_FACTOR * self.write_sec)
