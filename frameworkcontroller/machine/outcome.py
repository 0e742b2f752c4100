"""What an outcome means for the Framework or the Task whose action it was.

An outcome is a fact learnt, not a decision: it moves the state to what is now known to be so. What could not be done is
held back (``Tracker.hold``) and, when only somebody else can help, said (``Stall``).
"""

from __future__ import annotations

from frameworkcontroller.api.names import FRAMEWORK_NAME
from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine import framework as framework_machine
from frameworkcontroller.machine import task as task_machine
from frameworkcontroller.machine.agenda import TaskKey
from frameworkcontroller.machine.context import Context
from frameworkcontroller.machine.failure import (
    classify_creation_refusal,
    describe_creation_refusal,
    is_quota_refusal,
)
from frameworkcontroller.machine.holds import CREATIONS, Stall
from frameworkcontroller.machine.manifests import configmap_marks, pod_marks
from frameworkcontroller.machine.model import (
    Accepted,
    Cleanup,
    Confirm,
    Create,
    Created,
    Delete,
    Exists,
    Gone,
    Kind,
    NotAttempted,
    Outcome,
    Refresh,
    Refused,
    Relabel,
    Remains,
    Result,
    Target,
    Unanswered,
)
from frameworkcontroller.machine.reasons import Reason, not_answered
from frameworkcontroller.machine.states import ENDED
from frameworkcontroller.machine.tracker import TrackedRole

_FAILURES_TO_STALL = 3
"""Failures in a row after which a Framework says that it is stalled, when the reason may yet pass by itself."""

_FAILURES_TO_STALL_WHILE_DELETED = 8
"""And when it will, unless somebody keeps it from being deleted: about a minute."""


def take(ctx: Context, outcome: Outcome) -> None:
    """Fold one outcome into the tracked status."""
    target = outcome.action.target
    if target.kind is Kind.POD:
        found = ctx.tracker.task((target.role, target.index))
        if found is None:
            _take_unlisted_pod(ctx, outcome)
            return
        role, task = found
        if task.instance_uid == target.instance and task.attempt.id == target.attempt_id:
            _take_pod(ctx, role, task, outcome)
    elif target.kind is Kind.FRAMEWORK:
        if isinstance(outcome.result, Accepted | Gone):
            ctx.tracker.holds.release(None)
            ctx.record(Reason.FRAMEWORK_DELETED, "Deleted, as it has been completed for as long as it is retained")
        else:
            _hold(ctx, None, target, outcome.result, "delete")
    elif ctx.attempt.id == target.attempt_id:
        _take_configmap(ctx, outcome)


# --- Pods -------------------------------------------------------------------------------------------------------


def _take_pod(ctx: Context, role: TrackedRole, task: TaskStatus, outcome: Outcome) -> None:
    action, result = outcome.action, outcome.result
    key = (role.status.name, task.index)
    if isinstance(result, NotAttempted):
        ctx.tracker.agenda.add(key)
        return
    match action:
        case Create():
            if task.state is State.CREATION_PENDING:
                _take_pod_creation(ctx, role, task, action, result)
        case Delete(target=target, uid=uid):
            if not isinstance(result, Accepted | Gone):
                _hold(ctx, key, target, result, "delete")
            elif uid == task.attempt.pod_uid:
                ctx.tracker.holds.release(key)
                _take_pod_deletion(ctx, role, task, action, result)
            else:
                _look_later(ctx, key)
        case Cleanup(target=target):
            if isinstance(result, Exists) and result.found is not None:
                if task.state is State.CREATION_PENDING:
                    _replace_pod(ctx, role, task, target, result.found, "clean up")
            elif not isinstance(result, Gone):
                _hold(ctx, key, target, result, "clean up")
            elif task.state is State.CREATION_PENDING and task.deletion_pending:
                ctx.tracker.holds.release(key)
                task_machine.complete_attempt(ctx, role, task, None)
        case Confirm() | Relabel():
            if not isinstance(result, Gone):
                _not_in_cache(ctx, key, action, result)
            elif action.uid == task.attempt.pod_uid and task.state not in ENDED:
                ctx.tracker.holds.release(key)
                task_machine.pod_confirmed_gone(ctx, role, task, action.uid)
        case Refresh(target=target):
            _leave_newer(ctx, key, target)


