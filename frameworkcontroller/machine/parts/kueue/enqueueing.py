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
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.outcomes import watch_end
from frameworkcontroller.machine.parts.kueue.queueing import QueuedFramework, QueueReason, eviction_text, problem_with
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    CreateWorkload,
    Finish,
    ReadAdmission,
    ReadWorkload,
    ReleaseQuota,
    RemoveFinalizer,
    UpdateWorkload,
    is_admitted,
)
from frameworkcontroller.machine.parts.kueue.workloadbodies import ConditionChange
from frameworkcontroller.machine.parts.kueue.workloadspec import API_VERSION, MAX_POD_SETS, is_same, seconds_in

_CONFLICT_SEC: Final = 60.0
_MAX_CONFLICT_SEC: Final = 3600.0
"""First and longest time until a Framework is queued again after its admission contradicted its Pods."""

_QUEUE_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def between_attempts(queued: QueuedFramework) -> None:
    """Enter or leave the queue, take an admission, and end one that the next attempt cannot use."""
    ctx, workload = queued.ctx, queued.workload
    framework, spec = ctx.framework, ctx.framework.spec
    is_stopped = spec.execution_type is ExecutionType.STOP
    ends_before_it_begins = ctx.tracker.is_completing and ctx.status.state is State.CREATION_PENDING
    if (is_stopped or ends_before_it_begins) and not framework.deleting:
        return
    may_start = spec.execution_type is ExecutionType.START and not spec.is_suspended
    may_start = may_start and not framework.deleting and not framework.invalid
    labels = queued.labels if may_start else None
    if labels is None:
        queued.holds.end_stall(queued.target.key, QueueReason.ADMISSION_CONFLICT)
    if queued.admission is not None:
        if (why := _why_not_kept(queued, queued.admission, labels)) is not None:
            queued.wait(why)
    elif labels is not None:
        _queue_up(queued, labels)
    elif workload is not None:
        if may_start:
            queued.wait(f"Workload {workload.name} leaves the queue, as the Framework has no queue any longer")
            _watch_end(queued)
        _leave(queued, workload)
    elif queued.unlisted is None:
        _look_for_dropped(queued)


def _why_not_kept(queued: QueuedFramework, admission: AdmissionStatus, labels: QueueLabels | None) -> str | None:
    """Why the next attempt cannot begin with the admission, which is then ended; None if it can."""
    if not _are_listed(queued):
        return "it is not known whether Kueue's admission still holds"
    if labels is None:
        why = "the Framework has no queue any longer, or is not to run: it leaves the queue first"
    elif labels.queue_name != admission.queue_name:
        why = f"the Framework moves from LocalQueue {admission.queue_name} to {labels.queue_name}"
    elif queued.state.lost is not None:
        why = queued.state.lost.diagnostics
    elif (problem := problem_with(queued.workload, admission)) is not None:
        if queued.is_disproved:
            return None
        queued.act_once(ReadWorkload(queued.target, queued.version))
        return problem
    elif _needs_more(queued, admission):
        why = "the next FrameworkAttempt needs more than Kueue has admitted, or released quota: it is queued"
    else:
        return None
    if queued.confirm_nothing_runs():
        queued.state.set_admission(queued.ctx.tracker, None)
    return why


def _needs_more(queued: QueuedFramework, admission: AdmissionStatus) -> bool:
    wanted = queued.spec
    for role, count in wanted.counts.items():
        admitted = admission.pod_set(role)
        if admitted is None or count > admitted.available:
            return True
        if admitted.digest and not is_same(wanted.digests[admitted.name], admitted.digest):
            return True
    return False


