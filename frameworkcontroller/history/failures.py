"""Failures by group: how many, since when, and the last one of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    Table,
    func,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.history.database import attempts, frameworks, tasks
from frameworkcontroller.history.dialects import bounded, clean
from frameworkcontroller.history.queries import Readable, visible
from frameworkcontroller.history.reads import CountFailures, FailureKey, Json

_EPOCH: Final = date(1970, 1, 1)
_DAY_SEC: Final = literal_column("86400", Integer)
"""A literal: with a bind parameter, PostgreSQL cannot match SELECT to GROUP BY."""


async def count_failures(connection: AsyncConnection, query: CountFailures, readable: Readable) -> Json:
    """Failures by group: attempts that failed, and not on request (`completion.REQUESTED`)."""
    by = FailureKey(query.by)
    day = by is FailureKey.DAY
    blamed = "cause_" if by in {FailureKey.NODE, FailureKey.ROLE} else ""

    # First within each Framework, from an index alone. Only then their namespaces are looked up.
    def inner(table: Table, column: str, identity: Any, *, task: bool) -> Select[Any]:
        key = table.c.failed_at // _DAY_SEC if day else table.c[column]
        nothing: ColumnElement[int] = literal_column("0", Integer)
        count = func.count()
        conditions: list[ColumnElement[bool]] = [table.c.failed_at.is_not(None)]
        if query.since is not None:
            conditions.append(table.c.failed_at >= bounded(query.since))
        if query.until is not None:
            conditions.append(table.c.failed_at < bounded(query.until))
        if blamed:
            conditions.append(key.is_not(None))
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
                example = dict(row._mapping)
                found[key, example.pop("number")] = example
    return found
