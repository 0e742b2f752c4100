"""The columns of ``history NAME`` for long training."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.commands.history.attemptcolumns import (
    TOTAL,
    cost_columns,
    failure_columns,
    has_steps,
    lost_steps,
    step_columns,
    total_row,
)


def attempt(number: int, code: int | None = 1, step: int | None = None, saved: int | None = None, **more: Any) -> Any:
    return {
        "id": number,
        "code": code,
        "type": "Succeeded" if code == 0 else "Transient Failed",
        "lastStep": step,
        "checkpointStep": saved,
        "firstFailure": None,
        "avoidedNodes": [],
        "failedTasks": 1,
        "current": False,
        "started": "2026-01-31T12:00:00Z",
        "completed": "2026-01-31T12:01:00Z",
        **more,
    }


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        ([attempt(0, step=14, saved=10)], {0: 4}),
        ([attempt(0, step=10, saved=10)], {0: 0}),
        ([attempt(0, step=14)], {0: None}),
        # It continued at the checkpoint of the attempt before.
        ([attempt(0, step=14, saved=10), attempt(1, step=13)], {0: 4, 1: 3}),
        # It began again, or the checkpoint is one of a later step.
        ([attempt(0, step=14, saved=10), attempt(1, step=3)], {0: 4, 1: None}),
        ([attempt(0, 0, step=14, saved=10)], {0: 0}),
        ([attempt(0, 0, step=14)], {0: 0}),
        ([attempt(0)], {}),
        ([attempt(0, None, step=14, saved=10)], {}),
    ],
)
def test_lost_steps(rows: list[Any], lost: dict[int, int | None]) -> None:
    assert lost_steps(rows) == lost


def test_unknown_losses_show_and_do_not_count() -> None:
    rows = [attempt(0, step=5), attempt(1, step=14, saved=10), attempt(2)]
    columns = step_columns(rows)
    assert [columns["STEPS LOST"](one) for one in (*rows, total_row(rows))] == ["?", "4", "-", "4"]
    assert [columns["LAST STEP"](one) for one in (*rows, total_row(rows))] == ["5", "14", "-", "-"]


def test_a_node_is_left_by_the_attempt_that_failed_there() -> None:
    first = {"taskRoleName": "worker", "taskIndex": 2, "nodeName": "n2", "certain": True}
    rows = [
        attempt(0, avoidedNodes=["n2"], firstFailure=first),
        attempt(1, avoidedNodes=["n2"], firstFailure={"taskRoleName": "a", "taskIndex": 0}),
        attempt(2, avoidedNodes=["n2", "n5", "n6"]),
    ]
    columns = failure_columns(rows)
    assert [columns["LEFT NODE"](one) for one in rows] == ["n2", "-", "n5, n6"]
    assert [columns["FAILED FIRST"](one) for one in rows] == ["worker[2] on n2", "probably a[0]", "-"]


def test_without_reports_and_failures_there_are_no_columns() -> None:
    rows = [attempt(0), attempt(1)]
    assert (has_steps(rows), failure_columns(rows)) == (False, {})


def test_the_cost_of_each_attempt_and_of_all() -> None:
    def of(useful: int, waiting: int, lost: int) -> Any:
        return {"cpu": {"useful": useful, "waiting": waiting, "lost": lost}}

    rows = [attempt(0), attempt(1), attempt(2)]
    items = [{"key": "0", "resources": of(3600, 0, 7200)}, {"key": "1", "resources": of(0, 36, 0)}]
    columns = cost_columns({"items": items, "resource": "cpu", "total": {"resources": of(3600, 36, 7200)}})
    shown = [[cell(one) for cell in columns.values()] for one in (*rows, total_row(rows))]
    assert list(columns) == ["CPU HOURS", "USEFUL", "WAITING", "LOST"]
    assert shown == [
        ["3.00", "1.00", "0", "2.00"],
        ["0.010", "0", "0.010", "0"],
        ["-", "-", "-", "-"],
        ["3.01", "1.00", "0.010", "2.00"],
    ]
    assert cost_columns({"items": [], "resource": "", "total": {"resources": {}}}) == {}


def test_the_total_begins_with_the_first_attempt_and_ends_with_the_last() -> None:
    rows = [attempt(0, started="2026-01-31T11:00:00Z"), attempt(1, completed=None, current=True)]
    total = total_row(rows)
    assert (total["id"], total["started"], total["completed"]) == (TOTAL, "2026-01-31T11:00:00Z", None)
    assert (total["failedTasks"], total["code"], total["current"]) == (2, None, False)