def _take_unlisted_pod(ctx: Context, outcome: Outcome) -> None:
    target, result = outcome.action.target, outcome.result
    key = (target.role, target.index)
    if isinstance(result, Accepted | Gone):
        ctx.tracker.holds.release(key)
    elif isinstance(outcome.action, Delete):
        _hold(ctx, key, target, result, "delete")


def _take_pod_creation(ctx: Context, role: TrackedRole, task: TaskStatus, action: Create, result: Result) -> None:
    key = (role.status.name, task.index)
    if ctx.attempt.configmap_uid != action.controller_uid and isinstance(result, Created | Exists):
        if ctx.status.state is not State.CREATION_PENDING:
            # The attempt is another ConfigMap's by now: its own Pods are the only ones that count.
            ctx.tracker.agenda.add(key)
            return
        # That ConfigMap was adopted, and the status that said so was not accepted.
        framework_machine.created(ctx, action.controller_uid)
    if not _is_dying(result):
        ctx.tracker.holds.end_stall(key, Reason.POD_NOT_GONE)
    match result:
        case Created(uid=uid):
            ctx.tracker.holds.release(key)
            ctx.tracker.holds.release(CREATIONS)
            task_machine.created(ctx, role, task, uid)
        case Exists(found=Identity() as found) if found.controller_uid == action.controller_uid:
            if not found.deleting and found.marks == pod_marks(ctx.framework, ctx.attempt, role.status, task):
                ctx.tracker.holds.release(key)
                task_machine.created(ctx, role, task, found.uid)
            else:
                _replace_pod(ctx, role, task, action.target, found, "create")
        case Exists(found=Identity() as found):
            _conflict(ctx, key, action.target, found)
        case Refused() as refusal:
            completion = classify_creation_refusal(refusal)
            if completion is not None:
                task_machine.complete_attempt(ctx, role, task, completion, refused=True)
                return
            if is_quota_refusal(refusal):
                _stall_by_quota(ctx, key, refusal)
            _hold_creations(ctx, key, action.target, result)
        case _:
            _hold_creations(ctx, key, action.target, result)


def _replace_pod(ctx: Context, role: TrackedRole, task: TaskStatus, target: Target, found: Identity, verb: str) -> None:
    """The attempt controls a Pod of the Task's name that is not the Task's."""
    key = (role.status.name, task.index)
    if found.deleting:
        _await_end(ctx, key, target, found, verb)
        force = task_machine.force_unseen(ctx, role, task, found)
        if force is not None:
            ctx.tracker.follow_ups.append(force)
    else:
        ctx.tracker.follow_ups.append(task_machine.replace_stray(ctx, role, task, found))
        _look_later(ctx, key)


def _take_pod_deletion(ctx: Context, role: TrackedRole, task: TaskStatus, action: Delete, result: Result) -> None:
    if task.state is State.DELETION_PENDING:
        ctx.tracker.move(role, task, State.DELETION_REQUESTED, ctx.env.second)
        ctx.tracker.agenda.add((role.status.name, task.index))
    elif not isinstance(result, Gone) or not action.confirm:
        return
    elif task.state is State.CREATION_REQUESTED:
        task_machine.pod_never_seen(ctx, role, task)
    elif task.state is State.DELETING:
        task_machine.complete_attempt(ctx, role, task, None)


# --- the ConfigMap ----------------------------------------------------------------------------------------------


