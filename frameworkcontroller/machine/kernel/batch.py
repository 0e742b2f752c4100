"""The slow-start batch of one Framework's actions.

Creations start with a single one, and the others follow once it has succeeded: a namespace at its limit is asked once,
not a thousand times. The first refusal stops the batch, unless it completes its Task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from frameworkcontroller.machine.kernel.actions import Action, Create, Outcome
from frameworkcontroller.machine.kernel.exchanges import Exists, NotAttempted, Result
from frameworkcontroller.machine.kernel.failure import classify_creation_refusal
from frameworkcontroller.machine.kernel.requests import Kind, Refused, Target, Unanswered

WIDTH: Final = 50
"""Maximum number of a Framework's actions in flight: the limit for all Frameworks together (controller/driver.py)."""


class Batch:
    """Queued actions, and actions in flight."""

    def __init__(self) -> None:
        self.stopped = False
        """Whether no more actions are started."""
        self.outcomes: list[Outcome] = []
        """Outcomes that are not taken yet, in the order of their answers."""
        self._creations: deque[Create] = deque()
        self._others: deque[Action] = deque()
        self._targets: set[Target] = set()
        self._total = 0
        self._in_flight = 0
        self._creating = 0
        self._width = 1

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def is_single(self) -> bool:
        """Whether it has had one action in all."""
        return self._total == 1

    @property
    def is_long(self) -> bool:
        """Whether it has had more actions than are carried out at once: they take long, and others must not wait."""
        return self._total > WIDTH

    @property
    def is_open(self) -> bool:
        return bool(self._in_flight or self._creations or self._others)

    @property
    def is_creating(self) -> bool:
        return bool(self._creating or self._creations)

    def __contains__(self, target: Target) -> bool:
        """Whether the target has an action whose outcome is not taken yet."""
        return target in self._targets

    def add(self, actions: Iterable[Action]) -> None:
        """Queue actions, at most one per target."""
        for action in actions:
            self._targets.add(action.target)
            self._total += 1
            if isinstance(action, Create):
                self._creations.append(action)
            else:
                self._others.append(action)

    def start(self) -> Action | None:
        """Start the next action; None if no action may start now."""
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
        """Note the result of an action in flight, and widen or stop the batch."""
        self._in_flight -= 1
        outcome = Outcome(action, result)
        self.outcomes.append(outcome)
        self.stopped |= _stops(outcome)
        if isinstance(action, Create):
            self._creating -= 1
            if not isinstance(result, NotAttempted) and not self.stopped:
                self._width = WIDTH

    def take(self) -> list[Outcome]:
        """Take the outcomes. A stopped batch with none in flight adds one for each action that was not started."""
        outcomes, self.outcomes = self.outcomes, []
        if self.stopped and not self._in_flight:
            outcomes += [Outcome(action, NotAttempted()) for action in (*self._others, *self._creations)]
            self._others.clear()
            self._creations.clear()
        self._targets.difference_update(outcome.action.target for outcome in outcomes)
        return outcomes


def _stops(outcome: Outcome) -> bool:
    """Whether further actions would probably fail, too. A final refusal of one Pod says nothing about other Pods."""
    match outcome:
        case Outcome(action) if action.target.kind.is_companion and not action.target.kind.of_task:
            # Pods of an attempt that runs do not need it, or wait for it.
            return False
        case Outcome(Create(target=Target(kind=Kind.POD)), Refused() as refused):
            return classify_creation_refusal(refused) is None
        case Outcome(Create(), Exists(found=None)) | Outcome(_, Refused() | Unanswered()):
            return True
    return False
