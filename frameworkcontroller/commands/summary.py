"""Summaries of Frameworks for lists and totals, which are smaller than the objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from frameworkcontroller.api import fields
from frameworkcontroller.api.codec import with_plain_roles
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.commands.diagnosis import code_and_phrase
from frameworkcontroller.commands.objects import roles_of, task_number


@dataclass(slots=True)
class Summary:
    """``tasks`` counts Tasks by state; ``done``: completed ones that stay; ``wanted``: Tasks in the spec, by role."""

    namespace: str
    name: str
    created: int
    execution: str
    wanted: dict[str, int]
    state: str = ""
    retries: int = 0
    run_time: int | None = None
    completion_time: int | None = None
    result: str = ""
    """The type of the completion."""
    end: str = ""
    """The code and phrase of the completion."""
    stalled: str = ""
    tasks: Counter[str] = field(default_factory=Counter)
    done: int = 0
    task_retries: int = 0
    unreadable: bool = False

    @property
    def total(self) -> int:
        """Tasks in the spec."""
        return sum(self.wanted.values())

    @property
    def completed(self) -> bool:
        """Whether the Framework has completed."""
        return self.state == State.COMPLETED


def summarize(framework: Mapping[str, Any]) -> Summary:
    """Summarize an API object. Instead of an error, an unreadable status sets ``unreadable``."""
    metadata = framework["metadata"]
    summary = Summary(
        namespace=metadata["namespace"],
        name=metadata["name"],
        created=parse_time(metadata["creationTimestamp"]),
        execution=(framework.get("spec") or {}).get("executionType") or "Start",
        wanted={role["name"]: task_number(role) for role in roles_of(framework)},
    )
    try:
        if framework.get("status"):
            _add_status(summary, framework["status"])
    except (KeyError, TypeError, ValueError, AttributeError):
        summary.unreadable = True
    return summary


def _add_status(summary: Summary, status: Mapping[str, Any]) -> None:
    summary.state = State(status["state"])
    summary.retries = (status.get("retryPolicyStatus") or {}).get("totalRetriedCount") or 0
    summary.run_time = fields.maybe_time(status, "runTime")
    summary.completion_time = fields.maybe_time(status, "completionTime")
    completion = status["attemptStatus"].get("completionStatus")
    if completion:
        summary.result = (completion.get("type") or {}).get("name") or ""
        summary.end = code_and_phrase(completion["code"], completion.get("phrase") or "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "Stalled" and condition["status"] == "True":
            summary.stalled = condition.get("reason") or "Stalled"
    for _, task in tasks_of(status["attemptStatus"]):
        summary.tasks[task["state"]] += 1
        summary.task_retries += (task.get("retryPolicyStatus") or {}).get("totalRetriedCount") or 0
        summary.done += task["state"] == State.COMPLETED and not task.get("deletionPending")


def tasks_of(attempt: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the role and the JSON of each Task in an ``attemptStatus``."""
    for role in with_plain_roles(attempt).get("taskRoleStatuses") or ():
        for task in role.get("taskStatuses") or ():
            yield role["name"], task
