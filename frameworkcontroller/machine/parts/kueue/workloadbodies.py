"""Conditions, admission and times in the JSON of a Workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.api.timestamps import format_time, parse_time
from frameworkcontroller.api.workloads import (
    ADMITTED,
    REQUEUED,
)
from frameworkcontroller.machine.parts.kueue.workloadspec import object_in

_MAX_MESSAGE: Final = 32768
"""Characters of a condition's message, by the schema of Kueue's Workloads."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """A condition of a Workload to be set."""

    type: str
    is_true: bool
    reason: str
    message: str


def admission_in(body: Mapping[str, Any]) -> Body:
    """``status.admission``, {} without one."""
    return object_in(object_in(body.get("status")).get("admission"))


def conditions_in(body: Mapping[str, Any]) -> list[Body]:
    """``status.conditions``."""
    return list(object_in(body.get("status")).get("conditions") or ())


def with_changes(body: Mapping[str, Any], changes: Iterable[ConditionChange], now: int) -> list[Body]:
    """All conditions, with the changes: a merge patch replaces lists."""
    conditions = conditions_in(body)
    generation = body["metadata"].get("generation") or 0
    for change in changes:
        status = "True" if change.is_true else "False"
        old = next((one for one in conditions if one.get("type") == change.type), None)
        is_new = old is None or old.get("status") != status
        fresh = {
            "type": change.type,
            "status": status,
            "reason": change.reason,
            # It is required, and Kubernetes 1.20 takes an empty text for an absent one.
            "message": change.message[:_MAX_MESSAGE] or change.reason,
            "lastTransitionTime": format_time(now) if is_new else (old or {}).get("lastTransitionTime"),
            "observedGeneration": generation,
        }
        if old is None:
            conditions.append(fresh)
        else:
            conditions[conditions.index(old)] = fresh
    return conditions


def seconds_in_queue(body: Body) -> int | None:
    """Seconds until a Workload was admitted: since it was created, or queued again after an eviction."""
    until, since = true_since(body, ADMITTED), true_since(body, REQUEUED)
    if since is None:
        since = _time_in(body["metadata"].get("creationTimestamp"))
    return None if until is None or since is None else max(0, until - since)


def true_since(body: Body, kind: str) -> int | None:
    """Since when the condition is True, None if it is not."""
    for one in conditions_in(body):
        if one.get("type") == kind and one.get("status") == "True":
            return _time_in(one.get("lastTransitionTime"))
    return None


def _time_in(text: Any) -> int | None:
    try:
        return parse_time(text)
    except (TypeError, ValueError):
        return None
