"""Summaries of Frameworks for lists and totals, which are smaller than the objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from frameworkcontroller.api import fields
from frameworkcontroller.api.causes import cause
from frameworkcontroller.api.codec import decode_completion, decode_progress_status, with_plain_roles
from frameworkcontroller.api.completion import Outcome, outcome_of
from frameworkcontroller.api.phases import QUEUE_CONDITIONS, framework_phase, task_phase
from frameworkcontroller.api.problems import ProblemError
from frameworkcontroller.api.status import WAITS, Phase, State
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.views.apiobjects import queue_of, task_numbers
from frameworkcontroller.views.diagnosis import NOT_SEEN, code_and_phrase
from frameworkcontroller.views.shownprogress import ShownProgress, interval_of, shown_progress
from frameworkcontroller.views.texts import clean_line

WORDS: Final = ("stalled", "being deleted")
"""Words about a Framework that no phase has, the more important one first."""

UNREADABLE: Final = "its status cannot be read"

_WAITING: Final = frozenset({Phase.PENDING, Phase.QUEUED, Phase.SUSPENDED})


@dataclass(slots=True)
class Summary:
    """``phases`` counts Tasks by phase. ``done``: completed ones that stay.

    ``wanted``: Tasks by role, of the spec or as autoscaling has set them. ``state``: the contract's, "" before the
    first status.
    """

    namespace: str
    name: str
    created: int
    execution: str
    wanted: dict[str, int]
    phase: Phase = Phase.PENDING
    message: str = NOT_SEEN
    """Why it has its phase; "" if there is nothing to explain."""
    state: str = ""
    attempt: int = 0
    retries: int = 0
    start_time: int | None = None
    run_time: int | None = None
    completion_time: int | None = None
    end: str = ""
    """The code and phrase of the completion."""
    stalled: str = ""
    """The reason of the condition Stalled."""
    suspended: str = ""
    """The status of the condition Suspended."""
    queue: str = ""
    """Kueue's queue in which it is."""
    deleting: bool = False
    idle_since: int | None = None
    """When it last stopped running, or began to wait."""
    phases: Counter[Phase] = field(default_factory=Counter)
    done: int = 0
    task_retries: int = 0
    progress: ShownProgress | None = None
    unreadable: bool = False

    @property
    def total(self) -> int:
        """Wanted Tasks."""
        return sum(self.wanted.values())

    @property
    def well(self) -> int:
        """Tasks that run or have succeeded."""
        return self.phases[Phase.RUNNING] + self.phases[Phase.SUCCEEDED]

    @property
    def waits(self) -> bool:
        """Whether it waits: by its phase, because it is stalled, or because none of its Tasks runs or ends."""
        if self.phase.is_final or self.deleting:
            return False
        idle = not (self.phases[Phase.RUNNING] or self.phases[Phase.ENDING])
        return self.phase in _WAITING or bool(self.stalled) or (self.phase is Phase.RUNNING and idle)

    @property
    def word(self) -> str:
        """The first of `WORDS` that holds; "" for none. Of an unreadable status, only the deletion is known."""
        holds = (self.stalled and not self.unreadable, self.deleting)
        return next((word for word, one in zip(WORDS, holds, strict=True) if one), "")


def described(one: Summary) -> str:
    """Return ``Pending: waiting for its Pod``: phase and message."""
    return f"{one.phase}: {one.message}" if one.message else one.phase