def _take_configmap(ctx: Context, outcome: Outcome) -> None:
    action, result = outcome.action, outcome.result
    tracker, state = ctx.tracker, ctx.status.state
    target = action.target
    if isinstance(result, NotAttempted):
        tracker.again = True
        return
    match action:
        case Create():
            if state is State.CREATION_PENDING:
                _take_configmap_creation(ctx, action, result)
        case Delete(uid=uid, confirm=confirm):
            if not isinstance(result, Accepted | Gone):
                _hold(ctx, None, target, result, "delete")
                return
            ours = uid == ctx.attempt.configmap_uid
            if ours and state is State.DELETION_PENDING:
                tracker.holds.release(None)
                tracker.move_framework(State.DELETION_REQUESTED, ctx.env.second)
            elif ours and state is State.CREATION_REQUESTED and confirm and isinstance(result, Gone):
                tracker.holds.release(None)
                framework_machine.configmap_never_seen(ctx)
            else:
                # One that nothing waits for any more, be it this attempt's: a cache that is behind still shows it.
                _look_later(ctx, None)
        case Cleanup():
            if isinstance(result, Exists) and result.found is not None:
                if state is State.CREATION_PENDING:
                    _replace_configmap(ctx, target, result.found, "clean up")
            elif not isinstance(result, Gone):
                _hold(ctx, None, target, result, "clean up")
            elif state is State.CREATION_PENDING:
                tracker.holds.release(None)
                framework_machine.attempt_is_over(ctx, framework_machine.STOPPED)
        case Confirm() | Relabel():
            if not isinstance(result, Gone):
                _not_in_cache(ctx, None, action, result)
            elif action.uid == ctx.attempt.configmap_uid and state not in ENDED:
                tracker.holds.release(None)
                framework_machine.configmap_confirmed_gone(ctx)
        case Refresh():
            _leave_newer(ctx, None, target)


def _take_configmap_creation(ctx: Context, action: Create, result: Result) -> None:
    if not _is_dying(result):
        ctx.tracker.holds.end_stall(None, Reason.CONFIGMAP_NOT_GONE)
    match result:
        case Created(uid=uid):
            ctx.tracker.holds.release(None)
            framework_machine.created(ctx, uid)
        case Exists(found=Identity() as found) if found.controller_uid == action.controller_uid:
            if not found.deleting and found.marks == configmap_marks(ctx.framework, ctx.attempt.id):
                ctx.tracker.holds.release(None)
                framework_machine.created(ctx, found.uid)
            else:
                _replace_configmap(ctx, action.target, found, "create")
        case Exists(found=Identity() as found):
            _conflict(ctx, None, action.target, found)
        case Refused() as refusal if is_quota_refusal(refusal):
            _stall_by_quota(ctx, None, refusal)
            _hold(ctx, None, action.target, result, "create")
        case _:
            _hold(ctx, None, action.target, result, "create")


def _replace_configmap(ctx: Context, target: Target, found: Identity, verb: str) -> None:
    """The Framework controls a ConfigMap of the attempt's name that is not the attempt's."""
    if found.deleting:
        _await_end(ctx, None, target, found, verb)
    else:
        ctx.tracker.follow_ups.append(framework_machine.replace_stray(ctx, found))
        _look_later(ctx, None)


# --- what is there and not in the cache -------------------------------------------------------------------------


def _not_in_cache(ctx: Context, key: TaskKey | None, action: Confirm | Relabel, result: Result) -> None:
    """A recorded object is there, or may be, and the cache does not show it."""
    target, tracker = action.target, ctx.tracker
    match result:
        case Remains(unlabelled=True):
            # At most once for each look, and looks are held back ever longer: nobody is fought with.
            tracker.follow_ups.append(Relabel(target, action.uid))
            _look_later(ctx, key)
        case Accepted():
            text = (
                f"Put back the label {FRAMEWORK_NAME} on {target.kind} {target.name}: the controller finds it by this"
            )
            found = None if key is None else tracker.task(key)
            ctx.record(Reason.LABEL_RESTORED, text, found, warning=True)
            _look_later(ctx, key)
        case Remains():
            if tracker.expectations.hide(action.uid, ctx.env):
                ctx.plan.relist.add(target.kind)
            _hold(ctx, key, target, result, "see in the cache")
        case _:
            _hold(ctx, key, target, result, "label" if isinstance(action, Relabel) else "see in the cache")


# --- trouble ----------------------------------------------------------------------------------------------------


def _is_dying(result: Result) -> bool:
    return isinstance(result, Exists) and result.found is not None and result.found.deleting


