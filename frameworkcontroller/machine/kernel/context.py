"""The inputs and outputs of one plan, for all its decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.causes import cause
from frameworkcontroller.api.codec import encode_status, encode_task
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import Framework, Identity, PodRecord
from frameworkcontroller.api.status import FrameworkAttemptStatus, FrameworkStatus, TaskStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.absence import is_of_framework
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete, LeaveNewer
from frameworkcontroller.machine.kernel.agenda import PERSISTED, TaskKey
from frameworkcontroller.machine.kernel.manifests import pod_annotations
from frameworkcontroller.machine.kernel.model import Env, Observed, Plan, Record, Snapshot, SnapshotTrigger, require
from frameworkcontroller.machine.kernel.part import Parts, RoleWait
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.kernel.tracker import Tracker

CREATIONS_PER_PLAN: Final = 500
"""Maximum number of creations per plan: if all are refused, 10,000 Tasks must not be rendered again and again."""

SHOW_CHECKPOINT_SEC: Final = 60.0
"""Least time between two changes of an object's annotation with the last checkpoint."""


@dataclass(slots=True)
class Context:
    """A plan in progress."""

    framework: Framework
    tracker: Tracker
    observed: Observed
    env: Env
    parts: Parts
    plan: Plan = field(default_factory=Plan)
    is_new: bool = False
    """Whether this plan is the first one of a Framework without a status."""
    creations: int = 0
    """Those for Tasks."""
    ends: bool = False
    """Whether the attempt ends in this plan, so that no Pod is created."""

    @property
    def status(self) -> FrameworkStatus:
        """The tracked status, which exists after the first plan."""
        status = self.tracker.status
        # Most plans read it a dozen times.
        return require(status, "status") if status is None else status

    @property
    def attempt(self) -> FrameworkAttemptStatus:
        return self.status.attempt

    @property
    def checkpoint_time(self) -> str:
        """When the attempt reported its last checkpoint, by the tracked status, as text; "" if it did not."""
        progress = self.status.progress
        if progress is None or progress.framework_attempt_id != self.attempt.id:
            return ""
        return "" if progress.last_checkpoint_time is None else format_time(progress.last_checkpoint_time)

    def record(
        self,
        reason: Reason,
        message: str,
        task: TaskStatus | None = None,
        *,
        warning: bool | None = None,
        completion: CompletionStatus | None = None,
    ) -> None:
        """Record a change of the Framework or of one Task. By default a warning if ``completion`` is unexpected."""
        role, index = (None, None) if task is None else task.key
        if warning is None:
            warning = completion is not None and completion.unexpected
        self.plan.records.append(Record(reason, message, role, index, warning, completion))

    def framework_snapshot(self, trigger: SnapshotTrigger) -> Snapshot:
        """The Framework's status, which must be persisted."""
        return Snapshot(trigger, encode_status(self.framework.name, self.status))

    def snapshot_framework(self, trigger: SnapshotTrigger) -> None:
        """Log the Framework's status, which must be persisted."""
        self.plan.snapshots.append(self.framework_snapshot(trigger))

    def snapshot_task(self, trigger: SnapshotTrigger, task: TaskStatus) -> None:
        """Log the Task, which must be persisted."""
        self.plan.snapshots.append(self.task_snapshot(trigger, task))

    def task_snapshot(self, trigger: SnapshotTrigger, task: TaskStatus) -> Snapshot:
        """The Task, which must be persisted."""
        body = encode_task(self.framework.name, task.role, task)
        role_uid = self.tracker.roles[task.role].instance_uid
        annotations = pod_annotations(self.framework, self.attempt, task.role, role_uid, index=str(task.index))
        deleted_at = self.env.second if trigger is SnapshotTrigger.TASK_DELETION else None
        return Snapshot(trigger, body, *task.key, annotations, deleted_at)

    def wait_out(self, key: TaskKey | None, since: float, seconds: float) -> bool:
        """Look at a Task or (None) the Framework ``seconds`` after ``since`` (seconds since the epoch).

        Return whether they have passed. See ``Agenda.deadline`` for changes of the wall clock.
        """
        when = self.tracker.agenda.deadline(key, since, seconds, self.env)
        if when > self.env.clock:
            self.tracker.agenda.look(key, when)
        return when <= self.env.clock

    def has_started(self, role: str) -> bool:
        """Whether the order of roles lets Pods of the role be created. That is persisted."""
        return all(part.has_started(self, role) for part in self.parts.has_started)

    def may_shrink(self, role: str) -> bool:
        return all(part.may_shrink(self, role) for part in self.parts.may_shrink)

    def may_have_pods(self, role: str, count: int) -> int:
        for part in self.parts.may_have_pods:
            count = part.may_have_pods(self, role, count)
        return count

    def role_waits(self) -> Iterator[RoleWait]:
        for part in self.parts.role_waits:
            yield from part.role_waits(self)

    def persist_head_first(self) -> bool:
        """Return whether all changes are persisted, except single Tasks'. If not, persist them soon, and plan then."""
        if not self.tracker.is_head_settled:
            self.tracker.agenda.look(None, PERSISTED)
            self.tracker.hasten()
        return self.tracker.is_head_settled

    def act(self, action: Action) -> None:
        """Add the action to the plan, or plan again after its back-off."""
        key = action.target.key
        until = self.tracker.holds.until(key)
        if until <= self.env.clock:
            self.plan.actions.append(action)
        else:
            self.tracker.agenda.look(key, until)

    def create_for(self, key: TaskKey, make: Callable[[], Create]) -> None:
        """Create an object of the Task. ``gates.why_not_create_pod`` has no reason against it."""
        if self.creations >= CREATIONS_PER_PLAN:
            self.tracker.agenda.look(key)
        else:
            self.creations += 1
            self.plan.actions.append(make())

    def drop_creations(self) -> None:
        """Drop the creations of this plan, which has found that the attempt ends."""
        self.plan.actions = [action for action in self.plan.actions if not isinstance(action, Create)]

    def is_of_attempt(self, pod: PodRecord) -> bool:
        """Whether the attempt controls the Pod, or nothing does, and it is of any attempt of the Framework."""
        owner = pod.identity.controller_uid
        if owner is not None:
            return owner == self.attempt.configmap_uid
        return is_of_framework(self.framework.uid, pod) and not self.is_later(pod.identity)

    def is_later(self, pod: Identity) -> bool:
        """Whether the Pod is of a later attempt than the status, which is outdated. Such a Pod is not touched."""
        marks = pod.annotations
        return marks is not None and is_newer((marks[0], marks[1].partition("_")[0]), self.configmap_identity())

    def configmap_target(self) -> Target:
        return Target(Kind.CONFIGMAP, names.configmap_name(self.framework.name), self.attempt.id)

    def configmap_identity(self) -> tuple[str, ...]:
        """Values of ``names.CONFIGMAP_IDENTITY`` for the ConfigMap of the current attempt."""
        return self.framework.uid, str(self.attempt.id)

    def pod_target(self, task: TaskStatus) -> Target:
        """The Pod of the Task's current attempt."""
        name = names.pod_name(self.framework.name, *task.key)
        return Target(Kind.POD, name, task.attempt.id, *task.key, task.instance_uid)

    def pod_identity(self, task: TaskStatus) -> tuple[str, ...]:
        """Values of ``names.POD_IDENTITY`` for the Pod of the Task's current attempt."""
        return (
            self.framework.uid,
            names.attempt_instance_uid(self.attempt.id, require(self.attempt.configmap_uid, "configMapUID")),
            self.tracker.roles[task.role].instance_uid,
            task.instance_uid,
            str(task.attempt.id),
        )


