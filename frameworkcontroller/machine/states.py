"""Tables of the state machine: legal transitions, and how soon a new state is written.

Frameworks and Tasks share states and edges: the object of a Framework attempt is its ConfigMap, of a Task attempt its
Pod. States that were never observed are skipped. docs/states.md is generated from this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.model import InvariantError, Level, Urgency

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

MEANING: Mapping[State, str] = {
    State.CREATION_PENDING: "the object (ConfigMap or Pod) is not requested yet",
    State.CREATION_REQUESTED: "it is created, but not yet in the cache",
    State.PREPARING: "it exists, but was never observed running",
    State.RUNNING: "it exists and has run",
    State.DELETION_PENDING: "the completion of the attempt is decided and being persisted",
    State.DELETION_REQUESTED: "its deletion was accepted",
    State.DELETING: "it is being deleted",
    State.ATTEMPT_COMPLETED: "it is gone; the decision on a retry follows",
    State.COMPLETED: "final",
}

ENDED = frozenset({State.ATTEMPT_COMPLETED, State.COMPLETED})
"""States in which the attempt's object is permanently gone: nothing of it may run (C2, C4)."""

URGENCY: Mapping[tuple[Level, State], Urgency] = {
    (Level.FRAMEWORK, State.CREATION_PENDING): Urgency.NOW,
    (Level.FRAMEWORK, State.CREATION_REQUESTED): Urgency.LATER,
    (Level.FRAMEWORK, State.PREPARING): Urgency.LATER,
    (Level.FRAMEWORK, State.RUNNING): Urgency.SOON,
    (Level.FRAMEWORK, State.DELETION_PENDING): Urgency.NOW,
    (Level.FRAMEWORK, State.DELETION_REQUESTED): Urgency.LATER,
    (Level.FRAMEWORK, State.DELETING): Urgency.LATER,
    (Level.FRAMEWORK, State.ATTEMPT_COMPLETED): Urgency.SOON,
    (Level.FRAMEWORK, State.COMPLETED): Urgency.NOW,
    (Level.TASK, State.CREATION_PENDING): Urgency.SOON,
    (Level.TASK, State.CREATION_REQUESTED): Urgency.LATER,
    (Level.TASK, State.PREPARING): Urgency.LATER,
    (Level.TASK, State.RUNNING): Urgency.SOON,
    (Level.TASK, State.DELETION_PENDING): Urgency.SOON,
    (Level.TASK, State.DELETION_REQUESTED): Urgency.LATER,
    (Level.TASK, State.DELETING): Urgency.LATER,
    (Level.TASK, State.ATTEMPT_COMPLETED): Urgency.SOON,
    (Level.TASK, State.COMPLETED): Urgency.SOON,
}
"""Urgency of the status write after a transition to the state."""


def check_edge(before: State, after: State, what: str) -> None:
    """Refuse a transition that the table does not have.

    Raises:
        InvariantError: ``before`` has no edge to ``after``.
    """
    if after not in EDGES[before]:
        raise InvariantError(f"{what}: no transition from {before} to {after}")