def summarize(framework: Mapping[str, Any]) -> Summary:
    """Summarize an API object. Instead of an error, an unreadable status sets ``unreadable``."""
    metadata = framework["metadata"]
    summary = Summary(
        namespace=metadata["namespace"],
        name=metadata["name"],
        created=parse_time(metadata["creationTimestamp"]),
        execution=(framework.get("spec") or {}).get("executionType") or "Start",
        wanted=task_numbers(framework),
        queue=queue_of(framework),
        deleting=bool(metadata.get("deletionTimestamp")),
    )
    try:
        if framework.get("status"):
            _add_status(summary, framework["status"])
            _add_progress(summary, framework)
    except (KeyError, TypeError, ValueError, AttributeError):
        summary.unreadable, summary.phase, summary.message = True, Phase.FAILED, UNREADABLE
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
        summary.end = code_and_phrase(completion["code"], completion.get("phrase") or "")
    for _, task in tasks_of(status["attemptStatus"]):
        summary.phases[_phase_of_task(task)] += 1
        summary.task_retries += (task.get("retryPolicyStatus") or {}).get("totalRetriedCount") or 0
        summary.done += task["state"] == State.COMPLETED and not task.get("deletionPending")
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    summary.suspended = (conditions.get("Suspended") or {}).get("status") or ""
    running, stalled = conditions.get("Running") or {}, conditions.get("Stalled") or {}
    is_completed = summary.state == State.COMPLETED
    if running.get("status") == "False" and not is_completed:
        summary.idle_since = fields.maybe_time(running, "lastTransitionTime")
    if stalled.get("status") == "True" and not is_completed:
        summary.stalled = stalled.get("reason") or "Stalled"
    if status.get("phase") in list(Phase):
        summary.phase, summary.message = Phase(status["phase"]), clean_line(status.get("message") or "")
    else:
        summary.phase = _older_phase(summary, status, conditions)
        summary.message = _older_message(summary, completion, conditions)


def _add_progress(summary: Summary, framework: Mapping[str, Any]) -> None:
    if body := framework["status"].get("progress"):
        # A user can write any status.
        with suppress(ProblemError):
            progress = decode_progress_status(body)
            summary.progress = shown_progress(progress, summary.attempt, summary.state, interval_of(framework))


def _older_phase(summary: Summary, status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> Phase:
    """Return the phase of a status without one."""
    return framework_phase(
        State(summary.state),
        _outcome(status["attemptStatus"]),
        suspended=summary.suspended == "True",
        queued=any((conditions.get(kind) or {}).get("status") == "False" for kind in QUEUE_CONDITIONS),
        retry_decided=(status.get("retryPolicyStatus") or {}).get("retryDelaySec") is not None,
        some_succeeded=summary.phases[Phase.SUCCEEDED] > 0,
    )


def _older_message(
    summary: Summary, completion: Mapping[str, Any] | None, conditions: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return why the Framework of a status without a message waits, or how it ended."""
    if completion:
        with suppress(ProblemError):
            decoded = decode_completion(completion)
            return "" if decoded.succeeded else clean_line(cause(decoded))
    if summary.stalled:
        return clean_line(conditions["Stalled"].get("message") or "")
    waits = ((conditions.get("Running") or {}).get("message") or "").partition(WAITS)[2]
    missing = (one for kind in QUEUE_CONDITIONS if (one := conditions.get(kind)) and one["status"] == "False")
    queued = next((one.get("message") or "" for one in missing), "") if summary.phase is Phase.QUEUED else ""
    return clean_line(": ".join(filter(None, (waits, queued))))


def _phase_of_task(task: Mapping[str, Any]) -> Phase:
    delay = (task.get("retryPolicyStatus") or {}).get("retryDelaySec")
    return task_phase(State(task["state"]), _outcome(task["attemptStatus"]), delay)


def _outcome(attempt: Mapping[str, Any]) -> Outcome | None:
    completion = attempt.get("completionStatus") or {}
    return outcome_of_result(
        completion.get("code"), completion.get("phrase") or "", (completion.get("type") or {}).get("name") or ""
    )


@lru_cache(maxsize=1024)
def outcome_of_result(code: int | None, phrase: str, type_name: str) -> Outcome | None:
    """Return how an attempt ended; None without a code."""
    return None if code is None else outcome_of(code, phrase, type_name)


def tasks_of(attempt: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the role and the JSON of each Task in an ``attemptStatus``."""
    for role in with_plain_roles(attempt).get("taskRoleStatuses") or ():
        for task in role.get("taskStatuses") or ():
            yield role["name"], task
