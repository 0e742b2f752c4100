"""The page of failures, as counted by the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from frameworkcontroller.api.causes import cause_in
from frameworkcontroller.dashboard.archivequeries import PERIODS, ArchiveQuery, fields_in
from frameworkcontroller.dashboard.listing import no_archive
from frameworkcontroller.dashboard.rows import framework_href, past_time, tasks_href
from frameworkcontroller.dashboard.views import Choice, Empty, Shell, choices, namespace_choices
from frameworkcontroller.history.reads import MAX_COMPARED
from frameworkcontroller.history.suspectnodes import is_suspect, ranked
from frameworkcontroller.views.diagnosis import code_and_phrase
from frameworkcontroller.views.texts import clean_line

BY: Final = {"cause": "by cause", "code": "by code", "node": "by node", "role": "by role", "day": "by day"}

_MOST: Final = 200
_MOST_KEY: Final = 1024

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FailureQuery(ArchiveQuery):
    """The query of the URL. ``key``: of the group to list, "" for all groups."""

    by: str = "cause"
    key: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> FailureQuery:
        """Read the query of a URL. Unknown values count as absent."""
        return cls(*fields_in(query, BY, "cause"), query.get("key", "")[:_MOST_KEY])

    def href(self, key: str) -> str:
        """Return the URL of the attempts in a group, relative to the root."""
        return f"failures?{urlencode({'by': self.by, 'since': self.since, 'namespace': self.namespace, 'key': key})}"


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt of a Task. ``href``: its Task's page."""

    name: str
    href: str
    node: str
    result: str
    cause: str
    ended: int | None


class FailurePage:
    """Failed attempts by cause, code, node, role or day, with a small chart of the days; or the attempts of one group.

    ``rates``: groups have ``ofAttempts``. ``newest``: at most as many failures are counted, None: all. ``attempts``: of
    the group ``key``, None without one.
    """

    template: ClassVar[str] = "failures.html"

    def __init__(
        self,
        shell: Shell,
        query: FailureQuery,
        items: Sequence[Item] | None,
        days: Sequence[Item] = (),
        namespaces: Sequence[str] = (),
        attempts: Sequence[Item] | None = None,
    ) -> None:
        """``items``: the groups of the archive, None without an archive; ``days``: the same by day."""
        self.shell = shell
        self.key = query.key
        self.back = query.href("")
        self.by = choices(BY, query.by)
        self.since = choices(PERIODS, query.since)
        self.namespaces: tuple[Choice, ...] = namespace_choices(namespaces, query.namespace)
        self.rates = query.by == "node"
        self.groups = _groups(ranked(items or ()) if self.rates else items or (), query)
        self.newest = MAX_COMPARED if query.by == "cause" else None
        self.days = sorted(_groups(days, query), key=lambda one: str(one["key"])) if query.by != "day" else []
        self.attempts = None if attempts is None else list(map(_attempt, attempts))
        self.empty: Empty | None = None
        if items is None:
            self.empty = no_archive("which counts failures: a Framework that exists has its own on its page")
        elif not items and not attempts:
            self.empty = Empty("The archive has no failure in this period.")


def _groups(items: Sequence[Item], query: FailureQuery) -> list[Item]:
    """Add to each group a name and a page of its example, and ``percent``, its share of the largest group.

    ``rate``: failures per attempt, "" if not known. ``usual``: failures at the rate of other nodes, "" if not known.
    ``attempts``: the URL of its attempts, "" if it has none of Tasks.
    """
    most = max((item["taskAttempts"] for item in items), default=0) or 1
    made: list[Item] = []
    for item in items[:_MOST]:
        name, href = _example(item.get("example") or {})
        label = clean_line(str(item.get("label") or item["key"]))
        percent = round(100 * item["taskAttempts"] / most, 1)
        total = item.get("ofAttempts")
        rate = f"{100 * item['taskAttempts'] / total:.1f}%" if total else ""
        expected = item.get("expected")
        usual = "" if expected is None else f"{expected:.1f}"
        attempts = query.href(item["key"]) if item["taskAttempts"] else ""
        made.append(
            {
                **item,
                "label": label,
                "percent": percent,
                "rate": rate,
                "usual": usual,
                "suspect": is_suspect(item),
                "attempts": attempts,
                "example": name,
                "href": href,
            }
        )
    return made


def _attempt(item: Item) -> FailedAttempt:
    place = tasks_href(item["namespace"], item["name"], item["uid"], item["role"])
    return FailedAttempt(
        name=f"{item['namespace']}/{item['name']} {item['role']}[{item['index']}]",
        href=f"{place}{item['index']}",
        node=clean_line(item["node"] or ""),
        result=code_and_phrase(item["code"], item["phrase"] or ""),
        cause=cause_in(item["diagnostics"] or ""),
        ended=past_time(item["completed"]),
    )


def _example(found: Item) -> tuple[str, str]:
    if not found.get("uid"):
        return "", ""
    place = found["namespace"], found["name"], found["uid"]
    name = f"{found['namespace']}/{found['name']}"
    if found.get("role") is None or found.get("index") is None:
        return name, framework_href(*place, found.get("attempt"))
    return f"{name} {found['role']}[{found['index']}]", f"{tasks_href(*place, found['role'])}{found['index']}"
