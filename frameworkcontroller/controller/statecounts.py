"""How many Frameworks and Tasks are in which state, over all Frameworks, at no cost to whoever asks.

Each sync of a Framework that changed its figures moves the totals by the difference: a look at nine counters, however
many Tasks it has. A Framework counts from its first sync until the sync that finds it gone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from frameworkcontroller.api.status import State
from frameworkcontroller.controller.ledger import Entry
from frameworkcontroller.machine.tracker import STATES


class _Figures(NamedTuple):
    """What one Framework adds to the totals."""

    state: State | None
    tasks: tuple[int, ...]
    stalled: bool
    quarantined: bool


_NOTHING: Final = _Figures(None, (0,) * len(STATES), stalled=False, quarantined=False)


class StateCounts:
    """The totals. Read them at any time; only ``update`` changes them."""

    def __init__(self) -> None:
        self.frameworks: dict[State, int] = dict.fromkeys(STATES, 0)
        self.tasks: dict[State, int] = dict.fromkeys(STATES, 0)
        self.stalled = 0
        """Frameworks that wait for a person or another component."""
        self.quarantined = 0
        """Frameworks that nothing is done for any more, as they, or what was found in them, can never be."""
        self._counted: dict[str, _Figures] = {}

    def clear(self) -> None:
        """Nothing is known of any Framework any more."""
        for key in list(self._counted):
            self.update(key, None)

    def update(self, key: str, entry: Entry | None) -> None:
        """Take in how that Framework is now; None: it is gone."""
        before = self._counted.get(key, _NOTHING)
        if entry is None:
            now = _NOTHING
            self._counted.pop(key, None)
        else:
            tracker = entry.tracker
            status = tracker.status
            now = _Figures(
                None if status is None else status.state,
                tuple(tracker.task_states),
                bool(tracker.stalls),
                entry.quarantine is not None,
            )
            if now == before:
                return
            self._counted[key] = now
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
