"""Reported progress in words."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.status import (
    FrameworkAttemptStatus,
    FrameworkStatus,
    ProgressMetric,
    ProgressStatus,
    State,
)
from frameworkcontroller.views.shownprogress import ShownProgress, figure, interval_of, progress_of, shown_progress
from frameworkcontroller.views.summary import summarize
from tests.support import pagesamples as samples

NOW = 10_000


def shown(attempt: int = 0, state: State = State.RUNNING, interval: int = 0, **fields: Any) -> ShownProgress:
    """The progress of attempt 0 in a Framework that is in this attempt and state. ``metrics``: by name."""
    metrics = [ProgressMetric(name, value) for name, value in fields.pop("metrics", {}).items()]
    return shown_progress(ProgressStatus(metrics=metrics, **fields), attempt, state, interval)


FULL: dict[str, Any] = {
    "percentage": 42,
    "step": 1200,
    "metrics": {"learning_rate": 2.517e-05, "total_steps": 5000.0, "epoch": 3.0, "eval_loss": 0.5, "loss": 0.25},
    "remaining_seconds": 720,
    "last_report_time": NOW - 60,
    "last_checkpoint_time": NOW - 180,
}


@pytest.mark.parametrize(
    ("one", "sentence", "short"),
    [
        (
            shown(**FULL),
            "42%, step 1,200 of 5,000, eval_loss 0.5, loss 0.25, learning_rate 2.517e-05, 11m left, "
            "last checkpoint 3m ago",
            "42%, 11m left",
        ),
        (shown(percentage=0, last_report_time=NOW), "0%", "0%"),
        (shown(step=7, last_report_time=NOW), "step 7", "step 7"),
        (shown(step=7, metrics={"total_steps": 3.0}), "step 7", "step 7"),
        (shown(step=7, metrics={"total_steps": 1e300}), "step 7 of 1e+300", "step 7 of 1e+300"),
        (shown(step=0, metrics={"total_steps": 0.0}), "step 0", "step 0"),
        (shown(metrics={"reward": 3.0}), "reward 3", "reward 3"),
        (shown(last_checkpoint_time=NOW - 5), "last checkpoint 5s ago", ""),
        # Of a remaining time, the time since the report is over.
        (
            shown(percentage=99, remaining_seconds=10, last_report_time=NOW - 30),
            "99%, 0s left",
            "99%, 0s left",
        ),
        # A report of a replica whose clock is ahead.
        (
            shown(percentage=9, remaining_seconds=10, last_report_time=NOW + 30),
            "9%, 10s left",
            "9%, 10s left",
        ),
        # Further reports are missing: the remaining time is not known.
        (
            shown(percentage=42, remaining_seconds=720, last_report_time=NOW - 181),
            "42%, last report 3m1s ago",
            "42%, last report 3m1s ago",
        ),
        # The attempt is over.
        (
            shown(state=State.ATTEMPT_COMPLETED, **FULL),
            "42%, step 1,200 of 5,000, eval_loss 0.5, loss 0.25, learning_rate 2.517e-05",
            "42%",
        ),
        (
            shown(
                state=State.COMPLETED, percentage=42, remaining_seconds=5, last_report_time=1, last_checkpoint_time=1
            ),
            "42%",
            "42%",
        ),
        # The next attempt has not reported.
        (
            shown(2, percentage=42, remaining_seconds=5, last_report_time=1, last_checkpoint_time=1),
            "attempt 0: 42%",
            "42% (attempt 0)",
        ),
        (shown(2, last_checkpoint_time=1), "attempt 0", "(attempt 0)"),
    ],
)
def test_words(one: ShownProgress, sentence: str, short: str) -> None:
    assert (one.sentence(NOW), one.short(NOW)) == (sentence, short)


@pytest.mark.parametrize(
    ("interval", "age", "stale"),
    [(0, 180, False), (0, 181, True), (60, 180, False), (60, 181, True), (600, 1800, False), (600, 1801, True)],
)
def test_a_report_is_old_after_three_intervals_and_three_minutes(interval: int, age: int, stale: bool) -> None:
    assert shown(interval=interval, last_report_time=NOW - age).is_stale(NOW) is stale
    assert not shown(state=State.DELETING, interval=interval, last_report_time=NOW - age).is_stale(NOW)
    assert not shown(1, interval=interval, last_report_time=NOW - age).is_stale(NOW)
    assert not shown(interval=interval).is_stale(NOW)


def test_losses_come_first_and_names_are_one_line_without_control_characters() -> None:
    names = ["b", "train_loss", "current_step", "global_step", "step", "total_steps", "lossy", "loss", "a\x1b[31m\nx"]
    metrics = shown(metrics=dict.fromkeys(names, 0.5)).metrics
    assert metrics == [("train_loss", "0.5"), ("loss", "0.5"), ("b", "0.5"), ("lossy", "0.5"), ("a [31m x", "0.5")]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.25, "0.25"), (1200.0, "1,200"), (2.517e-05, "2.517e-05"), (-3.0, "-3"), (0.123456, "0.1235"), (1e15, "1e+15")],
)
def test_figures(value: float, text: str) -> None:
    assert figure(value) == text


def test_the_bar_of_a_terminal() -> None:
    assert shown(percentage=42, last_report_time=NOW).line(NOW).plain == f"{'━' * 8}{'─' * 12}  42%"
    assert shown(percentage=100).line(NOW).plain == f"{'━' * 20}  100%"
    assert shown(step=3).line(NOW).plain == "step 3"


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({}, 0),
        ({"spec": {}}, 0),
        ({"spec": {"progress": {}}}, 0),
        ({"spec": {"progress": {"intervalSeconds": 90}}}, 90),
        ({"spec": {"progress": {"intervalSeconds": "x"}}}, 0),
        ({"spec": 1}, 0),
    ],
)
def test_the_interval_of_an_object(body: dict[str, Any], seconds: int) -> None:
    assert interval_of(body) == seconds


def test_a_status_without_reports_has_none() -> None:
    status = FrameworkStatus(0, 0, FrameworkAttemptStatus(0, 0), State.RUNNING)
    assert progress_of(None, 0) is None
    assert progress_of(status, 0) is None
    assert b"progress" not in encode_status("f", status)


def test_a_summary_has_the_progress_unless_it_cannot_be_read() -> None:
    body = samples.training()
    summary = summarize(body)
    assert summary.progress is not None
    assert summary.progress.short(samples.NOW) == "42%, 1h9m left"
    for bad in ("x", {"percentage": "y"}, {"metrics": 3}):
        body["status"]["progress"] = bad
        summary = summarize(body)
        assert (summary.progress, summary.unreadable) == (None, False)
