"""The end of an attempt without progress: spec.progress.deadlineSeconds and startDeadlineSeconds.

Source: docs/lifecycle.md, "Hangs". It never acts on ignorance: the clock is in memory and monotonic, and starts again
whenever a report may have escaped this process, or the attempt had a reason to make no progress. A live read of the
ConfigMap precedes each end. Times of reports are compared for equality only: they are of other clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import NO_PROGRESS, CompletionStatus
from frameworkcontroller.api.objects import ConfigMapRecord, Framework, ObjectError, configmap_record
from frameworkcontroller.api.spec import ExecutionType, Progress
from frameworkcontroller.api.status import ProgressStatus, State
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import Outcome, PartAction
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import ActionResult, Exchange, Gone, NotAttempted, NotDoneError, read
from frameworkcontroller.machine.kernel.model import Limits
from frameworkcontroller.machine.kernel.outcomes import back_off_quietly, hold
from frameworkcontroller.machine.kernel.part import EndPhase, Part, PartState
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind, Target, Unanswered
from frameworkcontroller.machine.kernel.tracker import Tracker

WRITE_SEC: Final = 10
"""Time in which a report server writes a report that is due."""

READ_SEC: Final = 30
"""Age from which on a live read proves nothing."""

_PART: Final = "progress"


class HangReason(Reason):
    """The reasons of ``spec.progress``."""

    OVERDUE = "ProgressOverdue", "a deadline of spec.progress is over, and a live read follows before the attempt ends"


Mark = tuple[int | None, int | None]
"""The times of the last change and the last checkpoint. Report servers let one of them differ after each progress."""


def mark_of(progress: ProgressStatus | None) -> Mark | None:
    """None before the first report."""
    return None if progress is None else (progress.last_change_time, progress.last_checkpoint_time)


class HangClock(PartState):
    """The clock of one attempt, in monotonic seconds."""

    __slots__ = ("confirmed_at", "interval", "mark", "reported", "since")
    of_attempt: ClassVar[bool] = True

    def __init__(self) -> None:
        self.since: float | None = None
        """When it started, for this process; None: it stands still."""
        self.mark: Mark | None = None
        """The progress at that time."""
        self.interval = 0
        """The interval of the attempt's report servers, if a live read has shown a longer one than the spec has."""
        self.confirmed_at: float | None = None
        """When a live read began that has found nothing newer than ``mark``."""
        self.reported = False
        """Whether it is recorded that the deadline is over."""

    def start(self, clock: float, mark: Mark | None) -> None:
        self.since, self.mark, self.confirmed_at, self.reported = clock, mark, None, False

    def stop(self) -> None:
        self.since = self.confirmed_at = None


@dataclass(frozen=True, slots=True)
class Reported(ActionResult):
    """The ConfigMap of that UID. ``interval``: of its report servers; None: the attempt does not report."""

    uid: str
    mark: Mark | None
    interval: int | None


@dataclass(frozen=True, slots=True, eq=False)
class ReadProgress(PartAction):
    """Read the reported progress live. ``asked_at``: monotonic seconds."""

    asked_at: float

    def exchange(self) -> Exchange:
        body = yield from read(Kind.CONFIGMAP, self.target.name, whole=True)
        if body is None:
            return Gone()
        try:
            found: Any = orjson.loads(body)
            record, interval = configmap_record(found), (found.get("data") or {}).get(names.INTERVAL_KEY)
        except (ObjectError, ValueError, AttributeError) as error:
            raise NotDoneError(Unanswered(f"the API server's answer is not a valid ConfigMap: {error}")) from error
        seconds = int(interval) if isinstance(interval, str) and interval.isdecimal() and len(interval) < 6 else None
        return Reported(record.uid, mark_of(record.progress), seconds)


class HangPart(Part):
    """The deadlines of progress."""

    reasons: ClassVar[type[Reason]] = HangReason
    target_part: ClassVar[str] = _PART

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return not _has_deadline(framework.spec.progress) and tracker.find_part(HangClock) is None

    def begin(self, ctx: Context) -> None:
        """Look at the attempt in every plan, also in one that decides nothing else."""
        _observe(ctx)

    def why_end(self, ctx: Context, phase: EndPhase) -> CompletionStatus | None:
        """The completion of an attempt that hangs. Its Tasks have observed their Pods, and nothing else ends it."""
        if phase is not EndPhase.BY_TASKS or ctx.ends:
            return None
        _observe(ctx)
        due, confirmed_at = due_at(ctx), ctx.tracker.part(HangClock).confirmed_at
        if due is None or confirmed_at is None or not due <= confirmed_at >= ctx.env.clock - READ_SEC:
            return None
        return CompletionStatus.of(NO_PROGRESS, _describe(ctx))

    def after_tasks(self, ctx: Context) -> None:
        """Look again when the deadline is over; then read live whether it is."""
        if (due := due_at(ctx)) is None:
            if (limit := limit_of(ctx)) is not None:
                # The clock may start at any time, which is no event.
                ctx.tracker.agenda.look(None, ctx.env.clock + limit)
        elif due > ctx.env.clock:
            ctx.tracker.agenda.look(None, due)
        else:
            clock = ctx.tracker.part(HangClock)
            if not clock.reported:
                clock.reported = True
                ctx.record(HangReason.OVERDUE, _describe(ctx), warning=True)
            ctx.act(ReadProgress(_target(ctx), ctx.env.clock))

    def take(self, ctx: Context, outcome: Outcome) -> None:
        """Fold a live read. Without an answer, nothing ends."""
        action, result, clock = outcome.action, outcome.result, ctx.tracker.find_part(HangClock)
        if not isinstance(action, ReadProgress) or clock is None or action.target != _target(ctx):
            return
        ctx.tracker.agenda.look()
        match result:
            case NotAttempted():
                pass
            case Reported() if result.uid == ctx.attempt.configmap_uid:
                ctx.tracker.holds.release(_PART)
                _take_report(ctx, clock, action, result)
            case Reported() | Gone():
                back_off_quietly(ctx, action.target, f"ConfigMap {action.target.name} is another one")
                clock.stop()
            case _:
                hold(ctx, action.target, result, "read")


