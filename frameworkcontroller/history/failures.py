"""Failures by group: how many, since when, the last one of each, and the attempts of one group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    Table,
    and_,
    func,
    literal_column,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from frameworkcontroller.api.causes import cause_in, normalized
from frameworkcontroller.api.completion import DISPLACED
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.history.archiveerrors import QueryError
from frameworkcontroller.history.database import attempts, frameworks, tasks
from frameworkcontroller.history.dialects import bounded, clean
from frameworkcontroller.history.queries import TASK_COLUMNS, Readable, as_item, visible
from frameworkcontroller.history.reads import (
    MAX_COMPARED,
    CountFailures,
    FailedTaskAttempt,
    FailureExample,
    FailureKey,
    Json,
    ListFailures,
    shown,
)

_OF_FRAMEWORK: Final = ("uid", "namespace", "name")
_EPOCH: Final = date(1970, 1, 1)
_DAY_SEC: Final = 86400
_DAY: Final = literal_column(str(_DAY_SEC), Integer)
"""A literal: with a bind parameter, PostgreSQL cannot match SELECT to GROUP BY."""


async def count_failures(
    connection: AsyncConnection, query: CountFailures, readable: Readable
) -> Json | Callable[[], Json]:
    """Failures by group: attempts that failed, and not on request (`completion.REQUESTED`)."""
    by = FailureKey(query.by)
    if by is FailureKey.CAUSE:
        return await _count_causes(connection, query, readable)
    day = by is FailureKey.DAY
    blamed = "cause_" if by in {FailureKey.NODE, FailureKey.ROLE} else ""

    # First within each Framework, from an index alone. Only then their namespaces are looked up.
    def inner(table: Table, column: str, identity: Any, *, task: bool) -> Select[Any]:
        key = table.c.failed_at // _DAY if day else table.c[column]
        nothing: ColumnElement[int] = literal_column("0", Integer)
        count = func.count()
        conditions: list[ColumnElement[bool]] = [table.c.failed_at.is_not(None)]
        if query.since is not None:
            conditions.append(table.c.failed_at >= bounded(query.since))
        if query.until is not None:
            conditions.append(table.c.failed_at < bounded(query.until))
        if blamed:
            conditions.append(key.is_not(None))
        if by is FailureKey.NODE:
            conditions.append(_is_by_node(table))
        return (
            select(
                key.label("key"),
                table.c.fid.label("fid"),
                (count if task else nothing).label("tasks"),
                (nothing if task else count).label("attempts"),
                func.min(table.c.failed_at).label("first"),
                func.max(table.c.failed_at).label("last"),
                (func.max(identity) if task else null()).label("tid"),
                (null() if task else func.max(identity)).label("aid"),
            )
            .where(*conditions)
            .group_by(key, table.c.fid)
        )

    parts = union_all(
        inner(tasks, by, tasks.c.tid, task=True),
        inner(attempts, f"{blamed}{by}", attempts.c.aid, task=False),
    ).subquery()
    seen = visible(readable)
    if query.namespace:
        seen.append(frameworks.c.namespace == clean(query.namespace))
    tasks_failed = func.sum(parts.c.tasks).label("tasks")
    attempts_failed = func.sum(parts.c.attempts).label("attempts")
    newest_or_most = [parts.c.key.desc()] if day else [tasks_failed.desc(), attempts_failed.desc()]
    grouped = (
        select(
            parts.c.key,
            tasks_failed,
            attempts_failed,
            func.count(parts.c.fid.distinct()).label("frameworks"),
            func.min(parts.c.first).label("first"),
            func.max(parts.c.last).label("last"),
            func.max(parts.c.tid).label("tid"),
            func.max(parts.c.aid).label("aid"),
        )
        .join_from(parts, frameworks, frameworks.c.fid == parts.c.fid)
        .where(*seen)
        .group_by(parts.c.key)
        .order_by(*newest_or_most, parts.c.key)
        .limit(query.limit)
    )
    groups = (await connection.execute(grouped)).all()
    examples = await _examples(connection, groups)
    nodes = await _count_nodes(connection, query, readable) if by is FailureKey.NODE else None
    items = []
    for group in groups:
        example = dict(examples["tid", group.tid] if group.tid is not None else examples["aid", group.aid])
        phrase = example.pop("phrase")
        key = str(_EPOCH + timedelta(days=group.key)) if day else str(group.key)
        items.append(
            {
                "key": key,
                "label": phrase or key if by is FailureKey.CODE else key,
                "taskAttempts": int(group.tasks),
                "ofAttempts": None if nodes is None else nodes.ended.get(key, 0),
                "expected": None if nodes is None else nodes.expected(key, int(group.tasks)),
                "frameworkAttempts": int(group.attempts),
                "frameworks": group.frameworks,
                "first": format_time(group.first),
                "last": format_time(group.last),
                "example": example,
            }
        )
    return {"items": items}


async def _examples(connection: AsyncConnection, groups: Sequence[Row[Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The last stored failure of each group."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    who = (frameworks.c.uid, frameworks.c.namespace, frameworks.c.name)
    for table, key, where in (
        (tasks, "tid", (tasks.c.role, tasks.c.idx.label("index"))),
        (attempts, "aid", (null().label("role"), null().label("index"))),
    ):
        wanted = [getattr(group, key) for group in groups if key == "tid" or group.tid is None]
        numbers = [number for number in wanted if number is not None]
        if numbers:
            query = (
                select(table.c[key].label("number"), *who, table.c.attempt, table.c.phrase, *where)
                .join_from(table, frameworks, frameworks.c.fid == table.c.fid)
                .where(table.c[key].in_(numbers))
            )
            for row in await connection.execute(query):
                # SQLAlchemy's names are subclasses of str, which YAML does not know.
                example = {str(name): value for name, value in row._mapping.items()}
                found[key, example.pop("number")] = example
    return found


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The Task attempts that ended on nodes. ``ended``: by node. ``failed``: of all of them."""

    ended: dict[str, int]
    failed: int

    def expected(self, node: str, failed: int) -> float | None:
        """The failures on a node, if it had as many of its attempts as the other nodes; None without others."""
        here = self.ended.get(node, 0)
        elsewhere = sum(self.ended.values()) - here
        return round(here * max(0, self.failed - failed) / elsewhere, 2) if elsewhere > 0 else None


