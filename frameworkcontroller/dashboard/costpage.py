"""The page of costs, as summed by the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from frameworkcontroller.dashboard.archivequeries import PERIODS, ArchiveQuery, fields_in
from frameworkcontroller.dashboard.listing import no_archive
from frameworkcontroller.dashboard.rows import framework_href
from frameworkcontroller.dashboard.views import Choice, Empty, Shell, choices, namespace_choices
from frameworkcontroller.views.resourcehours import SPANS, hours, percent, spans_in, title_of, total_of
from frameworkcontroller.views.texts import clean_line

BY: Final = {
    "framework": "by Framework",
    "namespace": "by namespace",
    "queue": "by queue",
    "user": "by user",
    "node": "by node",
    "code": "by code",
    "day": "by day",
}
_MOST: Final = 200
_MOST_DAYS: Final = 60
_MOST_RESOURCE: Final = 1024

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CostQuery(ArchiveQuery):
    """The query of the URL. ``resource``: "" for the default of the archive."""

    by: str = "framework"
    resource: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> CostQuery:
        """Read the query of a URL. Unknown values count as absent."""
        resource = query.get("resource", "")[:_MOST_RESOURCE].replace("\0", "")
        return cls(*fields_in(query, BY, "framework"), resource)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a bar: ``span`` is useful, waiting or lost. ``at``, ``percent``: of the length of the longest bar."""

    span: str
    text: str
    at: float
    percent: float


@dataclass(frozen=True, slots=True)
class CostRow:
    """A group. ``href``: the page of its Framework. ``lost``: its share. ``unknown``: attempts with unknown cost."""

    label: str
    href: str
    shares: list[Share]
    total: str
    hours: dict[str, str]
    lost: str
    attempts: int
    unknown: int


class CostPage:
    """The hours of one resource by group, with a chart of the days.

    ``sums``: the row of all groups. ``title``: what is counted. ``unknown``: attempts that are not in the sums.
    """

    template: ClassVar[str] = "cost.html"

    def __init__(
        self,
        shell: Shell,
        query: CostQuery,
        found: Item | None,
        days: Item | None = None,
        namespaces: Sequence[str] = (),
    ) -> None:
        """``found``: the answer of the archive, None without an archive; ``days``: the same by day."""
        self.shell = shell
        self.by = choices(BY, query.by)
        self.since = choices(PERIODS, query.since)
        self.namespaces: tuple[Choice, ...] = namespace_choices(namespaces, query.namespace)
        self.empty: Empty | None = None
        self.resources: tuple[Choice, ...] = ()
        self.groups: list[CostRow] = []
        self.days: list[CostRow] = []
        self.unknown = 0
        self.title = ""
        self.sums: CostRow | None = None
        if found is None:
            self.empty = no_archive("which sums the cost of past attempts")
            return
        total, resource = found["total"], found["resource"]
        self.unknown = total["unknownAttempts"]
        if not found["items"]:
            self.empty = Empty("The archive has no attempt with a node in this period.")
            return
        names = {name: title_of(name) for name in total["resources"]}
        self.resources = choices(names, resource) if len(names) > 1 else ()
        self.title = title_of(resource) if resource else "hours"
        self.groups = _rows(found["items"][:_MOST], resource, query.by)
        self.sums = _row({**total, "key": "", "label": ""}, resource, "", total_of(spans_in(total, resource)))
        if days is not None and query.by != "day":
            self.days = _rows(days["items"][:_MOST_DAYS], resource, "day")[::-1]


def _rows(items: Sequence[Item], resource: str, by: str) -> list[CostRow]:
    most = max((total_of(spans_in(item, resource)) for item in items), default=0)
    return [_row(item, resource, by, most) for item in items]


def _row(item: Item, resource: str, by: str, most: float) -> CostRow:
    spans = spans_in(item, resource)
    total = total_of(spans)
    shares, at = [], 0.0
    for span in SPANS:
        width = 100 * spans[span] / most if most else 0.0
        if width:
            shares.append(Share(span, f"{hours(resource, spans[span])} {span}", at, width))
        at += width
    key, label = item["key"], clean_line(str(item["label"] or item["key"]))
    namespace, slash, name = label.partition("/")
    return CostRow(
        label=f"{key} {label}" if by == "code" and label != key else label or "none",
        href=framework_href(namespace, name, key) if by == "framework" and slash else "",
        shares=shares,
        total=hours(resource, total),
        hours={span: hours(resource, spans[span]) for span in SPANS},
        lost=percent(spans["lost"], total),
        attempts=item["attempts"],
        unknown=item["unknownAttempts"],
    )
