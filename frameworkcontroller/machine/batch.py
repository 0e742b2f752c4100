"""The slow-start batch: which actions of a Framework may be started now.

Creations start with a single one, and the others follow once it has succeeded: a namespace that refuses is asked once
and not a thousand times. At the first refusal no more actions are started, unless it is one that completes its Task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from frameworkcontroller.machine.failure import classify_creation_refusal
from frameworkcontroller.machine.model import (
    Action,
    Create,
    Exists,
    Kind,
    NotAttempted,
    Outcome,
    Refused,
    Result,
    Target,
    Unanswered,
)

WIDTH: Final = 50
"""Actions of one Framework in flight: as many as all Frameworks together may have (controller/driver.py)."""


class Batch:
    """Actions that wait for their start, and those in flight."""

    __slots__ = (
        "_creating",
        "_creations",
        "_in_flight",
        "_others",
        "_targets",
        "_total",
        "_width",
        "outcomes",
        "stopped",
    )

    def __init__(self) -> None:
        self.stopped = False
        """No more actions are started."""
        self.outcomes: list[Outcome] = []
        """Outcomes that nobody has taken yet, in the order in which they became known."""
        self._creations: deque[Create] = deque()
        self._others: deque[Action] = deque()
        self._targets: set[Target] = set()
        self._total = 0
        self._in_flight = 0
        self._creating = 0
        self._width = 1

    @property
    def in_flight(self) -> int:
        """Actions that were started and whose outcome is not known."""
        return self._in_flight

    @property
    def is_single(self) -> bool:
        """Whether it never had more than one action."""
        return self._total == 1

    @property
    def is_open(self) -> bool:
        """Whether actions are in flight, or wait for their start."""
        return bool(self._in_flight or self._creations or self._others)

    @property
    def is_creating(self) -> bool:
        """Whether creations are in flight, or wait for their start."""
        return bool(self._creating or self._creations)

    def __contains__(self, target: Target) -> bool:
        """Whether an action is about that object, and its outcome was not taken yet."""
        return target in self._targets

    def add(self, actions: Iterable[Action]) -> None:
        """Queue actions. Each must be about an object that no other one of the batch is about."""
        for action in actions:
            self._targets.add(action.target)
            self._total += 1
            if isinstance(action, Create):
                self._creations.append(action)
            else:
                self._others.append(action)

    def start(self) -> Action | None:
        """The next action to start now."""
        if self.stopped or self._in_flight == WIDTH:
            return None
        if self._others:
            self._in_flight += 1
            return self._others.popleft()
        if self._creations and self._creating < self._width:
            self._in_flight += 1
            self._creating += 1
            return self._creations.popleft()
        return None

    def end(self, action: Action, result: Result) -> None:
        """Note the result of an action in flight: widen the batch, or stop it."""
        self._in_flight -= 1
        outcome = Outcome(action, result)
        self.outcomes.append(outcome)
        self.stopped |= _stops(outcome)
        if isinstance(action, Create):
            self._creating -= 1
            if not isinstance(result, NotAttempted) and not self.stopped:
                self._width = WIDTH

    def take(self) -> list[Outcome]:
        """Take the outcomes; with none in flight and the batch stopped, those of the actions that were not started."""
        outcomes, self.outcomes = self.outcomes, []
        if self.stopped and not self._in_flight:
            outcomes += [Outcome(action, NotAttempted()) for action in (*self._others, *self._creations)]
            self._others.clear()
            self._creations.clear()
        self._targets.difference_update(outcome.action.target for outcome in outcomes)
        return outcomes


def _stops(outcome: Outcome) -> bool:
    """Whether the actions that follow would fare no better.

    A final refusal of one Pod says nothing about the next Task's, which has to meet its own.
    """
    match outcome:
        case Outcome(Create(target=Target(kind=Kind.POD)), Refused() as refused):
            return classify_creation_refusal(refused) is None
        case Outcome(Create(), Exists(found=None)) | Outcome(_, Refused() | Unanswered()):
            return True
    return False
