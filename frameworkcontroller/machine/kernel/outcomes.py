"""Rules for the outcomes of all actions: back-off, stalls, and the presence of objects that no status records.

owned.py folds the outcomes for Pods and ConfigMaps, and each part those for its own kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from frameworkcontroller.api.objects import CompanionRecord, Identity
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import Action, Create, Patch
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import (
    Created,
    Exists,
    Gone,
    NotAttempted,
    Outdated,
    Patched,
    Remains,
    Result,
)
from frameworkcontroller.machine.kernel.failure import describe_creation_refusal, is_quota_refusal
from frameworkcontroller.machine.kernel.holds import Stall, Wait
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.part import Parts
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason
from frameworkcontroller.machine.kernel.requests import Kind, Refused, Target, Unanswered
from frameworkcontroller.machine.kernel.tracker import Tracker

FAILURES_TO_STALL: Final = 3
"""Failures in a row after which a Framework is stalled."""

FAILURES_TO_STALL_WHILE_DELETED: Final = 8
"""Failures in a row after which a terminating object stalls the Framework: about a minute."""

_NOT_ANSWERED: Final = {
    Kind.POD: RequestReason.POD_NOT_ANSWERED,
    Kind.CONFIGMAP: RequestReason.CONFIGMAP_NOT_ANSWERED,
    Kind.FRAMEWORK: RequestReason.FRAMEWORK_NOT_ANSWERED,
}


# --- presence ----------------------------------------------------------------------------------------------------


class Presence(Enum):
    """Presence of a companion. UNLISTED: its kind is not listed yet. ENDING: it is being deleted."""

    PRESENT = auto()
    ABSENT = auto()
    ENDING = auto()
    UNLISTED = auto()


def presence_of(ctx: Context, target: Target, is_ours: Callable[[Identity], bool]) -> tuple[Presence, str]:
    """The presence of a companion, and why its kind cannot be listed."""
    known = ctx.tracker.expectations.confirmed.get(target)
    found = ctx.observed.find_companion(target.kind, target.name)
    if isinstance(found, NotListed):
        return (Presence.UNLISTED, found.problem) if known is None else (Presence.PRESENT, "")
    if found is not None and is_ours(found.identity):
        if not found.identity.deleting:
            return Presence.PRESENT, ""
        if known is None or known.uid == found.uid:
            return Presence.ENDING, ""
    # An object of another owner is found again by the creation, which is refused.
    return (Presence.ABSENT if known is None else Presence.PRESENT), ""


def report_listing(ctx: Context, target: Target, problem: str, not_listed: Reason, needed_by: str) -> None:
    """Stall the Framework while the kind of a companion cannot be listed. ``problem``: why, "" if it can."""
    if problem:
        text = f"Cannot list {target.kind}s, which {needed_by} needs: {problem}"
        ctx.tracker.holds.stalls[target.key] = Stall(not_listed, text)
    else:
        ctx.tracker.holds.end_stall(target.key, not_listed)


def watch_end(ctx: Context, target: Target, not_gone: Reason) -> None:
    """Stall the Framework if a companion that is being deleted stays."""
    found = ctx.observed.find_companion(target.kind, target.name)
    if not isinstance(found, CompanionRecord) or found.identity.deletion_time is None:
        return
    patience = ctx.env.limits.pod_stuck_deleting_sec
    left = min(found.identity.deletion_time - ctx.env.now, 0.0) + patience
    if left > 0:
        ctx.tracker.agenda.look(target.key, ctx.env.clock + left)
        return
    when = format_time(found.identity.deletion_time)
    text = f"{target.kind} {target.name} was to be deleted by {when} and still exists: a finalizer holds it"
    ctx.tracker.holds.stalls[target.key] = Stall(not_gone, text, target.companion)


# --- objects that no status records -------------------------------------------------------------------------------


def record_answer(tracker: Tracker, target: Target, uid: str | None) -> None:
    """Record the answer to a creation. ``uid``: of an object that exists and is ours, None if none does."""
    if uid is not None:
        if target.companion:
            tracker.holds.release_companion(target.key, target.companion)
        else:
            tracker.holds.release(target.key)
    tracker.expectations.answer(target, uid)


def drop(parts: Parts, tracker: Tracker, target: Target, uid: str) -> None:
    """Note that the cache has dropped an object: it is gone, or has lost its label."""
    tracker.expectations.drop(target, uid)
    if (part := parts.of_kind(target.kind)) is not None:
        part.on_dropped(tracker, target)


def take_object(
    ctx: Context,
    action: Action,
    result: Result,
    created: Reason,
    is_ours: Callable[[Identity], bool] | None = None,
    where: str = "",
) -> None:
    """Fold the outcome of the creation or the change of an object of a part.

    ``created``, ``where``: the reason of the record, and the end of its text. ``is_ours``: by default, whether the
    object that a creation has found has its controller.
    """
    tracker, target = ctx.tracker, action.target
    # Also after a failure: the condition shows the reason to wait.
    tracker.agenda.look(target.key)
    if isinstance(action, Patch):
        _take_change(ctx, action, result)
        return
    uid = None
    match result:
        case NotAttempted():
            pass
        case Created():
            uid = result.uid
            tracker.holds.hold_repetition(target.object_key, ctx.env)
            ctx.record(created, f"{target.kind} {target.name} ({uid}) was created{where}", task_of(ctx, target))
        case Exists(found=Identity() as found) if controls(action, found) if is_ours is None else is_ours(found):
            if found.deleting:
                hold(ctx, target, result, "create")
            else:
                uid = found.uid
        case Exists(found=Identity() as found):
            conflict(ctx, target, found)
        case _:
            if isinstance(result, Refused) and is_quota_refusal(result):
                stall_by_quota(ctx, target, result)
            hold(ctx, target, result, "create")
    record_answer(tracker, target, uid)


def _take_change(ctx: Context, action: Patch, result: Result) -> None:
    tracker, target = ctx.tracker, action.target
    match result:
        case NotAttempted():
            pass
        case Patched() | Outdated():
            tracker.holds.release(target.key)
            # Another client may undo the change at once, or the cache may be behind.
            tracker.holds.hold_repetition(target.key, ctx.env)
        case Gone():
            drop(ctx.parts, tracker, target, action.uid)
            # The cache may still show it.
            tracker.holds.hold_repetition(target.key, ctx.env)
        case _:
            hold(ctx, target, result, "change")


def controls(action: Action, found: Identity) -> bool:
    """Whether the object that a creation has found is controlled as the created one would be."""
    return isinstance(action, Create) and found.controller_uid == action.controller_uid


# --- failures ---------------------------------------------------------------------------------------------------


def is_terminating(result: Result) -> bool:
    return isinstance(result, Exists) and result.found is not None and result.found.deleting


def conflict(ctx: Context, target: Target, found: Identity) -> None:
    """Back off, as the target's name belongs to another owner's object."""
    if found.controller_uid is not None:
        owner = f"controlled by {found.controller_uid}"
    elif target.companion:
        owner = f"without the annotations of Task {target.role}[{target.index}]"
    else:
        owner = "without a controller"
    text = f"{target.kind} {target.name} ({found.uid}) already exists, {owner}: refusing to adopt or delete it"
    # It may belong to a deleted Framework of the same name, and be terminating.
    patience = FAILURES_TO_STALL_WHILE_DELETED if found.deleting else FAILURES_TO_STALL
    back_off(ctx, target, text, RequestReason.NAMING_CONFLICT, patience=patience)


def stall_by_quota(ctx: Context, target: Target, refusal: Refused) -> None:
    """Stall with the first refusal: later ones differ only in the used amounts."""
    stall = ctx.tracker.holds.stalls.get(target.key)
    if stall is None or stall.reason is not RequestReason.QUOTA_EXCEEDED:
        ctx.tracker.holds.stalls[target.key] = Stall(RequestReason.QUOTA_EXCEEDED, refusal.message, target.companion)


def hold(ctx: Context, target: Target, result: Result, verb: str) -> None:
    """Back off after a failure, and stall the Framework if it continues. ``verb``: of the action, for people."""
    if verb == "create" and target.kind is Kind.CONFIGMAP and isinstance(result, Refused):
        text = describe_creation_refusal(target.kind, result)
    else:
        text = f"Cannot {verb} {target.kind} {target.name}: {describe_failure(result)}"
    part = ctx.parts.of_kind(target.kind)
    reason = _NOT_ANSWERED[target.kind] if part is None else part.not_answered
    back_off(ctx, target, text, reason, at_least=retry_after(result), keep=True)


def retry_after(result: Result) -> float:
    return result.retry_after_sec if isinstance(result, Refused) else 0.0


def back_off(
    ctx: Context,
    target: Target,
    text: str,
    reason: Reason,
    *,
    patience: int = FAILURES_TO_STALL,
    at_least: float = 0.0,
    keep: bool = False,
) -> None:
    """Back off, record the first failure, and stall the Framework after ``patience`` ones in a row.

    ``at_least``: seconds. ``keep``: an earlier stall of the object stays.
    """
    failures = back_off_quietly(ctx, target, text, at_least)
    if failures == 1:
        ctx.record(RequestReason.WAITING, text, task_of(ctx, target), warning=True)
    stalls = ctx.tracker.holds.stalls
    if failures >= patience and not (keep and target.key in stalls):
        stalls[target.key] = Stall(reason, text, target.companion)


def back_off_quietly(ctx: Context, target: Target, why: str, at_least: float = 0.0) -> int:
    """Back off without a record and a stall, and plan again afterwards. Return the number of failures in a row."""
    holds, task = ctx.tracker.holds, task_of(ctx, target)
    failures = holds.hold(target.key, ctx.env, why, at_least, companion=target.companion)
    until = holds.until(target.key)
    if task is not None and task.state is State.CREATION_PENDING:
        # It is not looked at before.
        holds.wait(task.key, Wait(RequestReason.WAITING, why, until))
    ctx.tracker.agenda.look(target.key, until)
    return failures


def task_of(ctx: Context, target: Target) -> TaskStatus | None:
    return ctx.tracker.task(target.key) if isinstance(target.key, tuple) else None


def describe_failure(result: Result) -> str:
    """The result of a failed action in words."""
    match result:
        case Refused(code=code, message=message):
            return f"{code}: {message}"
        case Unanswered(message=message) | Remains(message=message) | Outdated(message=message):
            return message
        case Exists(found=Identity(uid=uid)):
            return f"one with UID {uid} is being deleted"
        case Exists(message=message):
            return f"the API server reports that it exists, but does not find it: {message}"
        case _:
            return type(result).__name__
