"""The queries over the archive, the same for all databases."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, Final

import orjson
from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    false,
    func,
    literal_column,
    not_,
    null,
    or_,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from frameworkcontroller.api.completion import SUCCEEDED
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.history.database import attempts, frameworks, pods, tasks
from frameworkcontroller.history.errors import QueryError

MAX_PAGE: Final = 1000
"""The most items that a page may have."""

MAX_GROUPS: Final = 1000
"""The most groups of failures that one answer has: those with the most failures, or the newest days."""

_FEW_NAMESPACES: Final = 500
"""More are one parameter."""

_MERGED_NAMESPACES: Final = 16
"""The pages of up to this number of namespaces are read one by one, and merged."""

Namespaces = frozenset[str] | None
"""The namespaces that the viewer may read, None: all. What is in another one does not exist, and is not counted."""


@dataclass(frozen=True, slots=True)
class FrameworkQuery:
    """Which Frameworks to list, newest (by ``created``) first. None and "" do not restrict.

    Attributes:
        name: the whole name.
        state: of the newest record of the Framework, such as ``Completed``.
        code: completion code of the attempt in the newest record of the Framework.
        since, until: seconds since the epoch. Frameworks that existed at some time from ``since`` to before ``until``.
        q: a part of the name, in any case.
        limit: most items of the page, 1 to ``MAX_PAGE``.
        after: ``Page.next`` of the page before.
    """

    namespace: str = ""
    name: str = ""
    state: str = ""
    code: int | None = None
    since: int | None = None
    until: int | None = None
    q: str = ""
    limit: int = 100
    after: str = ""


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which Task attempts of a Framework attempt to list, by role, index, instance and attempt.

    Attributes:
        failed: True: those that did not succeed, stopped ones too. False: the others.
        limit: most items of the page, 1 to ``MAX_PAGE``.
        after: ``Page.next`` of the page before.
    """

    role: str = ""
    index: int | None = None
    failed: bool | None = None
    limit: int = 100
    after: str = ""


