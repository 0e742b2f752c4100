"""The gates: why an attempt does not start yet, why a Pod is not created yet, and why an attempt ends.

A gate returns a reason, or None. The first rule with a reason counts: the life's rules come before the parts'. Rules
read the spec, the persisted status and the tracker, and change neither status nor objects; a deadline that is not over
sets the time of the next plan.

A plan checks whether the attempt ends before and after Tasks observe their Pods. Before, ``why_end_at_once`` has the
reasons that no Task changes; if ``why_end_unless_by_tasks`` has one, the plan creates nothing (``Context.ends``): no
plan both creates a Pod and ends the attempt. Afterwards, outcomes of Tasks count before a reason that a user can take
back (``why_end_after_tasks``).
"""

from __future__ import annotations

from typing import Final

from frameworkcontroller.api.completion import (
    FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED,
    FRAMEWORK_SUSPEND_REQUESTED,
    STOP_FRAMEWORK_REQUESTED,
    CompletionStatus,
)
from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.api.timestamps import LAST_TIME, format_time
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import CREATIONS, HoldKey, Wait
from frameworkcontroller.machine.kernel.model import SnapshotTrigger
from frameworkcontroller.machine.kernel.part import EndPhase
from frameworkcontroller.machine.kernel.policy import evaluate_completion
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.rules import end_by_rule
from frameworkcontroller.machine.lifereasons import LifeReason

STOPPED: Final = CompletionStatus.of(STOP_FRAMEWORK_REQUESTED, "User has requested to stop the Framework")
DELETED: Final = CompletionStatus.of(STOP_FRAMEWORK_REQUESTED, "User has requested to delete the Framework")
SUSPENDED: Final = CompletionStatus.of(FRAMEWORK_SUSPEND_REQUESTED, "User has requested to suspend the Framework")


# --- before the ConfigMap of an attempt is created ----------------------------------------------------------------


def why_not_start(ctx: Context) -> Wait | None:
    """Why the attempt does not start yet: its ConfigMap must not be created."""
    framework, spec = ctx.framework, ctx.framework.spec
    if framework.deleting:
        return Wait(LifeReason.DELETING, "the Framework is being deleted")
    if spec.execution_type is ExecutionType.CREATE:
        also = ", and spec.suspend is true" if spec.suspend else ""
        return Wait(LifeReason.NOT_STARTED, f"spec.executionType is Create{also}")
    if spec.is_suspended:
        return Wait(LifeReason.SUSPENDED, "spec.suspend is true")
    if framework.invalid and spec.execution_type is not ExecutionType.STOP and why_end_before_configmap(ctx) is None:
        return Wait(RequestReason.WAITING, "the spec is invalid")
    return None


def why_not_prepare(ctx: Context) -> Wait | None:
    """Why an attempt that may start prepares nothing yet."""
    return next((wait for part in ctx.parts.why_not_prepare if (wait := part.why_not_prepare(ctx)) is not None), None)


def why_not_create_configmap(ctx: Context) -> Wait | None:
    """Why the ConfigMap of an attempt that may start is not created yet."""
    wait = why_not_prepare(ctx) or _backs_off(ctx, None)
    for part in ctx.parts.why_not_create_configmap:
        wait = wait or part.why_not_create_configmap(ctx)
    return wait


def _backs_off(ctx: Context, *keys: HoldKey) -> Wait | None:
    """The longest of the back-offs."""
    found = (ctx.tracker.holds.held(key, ctx.env.clock) for key in keys)
    last = max((held for held in found if held is not None), key=lambda held: held.until, default=None)
    return None if last is None else Wait(last.reason, last.why, last.until)


# --- before the Pod of a Task is created --------------------------------------------------------------------------


def why_not_create_pod(ctx: Context, task: TaskStatus) -> Wait | None:
    """Why the Task's Pod is not created yet. The Task is persisted, and is not deletionPending."""
    wait = Wait(LifeReason.ATTEMPT_ENDS, "the FrameworkAttempt ends") if ctx.ends else None
    for part in ctx.parts.why_not_create_pod:
        wait = wait or part.why_not_create_pod(ctx, task)
    return wait or _backs_off(ctx, task.key, CREATIONS)


def wait_for_retry(ctx: Context, task: TaskStatus | None, delay_sec: int, after: str) -> None:
    """Keep the wait of a Task or (None) the Framework for the next attempt, whose delay is persisted or decided now."""
    status, name = (ctx.status, "FrameworkAttempt") if task is None else (task, "TaskAttempt")
    reason = LifeReason.FRAMEWORK_RETRY_SCHEDULED if task is None else LifeReason.TASK_RETRY_SCHEDULED
    owner = "" if task is None else f" of {task.role}[{task.index}]"
    when = format_time(min(status.transition_time + delay_sec, LAST_TIME))
    text = f"{name} {status.attempt.id + 1}{owner} starts at {when}, {delay_sec}s after the end with {after}"
    ctx.tracker.holds.wait(None if task is None else task.key, Wait(reason, text))


