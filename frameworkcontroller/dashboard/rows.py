"""Rows of the list of Frameworks, live and past, and the bars of their Tasks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from frameworkcontroller.api.codec import decode_completion
from frameworkcontroller.api.problems import ProblemError
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.views.diagnosis import (
    NOT_SEEN,
    Phase,
    cause,
    code_and_phrase,
    phase_before_end,
    phase_of_end,
    result,
    trigger,
)
from frameworkcontroller.views.summary import Summary, summarize
from frameworkcontroller.views.texts import clean_line, counted
from frameworkcontroller.views.tree import BAR_ORDER

_LEAST_PERCENT: Final = 1.0

UNREADABLE: Final = "unreadable status"

ONLY_TASKS: Final = "only attempts of its Tasks are archived yet"
"""The state of a past Framework without a record of its own."""

_EXPLAINED: Final = frozenset({Phase.FAILED.label, Phase.STOPPED.label})


@dataclass(frozen=True, slots=True)
class PhaseShare:
    """The Tasks in one phase. ``percent``: of all, for the width of a segment; a phase with Tasks has at least 1."""

    phase: str
    number: int
    percent: float


@dataclass(frozen=True, slots=True)
class Bar:
    """The Tasks of a Framework or a role by phase, in the order of a bar, without empty phases.

    ``text``: the same in words, "3 failed, 5 running"; "" without Tasks.
    """

    total: int
    shares: tuple[PhaseShare, ...] = ()
    text: str = ""


def bar_of(counts: Mapping[Phase, int]) -> Bar:
    """Return the bar of Tasks, which are counted by phase."""
    total = sum(counts.values())
    if not total:
        return Bar(0)
    wide = {phase: max(_LEAST_PERCENT, 100 * counts[phase] / total) for phase in BAR_ORDER if counts.get(phase)}
    scale = 100 / sum(wide.values())
    shares = tuple(PhaseShare(phase.label, counts[phase], round(percent * scale, 2)) for phase, percent in wide.items())
    text = ", ".join(f"{counts[phase]:,} {phase.label}" for phase in Phase if counts.get(phase))
    return Bar(total, shares, text)


def framework_href(namespace: str, name: str, uid: str = "", attempt: int | None = None) -> str:
    """Return the page of a Framework: of a certain one by its UID, and with a certain attempt of it."""
    parts = ["frameworks", namespace, name, *([uid] if uid else [])]
    path = "/".join(quote(part, safe="") for part in parts)
    return path if attempt is None else f"{path}?attempt={attempt}"


def logs_href(namespace: str, name: str, uid: str) -> str:
    """Return the prefix of the pages of the logs of a Framework, to which their ids are appended."""
    return f"{framework_href(namespace, name, uid)}/logs/"


def tasks_href(namespace: str, name: str, uid: str, role: str) -> str:
    """Return the prefix of the pages of the Tasks of a role."""
    return f"{framework_href(namespace, name, uid)}/tasks/{quote(role, safe='')}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRow:
    """A Framework in the list, and the head of its own page. It is kept of each live one: the object is much larger.

    ``state``: of the API ("AttemptRunning"), or without a status "not seen by a controller yet". ``word``: stalled,
    being deleted, suspended or queued, or "". ``why``: the sentence on its wait or its end, "" for none. ``result``:
    code and phrase of the last completed attempt ("137 ContainerSigKillReceived"). ``retries``: of the Framework;
    ``task_retries``: of its Tasks. ``phases``: numbers of Tasks, in the order of `Phase`; ``tasks``: in the spec.
    ``ended``: None while it is not completed. ``live``: it exists in the cluster; else it is from the archive.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    live: bool
    phase: str
    state: str
    word: str = ""
    why: str = ""
    result: str = ""
    retries: int = 0
    task_retries: int = 0
    phases: tuple[int, ...] = ()
    tasks: int = 0
    created: int | None = None
    started: int | None = None
    ended: int | None = None
    queue: str = ""

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def id(self) -> str:
        """Unique in the list, usable as an id in HTML."""
        return f"f-{self.uid}"

    @property
    def href(self) -> str:
        """Its page."""
        return framework_href(self.namespace, self.name, "" if self.live else self.uid)

    @property
    def bar(self) -> Bar:
        """Its Tasks."""
        return bar_of(dict(zip(Phase, self.phases, strict=True)))