def _take_report(ctx: Context, clock: HangClock, action: ReadProgress, found: Reported) -> None:
    if clock.since is None or clock.since > action.asked_at:
        return
    if found.interval is None or found.mark != clock.mark:
        # Its Pods have no address to report to, or the cache will show the progress soon.
        clock.start(ctx.env.clock, clock.mark)
        return
    clock.interval = max(clock.interval, found.interval)
    clock.confirmed_at = action.asked_at


# --- the clock --------------------------------------------------------------------------------------------------------


def _observe(ctx: Context) -> None:
    clock = ctx.tracker.part(HangClock)
    configmap = ctx.observed.configmap
    if not (is_asked_for(ctx) and is_seen(ctx, configmap) and tasks_run(ctx)) or configmap is None:
        if clock.since is not None:
            clock.stop()
            ctx.tracker.holds.release(_PART)
        return
    mark = mark_of(configmap.progress)
    if clock.since is None or mark != clock.mark:
        clock.start(ctx.env.clock, mark)


def is_asked_for(ctx: Context) -> bool:
    """Whether the attempt is to make progress: no one has asked for its end, or for a wait."""
    spec = ctx.framework.spec
    if ctx.framework.deleting or ctx.framework.invalid or spec.is_suspended:
        return False
    return spec.execution_type is ExecutionType.START and not ctx.tracker.is_completing


def is_seen(ctx: Context, configmap: ConfigMapRecord | None) -> bool:
    """Whether the cache shows the ConfigMap of the attempt, in which its reports are."""
    return configmap is not None and configmap.uid == ctx.attempt.configmap_uid and not configmap.identity.deleting


def tasks_run(ctx: Context) -> bool:
    """Whether each Task runs or is completed: none waits for a Pod, for its next attempt or for other roles."""
    states = ctx.tracker.task_states
    return ctx.status.state is State.RUNNING and states[State.RUNNING] > 0 and states.are_at_rest


def since_of(ctx: Context) -> float | None:
    """The start of the clock, None while it stands still: by this process, each report since then would be known."""
    clock, known_since = ctx.tracker.part(HangClock), ctx.env.reports_since
    return None if clock.since is None or known_since is None else max(clock.since, known_since)


def limit_of(ctx: Context) -> int | None:
    """The seconds after which the attempt ends, None without a deadline.

    A report may wait for an interval and its write, so a deadline is over that much later.
    """
    clock, progress = ctx.tracker.part(HangClock), ctx.framework.spec.progress
    if progress is None:
        return None
    seconds = progress.start_deadline_seconds if clock.mark is None else progress.deadline_seconds
    return None if seconds is None else seconds + max(progress.interval_seconds, clock.interval) + WRITE_SEC


def due_at(ctx: Context) -> float | None:
    """When the deadline is over, None while there is none."""
    since, limit = since_of(ctx), limit_of(ctx)
    return None if since is None or limit is None else since + limit


def _has_deadline(progress: Progress | None) -> bool:
    return progress is not None and (progress.deadline_seconds, progress.start_deadline_seconds) != (None, None)


def _describe(ctx: Context) -> str:
    """Return why the attempt hangs, by the last report in the cache."""
    since, progress, spec = since_of(ctx), _progress(ctx), ctx.framework.spec.progress
    seconds = 0 if since is None else int(ctx.env.clock - since)
    if progress is None:
        started = ctx.attempt.run_time
        when = "" if started is None else f" since the first container ran at {format_time(started)}"
        limit = None if spec is None else spec.start_deadline_seconds
        return f"No report of progress for {seconds}s or more{when}: startDeadlineSeconds is {limit}"
    changed, reported = progress.last_change_time, progress.last_report_time
    when = "" if changed is None else f" since {format_time(changed)}"
    step = "" if progress.step is None else f" at step {progress.step}"
    share = "" if progress.percentage is None else f" at {progress.percentage}%"
    last = "" if reported is None else f"; the last report arrived at {format_time(reported)}"
    limit = None if spec is None else spec.deadline_seconds
    return f"No progress for {seconds}s or more{when}{step or share}: deadlineSeconds is {limit}{last}"


def _progress(ctx: Context) -> ProgressStatus | None:
    return None if ctx.observed.configmap is None else ctx.observed.configmap.progress


def _target(ctx: Context) -> Target:
    return Target(Kind.CONFIGMAP, names.configmap_name(ctx.framework.name), ctx.attempt.id, part=_PART)