def _await_end(ctx: Context, key: TaskKey | None, target: Target, found: Identity, verb: str) -> None:
    text = f"Cannot {verb} {target.kind} {target.name}: {_why(Exists(found))}"
    if _wait(ctx, key, text) >= _FAILURES_TO_STALL_WHILE_DELETED:
        reason = Reason.CONFIGMAP_NOT_GONE if key is None else Reason.POD_NOT_GONE
        ctx.tracker.holds.stalls.setdefault(key, Stall(reason, text))


def _leave_newer(ctx: Context, key: TaskKey | None, target: Target) -> None:
    """A live read shows the known status, and yet there is an object of a later attempt."""
    text = (
        f"{target.kind} {target.name} belongs to a later attempt than the stored status, which was set back: "
        "it is left alone; delete it if nobody needs it"
    )
    if _wait(ctx, key, text) >= _FAILURES_TO_STALL:
        ctx.tracker.holds.stalls[key] = Stall(Reason.STATUS_OUTDATED, text)


def _conflict(ctx: Context, key: TaskKey | None, target: Target, found: Identity) -> None:
    owner = "that nobody controls" if found.controller_uid is None else f"that {found.controller_uid} controls"
    text = (
        f"{target.kind} {target.name} ({found.uid}) is there already, {owner}: it is in the way and will not be touched"
    )
    # It may be of a Framework of the same name that was there before, and on its way out.
    patience = _FAILURES_TO_STALL_WHILE_DELETED if found.deleting else _FAILURES_TO_STALL
    if _wait(ctx, key, text) >= patience:
        ctx.tracker.holds.stalls[key] = Stall(Reason.NAMING_CONFLICT, text)


def _stall_by_quota(ctx: Context, key: TaskKey | None, refusal: Refused) -> None:
    """In the words of the first refusal: those that follow differ only in what is used at the time."""
    stall = ctx.tracker.holds.stalls.get(key)
    if stall is None or stall.reason is not Reason.QUOTA_EXCEEDED:
        ctx.tracker.holds.stalls[key] = Stall(Reason.QUOTA_EXCEEDED, refusal.message)


def _hold_creations(ctx: Context, key: TaskKey, target: Target, result: Result) -> None:
    """Hold back all creations of the Framework's Pods: what refused this one would refuse the next."""
    ctx.tracker.holds.hold(CREATIONS, ctx.env, _retry_after(result))
    _hold(ctx, key, target, result, "create")


def _hold(ctx: Context, key: TaskKey | None, target: Target, result: Result, verb: str) -> None:
    if verb == "create" and target.kind is Kind.CONFIGMAP and isinstance(result, Refused):
        text = describe_creation_refusal(target.kind, result)
    else:
        text = f"Cannot {verb} {target.kind} {target.name}: {_why(result)}"
    if _wait(ctx, key, text, _retry_after(result)) >= _FAILURES_TO_STALL:
        ctx.tracker.holds.stalls.setdefault(key, Stall(not_answered(target.kind), text))


def _retry_after(result: Result) -> float:
    return result.retry_after_sec if isinstance(result, Refused) else 0.0


def _wait(ctx: Context, key: TaskKey | None, text: str, at_least_sec: float = 0.0) -> int:
    """Look again later; how often in a row that was so."""
    failures = _look_later(ctx, key, at_least_sec)
    if failures == 1:
        found = None if key is None else ctx.tracker.task(key)
        ctx.record(Reason.WAITING, text, found, warning=True)
    return failures


def _look_later(ctx: Context, key: TaskKey | None, at_least_sec: float = 0.0) -> int:
    """Look again when the cache shows what was done, or by and by; how often in a row that was so."""
    failures = ctx.tracker.holds.hold(key, ctx.env, at_least_sec)
    until = ctx.tracker.holds.until(key)
    if key is None:
        ctx.wake_at(until)
    else:
        ctx.tracker.agenda.set_alarm(key, until)
    return failures


def _why(result: Result) -> str:
    match result:
        case Refused(code=code, message=message):
            return f"{code}: {message}"
        case Unanswered(message=message) | Remains(message=message):
            return message
        case Exists(found=Identity(uid=uid)):
            return f"one with UID {uid} is still being deleted"
        case Exists(message=message):
            return f"the API server says that it exists, and does not find it: {message}"
        case _:
            return type(result).__name__
