"""Folding the outcomes of actions on a Workload (workloadactions.py) into the status."""

from __future__ import annotations

from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.absence import Known
from frameworkcontroller.machine.kernel.actions import Action, Outcome, Patch
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import (
    Accepted,
    Created,
    Exists,
    Gone,
    NotAttempted,
    Outdated,
    Patched,
    Result,
)
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.manifests import framework_reference
from frameworkcontroller.machine.kernel.outcomes import back_off_quietly, drop, hold, record_answer, take_object
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import Refused
from frameworkcontroller.machine.parts.kueue.enqueueing import refuse
from frameworkcontroller.machine.parts.kueue.queueing import (
    WORKLOAD_LOST,
    QueuedFramework,
    QueueReason,
    evicted,
    problem_with,
)
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    CreateWorkload,
    Finish,
    ReadAdmission,
    ReadWorkload,
    Reclaim,
    ReleaseQuota,
    RemoveFinalizer,
    Seen,
    Unmet,
    WasAdmitted,
)

_UNAVAILABLE: Final = (403, 404, 405)
"""Codes of an API server that serves no Workloads, or not to this controller."""

_REFUSED_FOR_GOOD: Final = (400, 403, 422)


def take(ctx: Context, outcome: Outcome) -> None:
    """Fold the outcome of an action on the Workload."""
    action, result, tracker = outcome.action, outcome.result, ctx.tracker
    queued, target, holds = QueuedFramework(ctx), outcome.action.target, ctx.tracker.holds
    tracker.agenda.look()
    if isinstance(action, CreateWorkload) and not isinstance(result, Created | Exists):
        record_answer(tracker, target, None)
    if isinstance(action, Patch) and not isinstance(result, Patched):
        # The label is not restored: the cache will not show the Workload, so look for it again.
        drop(ctx.parts, tracker, target, action.uid)
    match result:
        case Created() | Exists() if isinstance(action, CreateWorkload):
            _take_creation(queued, action, result)
        case WasAdmitted():
            _take_admission(queued, action, result)
        case Seen() | Gone() if isinstance(action, ReadWorkload):
            _take_look(queued, action, result)
        case Patched() | Accepted() | Gone() | Seen():
            holds.release(target.key)
            if isinstance(result, Patched) and isinstance(action, ReleaseQuota):
                text = f"Nothing runs: {target.kind} {target.name} has given its quota back"
                ctx.record(QueueReason.QUOTA_GIVEN_BACK, text)
            elif isinstance(result, Patched) and isinstance(action, RemoveFinalizer | Finish):
                ctx.record(QueueReason.LEFT, f"Nothing runs: {target.kind} {target.name} has left the queue")
        case Refused(by_api=True, code=code) if isinstance(action, Reclaim) and code in _REFUSED_FOR_GOOD:
            # Kueue keeps more quota than is needed. It is not asked again until the Workload changes.
            ctx.record(RequestReason.WAITING, f"Kueue keeps the quota of completed Tasks: {result.message}")
        case Unmet(message=message) if isinstance(action, ReadAdmission):
            holds.release(target.key)
            refuse(queued, action, message)
        case _:
            queued.may_repeat(action)
            _take_failure(ctx, action, result)


def _take_failure(ctx: Context, action: Action, result: Result) -> None:
    target, stalls = action.target, ctx.tracker.holds.stalls
    match result:
        case NotAttempted():
            pass
        case Outdated(message=message):
            # The other change may be in the cache already, or cause no event.
            back_off_quietly(ctx, target, message)
        case Unmet(message=message):
            back_off_quietly(ctx, target, message)
            stalls[target.key] = Stall(QueueReason.INVALID, message)
        case _:
            hold(ctx, target, result, "create" if isinstance(action, CreateWorkload) else "change")
            if isinstance(result, Refused) and result.by_api and result.code in _UNAVAILABLE:
                text = f"Cannot use Workloads, which the label {names.QUEUE_NAME} needs: {result.message}"
                stalls[target.key] = Stall(QueueReason.UNAVAILABLE, text)


def _take_creation(queued: QueuedFramework, action: CreateWorkload, result: Created | Exists) -> None:
    framework_uid = queued.ctx.framework.uid
    found = result.found if isinstance(result, Exists) else None
    is_ours = found is not None and found.controller_uid == framework_uid
    if is_ours or isinstance(result, Created):
        queued.state.known = True
    if found is not None and is_ours and not found.deleting:
        # It has lost the label by which it is watched, or the cache does not show it yet.
        _restore_label(queued, action, found.uid)
    where = f" in LocalQueue {action.spec.queue_name}"
    take_object(queued.ctx, action, result, QueueReason.ENTERED, lambda one: one.controller_uid == framework_uid, where)


def _restore_label(queued: QueuedFramework, action: Action, uid: str, *, with_owner: bool = False) -> None:
    framework = queued.ctx.framework
    metadata: dict[str, Any] = {"labels": {names.FRAMEWORK_NAME: framework.name}}
    if with_owner:
        metadata["ownerReferences"] = [framework_reference(framework)]
    queued.ctx.tracker.follow_ups.append(Patch(action.target, uid, orjson.dumps({"metadata": metadata})))
    queued.holds.hold_repetition(action.target.key, queued.ctx.env)


def _take_admission(queued: QueuedFramework, action: Action, result: WasAdmitted) -> None:
    ctx, state, admission = queued.ctx, queued.state, result.admission
    queued.holds.release(action.target.key)
    wanted = state.spec
    if (
        ctx.status.state is not State.CREATION_PENDING
        or ctx.status.admission is not None
        or ctx.tracker.is_completing
        or ctx.tracker.absence.configmap is Known.FOUND
        or not isinstance(action, ReadAdmission)
        # The spec or the labels have changed since.
        or wanted is None
        or wanted.digest != action.spec.digest
        or wanted.queue_name != admission.queue_name
    ):
        queued.may_repeat(action)
        return
    state.set_admission(ctx.tracker, admission)
    state.conflicts = 0
    if result.waited_sec is not None:
        ctx.tracker.counters().waited_sec.append(result.waited_sec)
    text = f"Kueue has admitted the Framework in ClusterQueue {admission.cluster_queue}"
    ctx.record(QueueReason.QUOTA_GRANTED, f"{text}, by Workload {admission.workload_name} ({admission.workload_uid})")


def _take_look(queued: QueuedFramework, action: ReadWorkload, result: Seen | Gone) -> None:
    """Fold a live read, which decides whether an admission is over."""
    state, framework_uid = queued.state, queued.ctx.framework.uid
    queued.holds.release(action.target.key)
    state.dropped = False
    live = result.record if isinstance(result, Seen) else None
    if live is not None and not action.seen and live.identity.controller_uid == framework_uid:
        _restore_label(queued, action, live.uid)
    elif live is not None and live.identity.controller_uid is None and live.job_uid == framework_uid:
        # It would not be found: an eviction would not be seen.
        _restore_label(queued, action, live.uid, with_owner=True)
    if queued.admission is None:
        return
    if (problem := problem_with(live, queued.admission)) is None:
        state.disproved = action.seen
    else:
        state.lost = evicted(problem)
        state.lost_reason = live.evicted.reason if live is not None and live.evicted else WORKLOAD_LOST
