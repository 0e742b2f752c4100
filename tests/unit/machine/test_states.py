"""The only legal edges, for Frameworks and Tasks, written down once more and not read from the code."""

from __future__ import annotations

import pytest

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.model import InvariantError
from frameworkcontroller.machine.states import EDGES, ENDED, check_edge

LEGAL = {
    "AttemptCreationPending": {"AttemptCreationRequested", "AttemptCompleted"},
    "AttemptCreationRequested": {"AttemptPreparing", "AttemptDeleting", "AttemptCompleted"},
    "AttemptPreparing": {"AttemptRunning", "AttemptDeletionPending", "AttemptDeleting", "AttemptCompleted"},
    "AttemptRunning": {"AttemptDeletionPending", "AttemptDeleting", "AttemptCompleted"},
    "AttemptDeletionPending": {"AttemptDeletionRequested", "AttemptDeleting", "AttemptCompleted"},
    "AttemptDeletionRequested": {"AttemptDeleting", "AttemptCompleted"},
    "AttemptDeleting": {"AttemptCompleted"},
    "AttemptCompleted": {"AttemptCreationPending", "Completed"},
    "Completed": set[str](),
}


def test_the_states_are_the_nine_that_clients_know() -> None:
    assert {state.value for state in State} == set(LEGAL)


@pytest.mark.parametrize("before", list(State))
@pytest.mark.parametrize("after", list(State))
def test_edges(before: State, after: State) -> None:
    legal = after.value in LEGAL[before.value]
    assert (after in EDGES[before]) is legal
    if legal:
        check_edge(before, after, "it")
    else:
        with pytest.raises(InvariantError, match=f"it: no transition from {before} to {after}"):
            check_edge(before, after, "it")


def test_states_in_which_nothing_may_run() -> None:
    assert {State.ATTEMPT_COMPLETED, State.COMPLETED} == ENDED
