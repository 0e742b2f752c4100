"""Histories of one Framework that is suspended and resumed at any moment, by the rules of tests/support/guarantees.py.

Denser than the general ones: few operations, and one controller, which dies between a creation and its record.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frameworkcontroller.api.status import State
from tests.support.history import History
from tests.support.world import Fate

SUSPEND, RESUME, CRASH, STOP, RESCALE, EXIT, COLLECT, LATE = (
    "suspend",
    "resume",
    "crash",
    "stop",
    "rescale",
    "exit",
    "collect",
    "late",
)
FATES: Final = [(verb, fate) for verb in ("create", "write", "delete", "get") for fate in list(Fate)[:3]]
OPERATION = st.sampled_from([SUSPEND, SUSPEND, RESUME, CRASH, CRASH, RESCALE, EXIT, COLLECT, LATE, *FATES])
OPERATIONS = st.lists(st.tuples(OPERATION, st.integers(0, 12)), max_size=12)


def begin(**spec: Any) -> History:
    """A Framework of two Tasks."""
    history = History()
    history.create({"taskRoles": [{"name": "a", "taskNumber": 2}], **spec})
    return history


def do(history: History, operation: Any) -> None:
    """One operation."""
    match operation:
        case "suspend" | "resume":
            history.suspend(wanted=operation == SUSPEND)
        case "crash":
            history.crash(0)
        case "stop":
            history.execute("Stop")
        case "rescale":
            history.rescale("a", 3)
        case "exit":
            history.kubelet(0, "end", 1)
        case "collect":
            history.collect(3)
        case "late":
            history.execute_late()
        case (verb, fate):
            history.fail(verb, fate)


@given(first=st.integers(0, 12), operations=OPERATIONS)
@example(first=3, operations=[(SUSPEND, 6), (RESUME, 3), (SUSPEND, 12)])
def test_suspended_and_resumed_at_any_moment(first: int, operations: list[tuple[Any, int]]) -> None:
    history = begin()
    history.follow(0, first)
    for operation, steps in operations:
        do(history, operation)
        history.follow(0, steps)
    history.finish()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("steps", range(20))
def test_a_framework_that_is_suspended_between_any_two_steps_of_its_start_is_run_again(
    steps: int,
    crash: bool,
) -> None:
    history = begin()
    history.follow(0, steps)
    had_pods = {pod["metadata"]["annotations"]["FC_FRAMEWORK_ATTEMPT_ID"] for pod in history.pods()}
    if crash:
        history.crash(0)
    history.suspend(wanted=True)
    history.settle()
    status = history.status
    assert status is not None
    assert (status.state, history.pods()) == (State.CREATION_PENDING, [])
    assert [item.status for item in status.conditions if item.type == "Suspended"] == ["True"]
    assert status.retry.accountable_retried_count == 0
    assert str(status.attempt.id) not in had_pods, "the next run has another id"
    history.suspend(wanted=False)
    history.settle()
    assert len(history.pods()) == 2
    history.finish()


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("late", [False, True])
def test_a_creation_that_is_executed_late_never_breaks_the_promise(steps: int, late: bool) -> None:
    history = begin()
    history.fail("create", Fate.LATE)
    history.follow(0, steps)
    history.suspend(wanted=True)
    history.settle()
    if late:
        history.execute_late()
        history.settle()
    assert not history.pods()
    history.suspend(wanted=False)
    history.wait(100)
    status = history.status
    assert status is not None
    assert (len(history.pods()), status.attempt.completion_status) == (2, None)
    history.finish()


@pytest.mark.parametrize("steps", range(20))
def test_stop_completes_a_framework_suspended_at_any_moment(steps: int) -> None:
    history = begin()
    history.follow(0, 8)
    history.suspend(wanted=True)
    history.follow(0, steps)
    history.execute("Stop")
    history.settle()
    status = history.status
    assert status is not None
    completion = status.attempt.completion_status
    assert completion is not None
    assert (status.state, completion.code) == (State.COMPLETED, -210)
    history.finish()
