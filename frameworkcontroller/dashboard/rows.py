"""Rows of the list of Frameworks, and the bars of their Tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.dashboard.summaries import LiveFramework
from frameworkcontroller.dashboard.views import Bar, FrameworkRow, Share
from frameworkcontroller.views.diagnosis import Phase, code_and_phrase
from frameworkcontroller.views.texts import clean_line

_ORDER: Final = (Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED, Phase.ENDING, Phase.RUNNING, Phase.WAITING)
"""Of the segments of a bar, as in ``views/tree.py``."""

_LEAST_PERCENT: Final = 1.0

ONLY_TASKS: Final = "only attempts of its Tasks are archived yet"
"""The state of a past Framework without a record of its own."""

_EXPLAINED: Final = frozenset({Phase.FAILED.label, Phase.STOPPED.label})


def bar_of(counts: Mapping[Phase, int]) -> Bar:
    """Return the bar of Tasks, which are counted by phase."""
    total = sum(counts.values())
    if not total:
        return Bar(0)
    wide = {phase: max(_LEAST_PERCENT, 100 * counts[phase] / total) for phase in _ORDER if counts.get(phase)}
    scale = 100 / sum(wide.values())
    shares = tuple(Share(phase.label, counts[phase], round(percent * scale, 2)) for phase, percent in wide.items())
    text = ", ".join(f"{counts[phase]:,} {phase.label}" for phase in Phase if counts.get(phase))
    return Bar(total, shares, text)


def bar_of_numbers(numbers: Sequence[int]) -> Bar:
    """Return the bar of Tasks, whose numbers are in the order of `Phase`."""
    return bar_of(dict(zip(Phase, numbers, strict=True)))


def framework_href(namespace: str, name: str, uid: str = "", attempt: int | None = None) -> str:
    """Return the page of a Framework: of a certain one by its UID, and with a certain attempt of it."""
    parts = ["frameworks", namespace, name, *([uid] if uid else [])]
    path = "/".join(quote(part, safe="") for part in parts)
    return path if attempt is None else f"{path}?attempt={attempt}"


def tasks_href(namespace: str, name: str, uid: str, role: str) -> str:
    """Return the prefix of the pages of the Tasks of a role."""
    return f"{framework_href(namespace, name, uid)}/tasks/{quote(role, safe='')}/"


def live_row(one: LiveFramework) -> FrameworkRow:
    """Return the row of a live Framework."""
    return FrameworkRow(
        id=f"f-{one.uid}",
        namespace=one.namespace,
        name=one.name,
        uid=one.uid,
        href=framework_href(one.namespace, one.name),
        live=True,
        phase=one.phase,
        state=one.state,
        word=one.word,
        why=one.why,
        result=one.result,
        attempt=one.attempt,
        retries=one.retries,
        task_retries=one.task_retries,
        bar=bar_of_numbers(one.phases) if any(one.phases) else bar_of({Phase.WAITING: one.tasks}),
        created=one.created,
        started=one.started,
        ended=one.ended,
        queue=one.queue,
    )


def past_row(item: Mapping[str, Any]) -> FrameworkRow:
    """Return the row of a Framework in the archive's list."""
    code, phase = item.get("code"), item["phase"]
    end = "" if code is None else code_and_phrase(code, item.get("phrase") or "")
    # One Framework has the list of its attempts there, and their number here.
    attempts = item.get("attemptCount", item.get("attempts")) or 1
    counts = {one: item.get(f"{one.label}Tasks") or 0 for one in (Phase.SUCCEEDED, Phase.STOPPED, Phase.FAILED)}
    # The others run, or ended with their deleted Framework.
    counts[Phase.RUNNING] = max(0, (item.get("tasks") or 0) - sum(counts.values()))
    if phase != Phase.RUNNING.label:
        counts[Phase.STOPPED] += counts.pop(Phase.RUNNING)
    return FrameworkRow(
        id=f"f-{item['uid']}",
        namespace=item["namespace"],
        name=item["name"],
        uid=item["uid"],
        href=framework_href(item["namespace"], item["name"], item["uid"]),
        live=False,
        phase=phase,
        state=item.get("state") or ONLY_TASKS,
        why=": ".join(filter(None, (end, clean_line(item.get("diagnostics") or "")))) if phase in _EXPLAINED else "",
        result=end,
        attempt=max(0, attempts - 1),
        retries=max(0, attempts - 1),
        task_retries=item.get("taskRetries") or 0,
        bar=bar_of(counts),
        created=past_time(item.get("created")),
        started=past_time(item.get("started")),
        ended=past_time(item.get("completed")),
    )


def past_time(text: Any) -> int | None:
    """Return a time of the archive in seconds since the epoch."""
    return None if text is None else parse_time(text)
