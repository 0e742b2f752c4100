"""Columns of ``history NAME`` for long training: first failures, nodes that were left, lost steps, and the cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from frameworkcontroller.api.completion import SUCCEEDED
from frameworkcontroller.views.resourcehours import SPANS, hours, spans_in, title_of, total_of
from frameworkcontroller.views.texts import clean_line

TOTAL: Final = "TOTAL"
_NONE: Final = "-"
_UNKNOWN: Final = "?"

Row = dict[str, Any]
Columns = dict[str, Callable[[Mapping[str, Any]], str]]


def has_steps(rows: Sequence[Row]) -> bool:
    """Return whether a program has reported steps."""
    return any(one["lastStep"] is not None for one in rows)


def failure_columns(rows: Sequence[Row]) -> Columns:
    """Return the columns with the first failures and the nodes that were left, if there are any."""
    columns: Columns = {}
    if any(one["firstFailure"] for one in rows):
        columns["FAILED FIRST"] = _failed_first
    if any(one["avoidedNodes"] for one in rows):
        left: dict[Any, list[str]] = {}
        before: Sequence[str] = ()
        for one in rows:
            left[one["id"]] = [name for name in one["avoidedNodes"] if name not in before]
            before = one["avoidedNodes"]
        columns["LEFT NODE"] = lambda one: ", ".join(left.get(one["id"], ())) or _NONE
    return columns


def step_columns(rows: Sequence[Row]) -> Columns:
    """Return the columns with the steps."""
    lost = lost_steps(rows)
    counted = [steps for steps in lost.values() if steps is not None]

    def lost_of(one: Mapping[str, Any]) -> str:
        if one["id"] == TOTAL:
            return str(sum(counted))
        if one["id"] not in lost:
            return _NONE
        steps = lost[one["id"]]
        return _UNKNOWN if steps is None else str(steps)

    return {
        "LAST STEP": lambda one: _NONE if one["lastStep"] is None else str(one["lastStep"]),
        "STEPS LOST": lost_of,
    }


def lost_steps(rows: Sequence[Row]) -> dict[int, int | None]:
    """Return the lost steps by the attempts that have ended after a report. None: not known.

    Lost are the steps after the last checkpoint, which may be one of an earlier attempt.
    """
    lost: dict[int, int | None] = {}
    checkpoint: int | None = None
    for one in rows:
        if one["checkpointStep"] is not None:
            checkpoint = one["checkpointStep"]
        step = one["lastStep"]
        if step is None or one["code"] is None:
            continue
        if one["type"] == SUCCEEDED:
            lost[one["id"]] = 0
        else:
            lost[one["id"]] = None if checkpoint is None or checkpoint > step else step - checkpoint
    return lost


def cost_columns(costs: Mapping[str, Any]) -> Columns:
    """Return the columns with the cost by attempt. ``costs``: the answer to `CountCost`."""
    resource, total = costs["resource"], costs["total"]
    if not resource:
        return {}
    by_attempt = {one["key"]: one for one in costs["items"]}

    def spans(one: Mapping[str, Any]) -> Mapping[str, float] | None:
        found = total if one["id"] == TOTAL else by_attempt.get(str(one["id"]))
        return None if found is None else spans_in(found, resource)

    def cell(one: Mapping[str, Any], value: Callable[[Mapping[str, float]], float]) -> str:
        found = spans(one)
        return _NONE if found is None else hours(resource, value(found))

    return {
        title_of(resource).upper(): lambda one: cell(one, total_of),
        **{name.upper(): lambda one, name=name: cell(one, lambda found: found[name]) for name in SPANS},  # type: ignore[misc]
    }


def total_row(rows: Sequence[Row]) -> Row:
    """Return the row for all attempts."""
    last = rows[-1]
    # As a row of an attempt, so that all columns can show it.
    return {
        **dict.fromkeys(last),
        "id": TOTAL,
        "avoidedNodes": (),
        "current": False,
        "started": rows[0]["started"],
        "completed": last["completed"],
        **{name: sum(one[name] or 0 for one in rows) for name in ("failedTasks", "logs") if name in last},
    }


def _failed_first(one: Mapping[str, Any]) -> str:
    found = one["firstFailure"]
    if not found:
        return _NONE
    where = f" on {found['nodeName']}" if found.get("nodeName") else ""
    prefix = "" if found.get("certain") else "probably "
    return clean_line(f"{prefix}{found['taskRoleName']}[{found['taskIndex']}]{where}")