def _queue_up(queued: QueuedFramework, labels: QueueLabels) -> None:
    """Bring the Framework into the queue, and take its admission."""
    ctx, target, workload = queued.ctx, queued.target, queued.workload
    queued.wait(f"the Framework waits in Kueue's LocalQueue {labels.queue_name}")
    if not _are_listed(queued):
        return
    if (stall := _problem_of(queued, labels)) is not None:
        queued.holds.stalls[target.key] = stall
        if workload is not None:
            # It asks for something else, and may have quota.
            _leave(queued, workload)
        return
    if not queued.holds.has_failed(target.key):
        for reason in (QueueReason.TOO_MANY_ROLES, QueueReason.INVALID):
            queued.holds.end_stall(target.key, reason)
    if _conflicts(queued):
        if workload is not None:
            _leave(queued, workload)
    elif workload is not None and (workload.identity.deleting or workload.finished):
        queued.wait(f"the previous Workload {workload.name} is being deleted")
        _watch_end(queued)
        _leave(queued, workload)
    elif workload is not None and ((workload.evicted and workload.reserves) or workload.reclaimed):
        reclaimed = "the quota of completed Tasks was released: the Framework waits for all of it"
        queued.wait(eviction_text(workload) if workload.evicted and workload.reserves else reclaimed)
        if queued.confirm_nothing_runs():
            queued.act_once(ReleaseQuota(target, workload.uid, ctx.env.second))
    elif ctx.status.state is not State.CREATION_PENDING:
        # Its retry is due later.
        return
    elif workload is None:
        if (
            target not in ctx.tracker.expectations.confirmed
            and ctx.tracker.is_head_settled
            and not _may_have_begun(queued)
        ):
            ctx.tracker.expectations.send(target, ctx.env.clock)
            ctx.act(CreateWorkload(target, ctx.framework, queued.spec))
    elif not _is_asked_for(queued, workload):
        if workload.reserves:
            queued.wait(f"Workload {workload.name} was admitted for another request, and is deleted")
            _leave(queued, workload)
        else:
            queued.act_once(UpdateWorkload(target, queued.spec, workload.uid, workload.resource_version))
    elif not workload.active:
        queued.wait(inactive_text(workload))
    elif is_admitted(workload) and ctx.tracker.absence.configmap is Known.FOUND:
        # A late object of the attempt has appeared. It is deleted first.
        ctx.tracker.absence.wanted = True
    elif is_admitted(workload):
        queued.act_once(ReadAdmission(target, workload.uid, labels.queue_name, queued.spec))


def _may_have_begun(queued: QueuedFramework) -> bool:
    """Whether the cache shows a ConfigMap of the Framework: a running attempt enters no queue."""
    configmap = queued.ctx.observed.configmap
    return configmap is not None and configmap.identity.controller_uid == queued.ctx.framework.uid


def _is_asked_for(queued: QueuedFramework, workload: WorkloadRecord) -> bool:
    """Whether the Workload is as the Framework needs it."""
    wanted = queued.spec
    found = workload.queued_inputs, workload.queue_name, workload.max_execution_seconds, dict(workload.counts)
    # Another client may have changed the counts.
    if found != (wanted.digest, wanted.queue_name, wanted.max_execution_seconds, wanted.counts):
        return False
    return workload.reserves or (workload.priority_kind, workload.priority_class) == wanted.priority_source


def refuse(queued: QueuedFramework, action: ReadAdmission, why: str) -> None:
    """Keep the Framework out of the queue for some time, as its Pods cannot follow the admission."""
    state = queued.state
    state.conflicts = state.conflicts + 1 if state.conflict_spec is action.spec else 1
    state.conflict, state.conflict_spec = why, action.spec
    state.conflict_until = queued.ctx.env.clock + exponential(_CONFLICT_SEC, _MAX_CONFLICT_SEC, state.conflicts)


def _conflicts(queued: QueuedFramework) -> bool:
    """Whether the Framework stays out of the queue, as it could not use its last admission."""
    state, key = queued.state, queued.target.key
    if not state.conflict:
        return False
    is_over = state.conflict_until <= queued.ctx.env.clock
    is_over |= queued.workload is not None and not queued.workload.reserves
    if is_over or queued.spec is not state.conflict_spec:
        state.conflict = ""
        queued.holds.end_stall(key, QueueReason.ADMISSION_CONFLICT)
        return False
    queued.holds.stalls[key] = Stall(QueueReason.ADMISSION_CONFLICT, state.conflict)
    queued.wait("the Framework could not use its admission: it releases the quota, and is queued again later")
    queued.ctx.tracker.agenda.look(None, state.conflict_until)
    return True


