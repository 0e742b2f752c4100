"""Summaries of Frameworks for lists and totals, which are smaller than the objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from frameworkcontroller.api import fields
from frameworkcontroller.api.codec import decode_completion, with_plain_roles
from frameworkcontroller.api.status import WAITS, State
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.views.apiobjects import queue_of, roles_of, task_number
from frameworkcontroller.views.diagnosis import Phase, code_and_phrase, phase_before_end, phase_of_end
from frameworkcontroller.views.texts import clean_line

WORDS: Final = ("stalled", "being deleted", "suspended", "queued")
"""Waits of a Framework that its phase does not show, the most important one first."""


@dataclass(slots=True)
class Summary:
    """``tasks`` counts Tasks by state, ``phases`` by phase; ``done``: completed ones that stay.

    ``wanted``: Tasks in the spec, by role.
    """

    namespace: str
    name: str
    created: int
    execution: str
    wanted: dict[str, int]
    state: str = ""
    attempt: int = 0
    retries: int = 0
    start_time: int | None = None
    run_time: int | None = None
    completion_time: int | None = None
    result: str = ""
    """The type of the completion."""
    end: str = ""
    """The code and phrase of the completion."""
    stalled: str = ""
    suspended: str = ""
    """The status of the condition Suspended."""
    queue: str = ""
    """Kueue's queue in which it is."""
    queued: bool = False
    """Whether it waits there for quota."""
    deleting: bool = False
    why: str = ""
    """Why it is stalled, or why nothing runs."""
    idle_since: int | None = None
    """When it last stopped running, or began to wait."""
    tasks: Counter[str] = field(default_factory=Counter)
    phases: Counter[Phase] = field(default_factory=Counter)
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

    @property
    def word(self) -> str:
        """The first of `WORDS` that holds; "" for none. Of an unreadable status, only the deletion is known."""
        if self.unreadable:
            return "being deleted" if self.deleting else ""
        holds = (self.stalled, self.deleting, self.suspended == "True", self.queued)
        return next((word for word, one in zip(WORDS, holds, strict=True) if one), "")


def summarize(framework: Mapping[str, Any]) -> Summary:
    """Summarize an API object. Instead of an error, an unreadable status sets ``unreadable``."""
    metadata = framework["metadata"]
    summary = Summary(
        namespace=metadata["namespace"],
        name=metadata["name"],
        created=parse_time(metadata["creationTimestamp"]),
        execution=(framework.get("spec") or {}).get("executionType") or "Start",
        wanted={role["name"]: task_number(role) for role in roles_of(framework)},
        queue=queue_of(framework),
        deleting=bool(metadata.get("deletionTimestamp")),
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
    summary.start_time = fields.maybe_time(status, "startTime")
    summary.run_time = fields.maybe_time(status, "runTime")
    summary.completion_time = fields.maybe_time(status, "completionTime")
    summary.attempt = fields.number(status["attemptStatus"], "id")
    completion = status["attemptStatus"].get("completionStatus")
    if completion:
        summary.result = (completion.get("type") or {}).get("name") or ""
        summary.end = code_and_phrase(completion["code"], completion.get("phrase") or "")
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    _add_conditions(summary, conditions)
    for _, task in tasks_of(status["attemptStatus"]):
        summary.tasks[task["state"]] += 1
        summary.phases[_phase_of_task(task)] += 1
        summary.task_retries += (task.get("retryPolicyStatus") or {}).get("totalRetriedCount") or 0
        summary.done += task["state"] == State.COMPLETED and not task.get("deletionPending")


def _add_conditions(summary: Summary, conditions: Mapping[str, Mapping[str, Any]]) -> None:
    if summary.completed:
        return
    if "Suspended" in conditions:
        summary.suspended = conditions["Suspended"]["status"]
    if running := conditions.get("Running"):
        summary.why = clean_line((running.get("message") or "").partition(WAITS)[2])
        if running["status"] == "False":
            summary.idle_since = fields.maybe_time(running, "lastTransitionTime")
    _add_queue(summary, conditions)
    stalled = conditions.get("Stalled")
    if stalled and stalled["status"] == "True":
        summary.stalled = stalled.get("reason") or "Stalled"
        summary.why = clean_line(stalled.get("message") or "") or summary.why


def _add_queue(summary: Summary, conditions: Mapping[str, Mapping[str, Any]]) -> None:
    for kind in ("QuotaReserved", "Admitted"):
        missing = conditions.get(kind)
        # One that runs without quota began before it was in a queue.
        if missing and missing["status"] == "False" and summary.why and summary.suspended != "True":
            summary.queued = True
            summary.why = f"{summary.why}: {clean_line(missing.get('message') or '')}"
            return


def _phase_of_task(task: Mapping[str, Any]) -> Phase:
    state = State(task["state"])
    if state is not State.COMPLETED:
        return phase_before_end(state, (task.get("retryPolicyStatus") or {}).get("retryDelaySec"))
    completion = task["attemptStatus"].get("completionStatus") or {}
    return phase_of_result(completion.get("code"), (completion.get("type") or {}).get("name") or "")


@lru_cache(maxsize=1024)
def phase_of_result(code: int | None, type_name: str) -> Phase:
    """Return the phase of a completed Task or Framework, from its code and completion type. No code: it failed."""
    return phase_of_end(None if code is None else decode_completion({"code": code, "type": {"name": type_name}}))


def tasks_of(attempt: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the role and the JSON of each Task in an ``attemptStatus``."""
    for role in with_plain_roles(attempt).get("taskRoleStatuses") or ():
        for task in role.get("taskStatuses") or ():
            yield role["name"], task
