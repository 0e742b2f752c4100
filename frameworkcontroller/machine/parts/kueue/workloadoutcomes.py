"""Folding the outcomes of actions on a Workload (workloadactions.py) into the status. The protocol is in kueue.py."""

from __future__ import annotations

from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.status import AdmissionStatus, State
from frameworkcontroller.machine.kernel.absence import Known
from frameworkcontroller.machine.kernel.actions import Action, Outcome, Patch
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.manifests import framework_reference
from frameworkcontroller.machine.kernel.outcomes import answered, conflict, drop, hold, look_later
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import Refused
from frameworkcontroller.machine.kernel.results import (
    Accepted,
    Created,
    Exists,
    Gone,
    NotAttempted,
    Outdated,
    Patched,
    Result,
)
from frameworkcontroller.machine.parts.kueue.enqueueing import refuse
from frameworkcontroller.machine.parts.kueue.queueing import WORKLOAD_LOST
from frameworkcontroller.machine.parts.kueue.queuereasons import QueueReason
from frameworkcontroller.machine.parts.kueue.readadmission import ReadAdmission, WasAdmitted
from frameworkcontroller.machine.parts.kueue.workload import evicted, problem_with, queueing_of
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    EnterQueue,
    Finish,
    GiveBack,
    Inspect,
    LetGo,
    Reclaim,
    Seen,
    Unmet,
)

_UNAVAILABLE = (403, 404, 405)
"""Codes of an API server that serves no Workloads, or not to this controller."""

_REFUSED_FOR_GOOD = (400, 403, 422)


def take(ctx: Context, outcome: Outcome) -> None:
    """Fold the outcome of an action on the Workload."""
    action, result, tracker = outcome.action, outcome.result, ctx.tracker
    tracker.agenda.look()
    if isinstance(action, EnterQueue):
        answered(tracker, action.target, _entered(ctx, action, result))
    if isinstance(action, Patch) and not isinstance(result, Patched):
        # The label is not restored: the cache will not show the Workload, so look for it again.
        drop(ctx.parts, tracker, action.target, action.uid)
    match result:
        case NotAttempted():
            queueing_of(ctx).acted.pop(type(action).__name__, None)
        case Created() | Exists():
            pass
        case WasAdmitted(admission=admission, waited_sec=waited_sec):
            _take_admission(ctx, action, admission, waited_sec)
        case Seen() | Gone() if isinstance(action, Inspect):
            _take_look(ctx, action, result)
        case Outdated(message=message):
            # The other change may be in the cache already, or cause no event.
            queueing_of(ctx).acted.pop(type(action).__name__, None)
            look_later(ctx, action.target, message)
        case Patched() | Accepted() | Gone() | Seen():
            tracker.holds.release(action.target.key)
            _record_release(ctx, action, result)
        case Refused(by_api=True, code=code) if isinstance(action, Reclaim) and code in _REFUSED_FOR_GOOD:
            # Kueue keeps more quota than is needed. It is not asked again until the Workload changes.
            ctx.record(RequestReason.WAITING, f"Kueue keeps the quota of completed Tasks: {result.message}")
        case Unmet(message=message) if isinstance(action, ReadAdmission):
            tracker.holds.release(action.target.key)
            refuse(ctx, action, message)
        case Unmet(message=message):
            queueing_of(ctx).acted.pop(type(action).__name__, None)
            look_later(ctx, action.target, message)
            tracker.holds.stalls[action.target.key] = Stall(QueueReason.INVALID, message)
        case _:
            queueing_of(ctx).acted.pop(type(action).__name__, None)
            hold(ctx, action.target, result, "create" if isinstance(action, EnterQueue) else "change")
            if isinstance(result, Refused) and result.by_api and result.code in _UNAVAILABLE:
                text = f"Cannot use Workloads, which the label {names.QUEUE_NAME} needs: {result.message}"
                tracker.holds.stalls[action.target.key] = Stall(QueueReason.UNAVAILABLE, text)


