"""The part of ``spec.progress``: the fields by which Pods report, and ``status.progress``.

Source: docs/lifecycle.md, "Progress". The report server writes reports into the ConfigMap of the attempt, whose watch
brings them. The tracked status has them at once; no action waits until they are persisted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import FrameworkSpec, TaskRoleSpec
from frameworkcontroller.api.status import Condition, FrameworkStatus, ProgressStatus, State
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.model import Limits, Urgency
from frameworkcontroller.machine.kernel.part import Part, PartState, Shown
from frameworkcontroller.machine.kernel.reasons import Reason, event
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.progress.reportingpods import ReportingPods

SHOW_SEC: Final = 60.0
"""Shortest time between two status writes for progress alone; a longer ``intervalSeconds`` counts instead."""

CHECKPOINT_SEC: Final = 10.0
"""The same for a new checkpoint."""

EARLY_SEC: Final = 10.0
"""The same after the first report, which often comes before the first step. The time doubles until the above."""

CONDITION: Final = "ProgressUnavailable"

_UNAVAILABLE: Final = "The controller has no report server (progressReports.bindAddress), so programs cannot report"


class ProgressReason(Reason):
    """The reasons of ``spec.progress``."""

    NO_SERVER = event("NoReportServer", "spec.progress has no effect, as the controller has no report server")


class ReadReports(PartState):
    """The report of the attempt that was read last, and when it is written."""

    __slots__ = ("began_at", "is_checkpoint", "read", "shown_at", "unwritten")
    of_attempt: ClassVar[bool] = True

    def __init__(self) -> None:
        self.read: ProgressStatus | None = None
        self.unwritten = False
        """Whether the tracked status has progress that the stored one has not."""
        self.is_checkpoint = False
        """Whether that has a new checkpoint."""
        self.began_at: float | None = None
        """When (monotonic seconds) this process read the first report. None: another process read it."""
        self.shown_at: float | None = None
        """When (monotonic seconds) a write with progress was last awaited. None: by this process never."""

    def record(self, status: FrameworkStatus, progress: ProgressStatus, *, is_checkpoint: bool) -> None:
        """Record reported progress, which the next write has. No action waits for it, so it is no change."""
        status.progress = progress
        self.unwritten = True
        self.is_checkpoint |= is_checkpoint

    def show(self, tracker: Tracker, clock: float) -> None:
        """Ask for a write."""
        self.shown_at = clock
        tracker.urgency = max(tracker.urgency, Urgency.SHOWN)

    def on_persisted(self, tracker: Tracker) -> None:
        self.unwritten = self.is_checkpoint = False


class ProgressPart(Part):
    """Reports of progress, and the volume that shows a notice."""

    reasons: ClassVar[type[Reason]] = ProgressReason

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        spec = framework.spec
        return spec.progress is None and spec.checkpoint_grace_seconds is None and not framework.invalid

    # --- status.progress ---

    def before(self, ctx: Context) -> None:
        """Take the report in the attempt's ConfigMap into the status."""
        # While the spec is invalid, it is not known whether it has progress.
        if (ctx.framework.spec.progress is None and not ctx.framework.invalid) or ctx.status.state in ENDED:
            return
        state = ctx.tracker.part(ReadReports)
        reported = _reported(ctx)
        # A time in the future counts as the time at which it is read, once.
        if reported is not None and reported != state.read:
            state.read = reported
            _take(ctx, state, reported)
        if state.unwritten:
            _show_in_time(ctx, state)

    def finish(self, ctx: Context) -> None:
        """Record that there is no report server, once."""
        shown = any(one.type == CONDITION for one in ctx.status.conditions)
        if not shown and _is_unavailable(ctx):
            ctx.record(ProgressReason.NO_SERVER, f"{_UNAVAILABLE}: spec.progress has no effect", warning=True)

    def conditions(self, ctx: Context, before: Mapping[str, Condition]) -> Mapping[str, Shown]:
        return {CONDITION: Shown(True, ProgressReason.NO_SERVER, _UNAVAILABLE)} if _is_unavailable(ctx) else {}

    # --- the fields of Pods ---

    def configmap_data(self, ctx: Context) -> Mapping[str, str]:
        """The CA of the report server for the Pods, and the interval for the report server."""
        progress, reporting = ctx.framework.spec.progress, ctx.env.limits.reporting
        if progress is None or reporting is None:
            return {}
        return {names.CA_KEY: reporting.ca_pem, names.INTERVAL_KEY: str(progress.interval_seconds)}

    def shape(self, ctx: Context, role: TaskRoleSpec) -> ReportingPods | None:
        """The fields for the Pods that report, or are to see a notice."""
        spec, framework, reporting = ctx.framework.spec, ctx.framework, ctx.env.limits.reporting
        notice, configmap = spec.checkpoint_grace_seconds is not None, ctx.observed.configmap
        name = names.configmap_name(framework.name)
        # The ConfigMap may be older than spec.progress: reports begin with the next attempt.
        can_report = configmap is not None and configmap.has_ca and _reports(spec, role.name)
        if reporting is not None and can_report:
            url = reporting.url_of(framework.namespace, framework.name, ctx.attempt.id)
            return ReportingPods(name, url, reporting.audience, notice)
        return ReportingPods(name, notice=True) if notice else None


