"""Counts of Frameworks by phase and of Tasks by state, for metrics.

A Framework counts from its first sync to the sync that finds it deleted. An update takes the same time for any number
of Tasks, once the status has a phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from frameworkcontroller.api.completion import FRAMEWORK_EVICTED
from frameworkcontroller.api.phases import phase_of_framework
from frameworkcontroller.api.status import FrameworkStatus, Phase, State
from frameworkcontroller.controller.reconcilers import Machine
from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason, RequestReason
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.parts import REASONS

STALLS: Final = tuple(reason for reason in REASONS if reason.event is EventPolicy.STALL)
"""The reasons of the condition Stalled."""

WAITS: Final = (
    LifeReason.DELETING,
    LifeReason.ATTEMPT_ENDS,
    RequestReason.WAITING,
    LifeReason.RELISTING,
    *(one for one in REASONS if one.event in (EventPolicy.WAIT, EventPolicy.WAIT_OF_ROLE, EventPolicy.RETRY)),
)
"""The reasons to wait. tests/unit/machine/test_waits.py holds where each of them is shown."""


class _Part(NamedTuple):
    """The part of one Framework in the totals."""

    phase: Phase | None
    tasks: tuple[int, ...]
    stalled: Reason | None
    quarantined: bool
    waits: tuple[Reason, ...]
    evicted: bool
    """True from its eviction from the queue to the release of its quota."""


def _is_evicted(status: FrameworkStatus) -> bool:
    if status.admission is None:
        return False
    completion = status.attempt.completion_status
    return completion is not None and completion.is_one_of({FRAMEWORK_EVICTED.code})


class StateCounts:
    """The totals."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: monotonic seconds."""
        self.frameworks: dict[Phase, int] = dict.fromkeys(Phase, 0)
        self.tasks: dict[State, int] = dict.fromkeys(State, 0)
        self.stalled: dict[Reason, int] = dict.fromkeys(STALLS, 0)
        """Frameworks with the condition Stalled, by its reason."""
        self.quarantined = 0
        """Frameworks in quarantine."""
        self.waiting: dict[Reason, int] = dict.fromkeys(WAITS, 0)
        """Frameworks that wait, or have waiting Tasks, by reason."""
        self._parts: dict[str, _Part] = {}
        self._clock = clock
        self._evicted: dict[str, float] = {}
        """Since when Frameworks are evicted, oldest first."""

    def clear(self) -> None:
        for key in list(self._parts):
            self.update(key, None)

    def update(self, key: str, machine: Machine | None) -> None:
        """Count a Framework by its current state; with None, remove it."""
        if (before := self._parts.pop(key, None)) is not None:
            self._add(before, -1)
        if machine is not None:
            tracker = machine.tracker
            part = _Part(
                None if tracker.status is None else phase_of_framework(tracker.status),
                tuple(tracker.task_states.values()),
                next((stall.reason for stall in tracker.holds.stalls.values()), None),
                machine.quarantined,
                tuple(tracker.holds.waits()),
                tracker.status is not None and _is_evicted(tracker.status),
            )
            self._parts[key] = part
            self._add(part, 1)
            if part.evicted:
                self._evicted.setdefault(key, self._clock())
                return
        self._evicted.pop(key, None)

    def longest_eviction(self) -> float:
        """Seconds for which the Framework that was evicted first has kept its quota, 0 if there is none."""
        return self._clock() - min(self._evicted.values()) if self._evicted else 0.0

    def _add(self, part: _Part, sign: int) -> None:
        if part.phase is not None:
            self.frameworks[part.phase] += sign
        for state, number in zip(self.tasks, part.tasks, strict=True):
            if number:
                self.tasks[state] += sign * number
        if part.stalled is not None:
            self.stalled[part.stalled] = self.stalled.get(part.stalled, 0) + sign
        self.quarantined += sign * part.quarantined
        for reason in part.waits:
            self.waiting[reason] += sign
