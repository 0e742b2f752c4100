"""Between two attempts: the way into the queue, the end of an admission, and releases of quota."""

from __future__ import annotations

import re
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import QueueLabels
from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import AdmissionStatus, State
from frameworkcontroller.api.workloads import FINISHED, WorkloadRecord
from frameworkcontroller.backoff import exponential
from frameworkcontroller.machine.kernel.absence import Known
from frameworkcontroller.machine.kernel.actions import Delete
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.presence import watch_end
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.parts.kueue.readadmission import ReadAdmission
from frameworkcontroller.machine.parts.kueue.workload import (
    CachedWorkload,
    act_once,
    ask_whether_nothing_runs,
    is_held_by_others,
    problem_with,
    queue_of,
    queueing_of,
    version_of,
    wait_for_quota,
    wanted_spec,
    was_disproved,
    workload_target,
)
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    ChangeRequest,
    ConditionChange,
    EnterQueue,
    Finish,
    GiveBack,
    Inspect,
    LetGo,
    is_admitted,
)
from frameworkcontroller.machine.parts.kueue.workloadspec import API_VERSION, MAX_POD_SETS, is_same, seconds_in

_CONFLICT_SEC: Final = 60.0
_MAX_CONFLICT_SEC: Final = 3600.0
"""First and longest time until a Framework is queued again whose admission contradicted its Pods."""


_QUEUE_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def between_attempts(ctx: Context, record: CachedWorkload) -> None:
    framework, admission = ctx.framework, ctx.status.admission
    spec = framework.spec
    starts = spec.execution_type is ExecutionType.START and not spec.is_suspended
    starts &= not framework.deleting and not framework.invalid
    if ctx.tracker.is_completing and ctx.status.state is State.CREATION_PENDING and not framework.deleting:
        # It ends before it has begun.
        return
    if spec.execution_type is ExecutionType.STOP and not framework.deleting:
        # It completes.
        return
    queue = queue_of(ctx) if starts else None
    if queue is None:
        ctx.tracker.holds.end_stall(workload_target(ctx).key, Reason.ADMISSION_CONFLICT)
    if admission is not None:
        if (why := _why_not_kept(ctx, admission, queue, record)) is not None:
            wait_for_quota(ctx, why)
        return
    if queue is not None:
        _queue_up(ctx, queue, record)
    elif isinstance(record, WorkloadRecord):
        if starts:
            wait_for_quota(ctx, f"Workload {record.name} leaves the queue, as the Framework has no queue any longer")
            _watch_end(ctx, record)
        _leave(ctx, record)
    elif record is None:
        _look_for_dropped(ctx)


def _why_not_kept(
    ctx: Context, admission: AdmissionStatus, queue: QueueLabels | None, record: CachedWorkload
) -> str | None:
    """Why the next attempt cannot begin with the admission, which is then given up; None if it can."""
    lost = queueing_of(ctx).lost
    if isinstance(record, NotListed):
        _say_unavailable(ctx, record)
        return "it is not known whether Kueue's admission still holds"
    _available(ctx)
    if queue is None:
        why = "the Framework has no queue any longer, or is not to run: it leaves the queue first"
    elif queue.queue_name != admission.queue_name:
        why = f"the Framework moves from LocalQueue {admission.queue_name} to {queue.queue_name}"
    elif lost is not None:
        why = lost.diagnostics
    elif (problem := problem_with(record, admission)) is not None:
        if not was_disproved(ctx, record):
            act_once(ctx, Inspect(workload_target(ctx), version_of(record)), record)
            return problem
        return None
    elif _needs_more(ctx, admission, queue):
        why = "the next FrameworkAttempt needs more than Kueue has admitted, or quota that was given back: it is queued"
    else:
        return None
    if ask_whether_nothing_runs(ctx):
        queueing_of(ctx).set_admission(ctx.tracker, None)
    return why


def _needs_more(ctx: Context, admission: AdmissionStatus, queue: QueueLabels) -> bool:
    wanted = wanted_spec(ctx, queue)
    for role, count in wanted.counts.items():
        admitted = admission.pod_set(role)
        if admitted is None or count > admitted.available:
            return True
        if admitted.digest and not is_same(wanted.digests[admitted.name], admitted.digest):
            return True
    return False


