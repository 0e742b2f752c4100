"""The cost of Task attempts by group: waiting, useful and lost resource-seconds.

Source: docs/history.md, "Cost". The database sums seconds by group and requests, which few Pods have of their
own. Then the seconds are multiplied by the requests, in whole numbers: so all groupings have the same total.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Integer, Select, Subquery, and_, case, func, literal_column, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from frameworkcontroller.api.completion import DISRUPTIONS, PREDEFINED
from frameworkcontroller.history.database import attempts, frameworks, tasks
from frameworkcontroller.history.dialects import bounded, clean
from frameworkcontroller.history.holdings import CPU
from frameworkcontroller.history.ingest import MAX_AHEAD_SEC
from frameworkcontroller.history.queries import Readable, visible
from frameworkcontroller.history.reads import CostKey, CountCost, Json

_EPOCH: Final = date(1970, 1, 1)
_DAY_SEC: Final = 86400
_DAY: Final = literal_column(str(_DAY_SEC), Integer)
"""A literal: with a bind parameter, PostgreSQL cannot match SELECT to GROUP BY."""

_BOUNDS: Final = ("held", "busy", "useful", "freed")
"""The ends of the three spans of an attempt, in their order."""

_COLUMNS: Final[Mapping[CostKey, ColumnElement[Any]]] = {
    CostKey.FRAMEWORK: frameworks.c.uid,
    CostKey.NAMESPACE: frameworks.c.namespace,
    CostKey.QUEUE: frameworks.c.queue,
    CostKey.USER: frameworks.c.submitter,
    CostKey.NODE: tasks.c.node,
    CostKey.CODE: tasks.c.code,
    CostKey.ATTEMPT: tasks.c.attempt,
}


_PHRASES: Final = {one.code: one.phrase for one in (*PREDEFINED.values(), *DISRUPTIONS.values())}


class Spans(NamedTuple):
    """Seconds of attempts, or resource-seconds."""

    waiting: int
    useful: int
    lost: int

    def plus(self, other: Spans, times: int = 1) -> Spans:
        """Add ``other``, ``times`` times."""
        return Spans(*(mine + theirs * times for mine, theirs in zip(self, other, strict=True)))


_NOTHING: Final = Spans(0, 0, 0)


@dataclass(slots=True)
class CostGroup:
    """The attempts of one group. ``seconds``: by the JSON of their requests."""

    label: str = ""
    attempts: int = 0
    unknown: int = 0
    seconds: dict[str, Spans] = field(default_factory=dict)

    def add(self, requests: str, seconds: Spans) -> None:
        """Add seconds of attempts with these requests."""
        self.seconds[requests] = self.seconds.get(requests, _NOTHING).plus(seconds)

    def merge(self, other: CostGroup) -> None:
        """Add another group."""
        self.attempts += other.attempts
        self.unknown += other.unknown
        for requests, seconds in other.seconds.items():
            self.add(requests, seconds)

    def resources(self) -> dict[str, Spans]:
        """The resource-seconds by resource; of CPUs, thousandths."""
        found: dict[str, Spans] = {}
        for requests, seconds in self.seconds.items():
            for name, amount in orjson.loads(requests).items():
                found[name] = found.get(name, _NOTHING).plus(seconds, amount)
        return found


async def count_cost(connection: AsyncConnection, query: CountCost, readable: Readable) -> Callable[[], Json]:
    """The cost of attempts by group."""
    by = CostKey(query.by)
    spans = _spans(query, readable, by)
    summed = _days(spans) if by is CostKey.DAY else _groups(spans)
    rows = (await connection.execute(summed)).all()
    return lambda: _answer(query, _by_day(rows) if by is CostKey.DAY else _by_key(rows, by))


# --- queries ----------------------------------------------------------------------------------------------------


def _spans(query: CountCost, readable: Readable, by: CostKey) -> Subquery:
    """The attempts with a cost, and with an unknown one (``held`` null), each with its key and its `_BOUNDS`."""
    done = tasks.c
    conditions = visible(readable)
    known: list[ColumnElement[bool]] = [done.held.is_not(None)]
    unknown: list[ColumnElement[bool]] = [done.held.is_(None), done.completed.is_not(None), done.node.is_not(None)]
    if query.namespace:
        conditions.append(frameworks.c.namespace == clean(query.namespace))
    if query.uid:
        conditions.append(frameworks.c.uid == clean(query.uid))
    if query.since is not None:
        since = bounded(query.since)
        # Frameworks without a record since then are not read. Clocks of schedulers may be ahead.
        conditions.append(frameworks.c.last >= bounded((since - MAX_AHEAD_SEC) * 1_000_000))
        known.append(done.freed > since)
        unknown.append(done.completed >= since)
    if query.until is not None:
        until = bounded(query.until)
        known.append(done.held < until)
        unknown.append(done.completed < until)
    bounds = {name: done[name] for name in _BOUNDS if name != "useful"}
    inner = (
        select(
            *([] if by is CostKey.DAY else [_COLUMNS[by].label("key")]),
            _label(by).label("label"),
            done.requests,
            done.completed,
            *bounds.values(),
            _useful().label("useful"),
        )
        .join_from(frameworks, attempts, attempts.c.fid == frameworks.c.fid)
        .join(tasks, and_(done.fid == attempts.c.fid, done.attempt == attempts.c.attempt))
        .where(*conditions, or_(and_(*known), and_(*unknown)))
        .subquery()
    )
    if query.since is None and query.until is None:
        return inner
    others = [column for column in inner.c if column.name not in _BOUNDS]
    cut = [_within(inner.c[name], query.since, query.until).label(name) for name in _BOUNDS]
    return select(*others, *cut).subquery()


def _label(by: CostKey) -> ColumnElement[Any]:
    if by is CostKey.FRAMEWORK:
        return frameworks.c.namespace + literal_column("'/'") + frameworks.c.name
    return literal_column("''")


def _useful() -> ColumnElement[int]:
    """When the work of an attempt began to be lost.

    At its end, if its Framework attempt succeeded and it has not failed. Else at the last checkpoint or progress of the
    Framework attempt.
    """
    done, progressed = tasks.c, attempts.c.progressed
    return case(
        (and_(attempts.c.succeeded == 1, done.failed_at.is_(None)), done.freed),
        (progressed.is_(None), done.busy),
        (progressed < done.busy, done.busy),
        (progressed > done.freed, done.freed),
        else_=progressed,
    )


def _within(column: ColumnElement[int], since: int | None, until: int | None) -> ColumnElement[int]:
    """The nearest time between the two."""
    outside = []
    if since is not None:
        outside.append((column < bounded(since), bounded(since)))
    if until is not None:
        outside.append((column > bounded(until), bounded(until)))
    return case(*outside, else_=column)


def _groups(spans: Subquery) -> Select[Any]:
    """Sums of the seconds by key and requests."""
    sums = [func.sum(spans.c[end] - spans.c[begin]) for begin, end in pairwise(_BOUNDS)]
    return select(spans.c.key, func.max(spans.c.label), spans.c.requests, func.count(), *sums).group_by(
        spans.c.key, spans.c.requests
    )


def _days(spans: Subquery) -> Select[Any]:
    """By the days of all bounds: the number of attempts, and for each bound the sum of its seconds after midnight.

    One pass over the attempts, and few groups: most attempts end on the day on which they began.
    """
    # An end at midnight belongs to the day before.
    last = case((spans.c.freed > spans.c.held, spans.c.freed - 1), else_=spans.c.held)
    ended = case((spans.c.held.is_(None), spans.c.completed), else_=last)
    days = [spans.c.requests, *((time // _DAY) for time in (ended, *(spans.c[name] for name in _BOUNDS)))]
    after = [func.sum(spans.c[name] - spans.c[name] // _DAY * _DAY) for name in _BOUNDS]
    return select(*days, func.count(), *after).group_by(*days)


# --- sums -------------------------------------------------------------------------------------------------------


def _by_key(rows: Iterable[Any], by: CostKey) -> dict[str, CostGroup]:
    groups: dict[str, CostGroup] = {}
    for key, label, requests, count, *seconds in rows:
        text = "" if key is None else str(key)
        group = groups.setdefault(text, CostGroup(_PHRASES.get(key, "") if by is CostKey.CODE else label or ""))
        if requests is None:
            group.unknown += count
        else:
            group.attempts += count
            group.add(requests, Spans(*map(int, seconds)))
    return groups


def _by_day(rows: Iterable[Any]) -> dict[str, CostGroup]:
    """An attempt of several days counts on each with its seconds of that day."""
    groups: dict[int, CostGroup] = defaultdict(CostGroup)
    changes: dict[str, dict[int, Spans]] = {}
    for requests, ended, *values in rows:
        days, count, after = values[:4], values[4], values[5:]
        if requests is None:
            groups[ended].unknown += count
            continue
        groups[ended].attempts += count
        for span, (begins, ends) in enumerate(pairwise(days)):
            begin, end = int(after[span]), int(after[span + 1])
            if begins == ends:
                groups[begins].add(requests, _only(span, end - begin))
                continue
            groups[begins].add(requests, _only(span, count * _DAY_SEC - begin))
            groups[ends].add(requests, _only(span, end))
            # The days between are added below, together for all attempts.
            of_requests = changes.setdefault(requests, {})
            for day, change in ((begins + 1, count), (ends, -count)):
                of_requests[day] = of_requests.get(day, _NOTHING).plus(_only(span, change))
    for requests, of_requests in changes.items():
        active, since = _NOTHING, 0
        for day in sorted(of_requests):
            if active != _NOTHING:
                for each in range(since, day):
                    groups[each].add(requests, _NOTHING.plus(active, _DAY_SEC))
            active, since = active.plus(of_requests[day]), day
    return {str(_EPOCH + timedelta(days=day)): groups[day] for day in sorted(groups, reverse=True)}


def _only(span: int, seconds: int) -> Spans:
    return Spans(*(seconds if place == span else 0 for place in range(len(Spans._fields))))


def _answer(query: CountCost, groups: Mapping[str, CostGroup]) -> Json:
    total = CostGroup()
    for group in groups.values():
        total.merge(group)
    sums = total.resources()
    resource = query.resource or _main_resource(sums)
    # Pods may touch a day, or have no requests on it.
    items = [
        (key, group, resources)
        for key, group in groups.items()
        if any(map(any, (resources := group.resources()).values())) or group.attempts or group.unknown
    ]
    if query.by != CostKey.DAY:
        items.sort(key=lambda item: (-sum(item[2].get(resource, _NOTHING)), -item[1].attempts, item[0]))
    return {
        "items": [
            {"key": key, "label": group.label or key, **_sum(group, resources)}
            for key, group, resources in items[: query.limit]
        ],
        "total": _sum(total, sums),
        "resource": resource,
    }


def _main_resource(sums: Mapping[str, Spans]) -> str:
    """An extended resource, which is mostly the most expensive one; else cpu, or any."""
    extended = {name: sum(spans) for name, spans in sums.items() if "/" in name}
    if extended:
        return max(sorted(extended), key=lambda name: extended[name])
    return CPU if CPU in sums else min(sums, default="")


def _sum(group: CostGroup, resources: Mapping[str, Spans]) -> Json:
    shown = {
        name: {span: _amount(name, value) for span, value in spans._asdict().items()}
        for name, spans in sorted(resources.items())
    }
    return {"attempts": group.attempts, "unknownAttempts": group.unknown, "resources": shown}


def _amount(resource: str, value: int) -> float:
    if resource != CPU:
        return value
    return value // 1000 if value % 1000 == 0 else value / 1000
