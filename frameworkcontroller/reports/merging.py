"""How reports are merged into the progress of an attempt. Pure.

Several Pods may report, and each report may reach another replica, so two functions merge: `Pending.add` the reports
that one process gets, and `merged` the pending ones of a process into the stored progress. Rules:

- A field has its latest value; a report without it leaves it. So does the metric with the total of the steps.
- A report is a change if its step or percentage differs from the same Pod's report before, or if it has a checkpoint.
  The first report of a Pod is a change. The stored reporters have each Pod's last step and percentage, as the report
  before may have reached another replica.
- A checkpoint has the step of its report. Without one, it has the last step of the Pod, or else of any Pod.
- Times never go back. They are by the clocks of the replicas. A stored time in the future is of a clock that is ahead:
  the next change is one second later, so that every change shows.

A change is never missed. Where the order of the reports of two replicas is unknown, a report may count as one that is
none: once for each replica and change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from frameworkcontroller.api.progressreports import decode_progress, encode_progress
from frameworkcontroller.api.status import ProgressMetric, ProgressStatus
from frameworkcontroller.api.timestamps import LAST_TIME
from frameworkcontroller.reports.reportbody import Mark, Report, with_total

MAX_REPORTERS: Final = 32
"""Pods whose last report is stored. A report of another Pod is a change if none of these has its step and
percentage."""

_MAX_REPORTERS_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Reporter:
    """The last step and percentage of a Pod. ``since``, ``until``: the times of the first and the last such report."""

    mark: Mark
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class StoredProgress:
    """The stored progress of an attempt. Times are in seconds since the epoch. ``reporters``: by the Pod's UID."""

    report_time: int
    percentage: float | None = None
    remaining_seconds: int | None = None
    step: int | None = None
    metrics: tuple[tuple[str, float], ...] | None = None
    change_time: int | None = None
    checkpoint_time: int | None = None
    checkpoint_step: int | None = None
    reporters: Mapping[str, Reporter] = field(default_factory=dict)


@dataclass(slots=True)
class Pending:
    """Reports of one attempt that this process has not stored yet."""

    report_time: int = 0
    percentage: float | None = None
    remaining_seconds: int | None = None
    step: int | None = None
    metrics: tuple[tuple[str, float], ...] | None = None
    change_time: int | None = None
    """Of the last report that differs from the same Pod's report before, to this process."""
    checkpoint_time: int | None = None
    checkpoint_step: int | None = None
    """None: no step was known to this process."""
    reporters: dict[str, Reporter] = field(default_factory=dict)

    def add(self, pod_uid: str, report: Report, now: int, before: Reporter | None) -> Reporter:
        """Add a report. ``before``: the last result for this Pod, None if that is unknown."""
        self.report_time = max(self.report_time, now)
        self._take_figures(report)
        if before is None:
            reporter = Reporter(report.mark, now, now)
        elif report.mark.differs(before.mark):
            reporter = Reporter(report.mark.after(before.mark), now, now)
            self.change_time = _later(self.change_time, now)
        else:
            reporter = Reporter(before.mark, before.since, max(now, before.until))
        if report.checkpoint:
            self.change_time = _later(self.change_time, now)
            self.checkpoint_time = _later(self.checkpoint_time, now)
            self.checkpoint_step = self.step if reporter.mark.step is None else reporter.mark.step
        self.reporters[pod_uid] = reporter
        return reporter

    def add_all(self, newer: Pending) -> None:
        """Add the reports that came while these were being stored in vain."""
        self.report_time = max(self.report_time, newer.report_time)
        if newer.checkpoint_time is not None:
            self.checkpoint_step = self.step if newer.checkpoint_step is None else newer.checkpoint_step
        self._take_figures(newer)
        self.change_time = _later(self.change_time, newer.change_time)
        self.checkpoint_time = _later(self.checkpoint_time, newer.checkpoint_time)
        self.reporters |= newer.reporters

    def _take_figures(self, newer: Report | Pending) -> None:
        for name in ("percentage", "remaining_seconds", "step"):
            value = getattr(newer, name)
            if value is not None:
                setattr(self, name, value)
        if newer.metrics is not None:
            self.metrics = with_total(newer.metrics, self.metrics or ())