def _queue_up(ctx: Context, queue: QueueLabels, record: CachedWorkload) -> None:
    """Bring the Framework into the queue, and take its admission."""
    target, holds = workload_target(ctx), ctx.tracker.holds
    wait_for_quota(ctx, f"the Framework waits in Kueue's LocalQueue {queue.queue_name}")
    if isinstance(record, NotListed):
        _say_unavailable(ctx, record)
        return
    _available(ctx)
    if (stall := _problem_of(ctx, queue)) is not None:
        holds.stalls[target.key] = stall
        if record is not None:
            # It asks for something else, and may have quota.
            _leave(ctx, record)
        return
    if not holds.has_failed(target.key):
        for reason in (Reason.TOO_MANY_ROLES_FOR_QUEUE, Reason.QUEUE_INVALID):
            holds.end_stall(target.key, reason)
    if _conflicts(ctx, queue, record):
        if record is not None:
            _leave(ctx, record)
        return
    if record is not None and (record.identity.deleting or record.finished):
        wait_for_quota(ctx, f"Workload {record.name} of before is being deleted")
        _watch_end(ctx, record)
        _leave(ctx, record)
    elif record is not None and record.evicted and record.reserves:
        wait_for_quota(ctx, _problem_of_evicted(record))
        if ask_whether_nothing_runs(ctx):
            act_once(ctx, GiveBack(target, record.uid, ctx.env.second), record)
    elif record is not None and record.reclaimed:
        wait_for_quota(ctx, "the quota of Tasks that had completed was given back: the Framework waits for all of it")
        if ask_whether_nothing_runs(ctx):
            act_once(ctx, GiveBack(target, record.uid, ctx.env.second), record)
    elif ctx.status.state is not State.CREATION_PENDING:
        # Its retry is due later.
        return
    elif record is None:
        if target not in ctx.tracker.objects.confirmed and ctx.tracker.is_head_settled and not _may_have_begun(ctx):
            ctx.tracker.objects.send(target, ctx.env.clock)
            ctx.act(EnterQueue(target, ctx.framework, wanted_spec(ctx, queue)))
    elif not _is_asked_for(ctx, queue, record):
        if record.reserves:
            wait_for_quota(ctx, f"Workload {record.name} was admitted for another request, and is deleted")
            _leave(ctx, record)
        else:
            act_once(ctx, ChangeRequest(target, wanted_spec(ctx, queue), record.uid, record.resource_version), record)
    elif not record.active:
        wait_for_quota(ctx, inactive_text(record))
    elif is_admitted(record) and ctx.tracker.absence.configmap is Known.FOUND:
        # Something of the attempt has appeared that was known to be absent. It is deleted first.
        ctx.tracker.absence.wanted = True
    elif is_admitted(record):
        wanted = wanted_spec(ctx, queue)
        act_once(ctx, ReadAdmission(target, ctx.framework, queue.queue_name, wanted, record.uid), record)


def _may_have_begun(ctx: Context) -> bool:
    """Whether the cache shows a ConfigMap of the Framework: a running attempt enters no queue."""
    configmap = ctx.observed.configmap
    return configmap is not None and configmap.identity.controller_uid == ctx.framework.uid


def _is_asked_for(ctx: Context, queue: QueueLabels, record: WorkloadRecord) -> bool:
    """Whether the Workload asks for what the Framework needs."""
    wanted = wanted_spec(ctx, queue)
    found = record.queued_inputs, record.queue_name, record.max_execution_seconds
    if found != (wanted.digest, wanted.queue_name, wanted.max_execution_seconds):
        return False
    if dict(record.counts) != wanted.counts:
        # Another client has changed it.
        return False
    return record.reserves or (record.priority_kind, record.priority_class) == wanted.priority_source


def _problem_of_evicted(record: WorkloadRecord) -> str:
    return f"Kueue has evicted the Framework ({record.evicted.reason}): {record.evicted.message}"


def refuse(ctx: Context, action: ReadAdmission, why: str) -> None:
    """The Pods cannot be what Kueue has admitted. Others may have the quota until that is tried again."""
    queueing = queueing_of(ctx)
    queueing.conflicts = queueing.conflicts + 1 if queueing.conflict_spec is action.spec else 1
    queueing.conflict, queueing.conflict_spec = why, action.spec
    queueing.conflict_until = ctx.env.clock + exponential(_CONFLICT_SEC, _MAX_CONFLICT_SEC, queueing.conflicts)


def _conflicts(ctx: Context, queue: QueueLabels, record: WorkloadRecord | None) -> bool:
    """Whether the Framework stays out of the queue, as it could not use its last admission."""
    queueing, holds, key = queueing_of(ctx), ctx.tracker.holds, workload_target(ctx).key
    if not queueing.conflict:
        return False
    is_over = queueing.conflict_until <= ctx.env.clock or (record is not None and not record.reserves)
    if is_over or wanted_spec(ctx, queue) is not queueing.conflict_spec:
        queueing.conflict = ""
        holds.end_stall(key, Reason.ADMISSION_CONFLICT)
        return False
    holds.stalls[key] = Stall(Reason.ADMISSION_CONFLICT, queueing.conflict)
    wait_for_quota(ctx, "the Framework could not use its admission: it gives the quota back, and is queued again later")
    ctx.tracker.agenda.look(None, queueing.conflict_until)
    return True


