"""Values that the SDK returns: snapshots of a status, results, attempts and lines of logs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from frameworkcontroller.api.causes import cause
from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.phases import phase_of_framework, phase_of_task
from frameworkcontroller.api.status import FrameworkStatus, Phase
from frameworkcontroller.api.status import TaskRoleStatus as StoredRole
from frameworkcontroller.api.status import TaskStatus as StoredTask
from frameworkcontroller.sdk.exceptions import RemoteError
from frameworkcontroller.sdk.podtemplates import CONTAINER
from frameworkcontroller.views.diagnosis import NOT_SEEN, end_sentence, message_of
from frameworkcontroller.views.shownprogress import interval_of, progress_of


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A Task. ``attempt``: of the Task, from 0. ``message``: why it failed, "" if it did not.

    ``code``: of its last attempt's end, None before. ``value``: returned by its function, None without one.
    """

    role: str
    index: int
    phase: Phase
    attempt: int
    node: str
    code: int | None
    reason: str
    message: str
    started: int | None
    completed: int | None
    value: Any = None
    error: RemoteError | None = None

    @property
    def name(self) -> str:
        """``worker[3]``."""
        return f"{self.role}[{self.index}]"


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """The Tasks of a role, by index. Tasks that leave by a scale-down are not counted."""

    name: str
    tasks: tuple[TaskStatus, ...]

    @property
    def phases(self) -> Mapping[Phase, int]:
        """Numbers of Tasks by phase."""
        return Counter(task.phase for task in self.tasks)


@dataclass(frozen=True, slots=True)
class ProgressStatus:
    """The last progress that the Tasks have reported; None: never reported. Times are in seconds since the epoch.

    ``attempt``: of the Framework that reported it, an earlier one until the first report of the current one.
    ``percent``: 0 to 100. ``remaining_seconds``: by the report. ``reported``: of the last report; ``changed``: of the
    last one with progress; ``checkpoint``: of the last completed one. ``text``: percentage, step and metrics in words.
    """

    attempt: int
    percent: int | None = None
    step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    remaining_seconds: int | None = None
    reported: int | None = None
    changed: int | None = None
    checkpoint: int | None = None
    text: str = ""

    def __str__(self) -> str:
        """``42%, step 1,200, loss 0.25``."""
        return self.text


@dataclass(frozen=True, slots=True)
class Status:
    """A Framework at one time. ``reason``, ``message``: why it has its phase, "" if there is nothing to explain.

    ``attempt``: of the Framework, from 0. ``retries``: of the Framework; ``task_retries``: of all Tasks that it has.
    ``progress``: None if its Tasks have reported none. ``object``: the API object. Times are in seconds since the
    epoch.
    """

    phase: Phase
    reason: str = ""
    message: str = ""
    attempt: int = 0
    retries: int = 0
    task_retries: int = 0
    started: int | None = None
    completed: int | None = None
    roles: Mapping[str, RoleStatus] = field(default_factory=dict)
    progress: ProgressStatus | None = None
    object: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_final(self) -> bool:
        """Whether it is over, without a further retry."""
        return self.phase.is_final

    @property
    def tasks(self) -> Iterator[TaskStatus]:
        """All Tasks."""
        return (task for role in self.roles.values() for task in role.tasks)

    def __str__(self) -> str:
        """``Failed: worker[3] on node-7: …``."""
        return f"{self.phase}: {self.message}" if self.message else str(self.phase)


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The Task that failed first. ``rule``: how the attempt ended, "" if not by Tasks.

    ``traceback``: of its function. ``log_tail``: the last lines of its log, empty if none is to be had. ``container``:
    the one that failed, "" for none. ``time``: when it ended, in seconds since the epoch. ``certain``: whether no other
    Task may have failed earlier.
    """

    role: str
    task: int
    attempt: int
    node: str
    code: int
    message: str
    rule: str = ""
    traceback: str | None = None
    log_tail: tuple[str, ...] = ()
    container: str = ""
    time: int | None = None
    certain: bool = False
    error: RemoteError | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """``worker[3]``."""
        return f"{self.role}[{self.task}]"


@dataclass(frozen=True, slots=True)
class Result:
    """How a Framework ended. ``code``, ``reason``: of its last attempt. ``duration``: seconds, of all attempts.

    ``values``: returned by the functions of the Tasks, by role and index; ``value``: of the first Task.
    """

    phase: Phase
    code: int
    reason: str
    message: str
    values: Mapping[str, tuple[Any, ...]]
    first_failure: TaskFailure | None
    duration: float
    retries: int

    @property
    def value(self) -> Any:
        """The value that the function of the first Task returned; None without one."""
        return next((values[0] for values in self.values.values() if values), None)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of a Framework. ``code``, ``reason``, ``message``: how it ended; None and "" before."""

    number: int
    started: int | None
    completed: int | None
    code: int | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a container's log. ``time``: RFC 3339, "" if it is from the archive, which has none."""

    time: str
    role: str
    task: int
    attempt: int
    text: str

    def __str__(self) -> str:
        """``worker[3]: text``."""
        return f"{self.role}[{self.task}]: {self.text}"