def live_framework(body: Mapping[str, Any]) -> FrameworkRow:
    """Return the row of an API object. One that cannot be read has one that says so."""
    found = summarize(body)
    phase, why, end = _end_or_wait(found, body.get("status") or {})
    word = found.word
    if phase is Phase.RUNNING and not why and found.phases[Phase.WAITING] == sum(found.phases.values()) > 0:
        why = f"none of its {counted(found.total, 'Task')} runs yet" if found.total > 1 else "its Task does not run yet"
        phase = Phase.WAITING
    elif why and not word and not found.completed and not found.unreadable and phase is not Phase.FAILED:
        phase = Phase.WAITING
    # Before the first status, there are those to come.
    phases = found.phases if any(found.phases.values()) else {Phase.WAITING: found.total}
    metadata = body["metadata"]
    return FrameworkRow(
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        namespace=sys.intern(found.namespace),
        name=found.name,
        live=True,
        created=found.created,
        phase=phase.label,
        state=UNREADABLE if found.unreadable else found.state or NOT_SEEN,
        word=word,
        why=why,
        result=sys.intern(end),
        retries=found.retries,
        task_retries=found.task_retries,
        phases=tuple(phases.get(one, 0) for one in Phase),
        tasks=found.total,
        started=found.start_time,
        ended=found.completion_time,
        queue=sys.intern(found.queue),
    )


def _end_or_wait(found: Summary, status: Mapping[str, Any]) -> tuple[Phase, str, str]:
    """Return the phase, why it waits or why it ended, and the result of the attempt."""
    if found.unreadable:
        return Phase.FAILED, "", ""
    if not found.state:
        return Phase.WAITING, found.why or NOT_SEEN, ""
    try:
        body = status["attemptStatus"].get("completionStatus")
        completion = None if body is None else decode_completion(body)
    except ProblemError as error:
        return Phase.FAILED, str(error), ""
    state = State(found.state)
    if state is State.COMPLETED:
        phase = phase_of_end(completion)
    else:
        phase = phase_before_end(state, (status.get("retryPolicyStatus") or {}).get("retryDelaySec"))
    why = found.why
    if completion is not None and not why and not completion.succeeded:
        why = trigger(completion).removeprefix(", ") or cause(completion)
    return phase, why, result(completion)


def past_row(item: Mapping[str, Any]) -> FrameworkRow:
    """Return the row of a Framework in the archive's list."""
    code, phase = item.get("code"), item["phase"]
    end = "" if code is None else code_and_phrase(code, item.get("phrase") or "")
    # One Framework has the list of its attempts there, and their number here.
    attempts = item.get("attemptCount", item.get("attempts")) or 1
    counts = {one: item.get(f"{one.label}Tasks") or 0 for one in (Phase.SUCCEEDED, Phase.STOPPED, Phase.FAILED)}
    # The others run, or ended with their deleted Framework.
    others = Phase.RUNNING if phase == Phase.RUNNING.label else Phase.STOPPED
    counts[others] = counts.get(others, 0) + max(0, (item.get("tasks") or 0) - sum(counts.values()))
    return FrameworkRow(
        namespace=item["namespace"],
        name=item["name"],
        uid=item["uid"],
        live=False,
        phase=phase,
        state=item.get("state") or ONLY_TASKS,
        why=": ".join(filter(None, (end, clean_line(item.get("diagnostics") or "")))) if phase in _EXPLAINED else "",
        result=end,
        retries=max(0, attempts - 1),
        task_retries=item.get("taskRetries") or 0,
        phases=tuple(counts.get(one, 0) for one in Phase),
        created=past_time(item.get("created")),
        started=past_time(item.get("started")),
        ended=past_time(item.get("completed")),
    )


def past_time(text: Any) -> int | None:
    """Return a time of the archive in seconds since the epoch."""
    return None if text is None else parse_time(text)
