"""The only legal edges, for Frameworks and Tasks, written down once more and not read from the code."""

import pytest

from frameworkcontroller.api.status import (
    FrameworkAttemptStatus,
    FrameworkStatus,
    State,
    TaskAttemptStatus,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.machine.kernel.model import InvariantError
from frameworkcontroller.machine.kernel.states import EDGES, ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker

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
    task = TaskStatus(0, "uid", 0, 0, TaskAttemptStatus(0, 0), before, role="a")
    attempt = FrameworkAttemptStatus(0, 0, roles=[TaskRoleStatus("a", "uid", tasks=[task])])
    tracker = Tracker(FrameworkStatus(0, 0, attempt, before))
    if legal:
        tracker.move(task, after, 1)
        tracker.move_framework(after, 1)
    else:
        with pytest.raises(InvariantError, match=rf"Task a\[0\]: no transition from {before} to {after}"):
            tracker.move(task, after, 1)
        with pytest.raises(InvariantError, match=f"Framework: no transition from {before} to {after}"):
            tracker.move_framework(after, 1)


def test_states_in_which_nothing_may_run() -> None:
    assert {State.ATTEMPT_COMPLETED, State.COMPLETED} == ENDED