def _reports(spec: FrameworkSpec, role: str) -> bool:
    """Whether Pods of the role report: of the coordinator's, or of all without one."""
    return spec.progress is not None and (spec.coordinator is None or spec.coordinator.task_role == role)


def _is_unavailable(ctx: Context) -> bool:
    is_wanted = ctx.framework.spec.progress is not None and ctx.status.state is not State.COMPLETED
    return is_wanted and ctx.env.limits.reporting is None


def _reported(ctx: Context) -> ProgressStatus | None:
    """The last report in the ConfigMap of this attempt, as the cache shows it, or showed it last."""
    for configmap in (ctx.observed.configmap, ctx.tracker.life.dropped_configmap):
        if configmap is not None and configmap.uid == ctx.attempt.configmap_uid:
            found = configmap.progress
            return None if found is None or found.last_report_time is None else found
    return None


def _take(ctx: Context, state: ReadReports, reported: ProgressStatus) -> None:
    before, attempt, now = ctx.status.progress, ctx.attempt.id, ctx.env.second
    is_first = before is None or before.framework_attempt_id != attempt
    known = ProgressStatus() if before is None or is_first else before
    found = replace(
        reported,
        framework_attempt_id=attempt,
        first_report_time=known.first_report_time or _later(None, reported.last_report_time, now),
        last_report_time=_later(known.last_report_time, reported.last_report_time, now),
        last_change_time=_later(known.last_change_time, reported.last_change_time, now),
        last_checkpoint_time=_later(known.last_checkpoint_time, reported.last_checkpoint_time, now),
        last_checkpoint_step=_last_checkpoint(known, reported).last_checkpoint_step,
    )
    if found == before:
        return
    is_checkpoint = found.last_checkpoint_time != known.last_checkpoint_time
    state.record(ctx.status, found, is_checkpoint=is_checkpoint)
    if is_first:
        state.began_at = ctx.env.clock
        state.show(ctx.tracker, ctx.env.clock)


def _last_checkpoint(known: ProgressStatus, reported: ProgressStatus) -> ProgressStatus:
    """The one with the later checkpoint."""
    if reported.last_checkpoint_time is None:
        return known
    is_older = known.last_checkpoint_time is not None and reported.last_checkpoint_time < known.last_checkpoint_time
    return known if is_older else reported


def _later(known: int | None, reported: int | None, now: int) -> int | None:
    """The later time, where one in the future counts as now."""
    if reported is None or known is None:
        return known if reported is None else min(reported, now)
    return max(known, min(reported, now))


def _show_in_time(ctx: Context, state: ReadReports) -> None:
    """Ask for a write of progress alone, or look again when it is due."""
    progress, clock = ctx.framework.spec.progress, ctx.env.clock
    interval = 0.0 if progress is None else progress.interval_seconds
    if state.shown_at is None:
        # After a restart, not all Frameworks are written at once.
        state.shown_at = clock + max(SHOW_SEC, interval) * (ctx.env.rng.random() - 1)
    early = SHOW_SEC if state.began_at is None else max(EARLY_SEC, state.shown_at - state.began_at)
    wait = max(min(SHOW_SEC, early), interval)
    due = state.shown_at + (CHECKPOINT_SEC if state.is_checkpoint else wait)
    if due <= clock:
        state.show(ctx.tracker, clock)
    elif ctx.tracker.urgency is Urgency.NONE:
        ctx.tracker.agenda.look(None, due)
    else:
        # A write comes anyway.
        state.shown_at = clock
