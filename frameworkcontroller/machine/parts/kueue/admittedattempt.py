"""An admitted attempt that runs: its end by Kueue, the quota of its Tasks, and the reports to Kueue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.status import AdmissionStatus, AdmittedPodSet, State, TaskStatus
from frameworkcontroller.api.workloads import PODS_READY, WorkloadRecord
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.context import SHOW_CHECKPOINT_SEC, Context
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.parts.kueue.queueing import (
    QueuedFramework,
    QueueReason,
    evicted,
    granted_tasks,
    needed_pods,
    problem_with,
)
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    ReadWorkload,
    Reclaim,
    SetCondition,
    ShowCheckpoint,
    UpdateWorkload,
)
from frameworkcontroller.machine.parts.kueue.workloadbodies import ConditionChange
from frameworkcontroller.machine.parts.kueue.workloadspec import is_same

_READY_SEC: Final = 10.0
"""Least time between two changes of the condition PodsReady."""

_PRIORITY_SEC: Final = 5.0
"""Least time between two changes of the priority. Another controller with an older cache may undo each of them."""

_RECLAIM_SEC: Final = 10.0
"""Least time between two releases of the quota of completed Tasks."""

DEPENDENCIES: Final = "dependsOn"
"""Key of the stall of roles that wait for roles."""

_BETWEEN_PODS: Final = (State.DELETION_PENDING, State.DELETION_REQUESTED, State.DELETING, State.ATTEMPT_COMPLETED)


# --- before the Tasks are planned -------------------------------------------------------------------------------


def running(queued: QueuedFramework) -> None:
    """Check that the admission holds. Plan Tasks that wait for quota, as far as some is free."""
    ctx, admission = queued.ctx, queued.admission
    if admission is None or queued.unlisted is not None or queued.state.lost is not None:
        return
    if problem_with(queued.workload, admission) is not None and not queued.is_disproved:
        queued.act_once(ReadWorkload(queued.target, queued.version))
        return
    waiting: dict[str, list[TaskKey]] = {}
    for key in queued.holds.waiters(QueueReason.QUOTA_COUNT):
        waiting.setdefault(key[0], []).append(key)
    for role in admission.pod_sets:
        if role.name in waiting and role.name in ctx.tracker.roles:
            free = role.available - len(granted_tasks(ctx, role.name))
            ctx.tracker.agenda.wake(sorted(waiting[role.name])[: max(0, free)])


# --- the end of the attempt ---------------------------------------------------------------------------------------


def must_evict(ctx: Context) -> CompletionStatus | None:
    """Why the attempt of an admitted Framework ends: its admission is over, or is not for its spec."""
    if (admission := ctx.status.admission) is None or ctx.framework.deleting or not ctx.env.limits.kueue:
        return None
    queued = QueuedFramework(ctx)
    if queued.state.lost is not None or ctx.framework.invalid:
        # With an invalid spec, no Pod is created.
        return queued.state.lost
    wanted = queued.spec
    for pod_set in admission.pod_sets:
        digest = wanted.digests.get(pod_set.name)
        if digest is not None and pod_set.digest and not is_same(digest, pod_set.digest):
            text = f"WorkloadOutOfSync: the Pods of TaskRole {pod_set.name} are no longer those that Kueue has admitted"
            return evicted(text)
    return None


def only_unadmitted(ctx: Context) -> CompletionStatus | None:
    """Why an attempt ends if its last Tasks are of roles that were added since its admission, or that wait for such.

    They would never begin.
    """
    if (admission := ctx.status.admission) is None:
        return None
    counts = ctx.tracker.role_counts
    left = {name for name, one in counts.items() if one.total > one.succeeded + one.failed}
    roles = sorted(name for name in left if not admission.available(name))
    waiting = _waiting_for(ctx, roles).difference(roles)
    if not roles or not left <= waiting.union(roles):
        return None
    text = f"only Tasks of TaskRole {', '.join(roles)} are left, which have no quota"
    if waiting:
        text += f", and of {', '.join(sorted(waiting))}, which wait for them"
    return evicted(f"WorkloadOutOfSync: {text}")


def _waiting_for(ctx: Context, roles: Iterable[str]) -> set[str]:
    """The roles that wait for these, or for a role that does. Costs the number of dependencies."""
    waiters: dict[str, list[str]] = {}
    found: set[str] = set()
    left = list(roles)
    for wait in ctx.role_waits() if left else ():
        waiters.setdefault(wait.other, []).append(wait.role)
    while left:
        fresh = set(waiters.pop(left.pop(), ())) - found
        found |= fresh
        left += fresh
    return found


# --- after the Tasks are planned ------------------------------------------------------------------------------------


def watch_gate(ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
    """Stall the Framework while Kueue queues one of its Pods a second time, by itself.

    Kueue cannot start such a Pod, as its Workload would have other labels and annotations for it.
    """
    if not pod.queued:
        ctx.tracker.holds.end_stall(task.key, QueueReason.POD_QUEUED_TWICE)
        return
    text = (
        f"Pod {pod.name} has the scheduling gate {names.KUEUE_POD_GATE}: Kueue queues it by itself, though it has "
        "admitted the Framework, and never starts it. Configure Kueue as in docs/kueue.md, section Pods that are gated "
        "by accident, then suspend and resume the Framework"
    )
    ctx.tracker.holds.stalls[task.key] = Stall(QueueReason.POD_QUEUED_TWICE, text)


def stall_dependents(ctx: Context, admission: AdmissionStatus) -> None:
    """Stall while a role waits for another one to be Ready that has more Tasks than Kueue has admitted."""
    for wait in ctx.role_waits():
        count, needed = admission.available(wait.other), needed_pods(ctx, wait.other)
        if wait.until_ready and count < needed:
            text = (
                f"TaskRole {wait.role} waits until TaskRole {wait.other} is Ready, and Kueue has admitted {count} of "
                f"its {needed} Tasks for this FrameworkAttempt: set spec.suspend to true and back, and the next one "
                "asks for all"
            )
            ctx.tracker.holds.stalls[DEPENDENCIES] = Stall(QueueReason.DEPENDENCY_NOT_ADMITTED, text)
            return


def follow(queued: QueuedFramework, admission: AdmissionStatus) -> None:
    """Keep the Workload of an attempt up to date."""
    workload = queued.workload
    if workload is None or problem_with(workload, admission) is not None:
        return
    if queued.labels is not None:
        _keep_priority(queued, workload, queued.labels.priority_class)
    _tell_readiness(queued, workload, admission)
    _reclaim(queued, workload, admission)
    _show_checkpoint(queued, workload)


def _keep_priority(queued: QueuedFramework, workload: WorkloadRecord, label: str) -> None:
    """Follow a change of the label of the priority class. Kueue allows it while the Workload has one of that kind."""
    state = queued.state
    has_class = workload.priority_kind == Kind.WORKLOAD_PRIORITY_CLASS
    is_fixed = has_class != bool(label)
    if is_fixed and state.priority_kept != label:
        what = f"{label} was added" if label else "was removed"
        text = f"label {names.PRIORITY_CLASS}: the priority class {what}, which counts from the next admission"
        queued.ctx.record(QueueReason.PRIORITY_KEPT, f"{text}: Kueue lets no Workload with quota get or lose one")
    state.priority_kept = label if is_fixed else None
    if has_class and label and workload.priority_class != label and not queued.is_paced("priority"):
        queued.pace("priority", _PRIORITY_SEC)
        queued.act_once(UpdateWorkload(queued.target, queued.spec, workload.uid, workload.resource_version, True))


def _reclaim(queued: QueuedFramework, workload: WorkloadRecord, admission: AdmissionStatus) -> None:
    """Release the quota of Tasks that need no Pod again in this attempt. The next one waits for another admission.

    Their completion, or their end by a ScaleDown, is persisted with the number, before the change of the Workload.
    """
    tracker, state = queued.ctx.tracker, queued.state
    pod_sets = [replace(one, reclaimed=_reclaimed(queued.ctx, one)) for one in admission.pod_sets]
    if pod_sets != admission.pod_sets and not queued.is_paced("reclaim"):
        queued.pace("reclaim", _RECLAIM_SEC)
        state.reclaim(tracker, replace(admission, pod_sets=pod_sets))
        return
    known, counts = dict(workload.reclaimed), dict(workload.counts)
    if all(min(one.reclaimed, counts.get(one.name, 0)) <= known.get(one.name, 0) for one in admission.pod_sets):
        return
    if queued.ctx.persist_head_first():
        queued.act_once(Reclaim(queued.target, workload.uid, admission))


def _reclaimed(ctx: Context, admitted: AdmittedPodSet) -> int:
    return max(admitted.reclaimed, admitted.count - needed_pods(ctx, admitted.name))


def _tell_readiness(queued: QueuedFramework, workload: WorkloadRecord, admission: AdmissionStatus) -> None:
    """Report whether all Tasks of the started roles run. If configured so, Kueue evicts a Framework otherwise.

    Kueue measures WaitForStart from the admission, so a later attempt of the same admission has WaitForRecovery.
    """
    ctx, last = queued.ctx, workload.pods_ready
    if ctx.status.state not in (State.PREPARING, State.RUNNING):
        return
    ready = _is_ready(ctx, admission)
    attempt = f"FrameworkAttempt {ctx.attempt.id}"
    is_of_attempt = last.message.startswith(f"{attempt}:")
    if last.status == ("True" if ready else "False") and (is_of_attempt or not ready):
        return
    if not last.status and not ready:
        # Kueue waits for the first one anyway.
        return
    if queued.is_paced("readiness"):
        return
    recovers = last.reason in ("WaitForRecovery", "Recovered") or (bool(last) and not ready)
    if ready:
        reason, text = "Recovered" if recovers else "Started", "all Tasks run"
    else:
        reason, text = "WaitForRecovery" if recovers else "WaitForStart", "some Tasks do not run"
    change = ConditionChange(PODS_READY, ready, reason, f"{attempt}: {text}")
    if queued.act_once(SetCondition(queued.target, workload.uid, change, ctx.env.second)):
        queued.pace("readiness", _READY_SEC)


def _show_checkpoint(queued: QueuedFramework, workload: WorkloadRecord) -> None:
    """Show the attempt's last checkpoint on the Workload, for schedulers that choose whom to preempt."""
    time = queued.ctx.checkpoint_time
    if not time or workload.last_checkpoint == time or queued.is_paced("checkpoint"):
        return
    if queued.act_once(ShowCheckpoint(queued.target, workload.uid, time)):
        queued.pace("checkpoint", SHOW_CHECKPOINT_SEC)


def _is_ready(ctx: Context, admission: AdmissionStatus) -> bool:
    """Whether all Tasks that may run do, or have completed. Roles that wait for others do not count."""
    missing, states = 0, ctx.tracker.task_states
    for spec in ctx.framework.spec.task_roles:
        counts = ctx.tracker.role_counts.get(spec.name)
        if counts is None or (spec.depends_on and not ctx.has_started(spec.name)):
            continue
        left = counts.total - counts.completed
        missing += max(0, min(left, admission.available(spec.name)) - counts.running)
    # Tasks whose Pods have ended complete next, or wait for their retry, and not for a node.
    return missing <= sum(states[state] for state in _BETWEEN_PODS)
