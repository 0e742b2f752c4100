"""The page of failures: what the archive counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.dashboard.listing import no_archive
from frameworkcontroller.dashboard.rows import framework_href, past_time, tasks_href
from frameworkcontroller.dashboard.views import Choice, Empty, FailureGroup, FailurePage, Shell
from frameworkcontroller.views.texts import clean_line

BY: Final = {"code": "by code", "node": "by node", "role": "by role", "day": "by day"}

_DAY_SEC: Final = 86400
PERIODS: Final = {"1": "last day", "7": "last week", "30": "last 30 days", "": "all time"}
_MOST: Final = 200


@dataclass(frozen=True, slots=True)
class FailureQuery:
    """What the URL asks for. ``days``: of the period, None for all time."""

    by: str = "code"
    since: str = "7"
    namespace: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> FailureQuery:
        """Read the query of a URL. Values that are not known are as good as none."""
        by, since = query.get("by", ""), query.get("since", "7")
        return cls(by if by in BY else "code", since if since in PERIODS else "7", query.get("namespace", ""))

    def begins(self, now: float) -> int | None:
        """Return the begin of the period, in seconds since the epoch; None: all time."""
        return int(now) - int(self.since) * _DAY_SEC if self.since else None


def failure_page(
    shell: Shell,
    query: FailureQuery,
    items: Sequence[Mapping[str, Any]] | None,
    days: Sequence[Mapping[str, Any]] = (),
    namespaces: Sequence[str] = (),
) -> FailurePage:
    """Return the page. ``items``: the groups of the archive, None without an archive; ``days``: the same by day."""
    empty = None
    if items is None:
        empty = no_archive("which counts failures: a Framework that exists has its own on its page")
    elif not items:
        empty = Empty("The archive has no failure in this period.")
    places = tuple(Choice(name, name, name == query.namespace) for name in namespaces)
    return FailurePage(
        shell=shell,
        by=tuple(Choice(value, text, value == query.by) for value, text in BY.items()),
        since=tuple(Choice(value, text, value == query.since) for value, text in PERIODS.items()),
        namespaces=(Choice("", "all namespaces", not query.namespace), *places) if len(places) > 1 else (),
        groups=tuple(_groups(items or ())),
        days=tuple(sorted(_groups(days), key=lambda one: one.key)) if query.by != "day" else (),
        empty=empty,
    )


def _groups(items: Sequence[Mapping[str, Any]]) -> Iterator[FailureGroup]:
    most = max((item["taskAttempts"] for item in items), default=0) or 1
    for item in items[:_MOST]:
        example = item.get("example") or {}
        name, href = _example(example)
        yield FailureGroup(
            key=str(item["key"]),
            label=clean_line(str(item.get("label") or item["key"])),
            task_attempts=item["taskAttempts"],
            framework_attempts=item["frameworkAttempts"],
            frameworks=item["frameworks"],
            first=past_time(item.get("first")),
            last=past_time(item.get("last")),
            percent=round(100 * item["taskAttempts"] / most, 1),
            example=name,
            href=href,
        )


def _example(found: Mapping[str, Any]) -> tuple[str, str]:
    if not found.get("uid"):
        return "", ""
    place = found["namespace"], found["name"], found["uid"]
    name = f"{found['namespace']}/{found['name']}"
    if found.get("role") is None or found.get("index") is None:
        return name, framework_href(*place, found.get("attempt"))
    return f"{name} {found['role']}[{found['index']}]", f"{tasks_href(*place, found['role'])}{found['index']}"