def put_off(ctx: Context, task: TaskStatus | None, why: Wait | None) -> bool:
    """Let a Task or (None) the Framework wait, if there is a reason, and look again at its end. Return whether it does.

    The condition and the metric show the reason.
    """
    key = None if task is None else task.key
    ctx.tracker.holds.wait(key, why)
    if why is not None and why.until is not None:
        ctx.tracker.agenda.look(key, why.until)
    return why is not None


# --- before Pods are deleted -----------------------------------------------------------------------------------------


def deletable_at(ctx: Context, task: TaskStatus | None) -> float | None:
    """Have parts save from the Pod of a Task, or (None) from all Pods. Return when they may be deleted; None: at once.

    The end of the attempt is persisted.
    """
    for part in ctx.parts.before_delete:
        part.before_delete(ctx, task)
    dues = (part.deletable_at(ctx, task) for part in ctx.parts.deletable_at)
    return max((due for due in dues if due is not None), default=None)


# --- before an attempt leaves the status ---------------------------------------------------------------------------


def save_attempt(ctx: Context, trigger: SnapshotTrigger, task: TaskStatus | None = None) -> bool:
    """Have the ended attempt of a Task or (None) the Framework saved. Return whether it may leave the status now."""
    for part in ctx.parts.before_forget:
        part.before_forget(ctx, trigger, task, due=True)
    return all(part.may_forget(ctx, trigger, task) for part in ctx.parts.may_forget)


def save_early(ctx: Context, trigger: SnapshotTrigger, task: TaskStatus | None = None) -> None:
    """Have the ended attempt saved while its retry is delayed, so that the retry does not wait for it."""
    for part in ctx.parts.before_forget:
        part.before_forget(ctx, trigger, task, due=False)


# --- whether the attempt ends ----------------------------------------------------------------------


def why_end_before_configmap(ctx: Context) -> CompletionStatus | None:
    """Why the attempt, which has no ConfigMap yet, ends without one. Persisted before anything is looked for."""
    deadline = ctx.framework.spec.active_deadline_seconds
    if deadline is None or ctx.status.accumulated_past_execution_time_seconds < deadline:
        return None
    return _deadline_exceeded(deadline)


def why_end_unseen(ctx: Context) -> CompletionStatus | None:
    """Why the attempt ends whose ConfigMap is created, and not yet in the cache. Persisted before it is deleted."""
    if is_deletion_blocked(ctx):
        return DELETED
    return SUSPENDED if ctx.framework.spec.is_suspended else _why_end_by_parts(ctx, EndPhase.UNSEEN)


def why_end_at_once(ctx: Context) -> CompletionStatus | None:
    """Why the attempt ends, for any outcomes of its Tasks. Asked before Tasks observe their Pods."""
    if is_deletion_blocked(ctx):
        return DELETED
    return STOPPED if ctx.framework.spec.execution_type is ExecutionType.STOP else None


def why_end_unless_by_tasks(ctx: Context) -> CompletionStatus | None:
    """Why the attempt ends unless its Tasks end it. Asked before Tasks observe their Pods."""
    if (completion := _why_end_by_deadline(ctx)) is not None:
        return completion
    return SUSPENDED if ctx.framework.spec.is_suspended else _why_end_by_parts(ctx, EndPhase.LAST)


def why_end_after_tasks(ctx: Context, otherwise: CompletionStatus | None) -> CompletionStatus | None:
    """Why the attempt ends. Asked after Tasks have observed their Pods.

    ``otherwise``: the answer of ``why_end_unless_by_tasks``. Only the policies of a valid spec decide by the ends of
    Tasks.
    """
    if ctx.framework.invalid:
        return otherwise
    completion = evaluate_completion(ctx.framework.spec, ctx.tracker)
    if completion is None and ctx.tracker.life.failing:
        completion = end_by_rule(ctx.tracker)
    return completion or _why_end_by_parts(ctx, EndPhase.BY_TASKS) or otherwise


def hold_end(ctx: Context, completion: CompletionStatus | None) -> bool:
    """Have parts prepare the end of a running attempt that is due; None: none is. Return whether it waits."""
    waits = False
    for part in ctx.parts.hold_end:
        waits = part.hold_end(ctx, completion) or waits
    return waits


def is_deletion_blocked(ctx: Context) -> bool:
    """Whether the Framework is being deleted, and a part's finalizer blocks that until nothing of it runs."""
    if not (ctx.framework.deleting and ctx.framework.held):
        return False
    return any(part.blocks_deletion(ctx) for part in ctx.parts.blocks_deletion)


def _why_end_by_parts(ctx: Context, phase: EndPhase) -> CompletionStatus | None:
    for part in ctx.parts.why_end:
        if (completion := part.why_end(ctx, phase)) is not None:
            return completion
    return None


def _why_end_by_deadline(ctx: Context) -> CompletionStatus | None:
    deadline = ctx.framework.spec.active_deadline_seconds
    if deadline is None or (started := ctx.attempt.execution_start_time) is None:
        return None
    left = max(0, deadline - ctx.status.accumulated_past_execution_time_seconds)
    return _deadline_exceeded(deadline) if ctx.wait_out(None, started, left) else None


def _deadline_exceeded(seconds: int) -> CompletionStatus:
    text = f"Framework was active for longer than its activeDeadlineSeconds {seconds}, in all of its FrameworkAttempts"
    return CompletionStatus.of(FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED, text)
