"""Counts of Frameworks and Tasks by state, for metrics.

The totals change by the difference at the end of a sync, which takes the same time for any number of Tasks. A Framework
counts from its first sync to the sync that finds it deleted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from frameworkcontroller.api.status import State
from frameworkcontroller.controller.reconcilers import Machine
from frameworkcontroller.machine.tracker import STATES


class _Counts(NamedTuple):
    """The part of one Framework."""

    state: State | None
    tasks: tuple[int, ...]
    stalled: bool
    quarantined: bool


_ZERO: Final = _Counts(None, (0,) * len(STATES), stalled=False, quarantined=False)


class StateCounts:
    """The totals."""

    def __init__(self) -> None:
        self.frameworks: dict[State, int] = dict.fromkeys(STATES, 0)
        self.tasks: dict[State, int] = dict.fromkeys(STATES, 0)
        self.stalled = 0
        """Frameworks with the condition Stalled."""
        self.quarantined = 0
        """Frameworks in quarantine."""
        self._parts: dict[str, _Counts] = {}

    def clear(self) -> None:
        """Remove all Frameworks."""
        for key in list(self._parts):
            self.update(key, None)

    def update(self, key: str, machine: Machine | None) -> None:
        """Count a Framework by its current state; with None, remove it."""
        before = self._parts.get(key, _ZERO)
        if machine is None:
            now = _ZERO
            self._parts.pop(key, None)
        else:
            tracker = machine.tracker
            status = tracker.status
            now = _Counts(
                None if status is None else status.state,
                tuple(tracker.task_states),
                bool(tracker.holds.stalls),
                machine.quarantined,
            )
            if now == before:
                return
            self._parts[key] = now
        if now.state is not before.state:
            if before.state is not None:
                self.frameworks[before.state] -= 1
            if now.state is not None:
                self.frameworks[now.state] += 1
        if now.tasks != before.tasks:
            for state, former, present in zip(STATES, before.tasks, now.tasks, strict=True):
                self.tasks[state] += present - former
        self.stalled += now.stalled - before.stalled
        self.quarantined += now.quarantined - before.quarantined
