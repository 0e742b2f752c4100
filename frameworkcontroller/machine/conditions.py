"""Conditions of a Framework, computed from the rest of the status. Of the stored ones, only Suspended is read again.

Source: docs/running.md, "Phase". Stalls (``Holds.stalls``) come from failed requests (owned.py), objects that are not
deleted (task.py, framework.py), and an invalid status (``plan.reject``). An invalid spec is one more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from frameworkcontroller.api.codec import encode_condition
from frameworkcontroller.api.status import WAITS, Condition, State
from frameworkcontroller.machine.kernel.absence import Known, nothing_runs
from frameworkcontroller.machine.kernel.context import Context, describe
from frameworkcontroller.machine.kernel.holds import Stall, Wait
from frameworkcontroller.machine.kernel.model import Env, Urgency
from frameworkcontroller.machine.kernel.part import Shown
from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.lifereasons import LifeReason

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MAX_REASON = 1024
MAX_MESSAGE = 32768
_STALLS_QUOTED = 3
_WITHOUT_PODS = ENDED | {State.CREATION_PENDING}
_OVER_WHEN_NOT_FOUND = frozenset({LifeReason.INVALID_SPEC, LifeReason.STATUS_TOO_LARGE, LifeReason.QUARANTINED})
"""Stalls that every sync finds again before it writes a status."""


def refresh(ctx: Context) -> None:
    """Update the conditions. The cost does not depend on the number of Tasks."""
    status = ctx.status
    state = status.state
    completed = state is State.COMPLETED
    if ctx.tracker.is_completing and state not in ENDED:
        ctx.tracker.holds.end_waits()
    wait = _shown_wait(ctx.tracker)
    attempt = f"FrameworkAttempt {status.attempt.id}"
    link = ": " if ctx.tracker.counts.running else WAITS
    message = attempt if wait is None else f"{attempt}{link}{wait.message}"
    now = {
        "Running": (state is State.RUNNING, state.value, message),
        "Completed": (completed, state.value, attempt),
    }
    completion = status.attempt.completion_status
    if completed and completion is not None:
        kind = "Succeeded" if completion.succeeded else "Failed"
        # The phrase of a podFailureSpec may be no valid reason.
        reason = completion.phrase if _REASON.fullmatch(completion.phrase) else completion.type_name
        # Diagnostics do not name the rule that ended the Framework, nor its Task.
        now[kind] = (
            True,
            reason,
            completion.diagnostics if completion.policy is None else describe(completion, completion.diagnostics),
        )
    kept = {condition.type: condition for condition in status.conditions}
    stalled = _stalled(ctx)
    was_suspended = kept.get("Suspended")
    suspended = None
    if was_suspended is not None or ctx.framework.spec.suspend:
        suspended = _suspended(ctx, was_suspended, stalled)
    _record_stall(ctx, kept.get("Stalled"), stalled)
    if wait is not None or ctx.tracker.process.last_wait is not None:
        _record_wait(ctx, kept.get("Running"), wait, message)
    if suspended is not None:
        now["Suspended"] = suspended
    of_parts: dict[str, Shown] = {}
    for part in ctx.parts.conditions:
        of_parts |= part.conditions(ctx, kept)
    now |= {kind: (one.value, one.reason, one.message) for kind, one in of_parts.items()}
    if stalled is not None:
        now["Stalled"] = (True, *stalled)
    elif "Stalled" in kept:
        now["Stalled"] = (False, LifeReason.PROGRESSING.value, "")
    fresh, generation = [], ctx.framework.generation
    quiet = True
    for kind, (value, whole_reason, whole_message) in now.items():
        text, reason, message = "True" if value else "False", whole_reason[:_MAX_REASON], whole_message[:MAX_MESSAGE]
        old = kept.get(kind)
        if old is not None and old.status == text:
            if old.message == message and old.reason == reason and old.observed_generation == generation:
                # As in most plans: no new record is made, and the comparison below is short.
                fresh.append(old)
                continue
            since = old.last_transition_time
            quiet &= kind in of_parts and of_parts[kind].quiet
        else:
            since, quiet = ctx.env.second, False
        fresh.append(Condition(kind, text, reason, message, since, generation))
    if fresh == status.conditions:
        return
    if quiet and len(fresh) == len(status.conditions):
        ctx.tracker.set_conditions(fresh, Urgency.LATER, quiet=True)
    else:
        # The others follow a state, whose transition has its own urgency.
        soon = "Stalled" in now or _differs(was_suspended, suspended)
        soon |= any(_differs(kept.get(kind), now[kind]) for kind in of_parts)
        ctx.tracker.set_conditions(fresh, Urgency.SOON if soon else Urgency.LATER)


def with_stalled(
    present: list[dict[str, Any]], reason: Reason, message: str, env: Env, generation: int
) -> list[dict[str, Any]]:
    """The encoded conditions with Stalled=True for that reason, and the others unchanged."""
    old: dict[str, Any] = next((one for one in present if one.get("type") == "Stalled"), {})
    fresh = encode_condition(Condition("Stalled", "True", reason, message[:MAX_MESSAGE], env.second, generation))
    if old.get("status") == "True":
        fresh["lastTransitionTime"] = old.get("lastTransitionTime", fresh["lastTransitionTime"])
    return present if old == fresh else [*(one for one in present if one.get("type") != "Stalled"), fresh]


def _suspended(
    ctx: Context, before: Condition | None, stalled: tuple[Reason, str] | None
) -> tuple[bool, str, str] | None:
    """The condition Suspended; None if the Framework was never suspended.

    True is a promise that nothing runs. It outlives a controller: before something is created, False is persisted.
    """
    spec, tracker, invalid = ctx.framework.spec, ctx.tracker, bool(ctx.framework.invalid)
    if stalled is not None and stalled[0] in _OVER_WHEN_NOT_FOUND and not invalid:
        # The spec is not known, and nothing is done.
        return None if before is None else (before.status == "True", before.reason, before.message)
    if ctx.status.state is State.COMPLETED:
        return None if before is None else (False, State.COMPLETED.value, "")
    was_true = before is not None and before.status == "True"
    # With an invalid spec nothing is resumed.
    if not spec.is_suspended and not (invalid and was_true):
        return None if before is None else (False, "Stopping" if spec.suspend else "Resumed", "")
    known = tracker.absence
    kept = was_true and known.configmap is Known.UNKNOWN and not known.pods_remain
    if nothing_runs(tracker) or (kept and ctx.status.state in _WITHOUT_PODS):
        return True, LifeReason.SUSPENDED.value, "spec.suspend is true; nothing of the Framework runs"
    return False, "Suspending", "spec.suspend is true; Pods of the Framework may still run"


def _differs(before: Condition | None, now: tuple[bool, str, str] | None) -> bool:
    return now is not None and (before is None or before.reason != now[1])


def _record_stall(ctx: Context, before: Condition | None, stalled: tuple[Reason, str] | None) -> None:
    """Record a new reason or the end of the stall."""
    reason_before = before.reason if before is not None and before.status == "True" else None
    if stalled is not None:
        reason, text = stalled
        ctx.tracker.process.last_stall = reason
        if reason != reason_before:
            ctx.record(reason, text, warning=True)
    elif reason_before is not None:
        # A new process has not yet found the stall of a condition that its predecessor wrote.
        if ctx.tracker.process.last_stall is not None or reason_before in _OVER_WHEN_NOT_FOUND:
            ctx.record(LifeReason.PROGRESSING, f"No longer stalled by {reason_before}")
        ctx.tracker.process.last_stall = None


def _shown_wait(tracker: Tracker) -> Wait | None:
    """The wait that the condition Running shows: while some Tasks run, only the wait of a role for others."""
    if not (waits := tracker.holds.waits()):
        return None
    if tracker.counts.running:
        return _first(waits, EventPolicy.WAIT_OF_ROLE)
    # A role mostly waits for longer than a Task.
    return _first(waits, EventPolicy.WAIT, EventPolicy.WAIT_OF_ROLE) or _first(waits, EventPolicy.RETRY)


def _first(waits: Mapping[Reason, Wait], *policies: EventPolicy) -> Wait | None:
    return next((wait for wait in waits.values() if wait.reason.event in policies), None)


def _record_wait(ctx: Context, before: Condition | None, wait: Wait | None, message: str) -> None:
    """Record a new reason to wait, unless the stored condition shows it."""
    reason = None if wait is None or wait.reason.event is EventPolicy.RETRY else wait.reason
    if (
        wait is not None
        and reason is not None
        and reason is not ctx.tracker.process.last_wait
        and (before is None or before.message != message)
    ):
        ctx.record(wait.reason, wait.message)
    ctx.tracker.process.last_wait = reason


def _stalled(ctx: Context) -> tuple[Reason, str] | None:
    stalls = list(ctx.tracker.holds.stalls.values())
    if ctx.framework.invalid:
        # It is no reason for the wait of a Framework that is being deleted.
        position = len(stalls) if ctx.framework.deleting else 0
        stalls.insert(position, Stall(LifeReason.INVALID_SPEC, ctx.framework.invalid))
    if not stalls:
        return None
    quoted = "; ".join(stall.message for stall in stalls[:_STALLS_QUOTED])
    more = f"; and {len(stalls) - _STALLS_QUOTED} more" if len(stalls) > _STALLS_QUOTED else ""
    return stalls[0].reason, quoted + more
