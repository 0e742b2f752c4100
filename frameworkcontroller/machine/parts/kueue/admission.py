"""An admitted attempt that runs: its end by Kueue, the quota of its Tasks, and the reports to Kueue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import PodRecord, QueueLabels
from frameworkcontroller.api.status import AdmissionStatus, AdmittedPodSet, State, TaskStatus
from frameworkcontroller.api.workloads import PODS_READY, WorkloadRecord
from frameworkcontroller.machine.kernel.agenda import PERSISTED, TaskKey
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.parts.kueue.workload import (
    CachedWorkload,
    act_once,
    evicted,
    find_workload,
    granted_tasks,
    needed_pods,
    problem_with,
    queue_of,
    queueing_of,
    version_of,
    wanted_spec,
    was_disproved,
    workload_target,
)
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    ChangeRequest,
    ConditionChange,
    Inspect,
    Reclaim,
    Tell,
)
from frameworkcontroller.machine.parts.kueue.workloadspec import is_same

_READY_SEC: Final = 10.0
"""Least time between two changes of the condition PodsReady."""

_PRIORITY_SEC: Final = 5.0
"""Least time between two changes of the priority. Another controller with an older cache may undo each of them."""

_RECLAIM_SEC: Final = 10.0
"""Least time between two steps in which quota of completed Tasks is given back."""


_DEPENDENCIES: Final = "dependsOn"
"""Key of the stall of roles that wait for roles."""


_BETWEEN_PODS: Final = (State.DELETION_PENDING, State.DELETION_REQUESTED, State.DELETING, State.ATTEMPT_COMPLETED)


def running(ctx: Context, record: CachedWorkload) -> None:
    tracker, admission = ctx.tracker, ctx.status.admission
    if admission is None or isinstance(record, NotListed) or queueing_of(ctx).lost is not None:
        return
    if problem_with(record, admission) is not None and not was_disproved(ctx, record):
        act_once(ctx, Inspect(workload_target(ctx), version_of(record)), record)
        return
    waiting: dict[str, list[TaskKey]] = {}
    for key in tracker.holds.waiters(Reason.QUOTA_COUNT):
        waiting.setdefault(key[0], []).append(key)
    for role in admission.pod_sets:
        if role.name in waiting and role.name in tracker.roles:
            _wake_waiters(ctx, role.name, role.available, waiting[role.name])


def follow(ctx: Context, admission: AdmissionStatus) -> None:
    """Keep the Workload of an attempt up to date, after its Tasks have been planned."""
    record = find_workload(ctx)
    if not isinstance(record, WorkloadRecord) or problem_with(record, admission) is not None:
        return
    if (queue := queue_of(ctx)) is not None:
        _keep_priority(ctx, record, queue)
    _tell_readiness(ctx, record)
    _reclaim(ctx, record, admission)


def _out_of_sync(ctx: Context, admission: AdmissionStatus) -> CompletionStatus | None:
    """The end of an attempt whose new Pods would not be those that were admitted."""
    queue = QueueLabels(admission.queue_name)
    wanted = wanted_spec(ctx, queue_of(ctx) or queue)
    for pod_set in admission.pod_sets:
        digest = wanted.digests.get(pod_set.name)
        if digest is not None and pod_set.digest and not is_same(digest, pod_set.digest):
            text = f"WorkloadOutOfSync: the Pods of TaskRole {pod_set.name} are no longer those that Kueue has admitted"
            return evicted(text)
    return None


def watch_gate(ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
    """Stall the Framework while Kueue queues one of its Pods a second time, by itself.

    Kueue cannot start such a Pod, as its Workload would have other labels and annotations for it.
    """
    if not pod.queued:
        ctx.tracker.holds.end_stall(task.key, Reason.POD_QUEUED_TWICE)
        return
    text = (
        f"Pod {pod.name} has the scheduling gate {names.KUEUE_POD_GATE}: Kueue queues it by itself, though it has "
        "admitted the Framework, and never starts it. Configure Kueue as in docs/kueue.md, section Pods that are gated "
        "by accident, then suspend and resume the Framework"
    )
    ctx.tracker.holds.stalls[task.key] = Stall(Reason.POD_QUEUED_TWICE, text)


def _keep_priority(ctx: Context, record: WorkloadRecord, queue: QueueLabels) -> None:
    """Follow a change of the label of the priority class. Kueue allows it while the Workload has one of that kind."""
    label, queueing = queue.priority_class, queueing_of(ctx)
    has_class = record.priority_kind == Kind.WORKLOAD_PRIORITY_CLASS
    is_fixed = has_class != bool(label)
    if is_fixed and queueing.priority_kept != label:
        what = f"{label} was added" if label else "was removed"
        text = f"label {names.PRIORITY_CLASS}: the priority class {what}, which counts from the next admission"
        ctx.record(Reason.PRIORITY_KEPT, f"{text}: Kueue lets no Workload with quota get or lose one")
    queueing.priority_kept = label if is_fixed else None
    if has_class and label and record.priority_class != label:
        if queueing.priority_until > ctx.env.clock:
            ctx.tracker.agenda.look(None, queueing.priority_until)
            return
        queueing.priority_until = ctx.env.clock + _PRIORITY_SEC
        wanted = wanted_spec(ctx, queue)
        act_once(ctx, ChangeRequest(workload_target(ctx), wanted, record.uid, record.resource_version, True), record)


def _reclaim(ctx: Context, record: WorkloadRecord, admission: AdmissionStatus) -> None:
    """Give the quota of Tasks back that need no Pod again in this attempt.

    Their completion, or their end by a ScaleDown, is persisted with the number, before the change of the Workload. A
    later attempt, which runs all Tasks, waits for another admission.
    """
    tracker, queueing = ctx.tracker, queueing_of(ctx)
    pod_sets = [replace(one, reclaimed=_reclaimed(ctx, one)) for one in admission.pod_sets]
    if pod_sets != admission.pod_sets:
        if queueing.reclaimed_until > ctx.env.clock:
            ctx.tracker.agenda.look(None, queueing.reclaimed_until)
        else:
            queueing.reclaimed_until = ctx.env.clock + _RECLAIM_SEC
            queueing.reclaim(tracker, replace(admission, pod_sets=pod_sets))
            return
    known, counts = dict(record.reclaimed), dict(record.counts)
    behind = (min(one.reclaimed, counts.get(one.name, 0)) > known.get(one.name, 0) for one in admission.pod_sets)
    if not any(behind):
        return
    if tracker.is_head_settled:
        act_once(ctx, Reclaim(workload_target(ctx), admission), record)
    else:
        tracker.agenda.look(None, PERSISTED)
        tracker.hasten()


def _reclaimed(ctx: Context, admitted: AdmittedPodSet) -> int:
    return max(admitted.reclaimed, admitted.count - needed_pods(ctx, admitted.name))


def _tell_readiness(ctx: Context, record: WorkloadRecord) -> None:
    """Say whether all Tasks of the roles that have started run. A Kueue that waits for that evicts otherwise.

    Kueue measures WaitForStart from the admission, so that a later attempt of the same admission says WaitForRecovery.
    """
    admission = ctx.status.admission
    if admission is None or ctx.status.state not in (State.PREPARING, State.RUNNING):
        return
    queueing, last = queueing_of(ctx), record.pods_ready
    ready = _is_ready(ctx, admission)
    attempt = f"FrameworkAttempt {ctx.attempt.id}"
    is_of_attempt = last.message.startswith(f"{attempt}:")
    recovers = last.reason in ("WaitForRecovery", "Recovered") or (bool(last) and not ready)
    if last.status == ("True" if ready else "False") and (is_of_attempt or not ready):
        return
    if not last.status and not ready:
        # Kueue waits for the first one anyway.
        return
    if queueing.ready_until > ctx.env.clock:
        ctx.tracker.agenda.look(None, queueing.ready_until)
        return
    if ready:
        change = ConditionChange(PODS_READY, True, "Recovered" if recovers else "Started", f"{attempt}: all Tasks run")
    else:
        reason = "WaitForRecovery" if recovers else "WaitForStart"
        change = ConditionChange(PODS_READY, False, reason, f"{attempt}: some Tasks do not run")
    if act_once(ctx, Tell(workload_target(ctx), record.uid, change, ctx.env.second), record):
        queueing.ready_until = ctx.env.clock + _READY_SEC


def _is_ready(ctx: Context, admission: AdmissionStatus) -> bool:
    """Whether all Tasks that may run do, or have completed. Roles that wait for others do not count."""
    missing, states = 0, ctx.tracker.task_states
    for spec in ctx.framework.spec.task_roles:
        counts = ctx.tracker.role_counts.get(spec.name)
        if counts is None or (spec.depends_on and not ctx.has_started(spec.name)):
            continue
        left = counts.total - counts.succeeded - counts.failed
        missing += max(0, min(left, admission.available(spec.name)) - counts.running)
    # Tasks whose Pods have ended complete next, or wait for their retry, and not for a node.
    return missing <= sum(states[state] for state in _BETWEEN_PODS)


def _wake_waiters(ctx: Context, role: str, count: int, waiters: list[TaskKey]) -> None:
    """Plan as many Tasks that wait for quota as may have a Pod now."""
    free = count - len(granted_tasks(ctx, role))
    if free > 0:
        ctx.tracker.agenda.wake(sorted(waiters)[:free])


def must_evict(ctx: Context) -> CompletionStatus | None:
    """Why the attempt of an admitted Framework ends: its admission is over, or is not for its spec."""
    admission = ctx.status.admission
    if admission is None or ctx.framework.deleting or not ctx.env.limits.kueue:
        return None
    if queueing_of(ctx).lost is None and ctx.framework.invalid:
        # What its Pods would be is not known, and none is created.
        return None
    return queueing_of(ctx).lost or _out_of_sync(ctx, admission)


def only_unadmitted(ctx: Context) -> CompletionStatus | None:
    """Why an attempt ends whose last Tasks are of roles that were added since its admission: they would never begin.

    Nor would those of roles that wait for them.
    """
    admission = ctx.status.admission
    if admission is None:
        return None
    counts = ctx.tracker.role_counts
    left = {name: one.total - one.succeeded - one.failed for name, one in counts.items()}
    roles = sorted(name for name, number in left.items() if number and not admission.available(name))
    if not roles:
        return None
    never = {*roles, *_waiting_for(ctx, roles)}
    if any(number for name, number in left.items() if name not in never):
        return None
    text = f"only Tasks of TaskRole {', '.join(roles)} are left, which have no quota"
    if waiting := sorted(never.difference(roles)):
        text += f", and of {', '.join(waiting)}, which wait for them"
    return evicted(f"WorkloadOutOfSync: {text}")


def _waiting_for(ctx: Context, roles: Iterable[str]) -> set[str]:
    """The roles that wait for these, or for a role that does. Costs the number of dependencies."""
    waiters: dict[str, list[str]] = {}
    for part in ctx.parts.role_waits:
        for wait in part.role_waits(ctx):
            waiters.setdefault(wait.other, []).append(wait.role)
    found: set[str] = set()
    left = list(roles)
    while left:
        for role in waiters.pop(left.pop(), ()):
            if role not in found:
                found.add(role)
                left.append(role)
    return found


def stall_dependents(ctx: Context, admission: AdmissionStatus) -> None:
    """Stall while a role waits for another one to be Ready that has more Tasks than Kueue has admitted.

    That comes about only if Tasks complete, which those that others wait for mostly do not.
    """
    for wait in (wait for part in ctx.parts.role_waits for wait in part.role_waits(ctx) if wait.until_ready):
        count, needed = admission.available(wait.other), needed_pods(ctx, wait.other)
        if count < needed:
            ctx.tracker.holds.stalls[_DEPENDENCIES] = Stall(
                Reason.DEPENDENCY_NOT_ADMITTED,
                f"TaskRole {wait.role} waits until TaskRole {wait.other} is Ready, and Kueue has admitted {count} of "
                f"its {needed} Tasks for this FrameworkAttempt: set spec.suspend to true and back, and the next one "
                "asks for all",
            )
            return
