"""The notice of an attempt's end, after which the end waits for a checkpoint.

Source: docs/lifecycle.md, "Notice". The notice is persisted before the attempt's ConfigMap shows it and before the
attempt ends. The part holds back ends that were asked for from outside, and only while a Task runs that could write a
checkpoint. The times of checkpoints and notices are of replicas of the controller, whose clocks may differ: a notice is
later than each checkpoint that was known before it. A checkpoint of the same second that was not known counts: at most
that second is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import (
    DISRUPTIONS,
    FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED,
    FRAMEWORK_EVICTED,
    FRAMEWORK_SUSPEND_REQUESTED,
    CompletionStatus,
)
from frameworkcontroller.api.objects import Framework, PodRecord
from frameworkcontroller.api.status import Condition, NoticeStatus, State, TaskStatus
from frameworkcontroller.api.timestamps import LAST_TIME, format_time
from frameworkcontroller.machine.kernel.actions import Outcome, Patch
from frameworkcontroller.machine.kernel.agenda import PERSISTED, TaskKey
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import Gone, NotAttempted, Patched
from frameworkcontroller.machine.kernel.holds import ObjectKey, Wait
from frameworkcontroller.machine.kernel.model import Limits, Urgency, require
from frameworkcontroller.machine.kernel.outcomes import hold
from frameworkcontroller.machine.kernel.part import Part, PartState, Shown
from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason, event
from frameworkcontroller.machine.kernel.states import WITH_UNENDED_POD
from frameworkcontroller.machine.kernel.tracker import Tracker

SUSPENSION: Final = "Suspension"
EVICTION: Final = "Eviction"
ACTIVE_DEADLINE: Final = "ActiveDeadline"
DISRUPTION: Final = "Disruption"
"""The reasons of notices, in the status and for programs."""

_DISRUPTED: Final = frozenset(code.code for code in DISRUPTIONS.values())
_REASONS: Final = {
    FRAMEWORK_SUSPEND_REQUESTED.code: SUSPENSION,
    FRAMEWORK_EVICTED.code: EVICTION,
    FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED.code: ACTIVE_DEADLINE,
    **dict.fromkeys(_DISRUPTED, DISRUPTION),
}
"""The reason of the notice by the completion code of the end. Other ends have none."""

_WORDS: Final = {
    SUSPENSION: "the suspension",
    EVICTION: "the eviction from the queue",
    ACTIVE_DEADLINE: "the end by activeDeadlineSeconds",
    DISRUPTION: "the end by the disruption of a Pod",
}

WITHDRAW_SEC: Final = 30.0
"""Time without an eviction or an expired deadline until the notice is withdrawn.

