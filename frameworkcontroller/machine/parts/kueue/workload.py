"""The Workload of a Framework in the cache, and helpers of all modules of the queue."""

from __future__ import annotations

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import FRAMEWORK_EVICTED, CompletionStatus
from frameworkcontroller.api.objects import QueueLabels
from frameworkcontroller.api.status import AdmissionStatus, State
from frameworkcontroller.api.workloads import WorkloadRecord, workload_name
from frameworkcontroller.machine.kernel.absence import look_for_pods, nothing_runs
from frameworkcontroller.machine.kernel.actions import Action
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Wait
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.target import Target
from frameworkcontroller.machine.parts.kueue.queueing import Queueing
from frameworkcontroller.machine.parts.kueue.workloadspec import WorkloadSpec, workload_spec

CachedWorkload = WorkloadRecord | NotListed | None
"""The Workload in the cache; NotListed: its kind is not listed yet."""


def queueing_of(ctx: Context) -> Queueing:
    """The state of the queueing of the Framework."""
    return ctx.tracker.part(Queueing)


def workload_target(ctx: Context) -> Target:
    """The Workload of the Framework."""
    return Target(Kind.WORKLOAD, workload_name(ctx.framework.name, ctx.framework.uid))


def queue_of(ctx: Context) -> QueueLabels | None:
    """The queue labels of the Framework, None without a queue."""
    return ctx.framework.queue


def find_workload(ctx: Context) -> CachedWorkload:
    """The Workload in the cache, None if there is none, or it is another owner's."""
    target = workload_target(ctx)
    found = ctx.observed.find_companion(target.kind, target.name)
    if isinstance(found, WorkloadRecord) and found.identity.controller_uid == ctx.framework.uid:
        return found
    return found if isinstance(found, NotListed) else None


def wanted_spec(ctx: Context, queue: QueueLabels) -> WorkloadSpec:
    """The spec of the Workload, computed once for each generation and labels."""
    queueing = queueing_of(ctx)
    if queueing.spec is None:
        queueing.spec = workload_spec(ctx.framework, queue)
    return queueing.spec


def wait_for_quota(ctx: Context, text: str) -> None:
    """Let the attempt not begin. ``text``: the reason."""
    queueing_of(ctx).wait = Wait(Reason.QUOTA_PENDING, text)


def act_once(ctx: Context, action: Action, record: WorkloadRecord | None) -> bool:
    """Add the action, unless another one is planned, or the cache does not show the effect of the same one yet.

    Return whether it was added.
    """
    acted, name, version = queueing_of(ctx).acted, type(action).__name__, version_of(record)
    if (until := ctx.tracker.holds.until(action.target.key)) > ctx.env.clock:
        ctx.tracker.agenda.look(None, until)
    elif acted.get(name) != version and all(one.target != action.target for one in ctx.plan.actions):
        acted[name] = version
        ctx.plan.actions.append(action)
        return True
    return False


def version_of(record: WorkloadRecord | None) -> str:
    """The resourceVersion in the cache, "" if it shows none."""
    return "" if record is None else record.resource_version


def problem_with(record: WorkloadRecord | None, admission: AdmissionStatus) -> str | None:
    """Why the admission is over, by what the Workload says; None if it is not."""
    if record is None or record.uid != admission.workload_uid:
        return f"Workload {admission.workload_name} is gone"
    if record.evicted:
        return f"Kueue has evicted the Framework ({record.evicted.reason}): {record.evicted.message}"
    if record.identity.deleting:
        return f"Workload {record.name} is being deleted"
    if record.finished:
        return f"Workload {record.name} was set to Finished ({record.finished.reason}): {record.finished.message}"
    if not record.admitted:
        return f"Workload {record.name} is no longer admitted ({record.admitted.reason}): {record.admitted.message}"
    return None


def evicted(text: str) -> CompletionStatus:
    """The end of an attempt whose admission is over."""
    return CompletionStatus.of(FRAMEWORK_EVICTED, text)


def was_disproved(ctx: Context, record: WorkloadRecord | None) -> bool:
    """Whether a live read has shown that the cache is behind."""
    return queueing_of(ctx).disproved == version_of(record)


def ask_whether_nothing_runs(ctx: Context) -> bool:
    """Whether quota may be given back: all is persisted, and nothing of the Framework runs. If unknown, look."""
    ctx.tracker.absence.wanted = True
    look_for_pods(ctx)
    if not ctx.tracker.is_clean:
        ctx.tracker.persist_first(None)
        return False
    return nothing_runs(ctx.tracker)


def needed_pods(ctx: Context, role: str) -> int:
    """Number of Tasks of the role that have a Pod, or need one in this attempt: all but the completed ones."""
    known, counts = ctx.tracker.roles.get(role), ctx.tracker.role_counts.get(role)
    return 0 if known is None or counts is None else len(known.tasks) - counts.succeeded - counts.failed


def granted_tasks(ctx: Context, role: str) -> set[int]:
    """The Tasks of the role that have a Pod, or may have one. Costs their number once."""
    known = queueing_of(ctx).granted
    granted = known.get(role)
    if granted is None:
        granted = known[role] = set()
        for task in ctx.tracker.roles[role].tasks:
            pod = names.pod_name(ctx.framework.name, role, task.index)
            holds_pod = task.state not in (State.CREATION_PENDING, *ENDED)
            if holds_pod or ctx.observed.find_pod(pod) is not None:
                granted.add(task.index)
    return granted


def is_held_by_others(record: WorkloadRecord | None) -> bool:
    """Whether the Workload is being deleted, and only finalizers of others keep it."""
    return record is not None and record.identity.deleting and not record.in_use