_MAX_DIGITS = 18


def action_on_unrecorded(target: Target, found: Identity, current: tuple[str, ...]) -> Action:
    """The action on an unrecorded object of the target's name that is not terminating.

    ``current``: the identity of the current attempt's object. An object of a later attempt is never deleted: as objects
    are created for persisted attempts only, it proves that another controller has written a newer status.
    """
    is_later = found.annotations is not None and is_newer(found.annotations, current)
    return LeaveNewer(target) if is_later else Delete(target, found.uid, unrecorded=True)


def is_newer(found: tuple[str, ...], current: tuple[str, ...]) -> bool:
    """Whether the identities, which end with the attempt's id, differ only in that, and ``found`` is of a later one."""
    *of_found, attempt_id = found
    # int() raises an error for more than some thousand digits.
    is_number = attempt_id.isascii() and attempt_id.isdigit() and len(attempt_id) <= _MAX_DIGITS
    return of_found == [*current[:-1]] and is_number and int(attempt_id) > int(current[-1])


def count_tasks(count: int) -> str:
    return "1 Task" if count == 1 else f"{count} Tasks"


def summarize(completion: CompletionStatus) -> str:
    """The completion in two words."""
    return f"{completion.code} {completion.phrase}"


def describe_row(in_a_row: int) -> str:
    """The number of retries in a row in words, after a completion."""
    return {0: "", 1: " and 1 retry"}.get(in_a_row, f" and {in_a_row} retries in a row")


def describe(completion: CompletionStatus, why: str = "") -> str:
    """The completion in one line, with its cause, or ``why``. The longest part comes last, where it may be cut off."""
    trigger = completion.trigger
    by = ""
    if trigger is not None:
        # Trigger and diagnostics are equal if all Tasks completed.
        said = "" if trigger.message == completion.diagnostics else f": {trigger.message}"
        by = f" (Task {trigger.task_role_name}[{trigger.task_index}]{said})"
    return f"{summarize(completion)}{by}: {why or cause(completion)}"
