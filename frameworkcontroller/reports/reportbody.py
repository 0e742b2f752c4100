"""The body of a report, as Kubeflow's KEP-2779 has it. Pure.

Senders must not fail for a figure of their own, such as a loss of NaN or a metric that is a word: such metrics are left
out. A wrong type, or a number out of range, is an error that names field and value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from frameworkcontroller.api.problems import Problem, ProblemError
from frameworkcontroller.api.progressreports import MAX_COUNT, MAX_METRICS, MAX_NAME

_ROOT: Final = "trainerStatus"

_STEP_METRICS: Final = ("current_step", "global_step", "step")
"""Metrics with the number of the step, where a sender has no field for it: `transformers` sends the first."""

_TOTAL_METRIC: Final = "total_steps"
"""The metric with the number of all steps."""


class Mark(NamedTuple):
    """The fields that progress changes. None: never reported."""

    percentage: float | None = None
    step: int | None = None

    def differs(self, before: Mark) -> bool:
        """Whether it has another value. A field that is not in it has none."""
        return any(new is not None and new != old for new, old in zip(self, before, strict=True))

    def after(self, before: Mark) -> Mark:
        """This mark, with the former values of its missing fields."""
        percentage = before.percentage if self.percentage is None else self.percentage
        return Mark(percentage, before.step if self.step is None else self.step)


@dataclass(frozen=True, slots=True)
class Report:
    """One report. None: not in it. ``checkpoint``: a checkpoint was completed since the report before."""

    percentage: float | None = None
    remaining_seconds: int | None = None
    step: int | None = None
    metrics: tuple[tuple[str, float], ...] | None = None
    checkpoint: bool = False

    @property
    def mark(self) -> Mark:
        return Mark(self.percentage, self.step)


def parse_report(body: bytes) -> Report:
    """Parse the body of a report.

    Raises:
        ProblemError: it is invalid.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _error((), f"must be JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise _error((), "must be an object")
    status = parsed.get(_ROOT)
    if not isinstance(status, dict):
        raise _error((_ROOT,), "must be an object", status)
    if not isinstance(updated := status.get("lastUpdatedTime"), str | None):
        raise _error((_ROOT, "lastUpdatedTime"), "must be text", updated)
    if not isinstance(checkpoint := status.get("checkpoint", False), bool | None):
        raise _error((_ROOT, "checkpoint"), "must be true or false", checkpoint)
    listed = _metrics(status.get("metrics"))
    step = _whole(status, "step")
    if step is None and listed is not None:
        step = _step_in(listed)
    return Report(
        percentage=_number(status, "progressPercentage", 100.0),
        remaining_seconds=_whole(status, "estimatedRemainingSeconds"),
        step=step,
        metrics=None if listed is None else with_total(tuple(listed.items())[:MAX_METRICS], tuple(listed.items())),
        checkpoint=bool(checkpoint),
    )


def with_total(
    metrics: tuple[tuple[str, float], ...], others: tuple[tuple[str, float], ...]
) -> tuple[tuple[str, float], ...]:
    """The metrics, with the total of the steps from the others if they lack it: the last of `transformers` do."""
    total = tuple(one for one in others if one[0] == _TOTAL_METRIC)
    if not total or any(name == _TOTAL_METRIC for name, _ in metrics):
        return metrics
    return metrics[: MAX_METRICS - 1] + total


def _error(path: tuple[str | int, ...], text: str, *value: Any) -> ProblemError:
    return ProblemError(Problem(path, text, *value))


def _number(status: dict[str, Any], field: str, most: float) -> float | None:
    value = status.get(field)
    if value is None:
        return None
    if type(value) not in (int, float):
        raise _error((_ROOT, field), "must be a number", value)
    if not 0 <= value <= most:
        raise _error((_ROOT, field), f"must be between 0 and {most:.0f}", value)
    return float(value)


def _whole(status: dict[str, Any], field: str) -> int | None:
    value = _number(status, field, MAX_COUNT)
    return None if value is None else int(value)


def _metrics(listed: Any) -> dict[str, float] | None:
    """The usable metrics; the last one of a name counts."""
    if listed is None:
        return None
    if not isinstance(listed, list):
        raise _error((_ROOT, "metrics"), "must be a list", listed)
    found: dict[str, float] = {}
    for index, one in enumerate(listed):
        if not isinstance(one, dict):
            raise _error((_ROOT, "metrics", index), "must be an object", one)
        name, value = one.get("name"), one.get("value")
        if not isinstance(name, str):
            raise _error((_ROOT, "metrics", index, "name"), "must be text", name)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _error((_ROOT, "metrics", index, "value"), "must be a number, as such or as text", value)
        number = _finite(value)
        if number is not None and 0 < len(name) <= MAX_NAME and name.isprintable():
            found[name] = number
    return found


def _finite(value: str | float) -> float | None:
    if isinstance(value, str) and len(value) > 64:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _step_in(metrics: dict[str, float]) -> int | None:
    for name in _STEP_METRICS:
        value = metrics.get(name)
        if value is not None and 0 <= value <= MAX_COUNT:
            return int(value)
    return None
