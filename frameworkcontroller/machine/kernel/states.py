"""Tables of the state machine: legal transitions, and how soon a new state is written.

Frameworks and Tasks share states and edges: the object of a Framework attempt is its ConfigMap, of a Task attempt its
Pod. States that were never observed are skipped. scripts/states.py makes docs/states.md from this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.model import Urgency

EDGES: Mapping[State, frozenset[State]] = {
    State.CREATION_PENDING: frozenset({State.CREATION_REQUESTED, State.ATTEMPT_COMPLETED}),
    State.CREATION_REQUESTED: frozenset({State.PREPARING, State.DELETING, State.ATTEMPT_COMPLETED}),
    State.PREPARING: frozenset({State.RUNNING, State.DELETION_PENDING, State.DELETING, State.ATTEMPT_COMPLETED}),
    State.RUNNING: frozenset({State.DELETION_PENDING, State.DELETING, State.ATTEMPT_COMPLETED}),
    State.DELETION_PENDING: frozenset({State.DELETION_REQUESTED, State.DELETING, State.ATTEMPT_COMPLETED}),
    State.DELETION_REQUESTED: frozenset({State.DELETING, State.ATTEMPT_COMPLETED}),
    State.DELETING: frozenset({State.ATTEMPT_COMPLETED}),
    State.ATTEMPT_COMPLETED: frozenset({State.CREATION_PENDING, State.COMPLETED}),
    State.COMPLETED: frozenset(),
}

ENDED = frozenset({State.ATTEMPT_COMPLETED, State.COMPLETED})
"""States in which the attempt's object is permanently gone: nothing of it may run (C2, C4)."""

LIVE = frozenset({State.CREATION_PENDING, State.CREATION_REQUESTED, State.PREPARING, State.RUNNING})
"""States of a Task that has a Pod that may run, or is about to get one. One that waits for its retry is in none."""

WITH_POD = frozenset(EDGES) - ENDED - {State.CREATION_PENDING}
"""States of a Task with a recorded Pod that is not known to be gone."""

WITH_UNENDED_POD = frozenset({State.CREATION_REQUESTED, State.PREPARING, State.RUNNING})
"""States of a Task with a recorded Pod that has not ended, as far as is known."""


class TaskStates(dict[State, int]):
    """Numbers of Tasks by state, with those that are deletionPending."""

    @property
    def total(self) -> int:
        return sum(self.values())

    @property
    def may_have_pods(self) -> bool:
        """Whether a recorded Pod is not known to be gone."""
        return any(self[state] for state in WITH_POD)

    @property
    def are_at_rest(self) -> bool:
        """Whether all Tasks run or are completed: no change is expected soon."""
        return self[State.RUNNING] + self[State.COMPLETED] == self.total

    @property
    def have_unended_pods(self) -> bool:
        """Whether a Pod has not ended, as far as is known."""
        return any(self[state] for state in WITH_UNENDED_POD)


TASK_URGENCY: Mapping[State, Urgency] = {
    State.CREATION_PENDING: Urgency.SOON,
    State.CREATION_REQUESTED: Urgency.LATER,
    State.PREPARING: Urgency.LATER,
    State.RUNNING: Urgency.SHOWN,
    State.DELETION_PENDING: Urgency.SOON,
    State.DELETION_REQUESTED: Urgency.LATER,
    State.DELETING: Urgency.LATER,
    State.ATTEMPT_COMPLETED: Urgency.SHOWN,
    State.COMPLETED: Urgency.SHOWN,
}
"""Urgency of the status write after a transition of a Task to the state. A retry makes its end more urgent."""

FRAMEWORK_URGENCY: Mapping[State, Urgency] = {
    **TASK_URGENCY,
    State.CREATION_PENDING: Urgency.NOW,
    State.DELETION_PENDING: Urgency.NOW,
    State.ATTEMPT_COMPLETED: Urgency.SOON,
    State.COMPLETED: Urgency.NOW,
}
"""Urgency of the status write after a transition of the Framework to the state."""