def read_status(body: Mapping[str, Any]) -> Status:
    """Return the snapshot of an API object. A status that cannot be read is Failed, with the reason."""
    try:
        stored = decode_status(body.get("status"))
    except StatusError as error:
        return Status(Phase.FAILED, "Unreadable", str(error), object=body)
    if stored is None:
        return Status(Phase.PENDING, "", NOT_SEEN, object=body)
    roles = {role.name: _role(role) for role in stored.attempt.roles}
    return Status(
        phase=phase_of_framework(stored),
        reason=stored.reason,
        message=message_of(stored),
        attempt=stored.attempt.id,
        retries=stored.retry.total_retried_count,
        task_retries=sum(one.retry.total_retried_count for role in stored.attempt.roles for one in role.tasks),
        started=stored.start_time,
        completed=stored.completion_time,
        roles=roles,
        progress=_progress(stored, body),
        object=body,
    )


def _progress(status: FrameworkStatus, body: Mapping[str, Any]) -> ProgressStatus | None:
    shown = progress_of(status, interval_of(body))
    if shown is None:
        return None
    stored = shown.progress
    return ProgressStatus(
        attempt=stored.framework_attempt_id,
        percent=stored.percentage,
        step=stored.step,
        metrics={one.name: one.value for one in stored.metrics},
        remaining_seconds=stored.remaining_seconds,
        reported=stored.last_report_time,
        changed=stored.last_change_time,
        checkpoint=stored.last_checkpoint_time,
        text=", ".join(shown.facts),
    )


def read_attempt(body: Mapping[str, Any]) -> Attempt | None:
    """Return the attempt that an API object shows; None before the first."""
    stored = _stored(body)
    if stored is None:
        return None
    attempt, end = stored.attempt, stored.attempt.completion_status
    return Attempt(
        number=attempt.id,
        started=attempt.start_time,
        completed=attempt.completion_time,
        code=None if end is None else end.code,
        reason="" if end is None else end.phrase,
        message="" if end is None or end.succeeded else message_of(stored),
    )


def read_result(status: Status) -> Result:
    """Return the result of a final status, without the last lines of the log."""
    stored = _stored(status.object)
    end = None if stored is None else stored.attempt.completion_status
    failure = (
        None if stored is None or end is None or status.phase is Phase.SUCCEEDED else _failure(stored, end, status)
    )
    began, ended = status.started or 0, status.completed or status.started or 0
    return Result(
        phase=status.phase,
        code=0 if end is None else end.code,
        reason="" if end is None else end.phrase,
        message=status.message,
        values={name: tuple(task.value for task in role.tasks) for name, role in status.roles.items()},
        first_failure=failure,
        duration=ended - began,
        retries=status.retries,
    )


def _failure(stored: FrameworkStatus, end: CompletionStatus, status: Status) -> TaskFailure | None:
    """Return the Task that failed first: by the controller, or (an older one) that the completion policy names."""
    by, first = end.trigger, stored.first_failure
    named = None if by is None else (by.task_role_name, by.task_index)
    known = first if first is not None and first.framework_attempt_id == stored.attempt.id else None
    if known is not None:
        found = [task for task in status.tasks if (task.role, task.index) == known.key]
    else:
        found = [task for task in status.tasks if task.phase is Phase.FAILED]
    if not found:
        return None
    task = min(found, key=lambda one: ((one.role, one.index) != named, one.completed or 0))
    made = TaskFailure(
        role=task.role,
        task=task.index,
        attempt=task.attempt,
        node=task.node,
        code=0 if task.code is None else task.code,
        message=task.message,
        rule="" if named is None else end_sentence(end, told=stored.message),
        traceback=None if task.error is None else task.error.traceback,
        error=task.error,
    )
    if known is None:
        return made
    # A Task that was stopped before its failure was seen has another code.
    return replace(
        made,
        node=known.node_name,
        code=known.code,
        message=made.message if task.error is not None else known.message,
        container=known.container_name,
        time=known.time,
        certain=known.certain,
    )


def _stored(body: Mapping[str, Any]) -> FrameworkStatus | None:
    with suppress(StatusError):
        return decode_status(body.get("status"))
    return None


def _role(stored: StoredRole) -> RoleStatus:
    return RoleStatus(stored.name, tuple(_task(stored.name, task) for task in stored.tasks if not task.is_leaving))


def _task(role: str, task: StoredTask) -> TaskStatus:
    phase, end = phase_of_task(task), task.attempt.completion_status
    value, error = _returned(end)
    message = "" if end is None or not end.unexpected else cause(end)
    if error is not None:
        message = str(error)
    return TaskStatus(
        role=role,
        index=task.index,
        phase=phase,
        attempt=task.attempt.id,
        node=task.attempt.pod_node_name or "",
        code=None if end is None else end.code,
        reason="" if end is None else end.phrase,
        message=message,
        started=task.attempt.start_time,
        completed=task.attempt.completion_time,
        value=value,
        error=error,
    )


def _returned(end: CompletionStatus | None) -> tuple[Any, RemoteError | None]:
    """Return the value or the error of the Task's function, from its termination message (taskrunner.py)."""
    containers = () if end is None or end.pod is None else end.pod.containers
    text = next((one.message for one in containers if one.name == CONTAINER), "")
    if not text.startswith('{"'):
        return None, None
    try:
        said = json.loads(text.partition("\n")[0])
    except ValueError:
        return None, None
    if said.keys() == {"value"}:
        return said["value"], None
    error = said.get("error")
    if said.keys() == {"error"} and isinstance(error, dict):
        return None, RemoteError(*(str(error.get(key) or "") for key in ("type", "message", "traceback")))
    return None, None
