"""Reported progress as people read it: percentage, step, metrics, remaining time, and the age of an old report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from frameworkcontroller.api.status import FrameworkStatus, ProgressMetric, ProgressStatus, State
from frameworkcontroller.views.texts import clean_line, duration

_BAR_CELLS: Final = 20
_LEAST_STALE_SEC: Final = 180
_STALE_INTERVALS: Final = 3
"""A report is at most one interval old, and the status up to a minute more."""

_LINE_METRICS: Final = 3
_TOTAL: Final = "total_steps"
_OF_STEP: Final = frozenset({"current_step", "global_step", "step", _TOTAL})
"""Metrics that the text of the step includes."""

_ENDED: Final = frozenset(
    {
        State.DELETION_PENDING,
        State.DELETION_REQUESTED,
        State.DELETING,
        State.ATTEMPT_COMPLETED,
        State.COMPLETED,
    }
)


@dataclass(frozen=True, slots=True)
class ShownProgress:
    """The last reported progress of a Framework.

    ``is_over``: its attempt has ended. ``earlier``: its attempt, if that is not the current one. ``interval``: seconds
    between two reports.
    """

    progress: ProgressStatus
    is_over: bool
    earlier: int | None
    interval: int

    @property
    def percentage(self) -> int | None:
        return self.progress.percentage

    @property
    def step(self) -> str:
        """``1,200 of 5,000``; "" without a step."""
        if self.progress.step is None:
            return ""
        total = next((one.value for one in self.progress.metrics if one.name == _TOTAL), 0)
        return f"{self.progress.step:,}{f' of {figure(total)}' if total >= max(1, self.progress.step) else ''}"

    @property
    def metrics(self) -> Sequence[tuple[str, str]]:
        """Names and figures, losses first. The step includes the others."""
        shown = [one for one in self.progress.metrics if one.name not in _OF_STEP]
        shown.sort(key=lambda one: not _is_loss(one))
        return [(clean_line(one.name), figure(one.value)) for one in shown]

    @property
    def attempt(self) -> str:
        """``attempt 2`` for an earlier attempt, else ""."""
        return "" if self.earlier is None else f"attempt {self.earlier}"

    def remaining(self, now: float) -> int | None:
        """Return the seconds that remain by the last report; None if it is old, the attempt over, or none reported."""
        seconds, reported = self.progress.remaining_seconds, self.progress.last_report_time
        if seconds is None or reported is None or self.is_over or self.is_stale(now):
            return None
        return max(0, seconds - max(0, int(now) - reported))

    def is_stale(self, now: float) -> bool:
        """Return whether further reports are missing."""
        reported, limit = self.progress.last_report_time, max(_LEAST_STALE_SEC, _STALE_INTERVALS * self.interval)
        return not self.is_over and reported is not None and now - reported > limit

    @property
    def facts(self) -> list[str]:
        """Percentage, step and the first metrics: the words that do not change with time."""
        percentage = "" if self.percentage is None else f"{self.percentage}%"
        metrics = [f"{name} {value}" for name, value in self.metrics[:_LINE_METRICS]]
        return [*filter(None, (percentage, self.step and f"step {self.step}")), *metrics]

    def sentence(self, now: float) -> str:
        """Return ``42%, step 1,200, loss 0.25, 12m left, last checkpoint 3m ago``."""
        text = ", ".join([*self.facts, *self._times(now, checkpoint=True)])
        return ": ".join(filter(None, (self.attempt, text)))

    def short(self, now: float) -> str:
        """Return ``42%, 12m left``."""
        text = ", ".join([*self.facts[:1], *self._times(now, checkpoint=False)])
        return " ".join(filter(None, (text, self.attempt and f"({self.attempt})")))

    def _times(self, now: float, *, checkpoint: bool) -> Iterator[str]:
        progress = self.progress
        if (left := self.remaining(now)) is not None:
            yield f"{duration(left)} left"
        if checkpoint and progress.last_checkpoint_time is not None and not self.is_over:
            yield f"last checkpoint {duration(now - progress.last_checkpoint_time)} ago"
        if progress.last_report_time is not None and self.is_stale(now):
            yield f"last report {duration(now - progress.last_report_time)} ago"

    def line(self, now: float) -> Text:
        """Return bar and sentence for a terminal."""
        text = Text()
        if self.percentage is not None:
            full = _BAR_CELLS * self.percentage // 100
            text.append("━" * full, "cyan" if self.is_over else "green").append("─" * (_BAR_CELLS - full), "dim")
            text.append("  ")
        return text.append(self.sentence(now), "yellow" if self.is_stale(now) else "")


def interval_of(framework: Mapping[str, Any]) -> int:
    """Return ``progress.intervalSeconds`` of an API object; 0 without one."""
    spec = framework.get("spec")
    progress = spec.get("progress") if isinstance(spec, Mapping) else None
    seconds = progress.get("intervalSeconds") if isinstance(progress, Mapping) else None
    return seconds if isinstance(seconds, int) else 0


def progress_of(status: FrameworkStatus | None, interval: int) -> ShownProgress | None:
    """Return the progress in the status. ``interval``: of the spec, 0 without one."""
    if status is None or status.progress is None:
        return None
    return shown_progress(status.progress, status.attempt.id, status.state, interval)


def shown_progress(progress: ProgressStatus, attempt: int, state: str, interval: int) -> ShownProgress:
    """Return the progress of a Framework in that attempt and state."""
    of_other = progress.framework_attempt_id != attempt
    return ShownProgress(
        progress, of_other or state in _ENDED, progress.framework_attempt_id if of_other else None, interval
    )


def figure(value: float) -> str:
    """Format a metric: ``0.25``, ``1,200``, ``2.517e-05``."""
    return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def _is_loss(metric: ProgressMetric) -> bool:
    return metric.name == "loss" or metric.name.endswith("_loss")
