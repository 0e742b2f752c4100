"""Turns records into rows, and writes them.

Of several records of one log, the one that has its end stays; else the one with more bytes, or the later one.

A record of a Framework also gives a row for each Task attempt in its status, without an object: a record of the Task
itself replaces it. Unreadable fields of an object give no value in a column; the record is kept whole.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from sqlalchemy import (
    ColumnElement,
    Integer,
    Table,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from frameworkcontroller.api.codec import StatusError, with_plain_roles
from frameworkcontroller.api.completion import Outcome, outcome_of
from frameworkcontroller.api.historyrecords import (
    STAGES,
    UNREADABLE_ATTEMPT,
    HistoryRecord,
    HistoryRecordError,
    LogRecord,
    Trigger,
    decode_record,
)
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.history.archiveerrors import RecordError
from frameworkcontroller.history.attemptsummary import attempt_summary
from frameworkcontroller.history.database import KEYS, attempts, frameworks, logs, pods, tasks
from frameworkcontroller.history.dialects import clean
from frameworkcontroller.history.holdings import COLUMNS, holding, queue_of, requests_of, user_of
from frameworkcontroller.history.reads import RUNNING

MAX_RECORD_BYTES: Final = 72 << 20
"""The controller's largest record: the roles decompressed (``codec.MAX_DECOMPRESSED_BYTES``), and the rest."""

_COMPRESSED_BYTES: Final = 1024
"""Records from this size on are compressed."""

_MAX_TEXT: Final = 4096
"""Characters of a text in a column. The record has it whole."""

_MAX_NAME: Final = 253
"""Characters of a text in an index, the most that names in Kubernetes have. PostgreSQL refuses entries of indexes that
are too large, and with them the transaction."""

_MAX_REASON: Final = 512
"""Characters of the reason for the end of a Framework, which lists show and searches read."""

_MAX_LAST: Final = 256
"""Characters of the last line of a log, in lists."""
_MAX_LINE_BYTES: Final = 16384
"""Of a longer last line, its end is taken for the whole."""

_MAX_ID_BYTES: Final = 1024

MAX_AHEAD_SEC: Final = 86400
"""Clocks of controllers may be ahead of the archive's clock by this time."""

_TIMES: Final = ("created", "started", "ran", "completed", "ended", "failed_at")

_COMPLETED: Final = "Completed"
_INT64: Final = 1 << 63
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_CHUNK: Final = 5000
"""Parameters of a statement; SQLite takes 32,766."""

Row = dict[str, Any]


class ForeignRecordError(ValueError):
    """Known records have the UID for another Framework."""

    def __init__(self, uid: str, known: tuple[str, str]) -> None:
        """``known``: its namespace and name, which the sender may not be permitted to read."""
        super().__init__(f"id: {uid} is another Framework in other records")
        self.uid = uid
        self.known = known


TaskKey = tuple[str, int, str, int, str, int]
AttemptKey = tuple[str, int]


@dataclass(slots=True)
class RowBatch:
    """The rows of some records. Among rows with the same key, the newest one stays."""

    lines: dict[str, int] = field(default_factory=dict)
    """By UID of the Framework: the first line with it."""
    touched: dict[str, Row] = field(default_factory=dict)
    """By UID of the Framework: the fields that every record has."""
    summaries: dict[str, Row] = field(default_factory=dict)
    attempts: dict[AttemptKey, Row] = field(default_factory=dict)
    tasks: dict[TaskKey, Row] = field(default_factory=dict)
    pods: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    logs: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.touched) + sum(map(len, self.children))

    @property
    def children(self) -> tuple[dict[Any, Row], ...]:
        """The rows of each table of `KEYS`."""
        return self.attempts, self.tasks, self.pods, self.logs

    def touch(self, row: Row) -> None:
        """Note a record of a Framework.

        Raises:
            ForeignRecordError: another record with the UID is of another Framework.
        """
        known = self.touched.setdefault(row["uid"], row)
        if known is not row:
            if _identity(known) != _identity(row):
                raise ForeignRecordError(row["uid"], _identity(known))
            known["last"] = max(known["last"], row["last"])
            known["created"] = min(known["created"], row["created"])

    def merge(self, other: RowBatch) -> None:
        """Add the rows of another batch.

        Raises:
            ForeignRecordError: both have records of different Frameworks with the same UID.
        """
        for row in other.touched.values():
            self.touch(dict(row))
        for uid, row in other.summaries.items():
            _put(self.summaries, uid, row, _summary_rank)
        for mine, theirs in zip(self.children, other.children, strict=True):
            for key, row in theirs.items():
                _put(mine, key, row)


