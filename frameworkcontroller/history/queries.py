"""The queries over the archive, the same for all databases."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Table,
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

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError, with_plain_roles
from frameworkcontroller.api.completion import CONTAINER_UNRECOGNIZED_FAILED_PHRASE, REQUESTED, SUCCEEDED
from frameworkcontroller.api.historyrecords import unpack_log
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.history.archiveerrors import QueryError
from frameworkcontroller.history.database import KEYS, attempts, frameworks, logs, pods, tasks
from frameworkcontroller.history.dialects import Contains, Texts, bounded, clean
from frameworkcontroller.history.ingest import unpack
from frameworkcontroller.history.reads import (
    MAX_PAGE,
    FrameworkAnswer,
    FrameworkAttempt,
    GetAttempt,
    GetFramework,
    GetLog,
    GetTaskAttempt,
    GetTaskHistory,
    Json,
    ListFrameworks,
    ListLogs,
    ListNamespaces,
    ListTasks,
    LogAnswer,
    TaskAttempt,
    shown,
)

SEARCHED: Final = 20_000
"""The most Frameworks in which a page looks for words. Then it ends, and the next one continues."""

_FEW_NAMESPACES: Final = 500
"""More are one parameter."""

_MERGED_NAMESPACES: Final = 16
"""The pages of up to this number of namespaces are read one by one, and merged."""

Readable = frozenset[str] | None
"""The namespaces that the viewer may read, None: all. Others do not exist: nothing in them is shown or counted."""

_TIMES: Final = frozenset({"created", "started", "ran", "completed", "archived", "deleted", "captured"})


def _bad_place(after: str) -> QueryError:
    return QueryError("after", f"must be `next` of a page of the same list, not {shown(after)}")


# --- visible rows -----------------------------------------------------------------------------------------------


def visible(readable: Readable, column: Any = frameworks.c.namespace) -> list[ColumnElement[bool]]:
    """The condition that a row is in one of the namespaces; none if all may be seen."""
    if readable is None:
        return []
    if not readable:
        return [false()]
    if len(readable) <= _FEW_NAMESPACES:
        return [column.in_(sorted(readable))]
    texts = orjson.dumps(sorted(readable)).decode()
    return [column.in_(select(Texts(bindparam(None, texts, Text)).table_valued("value").c.value))]


# --- rows as answers --------------------------------------------------------------------------------------------


def _columns(answer: Any, table: Table, **other: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """The columns for the fields of an answer, labeled with their names."""
    return [
        (other[name] if name in other else table.c[re.sub("([a-z])([A-Z]+)", r"\1_\2", name).lower()]).label(name)
        for name in answer.__annotations__
    ]


def as_item(answer: Any, row: Row[Any]) -> Json:
    values = row._mapping
    return {
        name: format_time(values[name]) if name in _TIMES and values[name] is not None else values[name]
        for name in answer.__annotations__
    }


# --- Frameworks -------------------------------------------------------------------------------------------------

_CURSOR: Final = re.compile(r"(-?[0-9]{1,18})\.([0-9]{1,18})")


_FRAMEWORK: Final = [*_columns(FrameworkAnswer, frameworks, archived=frameworks.c.last // 1_000_000), frameworks.c.fid]


async def list_frameworks(connection: AsyncConnection, query: ListFrameworks, readable: Readable) -> Json:
    """A page of Frameworks."""
    limit = query.limit
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
            raise _bad_place(query.after)
        conditions.append(tuple_(columns.created, columns.fid) < tuple_(*map(int, place.groups())))

    if query.namespace:
        conditions += [columns.namespace == clean(query.namespace), *visible(readable)]
        source = [conditions]
    elif readable and len(readable) <= _MERGED_NAMESPACES:
        # Each query reads the newest entries of an index, and no other namespaces.
        source = [[*conditions, columns.namespace == one] for one in sorted(readable)]
    else:
        source = [[*conditions, *visible(readable)]]
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
        await connection.execute(select(*_FRAMEWORK).where(columns.fid.in_(fids)).order_by(*order).limit(limit + 1))
    ).all()
    last = rows[limit - 1] if len(rows) > limit else end
    more = None if last is None else f"{last.created}.{last.fid}"
    return {"items": [as_item(FrameworkAnswer, row) for row in rows[:limit]], "next": more}


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


async def list_namespaces(connection: AsyncConnection, _query: ListNamespaces, readable: Readable) -> Json:
    """The namespaces of all Frameworks."""
    # Each by a look into the index. DISTINCT would read all Frameworks, and each page of a viewer asks for this.
    first = func.min(frameworks.c.namespace)
    found = select(first.label("namespace")).cte("found", recursive=True)
    following = select(first).where(frameworks.c.namespace > found.c.namespace).scalar_subquery()
    found = found.union_all(select(following).select_from(found).where(found.c.namespace.is_not(None)))
    every = sorted(await connection.scalars(select(found.c.namespace).where(found.c.namespace.is_not(None))))
    return {"items": [one for one in every if readable is None or one in readable]}


async def count_frameworks(connection: AsyncConnection) -> int:
    """The number of all Frameworks."""
    return await connection.scalar(select(func.count()).select_from(frameworks)) or 0


async def _find(connection: AsyncConnection, uid: str, readable: Readable) -> Row[Any] | None:
    found = select(*_FRAMEWORK).where(frameworks.c.uid == clean(uid), *visible(readable))
    return (await connection.execute(found)).one_or_none()


def _logs_of(*columns: tuple[Any, Any]) -> ColumnElement[int]:
    """Count the logs that have bytes, by pairs of equal columns."""
    same = [one == other for one, other in columns]
    return select(func.count()).where(*same, logs.c.size > 0).correlate_except(logs).scalar_subquery()


_ATTEMPT: Final = _columns(
    FrameworkAttempt,
    attempts,
    id=attempts.c.attempt,
    logs=_logs_of((logs.c.fid, attempts.c.fid), (logs.c.attempt, attempts.c.attempt)),
)
_WHOLE_ATTEMPT: Final = [
    *_ATTEMPT, attempts.c.running_tasks, attempts.c.succeeded_tasks, attempts.c.stopped_tasks, attempts.c.record,
]  # fmt: skip


async def get_framework(connection: AsyncConnection, query: GetFramework, readable: Readable) -> Json | None:
    """A Framework with its attempts."""
    row = await _find(connection, query.uid, readable)
    if row is None:
        return None
    found = select(*_ATTEMPT).where(attempts.c.fid == row.fid).order_by(attempts.c.attempt)
    its = [_attempt_item(attempt) for attempt in await connection.execute(found)]
    return {**as_item(FrameworkAnswer, row), "attempts": its, "attemptCount": row.attempts}


async def get_attempt(connection: AsyncConnection, query: GetAttempt, readable: Readable) -> Callable[[], Json] | None:
    """An attempt of a Framework."""
    framework = await _find(connection, query.uid, readable)
    if framework is None:
        return None
    here = (attempts.c.fid == framework.fid, attempts.c.attempt == bounded(query.n))
    row = (await connection.execute(select(*_WHOLE_ATTEMPT).where(*here))).one_or_none()
    if row is None:
        return None
    counts = {
        "total": row.tasks,
        "running": row.running_tasks,
        "succeeded": row.succeeded_tasks,
        "stopped": row.stopped_tasks,
        "failed": row.failedTasks,
    }
    return lambda: {**_attempt_item(row), "tasks": counts, **_shown(row.record)}


def _attempt_item(row: Row[Any]) -> Json:
    item = as_item(FrameworkAttempt, row)
    failure, avoided = item["firstFailure"], item["avoidedNodes"]
    return {
        **item,
        "firstFailure": None if failure is None else orjson.loads(failure),
        "avoidedNodes": [] if avoided is None else orjson.loads(avoided),
    }


def _shown(packed: bytes | None) -> Json:
    """The object of a record, its roles decompressed, and the rest of the record."""
    if packed is None:
        return {"object": None, "record": None}
    record = unpack(packed)
    found = record.pop("object")
    try:
        attempt = with_plain_roles(found["status"]["attemptStatus"])
        found = {**found, "status": {**found["status"], "attemptStatus": attempt}}
    except (LookupError, StatusError, TypeError, ValueError):
        pass  # It is shown as it was stored.
    return {"object": found, "record": record}


# --- Tasks ------------------------------------------------------------------------------------------------------

TASK_COLUMNS: Final = _columns(
    TaskAttempt,
    tasks,
    frameworkAttempt=tasks.c.attempt,
    index=tasks.c.idx,
    attempt=tasks.c.task_attempt,
    logs=_logs_of(*((logs.c[name], tasks.c[name]) for name in KEYS[tasks])),
)
_ORDER: Final = (tasks.c.role, tasks.c.idx, tasks.c.task_uid, tasks.c.task_attempt)


async def list_tasks(connection: AsyncConnection, query: ListTasks, readable: Readable) -> Json | None:
    """A page of the Task attempts of an attempt."""
    framework = await _find(connection, query.uid, readable)
    if framework is None:
        return None
    here = (attempts.c.fid == framework.fid, attempts.c.attempt == bounded(query.n))
    if await connection.scalar(select(attempts.c.aid).where(*here)) is None:
        return None
    conditions: list[ColumnElement[bool]] = [tasks.c.fid == framework.fid, tasks.c.attempt == query.n]
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
            or_(
                tasks.c.code.not_in(sorted(REQUESTED)),
                func.coalesce(tasks.c.phrase, "") == CONTAINER_UNRECOGNIZED_FAILED_PHRASE,
            ),
        )
        conditions.append(failed if query.failed else not_(failed))
    if query.after:
        conditions.append(tuple_(*_ORDER) > tuple_(*_place(query.after, _TASK_PLACE)))
    found = select(*TASK_COLUMNS).where(*conditions).order_by(*_ORDER).limit(query.limit + 1)
    items = [as_item(TaskAttempt, row) for row in await connection.execute(found)]
    more = None
    if len(items) > query.limit:
        more = _cursor(items[query.limit - 1], _TASK_PLACE)
    return {"items": items[: query.limit], "next": more}


_TASK_PLACE: Final = {"role": str, "index": int, "taskUid": str, "attempt": int}
"""The fields of a Task attempt in the order of the list, with their types."""


def _cursor(item: Json, place: Mapping[str, type]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([item[name] for name in place])).decode().rstrip("=")


def _place(after: str, place: Mapping[str, type]) -> list[str | int]:
    """Return the values of a cursor."""
    try:
        values = orjson.loads(base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)))
        if [type(value) for value in values] == [*place.values()]:
            return [clean(value) if isinstance(value, str) else bounded(value) for value in values]
    except (TypeError, ValueError):
        pass
    raise _bad_place(after)


# --- logs -------------------------------------------------------------------------------------------------------

_LOG: Final = _columns(
    LogAnswer,
    logs,
    id=logs.c.lid,
    frameworkAttempt=logs.c.attempt,
    index=logs.c.idx,
    attempt=logs.c.task_attempt,
    captured=logs.c.time // 1_000_000,
)
_LOG_PLACE: Final = {
    "frameworkAttempt": int,
    "role": str,
    "index": int,
    "attempt": int,
    "taskUid": str,
    "podUid": str,
    "container": str,
    "run": int,
}
"""The fields of a log in the order of the list, with their types."""
_LOG_ORDER: Final = (
    logs.c.attempt,
    logs.c.role,
    logs.c.idx,
    logs.c.task_attempt,
    logs.c.task_uid,
    logs.c.pod_uid,
    logs.c.container,
    logs.c.run,
)


def _log_item(row: Row[Any]) -> Json:
    item = as_item(LogAnswer, row)
    return {**item, "cutStart": bool(item["cutStart"]), "cutEnd": bool(item["cutEnd"])}


async def list_logs(connection: AsyncConnection, query: ListLogs, readable: Readable) -> Json | None:
    """A page of the logs of a Framework, without their bytes."""
    framework = await _find(connection, query.uid, readable)
    if framework is None:
        return None
    conditions: list[ColumnElement[bool]] = [logs.c.fid == framework.fid]
    if query.attempt is not None:
        conditions.append(logs.c.attempt == bounded(query.attempt))
    if query.role:
        conditions.append(logs.c.role == clean(query.role))
    if query.index is not None:
        conditions.append(logs.c.idx == bounded(query.index))
    if query.container:
        conditions.append(logs.c.container == clean(query.container))
    if query.after:
        conditions.append(tuple_(*_LOG_ORDER) > tuple_(*_place(query.after, _LOG_PLACE)))
    found = select(*_LOG).where(*conditions).order_by(*_LOG_ORDER).limit(query.limit + 1)
    items = [_log_item(row) for row in await connection.execute(found)]
    more = _cursor(items[query.limit - 1], _LOG_PLACE) if len(items) > query.limit else None
    return {"items": items[: query.limit], "next": more}


async def get_log(connection: AsyncConnection, query: GetLog, readable: Readable) -> Callable[[], Json] | None:
    """A log with its text, or the last lines of it."""
    framework = await _find(connection, query.uid, readable)
    if framework is None:
        return None
    found = select(*[*_LOG, logs.c.packed]).where(logs.c.lid == query.id, logs.c.fid == framework.fid)
    row = (await connection.execute(found)).one_or_none()
    if row is None:
        return None

    def made() -> Json:
        data = unpack_log(row.packed, row.size)
        if query.tail is not None:
            data = last_lines(data, query.tail)
        text = None if query.raw else data.decode(errors="replace")
        return {**_log_item(row), "text": text, "data": base64.b64encode(data).decode() if query.raw else None}

    return made


def last_lines(data: bytes, count: int) -> bytes:
    """Return the last lines of a log. The last one may have no end."""
    end = len(data) - data.endswith(b"\n")
    start = end
    while count > 0 and start >= 0:
        start = data.rfind(b"\n", 0, start)
        count -= 1
        if start < 0:
            return data
    return data[start + 1 :] if start < end else b""


async def list_task_history(connection: AsyncConnection, query: GetTaskHistory, readable: Readable) -> Json | None:
    """The attempts of a Task over all attempts of its Framework."""
    framework = await _find(connection, query.uid, readable)
    if framework is None:
        return None
    # By the numbers of the attempts the index on the key gives each Task at once.
    numbers = select(attempts.c.attempt).where(attempts.c.fid == framework.fid)
    found = (
        select(*TASK_COLUMNS)
        .where(
            tasks.c.fid == framework.fid,
            tasks.c.attempt.in_(numbers),
            tasks.c.role == clean(query.role),
            tasks.c.idx == bounded(query.index),
        )
        .order_by(tasks.c.attempt.desc(), tasks.c.started.desc(), tasks.c.task_attempt.desc(), tasks.c.task_uid)
        .limit(MAX_PAGE)
    )
    return {"items": [as_item(TaskAttempt, row) for row in reversed((await connection.execute(found)).all())]}


async def get_task_attempt(
    connection: AsyncConnection, query: GetTaskAttempt, readable: Readable
) -> Callable[[], Json] | None:
    """A Task attempt, with its object, from its own record or the Framework's, and its Pods."""
    framework = await _find(connection, query.uid, readable)
    if framework is None:
        return None

    def here(table: Table) -> list[ColumnElement[bool]]:
        return [
            table.c.fid == framework.fid,
            table.c.attempt == bounded(query.n),
            table.c.role == clean(query.role),
            table.c.task_uid == clean(query.task_uid),
            table.c.task_attempt == bounded(query.attempt),
        ]

    found = select(*[*TASK_COLUMNS, tasks.c.record]).where(*here(tasks), tasks.c.idx == bounded(query.index))
    row = (await connection.execute(found)).one_or_none()
    if row is None:
        return None
    its_pods = select(pods.c.record).where(*here(pods)).order_by(pods.c.time, pods.c.pod_uid).limit(MAX_PAGE)
    packed_pods = list(await connection.scalars(its_pods))
    whole = None
    if row.record is None:
        of_framework = (attempts.c.fid == framework.fid, attempts.c.attempt == query.n)
        whole = await connection.scalar(select(attempts.c.record).where(*of_framework))

    def made() -> Json:
        item = as_item(TaskAttempt, row)
        if row.record is not None:
            body = unpack(row.record)["object"]
        else:
            body = None if whole is None else _task_of(_shown(whole)["object"], item)
        return {**item, "object": body, "pods": [unpack(pod)["object"] for pod in packed_pods]}

    return made


def _task_of(framework: Any, item: Json) -> Json | None:
    """The Task of an item from the archived object of its Framework, None if a later one no longer has it."""
    try:
        role = next(
            role for role in framework["status"]["attemptStatus"]["taskRoleStatuses"] if role["name"] == item["role"]
        )
        status = next(
            task
            for task in role["taskStatuses"]
            if task["index"] == item["index"]
            and (task.get("instanceUID") or "") == item["taskUid"]
            and task["attemptStatus"]["id"] == item["attempt"]
        )
    except (LookupError, StopIteration, TypeError, AttributeError):
        return None
    roles = (framework.get("spec") or {}).get("taskRoles") or ()
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Task",
        "metadata": {
            "name": item["pod"],
            "namespace": framework["metadata"].get("namespace"),
            "uid": item["taskUid"],
            "creationTimestamp": status.get("startTime"),
        },
        "spec": next((spec.get("task") for spec in roles if spec.get("name") == item["role"]), None),
        "status": status,
    }