def merged(stored: StoredProgress | None, pending: Pending, now: int) -> StoredProgress:
    """Merge pending reports into the stored progress. ``now``: by the clock of this process."""
    stored = stored or StoredProgress(report_time=0)
    changed = _later(pending.change_time, _changed_elsewhere(stored, pending.reporters, now))
    is_latest = pending.report_time >= stored.report_time or stored.report_time > now

    def latest(name: str) -> Any:
        old, new = getattr(stored, name), getattr(pending, name)
        return old if new is None or (old is not None and not is_latest) else new

    metrics = latest("metrics")
    return StoredProgress(
        report_time=max(stored.report_time, pending.report_time),
        percentage=latest("percentage"),
        remaining_seconds=latest("remaining_seconds"),
        step=latest("step"),
        metrics=None if metrics is None else with_total(metrics, stored.metrics or ()),
        change_time=_advanced(stored.change_time, changed, now),
        checkpoint_time=_advanced(stored.checkpoint_time, pending.checkpoint_time, now),
        checkpoint_step=_checkpoint_step(stored, pending, now),
        reporters=_reporters(stored.reporters, pending.reporters, now),
    )


def _checkpoint_step(stored: StoredProgress, pending: Pending, now: int) -> int | None:
    """The step of the later checkpoint."""
    if pending.checkpoint_time is None:
        return stored.checkpoint_step
    if stored.checkpoint_time is not None and pending.checkpoint_time < stored.checkpoint_time <= now:
        return stored.checkpoint_step
    return stored.step if pending.checkpoint_step is None else pending.checkpoint_step


def _changed_elsewhere(stored: StoredProgress, reporters: Mapping[str, Reporter], now: int) -> int | None:
    """The time of the last report that differs from the stored one of its Pod."""
    changed: int | None = None
    marks = {one.mark for one in stored.reporters.values()}
    for uid, reporter in reporters.items():
        known = stored.reporters.get(uid)
        if known is None:
            if len(stored.reporters) < MAX_REPORTERS or reporter.mark not in marks:
                changed = _later(changed, reporter.since)
        elif reporter.mark.differs(known.mark):
            # If the other report came between these, the last of these is the one that differs.
            is_after = reporter.since >= known.until or known.until > now
            changed = _later(changed, reporter.since if is_after else reporter.until)
    return changed


def _reporters(stored: Mapping[str, Reporter], new: Mapping[str, Reporter], now: int) -> Mapping[str, Reporter]:
    found = dict(stored)
    for uid, reporter in new.items():
        known = stored.get(uid)
        if known is None:
            found[uid] = reporter
        elif reporter.until >= known.until or known.until > now:
            found[uid] = replace(reporter, mark=reporter.mark.after(known.mark))
    if len(found) > MAX_REPORTERS:
        # The order of the UIDs makes it the same in all replicas.
        newest = sorted(found.items(), key=lambda item: (item[1].until, item[0]), reverse=True)[:MAX_REPORTERS]
        return dict(newest)
    return found


def _later(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _advanced(stored: int | None, new: int | None, now: int) -> int | None:
    if stored is None or new is None:
        return new if stored is None else stored
    return min(stored + 1, LAST_TIME) if stored > now else max(stored, new)


# --- the data of the ConfigMap ---


def encode_stored(progress: StoredProgress) -> str:
    """The value of the key ``progress``."""
    return encode_progress(
        ProgressStatus(
            percentage=None if progress.percentage is None else int(progress.percentage),
            remaining_seconds=progress.remaining_seconds,
            step=progress.step,
            metrics=[ProgressMetric(*one) for one in progress.metrics or ()],
            last_report_time=progress.report_time,
            last_change_time=progress.change_time,
            last_checkpoint_time=progress.checkpoint_time,
            last_checkpoint_step=progress.checkpoint_step,
        )
    )


def encode_reporters(reporters: Mapping[str, Reporter]) -> str:
    """The value of the key ``reporters``."""
    return orjson.dumps({uid: [*one.mark, one.since, one.until] for uid, one in reporters.items()}).decode()


def decode_stored(progress: Any, reporters: Any) -> StoredProgress | None:
    """The progress in the two values. None if it is absent or invalid: users can edit it."""
    found = decode_progress(progress, 0)
    if found is None or found.last_report_time is None:
        return None
    return StoredProgress(
        report_time=found.last_report_time,
        percentage=found.percentage,
        remaining_seconds=found.remaining_seconds,
        step=found.step,
        metrics=tuple((one.name, one.value) for one in found.metrics) or None,
        change_time=found.last_change_time,
        checkpoint_time=found.last_checkpoint_time,
        checkpoint_step=found.last_checkpoint_step,
        reporters=_decode_reporters(reporters),
    )


def _decode_reporters(text: Any) -> Mapping[str, Reporter]:
    if not isinstance(text, str) or len(text) > _MAX_REPORTERS_BYTES:
        return {}
    try:
        return {
            uid: Reporter(Mark(percentage, step), int(since), int(until))
            for uid, (percentage, step, since, until) in list(orjson.loads(text).items())[:MAX_REPORTERS]
        }
    except (ValueError, TypeError, AttributeError, OverflowError):
        return {}