def _problem_of(ctx: Context, queue: QueueLabels) -> Stall | None:
    """Why the Framework cannot be queued as it is."""
    roles = len(ctx.framework.spec.task_roles)
    if roles > MAX_POD_SETS:
        text = f"A Framework in a queue has at most {MAX_POD_SETS} TaskRoles, and this one has {roles}"
        return Stall(Reason.TOO_MANY_ROLES_FOR_QUEUE, f"{text}: remove the label {names.QUEUE_NAME}, or join roles")
    if not roles:
        text = "A Framework in a queue has a TaskRole, and this one has none: Kueue cannot admit it"
        return Stall(Reason.QUEUE_INVALID, f"{text}; remove the label {names.QUEUE_NAME}, or add a role")
    if (problem := wanted_spec(ctx, queue).problem) is not None:
        return Stall(Reason.QUEUE_INVALID, f"{problem}; write a value, or remove the label {names.QUEUE_NAME}")
    for label, value in ((names.QUEUE_NAME, queue.queue_name), (names.PRIORITY_CLASS, queue.priority_class)):
        if value and not _QUEUE_PATTERN.fullmatch(value):
            text = f"label {label}: {value!r} must be lower case letters, digits, '-' and '.'"
            return Stall(Reason.QUEUE_INVALID, text)
    seconds = queue.max_execution_seconds
    if seconds and seconds_in(seconds) is None:
        text = f"label {names.MAX_EXEC_TIME_SECONDS}: {seconds!r} must be a number of seconds, from 1 to 999999999"
        return Stall(Reason.QUEUE_INVALID, text)
    return None


def _say_unavailable(ctx: Context, found: NotListed) -> None:
    """Nothing starts without quota, also if Kueue is not served or may not be read. Its informer tries again."""
    if found.problem:
        needed = f"Cannot list the Workloads of {API_VERSION}, which the label {names.QUEUE_NAME} needs"
        text = f"{needed}. Is Kueue installed? {found.problem}"
        ctx.tracker.holds.stalls[workload_target(ctx).key] = Stall(Reason.QUEUE_UNAVAILABLE, text)


def _available(ctx: Context) -> None:
    if not ctx.tracker.holds.has_failed(workload_target(ctx).key):
        ctx.tracker.holds.end_stall(workload_target(ctx).key, Reason.QUEUE_UNAVAILABLE)


def _leave(ctx: Context, record: WorkloadRecord) -> None:
    """Delete the Workload, once nothing runs."""
    if is_held_by_others(record):
        return
    if not ask_whether_nothing_runs(ctx):
        return
    if record.identity.deleting:
        act_once(ctx, LetGo(workload_target(ctx), record.uid), record)
    else:
        version = record.resource_version
        act_once(ctx, Delete(workload_target(ctx), record.uid, orphan=True, resource_version=version), record)


def _watch_end(ctx: Context, record: WorkloadRecord) -> None:
    """Stall the Framework if the Workload that it waits for stays, though it has let go of it."""
    if is_held_by_others(record):
        watch_end(ctx, workload_target(ctx), Reason.WORKLOAD_NOT_GONE)


def _look_for_dropped(ctx: Context) -> None:
    """Find out whether a Workload that the cache has dropped is gone, or has lost the label by which it is watched."""
    if queueing_of(ctx).dropped:
        act_once(ctx, Inspect(workload_target(ctx), ""), None)


def completed(ctx: Context, record: CachedWorkload) -> None:
    """The Framework is completed, which is persisted before Kueue learns it."""
    tracker = ctx.tracker
    if ctx.status.admission is not None:
        queueing_of(ctx).set_admission(tracker, None)
    elif record is None:
        _look_for_dropped(ctx)
    elif (
        isinstance(record, WorkloadRecord) and (record.in_use or not record.finished) and ask_whether_nothing_runs(ctx)
    ):
        completion = ctx.attempt.completion_status
        if record.identity.deleting or ctx.framework.deleting:
            _leave(ctx, record)
        elif completion is not None:
            reason = "Succeeded" if completion.succeeded else "Failed"
            change = ConditionChange(FINISHED, True, reason, completion.diagnostics)
            act_once(ctx, Finish(workload_target(ctx), record.uid, change, ctx.env.second), record)


def inactive_text(record: WorkloadRecord) -> str:
    # Kueue adds its cause. Without one, or after another eviction, a person has set spec.active.
    by_kueue = record.evicted and record.evicted.reason.startswith("DeactivatedDueTo")
    why = f" by Kueue ({record.evicted.reason}): {record.evicted.message}" if by_kueue else ""
    return f"Workload {record.name} was deactivated{why}; it is queued again once its spec.active is true"