A new process first has to find out again that Kueue has evicted the Framework, and its clock may be behind.
"""


class NoticeReason(Reason):
    """The reasons of ``checkpointGraceSeconds``."""

    GIVEN = event("NoticeGiven", "the programs of an attempt are notified of its end, with the reason and the deadline")
    WITHDRAWN = event("NoticeWithdrawn", "the reason of a notice is gone, and the attempt continues")
    PENDING = (
        "CheckpointPending",
        "the end of an attempt waits for a checkpoint, for checkpointGraceSeconds at most",
        EventPolicy.WAIT_OF_ROLE,
    )


@dataclass(slots=True, eq=False)
class NoticeState(PartState):
    """In-memory state of the notice of one attempt."""

    of_attempt: ClassVar[bool] = True

    disrupted: set[TaskKey] = field(default_factory=set)
    """Tasks whose Pods run or terminate, and are to be ended by a disruption."""
    waiting: str = ""
    """Why the end waits, by the last plan."""
    _unpersisted: bool = False
    _due: float = 0.0
    """When (monotonic seconds) the grace of ``_due_of`` is over."""
    _due_of: NoticeStatus | None = None
    _absent_since: float | None = None
    """Since when (monotonic seconds) nothing has asked for an end."""
    sent: str | None = None
    """The notice that was sent to the ConfigMap, until the cache shows it."""

    def set_notice(self, tracker: Tracker, notice: NoticeStatus | None) -> None:
        """Record a notice, or its withdrawal. Once that is persisted, the ConfigMap shows it."""
        require(tracker.status, "status").notice = notice
        self._unpersisted, self._absent_since = True, None
        tracker.change(None, Urgency.NOW)
        tracker.agenda.look(None, PERSISTED)

    @property
    def is_persisted(self) -> bool:
        """Whether the notice, or its absence, is."""
        return not self._unpersisted

    def on_persisted(self, tracker: Tracker) -> None:
        self._unpersisted = False

    def due(self, ctx: Context, notice: NoticeStatus) -> float:
        """When (monotonic seconds) the grace is over. Setting the wall clock does not change it."""
        if self._due_of != notice:
            grace = notice.deadline - notice.time
            self._due = ctx.env.clock + max(0.0, min(notice.deadline - ctx.env.now, grace))
            self._due_of = notice
        return self._due

    def may_withdraw(self, ctx: Context, reason: str) -> bool:
        """Whether nothing has asked for an end for long enough. Look again when it is."""
        if reason in (SUSPENSION, DISRUPTION):
            return True
        if self._absent_since is None:
            self._absent_since = ctx.env.clock
        if (until := self._absent_since + WITHDRAW_SEC) <= ctx.env.clock:
            return True
        ctx.tracker.agenda.look(None, until)
        return False

    def is_asked(self) -> None:
        """Something asks for an end."""
        self._absent_since = None


class NoticePart(Part):
    """The notice of an end, and the wait for a checkpoint."""

    reasons: ClassVar[type[Reason]] = NoticeReason
    target_part: ClassVar[str] = names.NOTICE_KEY

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        if framework.spec.checkpoint_grace_seconds is not None or tracker.find_part(NoticeState) is not None:
            return False
        return tracker.status is None or tracker.status.notice is None

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        """Note whether the Pod of a Task is to be ended by a disruption."""
        disrupted = ctx.tracker.part(NoticeState).disrupted
        if pod.disruption is not None and task.state in WITH_UNENDED_POD:
            disrupted.add(task.key)
        else:
            disrupted.discard(task.key)

    def before_delete(self, ctx: Context, task: TaskStatus | None) -> None:
        """Note that the Pod of a Task terminates by a disruption."""
        if task is not None and task.state is State.DELETING:
            completion = task.attempt.completion_status
            if completion is not None and completion.is_one_of(_DISRUPTED):
                ctx.tracker.part(NoticeState).disrupted.add(task.key)

    def pod_gone(self, ctx: Context, task: TaskStatus) -> None:
        ctx.tracker.part(NoticeState).disrupted.discard(task.key)

    def hold_end(self, ctx: Context, completion: CompletionStatus | None) -> bool:
        """Give or withdraw the notice. Return whether the end waits for a checkpoint."""
        state = ctx.tracker.part(NoticeState)
        reason = _reason(ctx, state, completion)
        if completion is not None and not reason:
            _show_wait(ctx, state, None)
            return False
        if reason:
            state.is_asked()
            notice = _notice(ctx)
            # A checkpoint after the notice of a disruption may be hours old by now, and the reverse.
            if notice is None or (notice.reason == DISRUPTION) is not (reason == DISRUPTION):
                notice = _give(ctx, state, reason)
            held = completion is not None and _waits(ctx, state, notice)
            _show_wait(ctx, state, notice if held else None)
        else:
            held = False
            _show_wait(ctx, state, None)
            _withdraw(ctx, state)
        _show_to_pods(ctx, state)
        return held

    def finish(self, ctx: Context) -> None:
        """Forget the notice of the last attempt, together with which the next one begins."""
        notice = ctx.status.notice
        if notice is not None and notice.framework_attempt_id != ctx.attempt.id:
            ctx.tracker.part(NoticeState).set_notice(ctx.tracker, None)

    def conditions(self, ctx: Context, before: Mapping[str, Condition]) -> Mapping[str, Shown]:
        """Why the Framework is not suspended yet."""
        state, notice = ctx.tracker.find_part(NoticeState), ctx.status.notice
        if state is None or not state.waiting or notice is None or ctx.tracker.is_completing:
            return {}
        if not ctx.framework.spec.is_suspended:
            return {}
        return {"Suspended": Shown(False, NoticeReason.PENDING.value, f"spec.suspend is true; {state.waiting}")}

    def take(self, ctx: Context, outcome: Outcome) -> None:
        """Fold the outcome of a change of the ConfigMap."""
        target, result = outcome.action.target, outcome.result
        state = ctx.tracker.find_part(NoticeState)
        if state is None or target.attempt_id != ctx.attempt.id:
            return
        ctx.tracker.agenda.look()
        match result:
            case Patched() | Gone():
                ctx.tracker.holds.release(target.key)
            case NotAttempted():
                state.sent = None
            case _:
                state.sent = None
                hold(ctx, target, result, "change")

    def on_resync(self, tracker: Tracker) -> None:
        """Change the ConfigMap again, though the cache does not show the last change."""
        if (state := tracker.find_part(NoticeState)) is not None:
            state.sent = None

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        return key == names.NOTICE_KEY


# --- the decision -------------------------------------------------------------------------------------------------


def _reason(ctx: Context, state: NoticeState, completion: CompletionStatus | None) -> str:
    """The reason of a notice: of the end that is due, or of a disruption; "" if there is to be none."""
    if ctx.framework.spec.checkpoint_grace_seconds is None or ctx.framework.deleting or not ctx.tracker.counts.running:
        return ""
    reason = DISRUPTION if completion is None else _REASONS.get(completion.code, "")
    # Once its Pod is gone, the others have no one to write a checkpoint with.
    return "" if reason == DISRUPTION and not state.disrupted else reason


def _notice(ctx: Context) -> NoticeStatus | None:
    """The notice of this attempt."""
    notice = ctx.status.notice
    return notice if notice is not None and notice.framework_attempt_id == ctx.attempt.id else None


def _last_checkpoint(ctx: Context) -> int | None:
    """When the attempt reported its last checkpoint, as far as is known."""
    configmap, stored = ctx.observed.configmap, ctx.status.progress
    reports = [None if configmap is None else configmap.progress]
    if stored is not None and stored.framework_attempt_id == ctx.attempt.id:
        reports.append(stored)
    times = (one.last_checkpoint_time for one in reports if one is not None)
    return max((one for one in times if one is not None), default=None)


def _give(ctx: Context, state: NoticeState, reason: str) -> NoticeStatus:
    grace = ctx.framework.spec.checkpoint_grace_seconds or 0
    last = _last_checkpoint(ctx)
    time = ctx.env.second if last is None else max(ctx.env.second, last + 1)
    notice = NoticeStatus(ctx.attempt.id, reason, time, min(time + grace, LAST_TIME))
    state.set_notice(ctx.tracker, notice)
    text = f"FrameworkAttempt {ctx.attempt.id} is notified: {reason}, deadline {format_time(notice.deadline)}"
    ctx.record(NoticeReason.GIVEN, text)
    return notice


def _waits(ctx: Context, state: NoticeState, notice: NoticeStatus) -> bool:
    """Whether the end waits: the notice is not persisted, or neither a newer checkpoint nor the deadline has come."""
    due = state.due(ctx, notice)
    if not state.is_persisted:
        return True
    last = _last_checkpoint(ctx)
    if (last is not None and last >= notice.time) or due <= ctx.env.clock:
        return False
    ctx.tracker.agenda.look(None, due)
    return True


def _withdraw(ctx: Context, state: NoticeState) -> None:
    notice = _notice(ctx)
    if notice is None or (ctx.framework.invalid and notice.reason == DISRUPTION):
        # With an invalid spec, no Pods are observed.
        return
    if not state.may_withdraw(ctx, notice.reason):
        return
    state.set_notice(ctx.tracker, None)
    text = f"FrameworkAttempt {ctx.attempt.id} continues: its notice ({notice.reason}) is withdrawn"
    ctx.record(NoticeReason.WITHDRAWN, text)
    # Pods are created again.
    ctx.tracker.look_at_all()


def _show_wait(ctx: Context, state: NoticeState, notice: NoticeStatus | None) -> None:
    """Show for which notice the end waits, or (None) that it does not."""
    if notice is None:
        if state.waiting:
            state.waiting = ""
            ctx.tracker.holds.wait(None, None)
        return
    awaited = "for a checkpoint before" if ctx.framework.spec.progress is not None else "before"
    state.waiting = f"waits {awaited} {_WORDS.get(notice.reason, 'its end')}, until {format_time(notice.deadline)}"
    ctx.tracker.holds.wait(None, Wait(NoticeReason.PENDING, state.waiting))


# --- the ConfigMap ------------------------------------------------------------------------------------------------


def _show_to_pods(ctx: Context, state: NoticeState) -> None:
    """Let the ConfigMap, which is mounted in the Pods, have the persisted notice, or none."""
    configmap, notice = ctx.observed.configmap, _notice(ctx)
    if configmap is None or configmap.uid != ctx.attempt.configmap_uid or not state.is_persisted:
        return
    wanted = "" if notice is None else f"{notice.reason} {format_time(notice.deadline)}"
    target = replace(ctx.configmap_target(), part=names.NOTICE_KEY)
    if configmap.notice == wanted:
        state.sent = None
        ctx.tracker.holds.release(target.key)
    elif state.sent != wanted:
        change = orjson.dumps({"data": {names.NOTICE_KEY: wanted or None}})
        if ctx.tracker.holds.until(target.key) <= ctx.env.clock:
            state.sent = wanted
        ctx.act(Patch(target, configmap.uid, change))
