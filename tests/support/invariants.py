"""Invariants of every status, and of every two successive ones. Tests check them after every step.

Source: docs/reference.md ("status") and docs/guarantees.md (M).
"""

from __future__ import annotations

from frameworkcontroller.api.completion import Outcome
from frameworkcontroller.api.status import (
    FrameworkStatus,
    State,
    TaskAttemptStatus,
    TaskCounts,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.machine.kernel.model import InvariantError
from frameworkcontroller.machine.kernel.states import EDGES, ENDED

_WITHOUT_OBJECT = frozenset({State.CREATION_PENDING})
_DECIDED = frozenset({State.DELETION_PENDING, State.DELETION_REQUESTED, State.DELETING}) | ENDED


def check_status(status: FrameworkStatus) -> None:
    """Check the invariants of a single status.

    Raises:
        InvariantError: names the violated invariant, and its place.
    """
    attempt = status.attempt
    _require(attempt.id == status.retry.total_retried_count, "attempt id is not the total retried count")
    _require(status.retry.accountable_retried_count <= status.retry.total_retried_count, "accountable > total retries")
    _check_state(
        "Framework", status.state, attempt.configmap_uid, attempt.completion_status is not None, status.completion_time
    )
    _require(
        (attempt.completion_time is not None) == (status.state in ENDED), "attempt completionTime and state differ"
    )
    if status.state is State.RUNNING:
        _require(attempt.run_time is not None and status.run_time is not None, "Running without runTime")
    names = [role.name for role in attempt.roles]
    _require(len(set(names)) == len(names), "two TaskRoles of the same name")
    for role in attempt.roles:
        where = f"TaskRole {role.name} has started before its attempt"
        _require(not (role.started and status.state is State.CREATION_PENDING), where)
        for index, task in enumerate(role.tasks):
            _check_task(role, index, task)
            if status.state in ENDED:
                _require(task.state is State.COMPLETED, f"{role.name}[{index}] is not completed, its attempt is")
            if status.state is State.CREATION_PENDING:
                where = f"{role.name}[{index}] is {task.state} before its attempt began"
                _require(task.state is State.CREATION_PENDING, where)
            if status.state in (State.DELETION_PENDING, State.DELETION_REQUESTED):
                where = f"{role.name}[{index}] has no completionStatus in a completing attempt"
                _require(task.attempt.completion_status is not None, where)
    if status.task_counts is not None:
        _require(status.task_counts == _counted(status), f"taskCounts are {status.task_counts}, the Tasks differ")


def check_step(before: FrameworkStatus, after: FrameworkStatus) -> None:
    """Check a status and one exposed after it: nothing that a client has seen reverts.

    Steps may be skipped between the two, never undone.

    Raises:
        InvariantError: names the reverted field, and its place.
    """
    old, new = before.attempt, after.attempt
    _require(new.id >= old.id, "Framework attempt id went back")
    _require(after.start_time == before.start_time, "startTime changed")
    if before.run_time is not None:
        _require(after.run_time == before.run_time, "runTime changed")
    if before.state is State.COMPLETED:
        _require(after.state is State.COMPLETED, "Completed was left")
    if new.id != old.id:
        return
    _require(_reaches(before.state, after.state), f"Framework went from {before.state} to {after.state}")
    _kept("configMapUID", old.configmap_uid, new.configmap_uid)
    _kept("completionStatus", old.completion_status, new.completion_status)
    _kept("attempt runTime", old.run_time, new.run_time)
    _kept("attempt completionTime", old.completion_time, new.completion_time)
    roles = {role.instance_uid: role for role in new.roles}
    for role in old.roles:
        later = roles.get(role.instance_uid)
        if later is not None:
            _check_role_step(role, later)


def _check_role_step(before: TaskRoleStatus, after: TaskRoleStatus) -> None:
    _require(after.started or not before.started, f"TaskRole {before.name}: started went back")
    tasks = {task.instance_uid: task for task in after.tasks}
    for old in before.tasks:
        new = tasks.get(old.instance_uid)
        where = f"{before.name}[{old.index}]"
        if new is None:
            continue
        _require(new.index == old.index, f"{where}: a Task instance changed its index")
        _require(new.is_leaving or not old.is_leaving, f"{where}: deletionPending went back")
        _require(new.attempt.id >= old.attempt.id, f"{where}: attempt id went back")
        if old.state is State.COMPLETED:
            _require(new.state is State.COMPLETED, f"{where}: Completed was left")
        if new.attempt.id == old.attempt.id:
            _require(_reaches(old.state, new.state), f"{where}: went from {old.state} to {new.state}")
            _check_attempt_step(where, old.attempt, new.attempt)


def _check_attempt_step(where: str, old: TaskAttemptStatus, new: TaskAttemptStatus) -> None:
    _kept(f"{where}: podUID", old.pod_uid, new.pod_uid)
    _kept(f"{where}: completionStatus", old.completion_status, new.completion_status)
    _kept(f"{where}: attempt runTime", old.run_time, new.run_time)
    _kept(f"{where}: attempt completionTime", old.completion_time, new.completion_time)
    _kept(f"{where}: attempt scheduledTime", old.scheduled_time, new.scheduled_time)


def _check_task(role: TaskRoleStatus, index: int, task: TaskStatus) -> None:
    where = f"{role.name}[{index}]"
    _require(task.index == index, f"{where}: index is {task.index}")
    _require(task.attempt.id == task.retry.total_retried_count, f"{where}: attempt id is not the total retried count")
    decided = task.attempt.completion_status is not None
    _check_state(where, task.state, task.attempt.pod_uid, decided, task.completion_time)
    _require(
        (task.attempt.completion_time is not None) == (task.state in ENDED),
        f"{where}: attempt completionTime and state differ",
    )
    if task.state is State.RUNNING:
        _require(task.attempt.run_time is not None, f"{where}: Running without runTime")
    if task.is_leaving:
        _require(decided, f"{where}: deletionPending without completionStatus")


def _counted(status: FrameworkStatus) -> TaskCounts:
    tasks = [task for role in status.attempt.roles for task in role.tasks if not task.is_leaving]
    ended = [task.attempt.completion_status for task in tasks if task.state is State.COMPLETED]
    succeeded = sum(completion is not None and completion.succeeded for completion in ended)
    stopped = sum(completion is not None and completion.outcome is Outcome.STOPPED for completion in ended)
    running = sum(task.state is State.RUNNING for task in tasks)
    return TaskCounts(len(tasks), running, succeeded, len(ended) - succeeded - stopped, stopped)


def _check_state(where: str, state: State, uid: str | None, decided: bool, completion_time: int | None) -> None:
    if state in _WITHOUT_OBJECT:
        _require(uid is None, f"{where}: {state} with a recorded UID")
    elif state not in ENDED:
        _require(uid is not None, f"{where}: {state} without a recorded UID")
    if state in _DECIDED:
        _require(decided, f"{where}: {state} without completionStatus")
    _require((completion_time is not None) == (state is State.COMPLETED), f"{where}: completionTime and state differ")


def _reaches(before: State, after: State) -> bool:
    """Whether one attempt can come from ``before`` to ``after``, over any number of edges."""
    seen, todo = {before}, [before]
    while todo:
        for state in EDGES[todo.pop()] - seen - {State.CREATION_PENDING}:
            seen.add(state)
            todo.append(state)
    return after in seen


def _kept(what: str, before: object, after: object) -> None:
    _require(before is None or after == before, f"{what} changed from {before!r} to {after!r}")


def _require(holds: bool, story: str) -> None:
    if not holds:
        raise InvariantError(story)
