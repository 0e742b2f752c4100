"""The page of failures, as counted by the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from frameworkcontroller.dashboard.listing import no_archive
from frameworkcontroller.dashboard.rows import framework_href, tasks_href
from frameworkcontroller.dashboard.views import Choice, Empty, Shell, choices, namespace_choices
from frameworkcontroller.views.texts import clean_line

BY: Final = {"code": "by code", "node": "by node", "role": "by role", "day": "by day"}

_DAY_SEC: Final = 86400
PERIODS: Final = {"1": "last day", "7": "last week", "30": "last 30 days", "": "all time"}
_MOST: Final = 200

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FailureQuery:
    """The query of the URL. ``since``: days, "" for all time."""

    by: str = "code"
    since: str = "7"
    namespace: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> FailureQuery:
        """Read the query of a URL. Unknown values count as absent."""
        by, since = query.get("by", ""), query.get("since", "7")
        return cls(by if by in BY else "code", since if since in PERIODS else "7", query.get("namespace", ""))

    def begins(self, now: float) -> int | None:
        """Return the begin of the period, in seconds since the epoch; None: all time."""
        return int(now) - int(self.since) * _DAY_SEC if self.since else None


class FailurePage:
    """Failed attempts by code, node, role or day, with a small chart of the days."""

    template: ClassVar[str] = "failures.html"

    def __init__(
        self,
        shell: Shell,
        query: FailureQuery,
        items: Sequence[Item] | None,
        days: Sequence[Item] = (),
        namespaces: Sequence[str] = (),
    ) -> None:
        """``items``: the groups of the archive, None without an archive; ``days``: the same by day."""
        self.shell = shell
        self.by = choices(BY, query.by)
        self.since = choices(PERIODS, query.since)
        self.namespaces: tuple[Choice, ...] = namespace_choices(namespaces, query.namespace)
        self.groups = _groups(items or ())
        self.days = sorted(_groups(days), key=lambda one: str(one["key"])) if query.by != "day" else []
        self.empty: Empty | None = None
        if items is None:
            self.empty = no_archive("which counts failures: a Framework that exists has its own on its page")
        elif not items:
            self.empty = Empty("The archive has no failure in this period.")


def _groups(items: Sequence[Item]) -> list[Item]:
    """Add to each group a name and a page of its example, and ``percent``, its share of the largest group."""
    most = max((item["taskAttempts"] for item in items), default=0) or 1
    made: list[Item] = []
    for item in items[:_MOST]:
        name, href = _example(item.get("example") or {})
        label = clean_line(str(item.get("label") or item["key"]))
        percent = round(100 * item["taskAttempts"] / most, 1)
        made.append({**item, "label": label, "percent": percent, "example": name, "href": href})
    return made


def _example(found: Item) -> tuple[str, str]:
    if not found.get("uid"):
        return "", ""
    place = found["namespace"], found["name"], found["uid"]
    name = f"{found['namespace']}/{found['name']}"
    if found.get("role") is None or found.get("index") is None:
        return name, framework_href(*place, found.get("attempt"))
    return f"{name} {found['role']}[{found['index']}]", f"{tasks_href(*place, found['role'])}{found['index']}"