class FailureKey(StrEnum):
    """By what failures are grouped. ``DAY``: of the completion, UTC."""

    CODE = "code"
    NODE = "node"
    ROLE = "role"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class FailureQuery:
    """Which failures to count: attempts that failed, and not on request (`completion.REQUESTED`).

    Attributes:
        since, until: seconds since the epoch; of the completion, from ``since`` to before ``until``.
        limit: most groups of the answer, 1 to ``MAX_GROUPS``.
    """

    by: FailureKey = FailureKey.CODE
    namespace: str = ""
    since: int | None = None
    until: int | None = None
    limit: int = MAX_GROUPS


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. ``next``: the ``after`` of the next page, None if this is the last one."""

    items: list[dict[str, Any]]
    next: str | None = None


def checked_limit(limit: int, most: int = MAX_PAGE) -> int:
    """The limit, if it may be.

    Raises:
        QueryError: it may not.
    """
    if not 1 <= limit <= most:
        raise QueryError("limit", f"must be from 1 to {most}, not {limit}")
    return limit


# --- what may be seen -------------------------------------------------------------------------------------------


_EPOCH: Final = date(1970, 1, 1)


class _Texts(FunctionElement[str]):
    """The texts of a JSON list, as rows: a list of any length is one parameter."""

    inherit_cache = True
    type = Text()


@compiles(_Texts, "sqlite")
def _texts_of_sqlite(element: _Texts, compiler: Any, **kw: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **kw)})"


@compiles(_Texts, "postgresql")
def _texts_of_postgresql(element: _Texts, compiler: Any, **kw: Any) -> str:
    return f"json_array_elements_text(CAST({compiler.process(element.clauses, **kw)} AS json))"


class _Contains(FunctionElement[int]):
    """Position of a text in another one, 0 if it is not in there."""

    inherit_cache = True
    type = Integer()


@compiles(_Contains, "sqlite")
def _contains_of_sqlite(element: _Contains, compiler: Any, **kw: Any) -> str:
    return f"instr({compiler.process(element.clauses, **kw)})"


@compiles(_Contains, "postgresql")
def _contains_of_postgresql(element: _Contains, compiler: Any, **kw: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **kw)})"


def _visible(namespaces: Namespaces, column: Any = frameworks.c.namespace) -> list[ColumnElement[bool]]:
    """The condition that a row is in one of the namespaces; none if all may be seen."""
    if namespaces is None:
        return []
    if not namespaces:
        return [false()]
    if len(namespaces) <= _FEW_NAMESPACES:
        return [column.in_(sorted(namespaces))]
    texts = orjson.dumps(sorted(namespaces)).decode()
    return [column.in_(select(_Texts(bindparam(None, texts, Text)).table_valued("value").c.value))]


# --- Frameworks -------------------------------------------------------------------------------------------------

_CURSOR: Final = re.compile(r"(-?[0-9]{1,18})\.([0-9]{1,18})")


async def list_frameworks(connection: AsyncConnection, query: FrameworkQuery, namespaces: Namespaces) -> Page:
    """A page of Frameworks."""
    limit = checked_limit(query.limit)
    columns = frameworks.c
    conditions: list[ColumnElement[bool]] = []
    for column, value in ((columns.name, query.name), (columns.state, query.state)):
        if value:
            conditions.append(column == _clean(value))
    if query.code is not None:
        conditions.append(columns.code == _bounded(query.code))
    if query.q:
        conditions.append(_Contains(columns.name, _clean(query.q.lower())) > 0)
    if query.since is not None:
        conditions.append(or_(columns.ended.is_(None), columns.ended >= _bounded(query.since)))
    if query.until is not None:
        conditions.append(columns.created < _bounded(query.until))
    if query.after:
        found = _CURSOR.fullmatch(query.after)
        if found is None:
            raise QueryError("after", "must be the next of a page")
        conditions.append(tuple_(columns.created, columns.fid) < tuple_(*map(int, found.groups())))

    if query.namespace:
        conditions += [columns.namespace == _clean(query.namespace), *_visible(namespaces)]
        source = [conditions]
    elif namespaces and len(namespaces) <= _MERGED_NAMESPACES:
        # Each of them reads the newest entries of an index, and no Framework of others.
        source = [[*conditions, columns.namespace == one] for one in sorted(namespaces)]
    else:
        source = [[*conditions, *_visible(namespaces)]]
    order = (columns.created.desc(), columns.fid.desc())
    pages = [select(columns.fid).where(*some).order_by(*order).limit(limit + 1).subquery() for some in source]
    fids = union_all(*(select(page) for page in pages)) if len(pages) > 1 else select(pages[0])
    rows = (
        await connection.execute(select(frameworks).where(columns.fid.in_(fids)).order_by(*order).limit(limit + 1))
    ).all()
    more = f"{rows[limit - 1].created}.{rows[limit - 1].fid}" if len(rows) > limit else None
    return Page([_framework(row) for row in rows[:limit]], more)


def _framework(row: Row[Any]) -> dict[str, Any]:
    return {
        "uid": row.uid,
        "namespace": row.namespace,
        "name": row.name,
        "cluster": row.cluster,
        "state": row.state,
        "code": row.code,
        "phrase": row.phrase,
        "type": row.type,
        "attempts": row.attempts,
        "taskRetries": row.task_retries,
        "tasks": row.tasks,
        "failedTasks": row.failed_tasks,
        "created": _time(row.created),
        "started": _time(row.started),
        "completed": _time(row.completed),
        "archived": _time(row.last // 1_000_000),
        "deleted": _time(row.deleted),
    }


async def list_namespaces(connection: AsyncConnection) -> list[str]:
    """The namespaces of all Frameworks."""
    # Each by a look into the index. DISTINCT would read all Frameworks, and each page of a viewer asks for this.
    first = func.min(frameworks.c.namespace)
    found = select(first.label("namespace")).cte("found", recursive=True)
    following = select(first).where(frameworks.c.namespace > found.c.namespace).scalar_subquery()
    found = found.union_all(select(following).select_from(found).where(found.c.namespace.is_not(None)))
    return sorted(await connection.scalars(select(found.c.namespace).where(found.c.namespace.is_not(None))))


async def count_frameworks(connection: AsyncConnection) -> int:
    """The number of all Frameworks."""
    return await connection.scalar(select(func.count()).select_from(frameworks)) or 0


async def _find(connection: AsyncConnection, uid: str, namespaces: Namespaces) -> Row[Any] | None:
    found = select(frameworks).where(frameworks.c.uid == _clean(uid), *_visible(namespaces))
    return (await connection.execute(found)).one_or_none()


async def get_framework(connection: AsyncConnection, uid: str, namespaces: Namespaces) -> dict[str, Any] | None:
    """A Framework with its attempts."""
    row = await _find(connection, uid, namespaces)
    if row is None:
        return None
    columns = [column for column in attempts.c if column is not attempts.c.record]
    found = select(*columns).where(attempts.c.fid == row.fid).order_by(attempts.c.attempt)
    item = _framework(row)
    return {
        **item,
        "attemptCount": item["attempts"],
        "attempts": [_attempt(attempt) for attempt in await connection.execute(found)],
    }


def _attempt(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.attempt,
        "trigger": row.trigger,
        "code": row.code,
        "phrase": row.phrase,
        "type": row.type,
        "diagnostics": row.diagnostics,
        "started": _time(row.started),
        "completed": _time(row.completed),
        "tasks": row.tasks,
        "failedTasks": row.failed_tasks,
    }


async def get_attempt(
    connection: AsyncConnection, uid: str, attempt: int, namespaces: Namespaces
) -> tuple[dict[str, Any], bytes | None] | None:
    """An attempt of a Framework, and its record as it is kept."""
    framework = await _find(connection, uid, namespaces)
    if framework is None:
        return None
    found = select(attempts).where(attempts.c.fid == framework.fid, attempts.c.attempt == _bounded(attempt))
    row = (await connection.execute(found)).one_or_none()
    if row is None:
        return None
    counts = {
        "total": row.tasks,
        "running": row.running_tasks,
        "succeeded": row.succeeded_tasks,
        "failed": row.failed_tasks,
    }
    return {**_attempt(row), "tasks": counts}, row.record


# --- Tasks ------------------------------------------------------------------------------------------------------

_TASK_COLUMNS: Final = [column for column in tasks.c if column is not tasks.c.record]
_ORDER: Final = (tasks.c.role, tasks.c.idx, tasks.c.task_uid, tasks.c.task_attempt)


async def list_tasks(
    connection: AsyncConnection, uid: str, attempt: int, query: TaskQuery, namespaces: Namespaces
) -> Page | None:
    """A page of the Task attempts of an attempt."""
    limit = checked_limit(query.limit)
    framework = await _find(connection, uid, namespaces)
    if framework is None:
        return None
    here = (attempts.c.fid == framework.fid, attempts.c.attempt == _bounded(attempt))
    if await connection.scalar(select(attempts.c.aid).where(*here)) is None:
        return None
    conditions: list[ColumnElement[bool]] = [tasks.c.fid == framework.fid, tasks.c.attempt == attempt]
    if query.role:
        conditions.append(tasks.c.role == _clean(query.role))
    if query.index is not None:
        conditions.append(tasks.c.idx == _bounded(query.index))
    if query.failed is not None:
        # Without a code, it is not completed.
        failed = and_(tasks.c.code.is_not(None), func.coalesce(tasks.c.type, "") != SUCCEEDED)
        conditions.append(failed if query.failed else not_(failed))
    if query.after:
        conditions.append(tuple_(*_ORDER) > tuple_(*_task_cursor(query.after)))
    found = select(*_TASK_COLUMNS).where(*conditions).order_by(*_ORDER).limit(limit + 1)
    rows = (await connection.execute(found)).all()
    more = None
    if len(rows) > limit:
        last = rows[limit - 1]
        place = orjson.dumps([last.role, last.idx, last.task_uid, last.task_attempt])
        more = base64.urlsafe_b64encode(place).decode().rstrip("=")
    return Page([_task(row) for row in rows[:limit]], more)


def _task_cursor(after: str) -> tuple[str, int, str, int]:
    try:
        role, index, task_uid, number = orjson.loads(base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)))
        if (type(role), type(index), type(task_uid), type(number)) == (str, int, str, int):
            return _clean(role), _bounded(index), _clean(task_uid), _bounded(number)
    except (TypeError, ValueError):
        pass
    raise QueryError("after", "must be the next of a page")


def _task(row: Row[Any]) -> dict[str, Any]:
    return {
        "frameworkAttempt": row.attempt,
        "role": row.role,
        "index": row.idx,
        "taskUid": row.task_uid,
        "attempt": row.task_attempt,
        "code": row.code,
        "phrase": row.phrase,
        "type": row.type,
        "diagnostics": row.diagnostics,
        "node": row.node,
        "pod": row.pod,
        "podUid": row.pod_uid,
        "podIP": row.pod_ip,
        "hostIP": row.host_ip,
        "started": _time(row.started),
        "ran": _time(row.ran),
        "completed": _time(row.completed),
        "trigger": row.trigger,
    }


async def list_task_history(
    connection: AsyncConnection, uid: str, role: str, index: int, namespaces: Namespaces
) -> list[dict[str, Any]] | None:
    """The attempts of a Task over all attempts of its Framework."""
    framework = await _find(connection, uid, namespaces)
    if framework is None:
        return None
    # By the numbers of the attempts the index on the key gives each Task at once.
    numbers = select(attempts.c.attempt).where(attempts.c.fid == framework.fid)
    found = (
        select(*_TASK_COLUMNS)
        .where(
            tasks.c.fid == framework.fid,
            tasks.c.attempt.in_(numbers),
            tasks.c.role == _clean(role),
            tasks.c.idx == _bounded(index),
        )
        .order_by(tasks.c.attempt.desc(), tasks.c.started.desc(), tasks.c.task_attempt.desc(), tasks.c.task_uid)
        .limit(MAX_PAGE)
    )
    return [_task(row) for row in reversed((await connection.execute(found)).all())]


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """A Task attempt and the records in which it is: its own or else that of the Framework, and those of its Pods."""

    item: dict[str, Any]
    own: bytes | None
    framework: bytes | None
    pods: list[bytes]


async def get_task_attempt(
    connection: AsyncConnection,
    uid: str,
    attempt: int,
    place: tuple[str, int, str, int],
    namespaces: Namespaces,
) -> TaskAttempt | None:
    """A Task attempt by role, index, instance and number."""
    framework = await _find(connection, uid, namespaces)
    if framework is None:
        return None
    role, index, task_uid, number = place
    role, task_uid = _clean(role), _clean(task_uid)
    found = select(tasks).where(
        tasks.c.fid == framework.fid,
        tasks.c.attempt == _bounded(attempt),
        tasks.c.role == role,
        tasks.c.idx == _bounded(index),
        tasks.c.task_uid == task_uid,
        tasks.c.task_attempt == _bounded(number),
    )
    row = (await connection.execute(found)).one_or_none()
    if row is None:
        return None
    its_pods = (
        select(pods.c.record)
        .where(
            pods.c.fid == framework.fid,
            pods.c.attempt == attempt,
            pods.c.role == role,
            pods.c.task_uid == task_uid,
            pods.c.task_attempt == number,
        )
        .order_by(pods.c.time, pods.c.pod_uid)
        .limit(MAX_PAGE)
    )
    whole = select(attempts.c.record).where(attempts.c.fid == framework.fid, attempts.c.attempt == attempt)
    return TaskAttempt(
        _task(row),
        row.record,
        None if row.record is not None else await connection.scalar(whole),
        list(await connection.scalars(its_pods)),
    )


# --- failures ---------------------------------------------------------------------------------------------------

_DAY_SEC: Final = literal_column("86400", Integer)
"""Not a parameter: PostgreSQL must see that what is selected is what is grouped by."""


async def count_failures(
    connection: AsyncConnection, query: FailureQuery, namespaces: Namespaces
) -> list[dict[str, Any]]:
    """Failures by group."""
    limit = checked_limit(query.limit, MAX_GROUPS)
    try:
        by = FailureKey(query.by)
    except ValueError:
        raise QueryError("by", f"must be one of {', '.join(FailureKey)}") from None
    of_tasks: dict[FailureKey, ColumnElement[Any]] = {
        FailureKey.CODE: tasks.c.code,
        FailureKey.NODE: tasks.c.node,
        FailureKey.ROLE: tasks.c.role,
        FailureKey.DAY: tasks.c.failed_at // _DAY_SEC,
    }
    of_attempts: dict[FailureKey, ColumnElement[Any]] = {
        FailureKey.CODE: attempts.c.code,
        FailureKey.NODE: attempts.c.cause_node,
        FailureKey.ROLE: attempts.c.cause_role,
        FailureKey.DAY: attempts.c.failed_at // _DAY_SEC,
    }

    # First within each Framework, from an index alone. Only then their namespaces are looked up.
    def inner(table: Table, key: ColumnElement[Any], identity: Any, *, task: bool) -> Select[Any]:
        nothing: ColumnElement[int] = literal_column("0", Integer)
        count = func.count()
        conditions: list[ColumnElement[bool]] = [table.c.failed_at.is_not(None)]
        if query.since is not None:
            conditions.append(table.c.failed_at >= _bounded(query.since))
        if query.until is not None:
            conditions.append(table.c.failed_at < _bounded(query.until))
        if by in {FailureKey.NODE, FailureKey.ROLE}:
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
        inner(tasks, of_tasks[by], tasks.c.tid, task=True),
        inner(attempts, of_attempts[by], attempts.c.aid, task=False),
    ).subquery()
    seen = _visible(namespaces)
    if query.namespace:
        seen.append(frameworks.c.namespace == _clean(query.namespace))
    tasks_failed = func.sum(parts.c.tasks).label("tasks")
    attempts_failed = func.sum(parts.c.attempts).label("attempts")
    newest_or_most = [parts.c.key.desc()] if by is FailureKey.DAY else [tasks_failed.desc(), attempts_failed.desc()]
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
        .limit(limit)
    )
    groups = (await connection.execute(grouped)).all()
    examples = await _examples(connection, groups)
    items = []
    for group in groups:
        example = dict(examples["tid", group.tid] if group.tid is not None else examples["aid", group.aid])
        phrase = example.pop("phrase")
        key = str(_EPOCH + timedelta(days=group.key)) if by is FailureKey.DAY else str(group.key)
        items.append(
            {
                "key": key,
                "label": phrase or key if by is FailureKey.CODE else key,
                "taskAttempts": int(group.tasks),
                "frameworkAttempts": int(group.attempts),
                "frameworks": group.frameworks,
                "first": _time(group.first),
                "last": _time(group.last),
                "example": example,
            }
        )
    return items


async def _examples(connection: AsyncConnection, groups: Sequence[Row[Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The last stored failure of each group."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    who = (frameworks.c.uid, frameworks.c.namespace, frameworks.c.name)
    for table, key, where in (
        (tasks, "tid", (tasks.c.role, tasks.c.idx)),
        (attempts, "aid", (null().label("role"), null().label("idx"))),
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
                found[key, row.number] = {
                    "uid": row.uid,
                    "namespace": row.namespace,
                    "name": row.name,
                    "attempt": row.attempt,
                    "role": row.role,
                    "index": row.idx,
                    "phrase": row.phrase,
                }
    return found


# --- values -----------------------------------------------------------------------------------------------------


def _clean(text: str) -> str:
    """A text that can be a parameter; one that cannot is in no column."""
    return text.translate(_UNSTORABLE) if not text.isprintable() else text


_UNSTORABLE: Final = {0: "\ufffd", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}


def _bounded(number: int) -> int:
    """A number that can be a parameter; one beyond 64 bits is in no column."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else format_time(seconds)