async def _count_nodes(connection: AsyncConnection, query: CountFailures, readable: Readable) -> _Nodes:
    """The Task attempts that ended on nodes in the time and the namespaces of the query.

    Frameworks without a record since then are not read.
    """
    conditions = [tasks.c.node.is_not(None), tasks.c.completed.is_not(None), *visible(readable)]
    if query.since is not None:
        since = bounded(query.since)
        conditions += [tasks.c.completed >= since, frameworks.c.last >= since * 1_000_000]
    if query.until is not None:
        conditions.append(tasks.c.completed < bounded(query.until))
    if query.namespace:
        conditions.append(frameworks.c.namespace == clean(query.namespace))
    ended = (
        select(tasks.c.node, func.count())
        .join_from(frameworks, tasks, frameworks.c.fid == tasks.c.fid)
        .where(*conditions)
        .group_by(tasks.c.node)
    )
    failed = (
        select(func.count())
        .select_from(tasks)
        .join(frameworks, frameworks.c.fid == tasks.c.fid)
        .where(*_within(query, tasks, readable), tasks.c.node.is_not(None), _is_by_node(tasks))
    )
    found = {row[0]: row[1] for row in await connection.execute(ended)}
    return _Nodes(found, (await connection.execute(failed)).scalar_one())


def _is_by_node(table: Table) -> ColumnElement[bool]:
    """The condition that a failure may be the node's. A Pod that had to make room says nothing of it."""
    return or_(table.c.code.is_(None), table.c.code.not_in(sorted(DISPLACED)))


def _within(query: CountFailures | ListFailures, table: Table, readable: Readable) -> list[ColumnElement[bool]]:
    """The condition that a row is a failure in the time and the namespaces of the query."""
    conditions: list[ColumnElement[bool]] = [table.c.failed_at.is_not(None), *visible(readable)]
    if query.since is not None:
        conditions.append(table.c.failed_at >= bounded(query.since))
    if query.until is not None:
        conditions.append(table.c.failed_at < bounded(query.until))
    if query.namespace:
        conditions.append(frameworks.c.namespace == clean(query.namespace))
    return conditions


def _cause_key(code: int, diagnostics: str | None) -> tuple[str, str]:
    """The key of a cause, and its words."""
    words = cause_in(diagnostics or "")
    return f"{code} {normalized(words)}", words


