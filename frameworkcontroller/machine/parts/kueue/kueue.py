"""The protocol with Kueue: when a Framework enters its queue, begins, ends, and gives its quota back.

A Framework with the label ``kueue.x-k8s.io/queue-name`` has a Workload, which Kueue admits, evicts, or leaves waiting.
This table is the whole protocol; the actions are in workloads.py. Before an admission is taken, or believed to be over,
the Workload is read live, as the cache may be behind.

==========================  ===========================  ==============================================================
the Framework               its Workload                 what is done
==========================  ===========================  ==============================================================
may start, is not admitted  none                         EnterQueue
(the same)                  not ours                     stall NamingConflict
(cannot be counted)         any                          stall; *release*: Delete
(the same)                  no quota, another request    ChangeRequest
(the same)                  quota for another request    *release*: Delete
(the same)                  waits                        wait; its conditions are shown
(the same)                  admitted                     ReadAdmission, persist ``status.admission``, begin
(the same)                  admitted, but contradicts    *release*: Delete; EnterQueue after a back-off, or once
                            the Pods                     something else is asked for
runs, is admitted           evicted, deleted, finished,  Inspect; end the attempt with -241, which is persisted before
                            gone, or another one         anything is deleted
(the same)                  for another template         the same, as WorkloadOutOfSync
(the same)                  of another priority          ChangeRequest (priority only)
(the same)                  with a class and no label,   record PriorityKept: it counts from the next admission
                            or the reverse
(the same)                  any, and gates a Pod itself  stall PodQueuedTwice
(the same)                  for more Tasks than may run  lower ``status.admission``, persist that, Reclaim
(the same)                  any                          Tell PodsReady
runs, is not admitted       any                          nothing: it enters the queue after this attempt
nothing runs, is admitted   admitted, as asked           nothing: a retry of its own keeps the quota, unless some
                                                         was given back by Reclaim: as below
(the same)                  as for -241, or something    persist the end of ``status.admission``, then as below
                            else is asked for
nothing runs, not admitted  evicted, has quota           *release*: GiveBack
(the same)                  after a Reclaim              *release*: GiveBack; it keeps its place in the queue
(the same)                  is being deleted             *release*: LetGo
suspended, not to start,    any                          *release*: Delete, then LetGo
deleted, without the label
or with an invalid spec
completed                   any                          *release*: Finish
gone                        with the finalizer           *release*, see orphans.py
==========================  ===========================  ==============================================================

A *release* gives quota back. It needs all of this: the end of the attempt and the absence of ``status.admission`` are
persisted, nothing of the Framework runs (``Tracker.nothing_runs``), and a live read of the Framework confirms that.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import FRAMEWORK_EVICTED, CompletionStatus
from frameworkcontroller.api.objects import PodRecord, QueueLabels
from frameworkcontroller.api.spec import DependencyStatus, ExecutionType
from frameworkcontroller.api.status import AdmissionStatus, AdmittedPodSet, State, TaskStatus
from frameworkcontroller.api.workloads import (
    FINISHED,
    PODS_READY,
    WorkloadCondition,
    WorkloadRecord,
    workload_name,
)
from frameworkcontroller.backoff import exponential
from frameworkcontroller.machine.kernel.actions import (
    Action,
    Delete,
    Target,
)
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.companions import watch_end
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import DEPENDENCIES, Stall, Wait
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.states import ENDED, LIVE
from frameworkcontroller.machine.parts.dependencies import dependencies
from frameworkcontroller.machine.parts.kueue.queueing import NOT_LOOKED_AT, ShownCondition
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    API_VERSION,
    MAX_POD_SETS,
    ChangeRequest,
    ConditionChange,
    EnterQueue,
    Finish,
    GiveBack,
    Inspect,
    LetGo,
    ReadAdmission,
    Reclaim,
    Tell,
    WorkloadSpec,
    is_admitted,
    is_same,
    seconds_in,
    workload_spec,
)

_READY_SEC: Final = 10.0
"""Least time between two changes of the condition PodsReady."""

_PRIORITY_SEC: Final = 5.0
"""Least time between two changes of the priority. Another controller with an older cache may undo each of them."""

_RECLAIM_SEC: Final = 10.0
"""Least time between two steps in which quota of completed Tasks is given back."""

_CONFLICT_SEC: Final = 60.0
_MAX_CONFLICT_SEC: Final = 3600.0
"""First and longest time until a Framework is queued again whose admission contradicted its Pods."""

_NO_RESERVATION: Final = "NoReservation"

_BETWEEN_PODS: Final = (State.DELETION_PENDING, State.DELETION_REQUESTED, State.DELETING, State.ATTEMPT_COMPLETED)

_QUEUE_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_Cached = WorkloadRecord | NotListed | None


# --- one plan ---------------------------------------------------------------------------------------------------


def step(ctx: Context) -> None:
    """Do what is due in the queue. Sets ``Queueing.wait`` while the attempt must not begin."""
    tracker, queueing = ctx.tracker, ctx.tracker.queueing
    queueing.wait, queueing.look_up = None, False
    if not ctx.env.limits.kueue:
        if ctx.status.state in (State.CREATION_PENDING, *ENDED):
            # The labels no longer count.
            tracker.set_admission(None)
        return
    if _queue(ctx) is None and ctx.status.admission is None and queueing.known is False:
        queueing.shown = None
        queueing.stepped = True
        return
    if queueing.labels != ctx.framework.queue:
        queueing.labels, queueing.spec = ctx.framework.queue, None
        tracker.holds.release(_target(ctx).key)
    record = _find(ctx)
    if not isinstance(record, NotListed):
        queueing.known = record is not None or _target(ctx) in tracker.companions
    if record is not None:
        queueing.dropped = False
    if not isinstance(record, NotListed) and not _is_held_by_others(record):
        tracker.holds.end_stall(_target(ctx).key, Reason.WORKLOAD_NOT_GONE)
    if ctx.status.state is State.COMPLETED:
        _completed(ctx, record)
    elif ctx.status.state in (State.CREATION_PENDING, State.ATTEMPT_COMPLETED):
        _between_attempts(ctx, record)
    elif not tracker.is_completing and not ctx.framework.deleting:
        _running(ctx, record)
    queueing.shown = _conditions(ctx, record)
    queueing.stepped = True


def _target(ctx: Context) -> Target:
    return Target(Kind.WORKLOAD, workload_name(ctx.framework.name, ctx.framework.uid))


def _queue(ctx: Context) -> QueueLabels | None:
    """What the labels ask for."""
    return ctx.framework.queue


def _find(ctx: Context) -> _Cached:
    target = _target(ctx)
    found = ctx.observed.find_companion(target.kind, target.name)
    if isinstance(found, WorkloadRecord) and found.identity.controller_uid == ctx.framework.uid:
        return found
    return found if isinstance(found, NotListed) else None


def _wanted(ctx: Context, queue: QueueLabels) -> WorkloadSpec:
    """The spec of the Workload, computed once for each generation and labels."""
    queueing = ctx.tracker.queueing
    if queueing.spec is None:
        queueing.spec = workload_spec(ctx.framework, queue)
    return queueing.spec


def _wait(ctx: Context, text: str) -> None:
    ctx.tracker.queueing.wait = Wait(Reason.QUOTA_PENDING, text)


def _act(ctx: Context, action: Action, record: WorkloadRecord | None) -> bool:
    """Add the action, unless another one is planned, or the cache does not show the effect of the same one yet.

    Return whether it was added.
    """
    acted, name, version = ctx.tracker.queueing.acted, type(action).__name__, _version(record)
    if (until := ctx.tracker.holds.until(action.target.key)) > ctx.env.clock:
        ctx.requeue_at(until)
    elif acted.get(name) != version and all(one.target != action.target for one in ctx.plan.actions):
        acted[name] = version
        ctx.plan.actions.append(action)
        return True
    return False


def _version(record: WorkloadRecord | None) -> str:
    """The resourceVersion in the cache, "" if it shows none."""
    return "" if record is None else record.resource_version


# --- gates ------------------------------------------------------------------------------------------------------


def pending(ctx: Context) -> Wait | None:
    """Why the attempt of a queued Framework does not begin yet."""
    return ctx.tracker.queueing.wait


def must_evict(ctx: Context) -> CompletionStatus | None:
    """Why the attempt of an admitted Framework ends: its admission is over, or is not for its spec."""
    admission = ctx.status.admission
    if admission is None or ctx.framework.deleting or not ctx.env.limits.kueue:
        return None
    if ctx.tracker.queueing.lost is None and ctx.framework.invalid:
        # What its Pods would be is not known, and none is created.
        return None
    return ctx.tracker.queueing.lost or _out_of_sync(ctx, admission)


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
    never = {*roles, *dependencies.waiting_for(ctx, roles)}
    if any(number for name, number in left.items() if name not in never):
        return None
    text = f"only Tasks of TaskRole {', '.join(roles)} are left, which have no quota"
    if waiting := sorted(never.difference(roles)):
        text += f", and of {', '.join(waiting)}, which wait for them"
    return evicted(f"WorkloadOutOfSync: {text}")


def stall_dependents(ctx: Context) -> None:
    """Stall while a role waits for another one to be Ready that has more Tasks than Kueue has admitted.

    That comes about only if Tasks complete, which those that others wait for mostly do not.
    """
    admission = ctx.status.admission
    if admission is None:
        return
    for role, other in dependencies.awaited(ctx, DependencyStatus.READY):
        count, needed = admission.available(other), _needed(ctx, other)
        if count < needed:
            ctx.tracker.holds.stalls[DEPENDENCIES] = Stall(
                Reason.DEPENDENCY_NOT_ADMITTED,
                f"TaskRole {role} waits until TaskRole {other} is Ready, and Kueue has admitted {count} of its "
                f"{needed} Tasks for this FrameworkAttempt: set spec.suspend to true and back, and the next one asks "
                "for all",
            )
            return


def count_wait(ctx: Context, task: TaskStatus) -> Wait | None:
    """Why a Task that was added after the admission has no Pod yet: as many as were admitted may have one."""
    admission = ctx.status.admission
    if admission is None:
        return None
    count = admission.available(task.role)
    if _needed(ctx, task.role) <= count:
        if (known := ctx.tracker.granted.get(task.role)) is not None:
            known.add(task.index)
        return None
    granted = _granted(ctx, task.role)
    if task.index in granted:
        return None
    if len(granted) < count:
        granted.add(task.index)
        return None
    text = f"TaskRole {task.role} has quota for {count} of its Tasks at once: others wait for the next FrameworkAttempt"
    return Wait(Reason.QUOTA_COUNT, f"{text}, or for the end of a Task")


def _needed(ctx: Context, role: str) -> int:
    """Number of Tasks of the role that have a Pod, or need one in this attempt: all but the completed ones."""
    known, counts = ctx.tracker.roles.get(role), ctx.tracker.role_counts.get(role)
    return 0 if known is None or counts is None else len(known.tasks) - counts.succeeded - counts.failed


def count_admitted(ctx: Context, role: str, live: int) -> int:
    """How many of the ``live`` Tasks of a role may have a Pod now: others wait for ``count_wait``.

    A role with more Tasks than were admitted costs the number that was.
    """
    admission = ctx.status.admission
    if admission is None or _needed(ctx, role) <= (count := admission.available(role)):
        return live
    # Those that end still have a Pod, for hours on a lost node.
    tasks = (ctx.tracker.task((role, index)) for index in _granted(ctx, role))
    ending = sum(task is not None and (task.deletion_pending or task.state not in LIVE) for task in tasks)
    return max(0, min(live, count - ending))


def _granted(ctx: Context, role: str) -> set[int]:
    """The Tasks of the role that have a Pod, or may have one. Costs their number once; the tracker keeps them."""
    granted = ctx.tracker.granted.get(role)
    if granted is None:
        granted = ctx.tracker.granted[role] = set()
        for task in ctx.tracker.roles[role].tasks:
            pod = names.pod_name(ctx.framework.name, role, task.index)
            holds_pod = task.state not in (State.CREATION_PENDING, *ENDED)
            if holds_pod or ctx.observed.find_pod(pod) is not None:
                granted.add(task.index)
    return granted


# --- an attempt runs --------------------------------------------------------------------------------------------


def _running(ctx: Context, record: _Cached) -> None:
    tracker, admission = ctx.tracker, ctx.status.admission
    if admission is None or isinstance(record, NotListed) or tracker.queueing.lost is not None:
        return
    if problem_with(record, admission) is not None and not _was_disproved(ctx, record):
        _act(ctx, Inspect(_target(ctx), _version(record)), record)
        return
    waiting: dict[str, list[TaskKey]] = {}
    for key in tracker.holds.waiters(Reason.QUOTA_COUNT):
        waiting.setdefault(key[0], []).append(key)
    for role in admission.pod_sets:
        if role.name in waiting and role.name in tracker.roles:
            _wake_waiters(ctx, role.name, role.available, waiting[role.name])


def follow(ctx: Context) -> None:
    """Keep the Workload of an attempt up to date. To be called after its Tasks have been planned."""
    admission, record = ctx.status.admission, _find(ctx)
    if admission is None or not isinstance(record, WorkloadRecord) or problem_with(record, admission) is not None:
        return
    if (queue := _queue(ctx)) is not None:
        _keep_priority(ctx, record, queue)
    _tell_readiness(ctx, record)
    _reclaim(ctx, record, admission)


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


def _out_of_sync(ctx: Context, admission: AdmissionStatus) -> CompletionStatus | None:
    """The end of an attempt whose new Pods would not be those that were admitted."""
    queue = QueueLabels(admission.queue_name)
    wanted = _wanted(ctx, _queue(ctx) or queue)
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
    label, queueing = queue.priority_class, ctx.tracker.queueing
    has_class = record.priority_kind == Kind.WORKLOAD_PRIORITY_CLASS
    is_fixed = has_class != bool(label)
    if is_fixed and queueing.priority_kept != label:
        what = f"{label} was added" if label else "was removed"
        text = f"label {names.PRIORITY_CLASS}: the priority class {what}, which counts from the next admission"
        ctx.record(Reason.PRIORITY_KEPT, f"{text}: Kueue lets no Workload with quota get or lose one")
    queueing.priority_kept = label if is_fixed else None
    if has_class and label and record.priority_class != label:
        if queueing.priority_until > ctx.env.clock:
            ctx.requeue_at(queueing.priority_until)
            return
        queueing.priority_until = ctx.env.clock + _PRIORITY_SEC
        wanted = _wanted(ctx, queue)
        _act(ctx, ChangeRequest(_target(ctx), wanted, record.uid, record.resource_version, True), record)


def _reclaim(ctx: Context, record: WorkloadRecord, admission: AdmissionStatus) -> None:
    """Give the quota of Tasks back that need no Pod again in this attempt.

    Their completion, or their end by a ScaleDown, is persisted with the number, before the change of the Workload. A
    later attempt, which runs all Tasks, waits for another admission.
    """
    tracker, queueing = ctx.tracker, ctx.tracker.queueing
    pod_sets = [replace(one, reclaimed=_reclaimed(ctx, one)) for one in admission.pod_sets]
    if pod_sets != admission.pod_sets:
        if queueing.reclaimed_until > ctx.env.clock:
            ctx.requeue_at(queueing.reclaimed_until)
        else:
            queueing.reclaimed_until = ctx.env.clock + _RECLAIM_SEC
            tracker.reclaim(replace(admission, pod_sets=pod_sets))
            return
    known, counts = dict(record.reclaimed), dict(record.counts)
    behind = (min(one.reclaimed, counts.get(one.name, 0)) > known.get(one.name, 0) for one in admission.pod_sets)
    if not any(behind):
        return
    if tracker.is_head_settled:
        _act(ctx, Reclaim(_target(ctx), admission), record)
    else:
        queueing.blocked = True
        tracker.hasten()


def _reclaimed(ctx: Context, admitted: AdmittedPodSet) -> int:
    return max(admitted.reclaimed, admitted.count - _needed(ctx, admitted.name))


def _tell_readiness(ctx: Context, record: WorkloadRecord) -> None:
    """Say whether all Tasks of the roles that have started run. A Kueue that waits for that evicts otherwise.

    Kueue measures WaitForStart from the admission, so that a later attempt of the same admission says WaitForRecovery.
    """
    admission = ctx.status.admission
    if admission is None or ctx.status.state not in (State.PREPARING, State.RUNNING):
        return
    queueing, last = ctx.tracker.queueing, record.pods_ready
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
        ctx.requeue_at(queueing.ready_until)
        return
    if ready:
        change = ConditionChange(PODS_READY, True, "Recovered" if recovers else "Started", f"{attempt}: all Tasks run")
    else:
        reason = "WaitForRecovery" if recovers else "WaitForStart"
        change = ConditionChange(PODS_READY, False, reason, f"{attempt}: some Tasks do not run")
    if _act(ctx, Tell(_target(ctx), record.uid, change, ctx.env.second), record):
        queueing.ready_until = ctx.env.clock + _READY_SEC


def _is_ready(ctx: Context, admission: AdmissionStatus) -> bool:
    """Whether all Tasks that may run do, or have completed. Roles that wait for others do not count."""
    missing, states = 0, ctx.tracker.task_states
    for spec in ctx.framework.spec.task_roles:
        counts = ctx.tracker.role_counts.get(spec.name)
        if counts is None or (spec.depends_on and not ctx.tracker.has_started(spec.name)):
            continue
        left = counts.total - counts.succeeded - counts.failed
        missing += max(0, min(left, admission.available(spec.name)) - counts.running)
    # Tasks whose Pods have ended complete next, or wait for their retry, and not for a node.
    return missing <= sum(states[state] for state in _BETWEEN_PODS)


def _wake_waiters(ctx: Context, role: str, count: int, waiters: list[TaskKey]) -> None:
    """Plan as many Tasks that wait for quota as may have a Pod now."""
    free = count - len(_granted(ctx, role))
    if free > 0:
        ctx.tracker.agenda.update(sorted(waiters)[:free])


# --- no attempt runs --------------------------------------------------------------------------------------------


def _between_attempts(ctx: Context, record: _Cached) -> None:
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
    queue = _queue(ctx) if starts else None
    if queue is None:
        ctx.tracker.holds.end_stall(_target(ctx).key, Reason.ADMISSION_CONFLICT)
    if admission is not None:
        if (why := _why_not_kept(ctx, admission, queue, record)) is not None:
            _wait(ctx, why)
        return
    if queue is not None:
        _queue_up(ctx, queue, record)
    elif isinstance(record, WorkloadRecord):
        if starts:
            _wait(ctx, f"Workload {record.name} leaves the queue, as the Framework has no queue any longer")
            _watch_end(ctx, record)
        _leave(ctx, record)
    elif record is None:
        _look_for_dropped(ctx)


def _why_not_kept(ctx: Context, admission: AdmissionStatus, queue: QueueLabels | None, record: _Cached) -> str | None:
    """Why the next attempt cannot begin with the admission, which is then given up; None if it can."""
    lost = ctx.tracker.queueing.lost
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
        if not _was_disproved(ctx, record):
            _act(ctx, Inspect(_target(ctx), _version(record)), record)
            return problem
        return None
    elif _needs_more(ctx, admission, queue):
        why = "the next FrameworkAttempt needs more than Kueue has admitted, or quota that was given back: it is queued"
    else:
        return None
    if _nothing_runs(ctx):
        ctx.tracker.set_admission(None)
    return why


def _was_disproved(ctx: Context, record: WorkloadRecord | None) -> bool:
    """Whether a live read has shown that the cache is behind."""
    return ctx.tracker.queueing.disproved == _version(record)


def _needs_more(ctx: Context, admission: AdmissionStatus, queue: QueueLabels) -> bool:
    wanted = _wanted(ctx, queue)
    for role, count in wanted.counts.items():
        admitted = admission.pod_set(role)
        if admitted is None or count > admitted.available:
            return True
        if admitted.digest and not is_same(wanted.digests[admitted.name], admitted.digest):
            return True
    return False


def _nothing_runs(ctx: Context) -> bool:
    """Whether quota may be given back: all is persisted, and nothing of the Framework runs. If unknown, look."""
    ctx.tracker.queueing.look_up = True
    ctx.look_for_pods()
    if not ctx.tracker.is_clean:
        ctx.persist_first()
        return False
    return ctx.tracker.nothing_runs


def _queue_up(ctx: Context, queue: QueueLabels, record: _Cached) -> None:
    """Bring the Framework into the queue, and take its admission."""
    target, holds = _target(ctx), ctx.tracker.holds
    _wait(ctx, f"the Framework waits in Kueue's LocalQueue {queue.queue_name}")
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
        _wait(ctx, f"Workload {record.name} of before is being deleted")
        _watch_end(ctx, record)
        _leave(ctx, record)
    elif record is not None and record.evicted and record.reserves:
        _wait(ctx, _problem_of_evicted(record))
        if _nothing_runs(ctx):
            _act(ctx, GiveBack(target, record.uid, ctx.env.second), record)
    elif record is not None and record.reclaimed:
        _wait(ctx, "the quota of Tasks that had completed was given back: the Framework waits for all of it")
        if _nothing_runs(ctx):
            _act(ctx, GiveBack(target, record.uid, ctx.env.second), record)
    elif ctx.status.state is not State.CREATION_PENDING:
        # Its retry is due later.
        return
    elif record is None:
        if target not in ctx.tracker.companions and ctx.tracker.is_head_settled and not _may_have_begun(ctx):
            ctx.tracker.companion_wanted(target, ctx.env.clock)
            ctx.act(EnterQueue(target, ctx.framework, _wanted(ctx, queue)))
    elif not _is_asked_for(ctx, queue, record):
        if record.reserves:
            _wait(ctx, f"Workload {record.name} was admitted for another request, and is deleted")
            _leave(ctx, record)
        else:
            _act(ctx, ChangeRequest(target, _wanted(ctx, queue), record.uid, record.resource_version), record)
    elif not record.active:
        _wait(ctx, _inactive_text(record))
    elif is_admitted(record) and ctx.tracker.absent is False:
        # Something of the attempt has appeared that was known to be absent. It is deleted first.
        ctx.tracker.queueing.look_up = True
    elif is_admitted(record):
        wanted = _wanted(ctx, queue)
        _act(ctx, ReadAdmission(target, ctx.framework, queue.queue_name, wanted, record.uid), record)


def _may_have_begun(ctx: Context) -> bool:
    """Whether the cache shows a ConfigMap of the Framework: a running attempt enters no queue."""
    configmap = ctx.observed.configmap
    return configmap is not None and configmap.identity.controller_uid == ctx.framework.uid


def _is_asked_for(ctx: Context, queue: QueueLabels, record: WorkloadRecord) -> bool:
    """Whether the Workload asks for what the Framework needs."""
    wanted = _wanted(ctx, queue)
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
    queueing = ctx.tracker.queueing
    queueing.conflicts = queueing.conflicts + 1 if queueing.conflict_spec is action.spec else 1
    queueing.conflict, queueing.conflict_spec = why, action.spec
    queueing.conflict_until = ctx.env.clock + exponential(_CONFLICT_SEC, _MAX_CONFLICT_SEC, queueing.conflicts)


def _conflicts(ctx: Context, queue: QueueLabels, record: WorkloadRecord | None) -> bool:
    """Whether the Framework stays out of the queue, as it could not use its last admission."""
    queueing, holds, key = ctx.tracker.queueing, ctx.tracker.holds, _target(ctx).key
    if not queueing.conflict:
        return False
    is_over = queueing.conflict_until <= ctx.env.clock or (record is not None and not record.reserves)
    if is_over or _wanted(ctx, queue) is not queueing.conflict_spec:
        queueing.conflict = ""
        holds.end_stall(key, Reason.ADMISSION_CONFLICT)
        return False
    holds.stalls[key] = Stall(Reason.ADMISSION_CONFLICT, queueing.conflict)
    _wait(ctx, "the Framework could not use its admission: it gives the quota back, and is queued again later")
    ctx.requeue_at(queueing.conflict_until)
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
    if (problem := _wanted(ctx, queue).problem) is not None:
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
        ctx.tracker.holds.stalls[_target(ctx).key] = Stall(Reason.QUEUE_UNAVAILABLE, text)


def _available(ctx: Context) -> None:
    if not ctx.tracker.holds.has_failed(_target(ctx).key):
        ctx.tracker.holds.end_stall(_target(ctx).key, Reason.QUEUE_UNAVAILABLE)


# --- releases ---------------------------------------------------------------------------------------------------


def _leave(ctx: Context, record: WorkloadRecord) -> None:
    """Delete the Workload, once nothing runs."""
    if _is_held_by_others(record):
        return
    if not _nothing_runs(ctx):
        return
    if record.identity.deleting:
        _act(ctx, LetGo(_target(ctx), record.uid), record)
    else:
        version = record.resource_version
        _act(ctx, Delete(_target(ctx), record.uid, orphan=True, resource_version=version), record)


def _is_held_by_others(record: WorkloadRecord | None) -> bool:
    """Whether the Workload is being deleted, and only finalizers of others keep it."""
    return record is not None and record.identity.deleting and not record.in_use


def _watch_end(ctx: Context, record: WorkloadRecord) -> None:
    """Stall the Framework if the Workload that it waits for stays, though it has let go of it."""
    if _is_held_by_others(record):
        watch_end(ctx, _target(ctx), Reason.WORKLOAD_NOT_GONE)


def _look_for_dropped(ctx: Context) -> None:
    """Find out whether a Workload that the cache has dropped is gone, or has lost the label by which it is watched."""
    if ctx.tracker.queueing.dropped:
        _act(ctx, Inspect(_target(ctx), ""), None)


def _completed(ctx: Context, record: _Cached) -> None:
    """The Framework is completed, which is persisted before Kueue learns it."""
    tracker = ctx.tracker
    if ctx.status.admission is not None:
        tracker.set_admission(None)
    elif record is None:
        _look_for_dropped(ctx)
    elif isinstance(record, WorkloadRecord) and (record.in_use or not record.finished) and _nothing_runs(ctx):
        completion = ctx.attempt.completion_status
        if record.identity.deleting or ctx.framework.deleting:
            _leave(ctx, record)
        elif completion is not None:
            reason = "Succeeded" if completion.succeeded else "Failed"
            change = ConditionChange(FINISHED, True, reason, completion.diagnostics)
            _act(ctx, Finish(_target(ctx), record.uid, change, ctx.env.second), record)


# --- conditions -------------------------------------------------------------------------------------------------


def _conditions(ctx: Context, record: _Cached) -> tuple[ShownCondition, ShownCondition] | None:
    """The conditions QuotaReserved and Admitted, with what Kueue says; None without a queue."""
    admission = ctx.status.admission
    if admission is None and (_queue(ctx) is None or ctx.status.state is State.COMPLETED):
        return None
    if admission is not None:
        text = f"Quota is reserved in ClusterQueue {admission.cluster_queue}"
        reserved = (True, "QuotaReserved", text)
        if (lost := ctx.tracker.queueing.lost) is not None:
            return reserved, (False, "Evicted", lost.diagnostics)
        return reserved, (True, "Admitted", _admitted_text(ctx, admission))
    if ctx.status.state not in (State.CREATION_PENDING, State.ATTEMPT_COMPLETED):
        text = f"FrameworkAttempt {ctx.attempt.id} began without a queue"
        return (False, "NotQueued", text), (False, "NotQueued", text)
    if isinstance(record, WorkloadRecord) and record.quota_reserved and not record.evicted:
        said = record.quota_reserved
        return (True, said.reason, said.message), (False, *_awaited(record))
    said = _said(record)
    return (False, said.reason, said.message), (False, _NO_RESERVATION, "the Framework has no quota yet")


def _awaited(record: WorkloadRecord) -> tuple[str, str]:
    """Reason and message why a Workload with quota is not admitted. After an eviction, Kueue leaves those of before."""
    said = record.admitted
    is_old = not said.reason or said.reason.startswith(_NO_RESERVATION)
    checks = "; ".join(
        f"admission check {one.name} is {one.state}{f': {one.message}' if one.message else ''}" for one in record.checks
    )
    if checks:
        return "UnsatisfiedChecks" if is_old else said.reason, checks
    return ("Pending", "Kueue has not admitted the Workload yet") if is_old else (said.reason, said.message)


def _admitted_text(ctx: Context, admission: AdmissionStatus) -> str:
    """How many Tasks are admitted, if the spec has more by now."""
    waiting = []
    for role in ctx.framework.spec.task_roles:
        count, needed = admission.available(role.name), _needed(ctx, role.name)
        if needed > count:
            waiting.append(f"{count} of the {needed} Tasks of TaskRole {role.name}")
    text = f"Admitted by Workload {admission.workload_name}"
    return f"{text}; only {', '.join(waiting)} until the next FrameworkAttempt" if waiting else text


def _inactive_text(record: WorkloadRecord) -> str:
    # Kueue adds its cause. Without one, or after another eviction, a person has set spec.active.
    by_kueue = record.evicted and record.evicted.reason.startswith("DeactivatedDueTo")
    why = f" by Kueue ({record.evicted.reason}): {record.evicted.message}" if by_kueue else ""
    return f"Workload {record.name} was deactivated{why}; it is queued again once its spec.active is true"


def _said(record: _Cached) -> WorkloadCondition:
    """What Kueue says about a Workload that is not admitted."""
    if not isinstance(record, WorkloadRecord):
        return WorkloadCondition("False", "NotQueued", "the Framework has no Workload yet")
    if record.evicted and record.reserves:
        return record.evicted
    if not record.active:
        return WorkloadCondition("False", "Inactive", _inactive_text(record))
    if record.quota_reserved.reason:
        return record.quota_reserved
    return WorkloadCondition("False", "Pending", NOT_LOOKED_AT)
