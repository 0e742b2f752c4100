"""Rows of the list of Frameworks, live and past, and the bars of their Tasks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from frameworkcontroller.api.causes import cause_in
from frameworkcontroller.api.status import Phase
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.history.reads import RUNNING
from frameworkcontroller.views.diagnosis import code_and_phrase
from frameworkcontroller.views.looks import BAR_ORDER, OF_TASKS
from frameworkcontroller.views.shownprogress import ShownProgress
from frameworkcontroller.views.summary import summarize

_LEAST_PERCENT: Final = 1.0

ONLY_TASKS: Final = "only attempts of its Tasks are archived yet"
"""The message of a past Framework without a record of its own."""

_EXPLAINED: Final = frozenset({Phase.FAILED.lower(), Phase.STOPPED.lower()})


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
    shares = tuple(
        PhaseShare(phase.lower(), counts[phase], round(percent * scale, 2)) for phase, percent in wide.items()
    )
    text = ", ".join(f"{counts[phase]:,} {phase.lower()}" for phase in OF_TASKS if counts.get(phase))
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

    ``message``: why it has its phase, "" for none. ``word``: stalled, being deleted, or "". ``state``: the contract's
    ("AttemptRunning"), "" without a status. ``result``: code and phrase of the last completed attempt ("137
    ContainerSigKillReceived"). ``retries``: of the Framework; ``task_retries``: of its Tasks. ``phases``: numbers of
    Tasks, in the order of `OF_TASKS`; ``tasks``: wanted.
    ``ended``: None while it is not completed. ``live``: it exists in the cluster; else it is from the archive.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    live: bool
    phase: str
    message: str = ""
    word: str = ""
    state: str = ""
    result: str = ""
    retries: int = 0
    task_retries: int = 0
    phases: tuple[int, ...] = ()
    tasks: int = 0
    created: int | None = None
    started: int | None = None
    ended: int | None = None
    queue: str = ""
    progress: ShownProgress | None = None

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
        return bar_of(dict(zip(OF_TASKS, self.phases, strict=True)))


def live_framework(body: Mapping[str, Any]) -> FrameworkRow:
    """Return the row of an API object. One that cannot be read has one that says so."""
    found = summarize(body)
    # Before the first status, there are those to come.
    phases = found.phases if any(found.phases.values()) else {Phase.PENDING: found.total}
    metadata = body["metadata"]
    return FrameworkRow(
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        namespace=sys.intern(found.namespace),
        name=found.name,
        live=True,
        created=found.created,
        phase=found.phase.lower(),
        message=found.message,
        word=found.word,
        state=sys.intern(str(found.state)),
        result=sys.intern(found.end),
        retries=found.retries,
        task_retries=found.task_retries,
        phases=tuple(phases.get(one, 0) for one in OF_TASKS),
        tasks=found.total,
        started=found.start_time,
        ended=found.completion_time,
        queue=sys.intern(found.queue),
        progress=found.progress,
    )


def past_row(item: Mapping[str, Any]) -> FrameworkRow:
    """Return the row of a Framework in the archive's list."""
    code, phase = item.get("code"), item["phase"]
    end = "" if code is None else code_and_phrase(code, item.get("phrase") or "")
    # One Framework has the list of its attempts there, and their number here.
    attempts = item.get("attemptCount", item.get("attempts")) or 1
    counts = {one: item.get(f"{one.lower()}Tasks") or 0 for one in (Phase.SUCCEEDED, Phase.STOPPED, Phase.FAILED)}
    # The others run, or ended with their deleted Framework.
    others = Phase.RUNNING if phase == RUNNING else Phase.STOPPED
    counts[others] = counts.get(others, 0) + max(0, (item.get("tasks") or 0) - sum(counts.values()))
    return FrameworkRow(
        namespace=item["namespace"],
        name=item["name"],
        uid=item["uid"],
        live=False,
        phase=phase,
        message=_past_message(item, phase),
        state=item.get("state") or "",
        result=end,
        retries=max(0, attempts - 1),
        task_retries=item.get("taskRetries") or 0,
        phases=tuple(counts.get(one, 0) for one in OF_TASKS),
        created=past_time(item.get("created")),
        started=past_time(item.get("started")),
        ended=past_time(item.get("completed")),
    )


def _past_message(item: Mapping[str, Any], phase: str) -> str:
    if not item.get("state"):
        return ONLY_TASKS
    return cause_in(item.get("diagnostics") or "") if phase in _EXPLAINED else ""


def past_time(text: Any) -> int | None:
    """Return a time of the archive in seconds since the epoch."""
    return None if text is None else parse_time(text)