def _problem_of(queued: QueuedFramework, labels: QueueLabels) -> Stall | None:
    """Why the Framework cannot be queued as it is."""
    roles = len(queued.ctx.framework.spec.task_roles)
    if roles > MAX_POD_SETS:
        text = f"A Framework in a queue has at most {MAX_POD_SETS} TaskRoles, and this one has {roles}"
        return Stall(QueueReason.TOO_MANY_ROLES, f"{text}: remove the label {names.QUEUE_NAME}, or join roles")
    if not roles:
        text = "A Framework in a queue has a TaskRole, and this one has none: Kueue cannot admit it"
        return Stall(QueueReason.INVALID, f"{text}; remove the label {names.QUEUE_NAME}, or add a role")
    if (problem := queued.spec.problem) is not None:
        return Stall(QueueReason.INVALID, f"{problem}; write a value, or remove the label {names.QUEUE_NAME}")
    for label, value in ((names.QUEUE_NAME, labels.queue_name), (names.PRIORITY_CLASS, labels.priority_class)):
        if value and not _QUEUE_PATTERN.fullmatch(value):
            text = f"label {label}: {value!r} must be lower case letters, digits, '-' and '.'"
            return Stall(QueueReason.INVALID, text)
    seconds = labels.max_execution_seconds
    if seconds and seconds_in(seconds) is None:
        text = f"label {names.MAX_EXEC_TIME_SECONDS}: {seconds!r} must be a number of seconds, from 1 to 999999999"
        return Stall(QueueReason.INVALID, text)
    return None


def _are_listed(queued: QueuedFramework) -> bool:
    """Whether Workloads are listed. Nothing starts without quota if not: the informer of Workloads tries again."""
    key = queued.target.key
    if queued.unlisted is None:
        if not queued.holds.has_failed(key):
            queued.holds.end_stall(key, QueueReason.UNAVAILABLE)
        return True
    if problem := queued.unlisted.problem:
        needed = f"Cannot list the Workloads of {API_VERSION}, which the label {names.QUEUE_NAME} needs"
        queued.holds.stalls[key] = Stall(QueueReason.UNAVAILABLE, f"{needed}. Is Kueue installed? {problem}")
    return False


def _leave(queued: QueuedFramework, workload: WorkloadRecord) -> None:
    """Delete the Workload, once nothing runs."""
    if queued.is_held_by_others or not queued.confirm_nothing_runs():
        return
    if workload.identity.deleting:
        queued.act_once(RemoveFinalizer(queued.target, workload.uid))
    else:
        version = workload.resource_version
        queued.act_once(Delete(queued.target, workload.uid, unrecorded=True, resource_version=version))


def _watch_end(queued: QueuedFramework) -> None:
    """Stall the Framework if the Workload that it waits for stays, though only finalizers of other clients hold it."""
    if queued.is_held_by_others:
        watch_end(queued.ctx, queued.target, QueueReason.NOT_GONE)


def _look_for_dropped(queued: QueuedFramework) -> None:
    """Read a Workload that the cache has dropped: it is gone, or has lost its label."""
    if queued.state.dropped:
        queued.act_once(ReadWorkload(queued.target, ""))


def completed(queued: QueuedFramework) -> None:
    """Finish the Workload of a completed Framework, once the completion is persisted."""
    ctx, workload = queued.ctx, queued.workload
    if queued.admission is not None:
        queued.state.set_admission(ctx.tracker, None)
    elif workload is None:
        if queued.unlisted is None:
            _look_for_dropped(queued)
    elif (workload.in_use or not workload.finished) and queued.confirm_nothing_runs():
        completion = ctx.attempt.completion_status
        if workload.identity.deleting or ctx.framework.deleting:
            _leave(queued, workload)
        elif completion is not None:
            reason = "Succeeded" if completion.succeeded else "Failed"
            change = ConditionChange(FINISHED, True, reason, completion.diagnostics)
            queued.act_once(Finish(queued.target, workload.uid, change, ctx.env.second))


def inactive_text(workload: WorkloadRecord) -> str:
    """Why the Workload is not active."""
    # Kueue adds its cause. Without one, or after another eviction, a person has set spec.active.
    by_kueue = workload.evicted and workload.evicted.reason.startswith("DeactivatedDueTo")
    why = f" by Kueue ({workload.evicted.reason}): {workload.evicted.message}" if by_kueue else ""
    return f"Workload {workload.name} was deactivated{why}; it is queued again once its spec.active is true"
