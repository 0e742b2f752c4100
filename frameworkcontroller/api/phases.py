"""The phase of a Framework and of a Task. The controller, the commands and the pages have no other rule."""

from __future__ import annotations

from typing import Final

from frameworkcontroller.api.completion import CompletionStatus, Outcome
from frameworkcontroller.api.status import FrameworkStatus, Phase, State, TaskStatus

QUEUE_CONDITIONS: Final = ("QuotaReserved", "Admitted")
"""One of them is False while a queue has not admitted the attempt."""

AVAILABLE_CONDITION: Final = "Available"
UPDATED_CONDITION: Final = "Updated"
"""The condition of Frameworks whose ready Tasks are counted, and the one of Frameworks with RollingUpdate."""

BEFORE_RUNNING: Final = frozenset({State.CREATION_PENDING, State.CREATION_REQUESTED, State.PREPARING})
ENDING: Final = frozenset({State.DELETION_PENDING, State.DELETION_REQUESTED, State.DELETING})
_NOT_BEGUN: Final = frozenset({State.CREATION_PENDING, State.ATTEMPT_COMPLETED})
_FINAL: Final = {
    Outcome.SUCCEEDED: Phase.SUCCEEDED,
    Outcome.STOPPED: Phase.STOPPED,
    Outcome.FAILED: Phase.FAILED,
    None: Phase.FAILED,
}


def final_phase(outcome: Outcome | None) -> Phase:
    """Return the phase of a completed Framework or Task. Without a completion status it counts as failed."""
    return _FINAL[outcome]


def end_phase(completion: CompletionStatus | None) -> Phase:
    """Return the phase of an attempt that has ended."""
    return final_phase(None if completion is None else completion.outcome)


def framework_phase(
    state: State,
    outcome: Outcome | None,
    *,
    suspended: bool,
    queued: bool,
    retry_decided: bool,
    some_succeeded: bool,
) -> Phase:
    """Return the phase of a Framework. ``outcome``: of its attempt, None before the end is decided.

    ``suspended``, ``queued``: as its conditions say. ``retry_decided``: the next attempt waits for its time.
    """
    if state is State.COMPLETED:
        return final_phase(outcome)
    if state in _NOT_BEGUN and suspended:
        return Phase.SUSPENDED
    if state is State.ATTEMPT_COMPLETED:
        # Until the next attempt, or the end, is decided.
        return Phase.PENDING if retry_decided else Phase.ENDING
    if outcome is not None or state in ENDING:
        return Phase.ENDING
    if state is State.CREATION_PENDING:
        return Phase.QUEUED if queued else Phase.PENDING
    return Phase.RUNNING if state is State.RUNNING or some_succeeded else Phase.PENDING


def task_phase(state: State, outcome: Outcome | None, retry_delay_sec: int | None) -> Phase:
    """Return the phase of a Task: one of a Framework's, except Queued and Suspended."""
    if state is State.COMPLETED:
        return final_phase(outcome)
    if state is State.RUNNING:
        return Phase.RUNNING
    backs_off = state is State.ATTEMPT_COMPLETED and retry_delay_sec
    return Phase.PENDING if backs_off or state in BEFORE_RUNNING else Phase.ENDING


def phase_of_task(task: TaskStatus) -> Phase:
    """Return the phase of a Task."""
    completion = task.attempt.completion_status
    return task_phase(task.state, None if completion is None else completion.outcome, task.retry.retry_delay_sec)


def phase_of_framework(status: FrameworkStatus) -> Phase:
    """Return the phase in a status, or the one that it would have if this controller had written it."""
    if status.phase in list(Phase):
        return Phase(status.phase)
    conditions = {one.type: one.status for one in status.conditions}
    completion = status.attempt.completion_status
    return framework_phase(
        status.state,
        None if completion is None else completion.outcome,
        suspended=conditions.get("Suspended") == "True",
        queued=any(conditions.get(kind) == "False" for kind in QUEUE_CONDITIONS),
        retry_decided=status.retry.retry_delay_sec is not None,
        some_succeeded=any(
            phase_of_task(task) is Phase.SUCCEEDED for role in status.attempt.roles for task in role.tasks
        ),
    )