def _entered(ctx: Context, action: EnterQueue, result: Result) -> str | None:
    """The UID of the Workload that exists now, None if it is not known or not ours."""
    target, tracker = action.target, ctx.tracker
    match result:
        case Created(uid=uid):
            tracker.holds.made(target.key, ctx.env)
            queueing_of(ctx).known = True
            text = f"{target.kind} {target.name} ({uid}) was created in LocalQueue {action.spec.queue_name}"
            ctx.record(QueueReason.ENTERED, text)
            return uid
        case Exists(found=Identity() as found) if found.controller_uid == ctx.framework.uid:
            queueing_of(ctx).known = True
            if found.deleting:
                hold(ctx, target, result, "create")
                return None
            # It has lost the label by which it is watched, or the cache does not show it yet.
            _restore_label(ctx, action, found.uid)
            return found.uid
        case Exists(found=Identity() as found):
            conflict(ctx, target, found)
        case Exists():
            hold(ctx, target, result, "create")
    return None


def _restore_label(ctx: Context, action: Action, uid: str, *, with_owner: bool = False) -> None:
    metadata: dict[str, Any] = {"labels": {names.FRAMEWORK_NAME: ctx.framework.name}}
    if with_owner:
        metadata["ownerReferences"] = [framework_reference(ctx.framework)]
    change = {"metadata": metadata}
    ctx.tracker.follow_ups.append(Patch(action.target, uid, orjson.dumps(change)))
    ctx.tracker.holds.made(action.target.key, ctx.env)


def _take_admission(ctx: Context, action: Action, admission: AdmissionStatus, waited_sec: int | None) -> None:
    tracker = ctx.tracker
    tracker.holds.release(action.target.key)
    wanted = queueing_of(ctx).spec
    if (
        ctx.status.state is not State.CREATION_PENDING
        or ctx.status.admission is not None
        or tracker.is_completing
        or tracker.absence.configmap is Known.FOUND
        or not isinstance(action, ReadAdmission)
        # The spec or the labels have changed since.
        or wanted is None
        or wanted.digest != action.spec.digest
        or wanted.queue_name != admission.queue_name
    ):
        queueing_of(ctx).acted.pop(type(action).__name__, None)
        return
    queueing_of(ctx).set_admission(tracker, admission)
    queueing_of(ctx).conflicts = 0
    if waited_sec is not None:
        tracker.counters().waited_sec.append(waited_sec)
    text = f"Kueue has admitted the Framework in ClusterQueue {admission.cluster_queue}"
    ctx.record(QueueReason.QUOTA_GRANTED, f"{text}, by Workload {admission.workload_name} ({admission.workload_uid})")


def _take_look(ctx: Context, action: Inspect, result: Seen | Gone) -> None:
    """Fold a live read, which decides whether an admission is over."""
    tracker, admission = ctx.tracker, ctx.status.admission
    tracker.holds.release(action.target.key)
    queueing_of(ctx).dropped = False
    live = result.record if isinstance(result, Seen) else None
    if live is not None and not action.seen and live.identity.controller_uid == ctx.framework.uid:
        _restore_label(ctx, action, live.uid)
    elif live is not None and live.identity.controller_uid is None and live.job_uid == ctx.framework.uid:
        # It would not be found: an eviction would not be seen.
        _restore_label(ctx, action, live.uid, with_owner=True)
    if admission is None:
        return
    if (problem := problem_with(live, admission)) is not None:
        queueing_of(ctx).lost = evicted(problem)
        queueing_of(ctx).lost_reason = live.evicted.reason if live is not None and live.evicted else WORKLOAD_LOST
        return
    queueing_of(ctx).disproved = action.seen


def _record_release(ctx: Context, action: Action, result: Result) -> None:
    target = action.target
    if isinstance(action, GiveBack) and isinstance(result, Patched):
        ctx.record(QueueReason.QUOTA_GIVEN_BACK, f"Nothing runs: {target.kind} {target.name} has given its quota back")
    elif isinstance(action, LetGo | Finish) and isinstance(result, Patched):
        ctx.record(QueueReason.LEFT, f"Nothing runs: {target.kind} {target.name} has left the queue")
