"""The queries over the archive, the same for all databases."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Any, Final

import orjson
from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    cast,
    false,
    func,
    not_,
    or_,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from frameworkcontroller.api.completion import REQUESTED, SUCCEEDED
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.history.database import attempts, frameworks, pods, tasks
from frameworkcontroller.history.dialects import Contains, Texts, bounded, clean
from frameworkcontroller.history.errors import QueryError

MAX_PAGE: Final = 1000
"""The most items that a page may have."""

SEARCHED: Final = 20_000
"""The most Frameworks in which a page looks for words. Then it ends, and the next one continues."""

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
        phase: an ``Outcome``, or ``running``: its records do not say that it has ended.
        code: completion code of the attempt in the newest record of the Framework.
        since, until: seconds since the epoch. Frameworks that existed at some time from ``since`` to before ``until``.
        q: words that namespace, name, UID, state, code, phrase and reason must have, in any case. A page of the found
            ones may be short, or empty, and still have a ``next``.
        limit: most items of the page, 1 to ``MAX_PAGE``.
        after: ``Page.next`` of the page before.
    """

    namespace: str = ""
    name: str = ""
    state: str = ""
    phase: str = ""
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
        failed: True: those that failed; stopped ones have not. False: the others.
        limit: most items of the page, 1 to ``MAX_PAGE``.
        after: ``Page.next`` of the page before.
    """

    role: str = ""
    index: int | None = None
    failed: bool | None = None
    limit: int = 100
    after: str = ""


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


def visible(namespaces: Namespaces, column: Any = frameworks.c.namespace) -> list[ColumnElement[bool]]:
    """The condition that a row is in one of the namespaces; none if all may be seen."""
    if namespaces is None:
        return []
    if not namespaces:
        return [false()]
    if len(namespaces) <= _FEW_NAMESPACES:
        return [column.in_(sorted(namespaces))]
    texts = orjson.dumps(sorted(namespaces)).decode()
    return [column.in_(select(Texts(bindparam(None, texts, Text)).table_valued("value").c.value))]


# --- Frameworks -------------------------------------------------------------------------------------------------

_CURSOR: Final = re.compile(r"(-?[0-9]{1,18})\.([0-9]{1,18})")


async def list_frameworks(connection: AsyncConnection, query: FrameworkQuery, namespaces: Namespaces) -> Page:
    """A page of Frameworks."""
    limit = checked_limit(query.limit)
    columns = frameworks.c
    conditions: list[ColumnElement[bool]] = []
    for column, value in ((columns.name, query.name), (columns.state, query.state), (columns.phase, query.phase)):
        if value:
            conditions.append(column == clean(value))
    if query.code is not None:
        conditions.append(columns.code == bounded(query.code))
    if query.since is not None:
        conditions.append(or_(columns.ended.is_(None), columns.ended >= bounded(query.since)))
    if query.until is not None:
        conditions.append(columns.created < bounded(query.until))
    if query.after:
        place = _CURSOR.fullmatch(query.after)
        if place is None:
            raise QueryError("after", "must be the next of a page")
        conditions.append(tuple_(columns.created, columns.fid) < tuple_(*map(int, place.groups())))

    if query.namespace:
        conditions += [columns.namespace == clean(query.namespace), *visible(namespaces)]
        source = [conditions]
    elif namespaces and len(namespaces) <= _MERGED_NAMESPACES:
        # Each of them reads the newest entries of an index, and no Framework of others.
        source = [[*conditions, columns.namespace == one] for one in sorted(namespaces)]
    else:
        source = [[*conditions, *visible(namespaces)]]
    order = (columns.created.desc(), columns.fid.desc())
    end: Row[Any] | None = None
    if query.q:
        end = await _end_of_search(connection, source)
        found = [_searched(some, query.q, end, SEARCHED // len(source)) for some in source]
    else:
        found = [select(columns.fid, columns.created).where(*some).order_by(*order) for some in source]
    pages = [some.limit(limit + 1).subquery() for some in found]
    fids = union_all(*(select(page.c.fid) for page in pages)) if len(pages) > 1 else select(pages[0].c.fid)
    rows = (
        await connection.execute(select(frameworks).where(columns.fid.in_(fids)).order_by(*order).limit(limit + 1))
    ).all()
    last = rows[limit - 1] if len(rows) > limit else end
    more = None if last is None else f"{last.created}.{last.fid}"
    return Page([_framework(row) for row in rows[:limit]], more)


# ASCII only: SQLite knows no other letters, and the databases must agree.
_UPPER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _lower(text: str) -> str:
    return text.translate(_UPPER)


def _searched_text() -> ColumnElement[str]:
    columns = frameworks.c
    text = columns.namespace + "/" + columns.name + " " + columns.uid
    for column in (columns.state, cast(columns.code, Text), columns.phrase, columns.diagnostics):
        text = text + " " + func.coalesce(column, "")
    return func.lower(text)


_SEARCHED_TEXT: Final = _searched_text()


def _searched(conditions: list[ColumnElement[bool]], words: str, end: Row[Any] | None, most: int) -> Select[Any]:
    """Select those with all of the words among the first ``most``, down to ``end``."""
    columns = frameworks.c
    # A subquery with a limit: the text is made once for each Framework, not once for each word.
    part = (
        select(columns.fid, columns.created, _SEARCHED_TEXT.label("text"))
        .where(*conditions)
        .order_by(columns.created.desc(), columns.fid.desc())
        .limit(most)
        .subquery()
    )
    wanted = [Contains(part.c.text, word) > 0 for word in dict.fromkeys(_lower(clean(words)).split())]
    if end is not None:
        wanted.append(tuple_(part.c.created, part.c.fid) >= tuple_(end.created, end.fid))
    return select(part.c.fid, part.c.created).where(*wanted).order_by(part.c.created.desc(), part.c.fid.desc())


async def _end_of_search(connection: AsyncConnection, source: list[list[ColumnElement[bool]]]) -> Row[Any] | None:
    """Return the last Framework of `SEARCHED` in the order of the list, None if there are fewer."""
    columns = frameworks.c
    order = (columns.created.desc(), columns.fid.desc())
    each = SEARCHED // len(source)
    ends = [
        select(columns.created, columns.fid).where(*some).order_by(*order).offset(each - 1).limit(1).subquery()
        for some in source
    ]
    found = (await connection.execute(union_all(*(select(end) for end in ends)))).all()
    # Before the first of these ends, every part of the list has been searched.
    return max(found, key=lambda row: (row.created, row.fid), default=None)


def _framework(row: Row[Any]) -> dict[str, Any]:
    return {
        "uid": row.uid,
        "namespace": row.namespace,
        "name": row.name,
        "cluster": row.cluster,
        "state": row.state,
        "phase": row.phase,
        "code": row.code,
        "phrase": row.phrase,
        "type": row.type,
        "diagnostics": row.diagnostics,
        "attempts": row.attempts,
        "taskRetries": row.task_retries,
        "tasks": row.tasks,
        "failedTasks": row.failed_tasks,
        "succeededTasks": row.succeeded_tasks,
        "stoppedTasks": row.stopped_tasks,
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
    found = select(frameworks).where(frameworks.c.uid == clean(uid), *visible(namespaces))
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
    found = select(attempts).where(attempts.c.fid == framework.fid, attempts.c.attempt == bounded(attempt))
    row = (await connection.execute(found)).one_or_none()
    if row is None:
        return None
    counts = {
        "total": row.tasks,
        "running": row.running_tasks,
        "succeeded": row.succeeded_tasks,
        "stopped": row.stopped_tasks,
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
    here = (attempts.c.fid == framework.fid, attempts.c.attempt == bounded(attempt))
    if await connection.scalar(select(attempts.c.aid).where(*here)) is None:
        return None
    conditions: list[ColumnElement[bool]] = [tasks.c.fid == framework.fid, tasks.c.attempt == attempt]
    if query.role:
        conditions.append(tasks.c.role == clean(query.role))
    if query.index is not None:
        conditions.append(tasks.c.idx == bounded(query.index))
    if query.failed is not None:
        # Without a code, it is not completed.
        # The rule of `completion.outcome_of`.
        failed = and_(
            tasks.c.code.is_not(None),
            func.coalesce(tasks.c.type, "") != SUCCEEDED,
            tasks.c.code.not_in(sorted(REQUESTED)),
        )
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
            return clean(role), bounded(index), clean(task_uid), bounded(number)
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
            tasks.c.role == clean(role),
            tasks.c.idx == bounded(index),
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
    role, task_uid = clean(role), clean(task_uid)
    found = select(tasks).where(
        tasks.c.fid == framework.fid,
        tasks.c.attempt == bounded(attempt),
        tasks.c.role == role,
        tasks.c.idx == bounded(index),
        tasks.c.task_uid == task_uid,
        tasks.c.task_attempt == bounded(number),
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


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else format_time(seconds)