_ROW: Final = ("code", "phrase", "diagnostics", "failed_at", "fid", "attempt")
_CAUSES: Final = (
    ("taskAttempts", tasks, (tasks.c.role, tasks.c.idx.label("index")), ()),
    # Other attempts of Frameworks have the cause of a Task, which is counted there.
    ("frameworkAttempts", attempts, (null().label("role"), null().label("index")), (attempts.c.cause_role.is_(None),)),
)


async def _count_causes(connection: AsyncConnection, query: CountFailures, readable: Readable) -> Callable[[], Json]:
    """Failures by code and words without numbers."""
    rows: list[tuple[str, Row[Any]]] = []
    for number, table, who, where in _CAUSES:
        found = (
            select(*(table.c[name] for name in _ROW), *(frameworks.c[name] for name in _OF_FRAMEWORK), *who)
            .join_from(table, frameworks, frameworks.c.fid == table.c.fid)
            .where(*_within(query, table, readable), *where)
            .order_by(table.c.failed_at.desc())
            .limit(MAX_COMPARED)
        )
        rows += [(number, row) for row in await connection.execute(found)]
    return lambda: {"items": _by_cause(rows)[: query.limit]}


def _by_cause(rows: Sequence[tuple[str, Row[Any]]]) -> list[Json]:
    groups: dict[str, Json] = {}
    members: dict[str, set[int]] = {}
    for number, row in rows:
        key, words = _cause_key(row.code, row.diagnostics)
        if key not in groups:
            label = f"{row.code} {row.phrase or ''}".rstrip()
            groups[key] = {
                "key": key,
                "label": f"{label}: {words}" if words else label,
                "taskAttempts": 0,
                "ofAttempts": None,
                "expected": None,
                "frameworkAttempts": 0,
                "first": row.failed_at,
                "last": row.failed_at,
                "example": {name: row._mapping[name] for name in FailureExample.__annotations__},
            }
        group = groups[key]
        group[number] += 1
        group["first"], group["last"] = min(group["first"], row.failed_at), max(group["last"], row.failed_at)
        members.setdefault(key, set()).add(row.fid)
    for key, group in groups.items():
        group["frameworks"] = len(members[key])
        group["first"], group["last"] = format_time(group["first"]), format_time(group["last"])
    return sorted(groups.values(), key=lambda one: (-one["taskAttempts"], -one["frameworkAttempts"], one["key"]))


async def list_failures(connection: AsyncConnection, query: ListFailures, readable: Readable) -> Callable[[], Json]:
    """The newest failed Task attempts of a group."""
    by, conditions, limit = FailureKey(query.by), _within(query, tasks, readable), query.limit
    if query.key and by is FailureKey.CAUSE:
        conditions.append(tasks.c.code == _number(query.key.partition(" ")[0]))
        limit = MAX_COMPARED
    elif query.key:
        conditions.append(_has_key(by, query.key))
    if query.key and by is FailureKey.NODE:
        conditions.append(_is_by_node(tasks))
    found = (
        select(*TASK_COLUMNS, *(frameworks.c[name] for name in _OF_FRAMEWORK))
        .join_from(tasks, frameworks, frameworks.c.fid == tasks.c.fid)
        .where(*conditions)
        .order_by(tasks.c.failed_at.desc(), tasks.c.tid.desc())
        .limit(limit)
    )
    rows = (await connection.execute(found)).all()

    def made() -> Json:
        alike = (row for row in rows if limit != MAX_COMPARED or _cause_key(row.code, row.diagnostics)[0] == query.key)
        return {"items": [as_item(FailedTaskAttempt, row) for row in islice(alike, query.limit)]}

    return made


def _has_key(by: FailureKey, key: str) -> ColumnElement[bool]:
    if by is FailureKey.DAY:
        # A range, which the index finds.
        begin = _day(key) * _DAY_SEC
        return and_(tasks.c.failed_at >= begin, tasks.c.failed_at < begin + _DAY_SEC)
    return tasks.c[by] == (_number(key) if by is FailureKey.CODE else clean(key))


def _number(text: str) -> int:
    with suppress(ValueError):
        return bounded(int(text))
    raise QueryError("key", f"must begin with a code, as {shown(text)} does not")


def _day(text: str) -> int:
    with suppress(ValueError):
        return (date.fromisoformat(text) - _EPOCH).days
    raise QueryError("key", f"must be a day such as 2026-01-31, not {shown(text)}")