def _identity(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["namespace"], row["name"]


# The record with the later time is not always the newer one: clocks of controllers may differ. So changes that cannot
# be undone count first: the deletion, the number of the attempt, and the stage of its end.


def _rank(row: Row) -> tuple[int, int, int]:
    if "packed" in row:
        return int(_has_end(row)), row["size"], row["time"]
    return row.get("own", 0), STAGES.get(row.get("trigger") or "", -1), row["time"]


def _has_end(log: Row) -> bool:
    # Without bytes, a reason says why there are none.
    return not log["cut_end"] and (log["size"] > 0 or not log["why"])


def _summary_rank(row: Row) -> tuple[int, int, int, int]:
    return int(row["deleted"] is not None), row["attempts"], int(row["state"] == _COMPLETED), row["time"]


def _put(rows: dict[Any, Row], key: Any, row: Row, rank: Callable[[Row], tuple[int, ...]] = _rank) -> None:
    known = rows.get(key)
    if known is None or rank(row) > rank(known):
        rows[key] = row


# --- records to rows --------------------------------------------------------------------------------------------


def parse(lines: Sequence[bytes], now: float) -> RowBatch:
    """The rows of records, one a line. ``now``: seconds since the epoch.

    Times in objects that are too far ahead of ``now`` give no value in a column.

    Raises:
        RecordError: a record is invalid.
    """
    batch = RowBatch()
    latest = int(now) + MAX_AHEAD_SEC
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if len(text) > MAX_RECORD_BYTES:
            raise RecordError(number, f"has {len(text)} bytes, at most {MAX_RECORD_BYTES} are allowed")
        try:
            record = decode_record(text)
            _check(record, latest)
            batch.lines.setdefault(record.id.framework_uid, number)
            _add(batch, record, text)
        except ValueError as error:
            raise RecordError(number, str(error)) from None
    _forget_future(batch, latest)
    return batch


def _forget_future(batch: RowBatch, latest: int) -> None:
    """Remove times that would keep a Framework at the top of every list."""
    for row in (*batch.summaries.values(), *batch.attempts.values(), *batch.tasks.values()):
        for name in _TIMES:
            if (row.get(name) or 0) > latest:
                row[name] = batch.touched[row["uid"]]["created"] if name == "created" else None
        if (row.get("freed") or 0) > latest:
            row.update(dict.fromkeys(COLUMNS))


def _check(record: HistoryRecord, latest: int) -> None:
    if _microseconds(record.time) > latest * 1_000_000:
        raise HistoryRecordError(f"time: {record.time} is more than a day ahead of the archive's clock")
    for name in ("cluster", "namespace", "name"):
        text = getattr(record, name)
        if len(text) > _MAX_NAME:
            raise HistoryRecordError(f"{name}: must have at most {_MAX_NAME} characters, and has {len(text)}")
        if clean(text) != text:
            raise HistoryRecordError(f"{name}: must have no NUL character")
    found = record.id
    parts = (found.framework_uid, found.role or "", found.task_uid or "", found.pod_uid or "")
    # A character has up to 4 bytes.
    if sum(map(len, parts)) > _MAX_ID_BYTES // 4 and (size := len("".join(parts).encode())) > _MAX_ID_BYTES:
        raise HistoryRecordError(f"id: role and UIDs must have at most {_MAX_ID_BYTES} bytes, and have {size}")


def _add(batch: RowBatch, record: HistoryRecord, line: bytes) -> None:
    found = record.id
    time = _microseconds(record.time)
    batch.touch(
        {
            "uid": found.framework_uid,
            "namespace": record.namespace,
            "name": record.name,
            "cluster": record.cluster,
            "last": time,
            "created": time // 1_000_000,
        }
    )
    key = (found.framework_uid, found.attempt)
    if found.kind == "Framework":
        _add_framework(batch, record, time, line)
        return
    batch.attempts.setdefault(key, _attempt(key, 0))
    role, task_uid, number = found.role or "", found.task_uid or "", found.task_attempt or 0
    if found.kind == "Task":
        status = _object(record.object.get("status"))
        index = _number(status.get("index"))
        if index is None or index < 0:
            raise HistoryRecordError("object.status.index: must be a number from 0")
        task_key = (*key, role, index, task_uid, number)
        requests = _requests(_object(record.object.get("spec")))
        row = _task(task_key, _object(status.get("attemptStatus")), time, record.trigger, requests)
        _put(batch.tasks, task_key, {**row, "own": 1, "record": pack(line)})
    elif record.trigger is Trigger.POD_LOG:
        _add_log(batch, record, time)
    else:
        pod_key = (*key, role, task_uid, number, found.pod_uid)
        names = ("uid", *KEYS[pods][1:])
        _put(batch.pods, pod_key, {**dict(zip(names, pod_key, strict=True)), "time": time, "record": pack(line)})


def _add_log(batch: RowBatch, record: HistoryRecord, time: int) -> None:
    found, log = record.id, LogRecord.decode(record.object)
    key = (
        found.framework_uid,
        found.attempt,
        found.role,
        log.index,
        found.task_uid,
        found.task_attempt,
        found.pod_uid,
        clean(log.container),
        log.run,
    )
    row = {
        **dict(zip(("uid", *KEYS[logs][1:]), key, strict=True)),
        "time": time,
        "size": log.size,
        "stored": len(log.packed),
        "pod": clean(log.pod_name),
        "node": clean(log.node),
        "why": clean(log.why),
        "last_line": clean(_last_line(log.data())),
        "cut_start": int(log.cut_start),
        "cut_end": int(log.cut_end),
        "packed": log.packed,
    }
    _put(batch.logs, key, row)


def _last_line(data: bytes) -> str:
    """Return the last line that is not blank, cut at its end."""
    end = data.rstrip()[-_MAX_LINE_BYTES:]
    return end[end.rfind(b"\n") + 1 :].decode(errors="replace").strip()[:_MAX_LAST]


def _add_framework(batch: RowBatch, record: HistoryRecord, time: int, line: bytes) -> None:
    uid = record.id.framework_uid
    key = (uid, record.id.attempt)
    metadata = _object(record.object.get("metadata"))
    status = _object(record.object.get("status"))
    attempt = _object(status.get("attemptStatus"))
    completion = _completion(attempt)
    rows, counts = _contained(key, attempt, time, record.trigger, _object(record.object.get("spec")))
    for task_key, row in rows.items():
        _put(batch.tasks, task_key, row)

    cause = _object(status.get("firstFailure"))
    if cause.get("frameworkAttemptID") != attempt.get("id"):
        cause = _object(_object(attempt.get("completionStatus")).get("trigger"))
    cause_role, cause_index = _text(cause.get("taskRoleName"), _MAX_NAME), _number(cause.get("taskIndex"))
    by_task = [row for row in rows.values() if (row["role"], row["idx"]) == (cause_role, cause_index)]
    completed = _time(attempt.get("completionTime"))
    _put(
        batch.attempts,
        key,
        {
            **_attempt(key, time),
            **completion,
            "trigger": str(record.trigger),
            "started": _time(attempt.get("startTime")),
            "completed": completed,
            "failed_at": _failed_at(completion, completed),
            **counts,
            "cause_role": cause_role,
            "cause_index": cause_index,
            "cause_node": by_task[-1]["node"] if by_task else None,
            "progressed": _progressed(status, record.id.attempt),
            **_summarized(record.object),
            "succeeded": int(_outcome(completion) is Outcome.SUCCEEDED),
            "record": pack(line),
        },
    )
    ended = _time(status.get("completionTime"))
    deleted = time // 1_000_000 if record.trigger == Trigger.FRAMEWORK_DELETION else None
    created = _time(metadata.get("creationTimestamp"))
    summary = {
        "uid": uid,
        "time": time,
        "cluster": record.cluster,
        "created": time // 1_000_000 if created is None else created,
        "started": _time(status.get("startTime")),
        "completed": ended,
        "deleted": deleted,
        "ended": deleted if ended is None else ended,
        "state": _text(status.get("state"), _MAX_NAME),
        **{name: completion[name] for name in ("code", "phrase", "type")},
        "attempts": record.id.attempt + 1 if attempt and record.id.attempt != UNREADABLE_ATTEMPT else 0,
        "tasks": counts["tasks"],
        **{f"{name}_tasks": counts[f"{name}_tasks"] for name in Outcome},
        "diagnostics": _text(status.get("message") or completion["diagnostics"], _MAX_REASON),
        "phase": _phase(completion, completed=status.get("state") == _COMPLETED, deleted=deleted is not None),
        "queue": clean(queue_of(record.namespace, record.object)),
        "submitter": clean(user_of(record.object)),
    }
    _put(batch.summaries, uid, summary, _summary_rank)


_NO_ATTEMPT: Final = dict.fromkeys(
    column.name for column in attempts.columns if column.name not in {"aid", "fid", "attempt", "time"}
)


def _attempt(key: AttemptKey, time: int) -> Row:
    return {"uid": key[0], "attempt": key[1], "time": time, **_NO_ATTEMPT}


def _contained(
    key: AttemptKey, attempt: Mapping[str, Any], time: int, trigger: str, spec: Mapping[str, Any]
) -> tuple[dict[TaskKey, Row], dict[str, int | None]]:
    """Return the rows of the Task attempts in the status of a Framework, and counts of its Tasks."""
    # Once for each role: there may be thousands of Tasks.
    requests = {
        _text(role.get("name"), _MAX_NAME): _requests(_object(role.get("task")))
        for role in _objects(spec.get("taskRoles"))
    }
    counts = dict.fromkeys(("tasks", "running_tasks", *(f"{name}_tasks" for name in Outcome), "task_retries"), 0)
    rows: dict[TaskKey, Row] = {}
    if not attempt:
        return rows, {**counts}
    try:
        roles = with_plain_roles(attempt).get("taskRoleStatuses")
    except (StatusError, TypeError, ValueError):
        return rows, dict.fromkeys(counts)
    for role in _objects(roles):
        name = _text(role.get("name"), _MAX_NAME)
        for task in _objects(role.get("taskStatuses")):
            status = _object(task.get("attemptStatus"))
            index, number = _number(task.get("index")), _number(status.get("id"))
            task_uid = task.get("instanceUID") or ""
            if name is None or index is None or number is None or not isinstance(task_uid, str):
                continue
            if len(task_uid) > _MAX_NAME:
                continue
            task_key = (*key, name, index, clean(task_uid), number)
            row = _task(task_key, status, time, trigger, requests.get(name))
            rows[task_key] = {**row, "own": 0, "record": None}
            counts["task_retries"] += _number(_object(task.get("retryPolicyStatus")).get("totalRetriedCount")) or 0
            if task.get("deletionPending") is True:
                continue
            counts["tasks"] += 1
            if task.get("state") == "Completed":
                counts[f"{_outcome(row) or Outcome.FAILED}_tasks"] += 1
            elif task.get("state") == "AttemptRunning":
                counts["running_tasks"] += 1
    return rows, {**counts}


def _requests(task: Mapping[str, Any]) -> str | None:
    """The requests of the Pods of a role, by its ``task`` in the spec; None if it has no Pod template."""
    pod = _object(task.get("pod"))
    return requests_of(pod["spec"]) if isinstance(pod.get("spec"), dict) else None


def _progressed(status: Mapping[str, Any], attempt: int) -> int | None:
    """When the attempt wrote its last checkpoint or, without any, made its last progress."""
    progress = _object(status.get("progress"))
    if progress.get("frameworkAttemptID") != attempt:
        return None
    checkpoint = _time(progress.get("lastCheckpointTime"))
    return _time(progress.get("lastChangeTime")) if checkpoint is None else checkpoint


def _summarized(framework: Mapping[str, Any]) -> Row:
    """Return the columns of `attempt_summary`."""
    found = attempt_summary(framework)
    failure, avoided = found["firstFailure"], found["avoidedNodes"]
    return {
        "first_failure": None if failure is None else orjson.dumps(failure).decode(),
        "avoided_nodes": orjson.dumps(avoided).decode() if avoided else None,
        "last_step": found["lastStep"],
        "checkpoint_step": found["checkpointStep"],
    }


def _task(key: TaskKey, status: Mapping[str, Any], time: int, trigger: str, requests: str | None) -> Row:
    completion = _completion(status)
    completed, ran = _time(status.get("completionTime")), _time(status.get("runTime"))
    # A Framework that is deleted while it runs.
    ended = time // 1_000_000 if completed is None and trigger == Trigger.FRAMEWORK_DELETION else completed
    held = holding(status, requests, scheduled=_time(status.get("scheduledTime")), ran=ran, ended=ended)
    return {
        **dict(zip(("uid", *KEYS[tasks][1:]), key, strict=True)),
        "time": time,
        "trigger": str(trigger),
        **completion,
        "node": _text(status.get("podNodeName"), _MAX_NAME),
        "pod": _text(status.get("podName")),
        "pod_uid": _text(status.get("podUID")),
        "pod_ip": _text(status.get("podIP")),
        "host_ip": _text(status.get("podHostIP")),
        "started": _time(status.get("startTime")),
        "ran": ran,
        "completed": completed,
        "failed_at": _failed_at(completion, completed),
        **(dict.fromkeys(COLUMNS) if held is None else held._asdict()),
    }


def _completion(status: Mapping[str, Any]) -> Row:
    completion = _object(status.get("completionStatus"))
    return {
        "code": _number(completion.get("code")),
        "phrase": _text(completion.get("phrase")),
        "type": _text(_object(completion.get("type")).get("name")),
        "diagnostics": _text(completion.get("diagnostics")),
    }


def _failed_at(completion: Row, completed: int | None) -> int | None:
    return completed if _outcome(completion) is Outcome.FAILED else None


def _outcome(completion: Row) -> Outcome | None:
    code = completion["code"]
    return None if code is None else outcome_of(code, completion["phrase"], completion["type"])


def _phase(completion: Row, *, completed: bool, deleted: bool) -> str:
    """Return the phase of a Framework. One that was deleted before it completed was stopped, unless it had failed."""
    if not completed and not deleted:
        return RUNNING
    return _outcome(completion) or (Outcome.FAILED if completed else Outcome.STOPPED)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _text(value: Any, most: int = _MAX_TEXT) -> str | None:
    """A text for a column, cut to ``most`` characters, None if it is empty or no text."""
    if not isinstance(value, str) or not value:
        return None
    if len(value) > most:
        value = value[: most - 1] + "…"
    return clean(value)


def _number(value: Any) -> int | None:
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def _time(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value)
    except ValueError:
        return None


def _microseconds(time: str) -> int:
    return (datetime.fromisoformat(time) - _EPOCH) // _MICROSECOND


# --- records as they are kept -----------------------------------------------------------------------------------


def pack(line: bytes) -> bytes:
    """A record as it is kept: as it came, or compressed if that is smaller."""
    if len(line) >= _COMPRESSED_BYTES:
        packed = zlib.compress(line, level=1)
        if len(packed) < len(line):
            return packed
    return line


def unpack(packed: bytes) -> dict[str, Any]:
    """The record that ``pack`` kept. Integers are exact, however large."""
    # JSON of an object begins with a brace, and zlib's data does not.
    line = packed if packed[:1] == b"{" else zlib.decompress(packed)
    record: dict[str, Any] = json.loads(line) if _LONG_NUMBER.search(line) else orjson.loads(line)
    return record


# --- rows to the database ---------------------------------------------------------------------------------------


def _upsert(table: Table, dialect: str) -> Any:
    """Insert a row, or replace an older one with its key."""
    insert = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    new, old, key = insert.excluded, table.c, KEYS[table]
    values = {column.name: new[column.name] for column in old if not column.primary_key and column.name not in key}
    inserted: dict[str, Any] = {name: bindparam(name) for name in (*key, *values)}
    is_newer = _is_newer(new, old)
    return insert.values(inserted).on_conflict_do_update(index_elements=list(key), set_=values, where=is_newer)


def _is_newer(new: Any, old: Any) -> ColumnElement[bool]:
    """The order of `_rank`."""

    def rank(row: Any) -> list[ColumnElement[Any]]:
        if "packed" in row:
            # The rule of `_has_end`.
            said = or_(row.size > literal_column("0"), row.why == literal_column("''"))
            has_end = and_(row.cut_end == literal_column("0"), said)
            one, zero = literal_column("1", Integer), literal_column("0", Integer)
            return [case((has_end, one), else_=zero), row.size, row.time]
        return [*([row.own] if "own" in row else []), *([_stage(row.trigger)] if "trigger" in row else []), row.time]

    mine, theirs = rank(new), rank(old)
    return tuple_(*mine) > tuple_(*theirs) if len(mine) > 1 else mine[0] > theirs[0]


def _stage(trigger: ColumnElement[Any]) -> ColumnElement[int]:
    # Not parameters: they would be sent with each row.
    stages: list[tuple[Any, ColumnElement[int]]] = [
        (trigger == literal_column(f"'{name}'"), literal_column(str(stage), Integer)) for name, stage in STAGES.items()
    ]
    return case(*stages, else_=literal_column("-1", Integer))


def _touch(dialect: str) -> Any:
    insert = (sqlite if dialect == "sqlite" else postgresql).insert(frameworks)
    names = ("uid", "namespace", "name", "cluster", "last", "created")
    # PostgreSQL locks the row also where nothing is to be changed, so that retention skips the Framework.
    new, old = insert.excluded, frameworks.c
    earlier = and_(old.attempts.is_(None), new.created < old.created)
    return insert.values({**{name: bindparam(name) for name in names}, "time": 0}).on_conflict_do_update(
        index_elements=["uid"],
        set_={
            "last": case((new.last > old.last, new.last), else_=old.last),
            "created": case((earlier, new.created), else_=old.created),
        },
        where=or_(new.last > old.last, earlier),
    )


_SUMMARIZE: Final = (
    update(frameworks)
    .where(
        frameworks.c.fid == bindparam("b_fid"),
        # The order of `_summary_rank`.
        tuple_(
            case((frameworks.c.deleted.is_not(None), 1), else_=0),
            func.coalesce(frameworks.c.attempts, -1),
            case((frameworks.c.state == _COMPLETED, 1), else_=0),
            frameworks.c.time,
        )
        < tuple_(bindparam("b_deleted"), bindparam("attempts"), bindparam("b_completed"), bindparam("time")),
    )
    .values(
        {
            name: bindparam(name)
            for name in frameworks.c.keys()  # noqa: SIM118 - columns, not names
            if name not in ("fid", "uid", "namespace", "name", "last", "task_retries")
        }
    )
)

_COUNT_RETRIES: Final = (
    update(frameworks)
    .where(frameworks.c.fid == bindparam("b_fid"))
    .values(
        task_retries=select(func.sum(attempts.c.task_retries))
        .where(attempts.c.fid == bindparam("b_fid"))
        .scalar_subquery()
    )
)


_STATEMENTS: Final = {
    dialect: (_touch(dialect), [_upsert(table, dialect) for table in KEYS]) for dialect in ("sqlite", "postgresql")
}


async def write(connection: AsyncConnection, batch: RowBatch) -> None:
    """Write the rows.

    Raises:
        ForeignRecordError: the UID of a Framework belongs to another one.
    """
    touch, upserts = _STATEMENTS[connection.dialect.name]
    # Sorted: two servers that write the same rows must lock them in the same order.
    uids = sorted(batch.touched)
    await connection.execute(touch, [batch.touched[uid] for uid in uids])
    fids: dict[str, int] = {}
    for start in range(0, len(uids), _CHUNK):
        some = frameworks.c.uid.in_(uids[start : start + _CHUNK])
        columns = (frameworks.c.fid, frameworks.c.uid, frameworks.c.namespace, frameworks.c.name)
        for row in await connection.execute(select(*columns).where(some)):
            if (row.namespace, row.name) != _identity(batch.touched[row.uid]):
                raise ForeignRecordError(row.uid, (row.namespace, row.name))
            fids[row.uid] = row.fid

    def numbered(rows: Mapping[Any, Row], name: str = "fid") -> list[Row]:
        made = []
        for _, row in sorted(rows.items(), key=lambda item: item[0]):
            made.append({**row, name: fids[row["uid"]]})
            del made[-1]["uid"]
        return made

    for statement, rows in zip(upserts, batch.children, strict=True):
        if rows:
            await connection.execute(statement, numbered(rows))
    if batch.summaries:
        summaries = numbered(batch.summaries, "b_fid")
        for summary in summaries:
            summary["b_deleted"], _, summary["b_completed"], _ = _summary_rank(summary)
        await connection.execute(_SUMMARIZE, summaries)
        await connection.execute(_COUNT_RETRIES, [{"b_fid": summary["b_fid"]} for summary in summaries])
