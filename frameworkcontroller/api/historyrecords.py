"""Records of the history: one line of JSON for each state that the controller is about to forget.

Source: docs/history-records.md. A record is identified by its attempt. It is delivered at least once, and the same
attempt may come again in a later state: of records with the same id, the one with the trigger of the latest of
`STAGES` counts, and of several the one with the latest ``time``. A record of a log (`Trigger.POD_LOG`) has the id of
its Pod, and is identified by it with the container and its run.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import orjson

from frameworkcontroller import __version__
from frameworkcontroller.api import names


class Trigger(StrEnum):
    """The event for which a record is made."""

    FRAMEWORK_COMPLETION = "OnFrameworkCompletion"
    """The Framework is completed, and not forgotten yet."""
    FRAMEWORK_RETRY = "OnFrameworkRetry"
    FRAMEWORK_DELETION = "OnFrameworkDeletion"
    TASK_RETRY = "OnTaskRetry"
    TASK_DELETION = "OnTaskDeletion"
    POD_DELETION = "OnPodDeletion"
    POD_LOG = "OnPodLog"
    """A container's log was read. No snapshot, and none of ``history.triggers``: ``history.logs`` asks for it."""


SNAPSHOT_TRIGGERS: Final = frozenset(Trigger) - {Trigger.POD_LOG}
"""The triggers of Frameworks, Tasks and Pods: of everything except logs."""

LOG_KIND: Final = "Log"

KINDS: Final[Mapping[Trigger, str]] = {
    trigger: LOG_KIND if trigger is Trigger.POD_LOG else trigger.name.partition("_")[0].capitalize()
    for trigger in Trigger
}
"""The kind of object in the records of a trigger."""

UNREADABLE_ATTEMPT: Final = 2**31 - 1
"""The attempt of the last record of a Framework whose stored status does not say which attempt it shows."""

STAGES: Final[Mapping[str, int]] = {
    Trigger.FRAMEWORK_RETRY: 0,
    Trigger.FRAMEWORK_COMPLETION: 1,
    Trigger.FRAMEWORK_DELETION: 2,
    Trigger.TASK_RETRY: 0,
    Trigger.TASK_DELETION: 1,
    Trigger.POD_DELETION: 0,
    Trigger.POD_LOG: 0,
}
"""The triggers of one attempt in the order of its life: one that waits for its retry may still be completed or deleted,
never the other way round. Clocks of controllers may differ, so their times alone do not tell."""

_PART: Final = re.compile(r"[^/\x00-\x20\x7f]{1,253}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_SHOWN: Final = 100

MAX_LOG_BYTES: Final = 2**20
"""The most bytes of a log that a record has, uncompressed."""
_MAX_NAME: Final = 253
_MAX_WHY: Final = 512
_MAX_INT32: Final = 2**31 - 1
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class HistoryRecordError(ValueError):
    """A line is not a record, or an object has no id. The text names field and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordId:
    """The attempt of a record.

    Only ``framework_uid`` and ``attempt``: of a Framework. Also ``role``, ``task_uid`` and ``task_attempt``: of a Task.
    Also ``pod_uid``: of a Pod.
    """

    framework_uid: str
    attempt: int
    role: str | None = None
    task_uid: str | None = None
    task_attempt: int | None = None
    pod_uid: str | None = None

    @property
    def kind(self) -> str:
        """Framework, Task or Pod."""
        if self.role is None:
            return "Framework"
        return "Task" if self.pod_uid is None else "Pod"

    def __str__(self) -> str:
        parts = [getattr(self, name) for name in _ID_FIELDS]
        return "/".join(str(part) for part in parts if part is not None)

    @classmethod
    def parse(cls, text: str) -> RecordId:
        """Return the id that ``str`` wrote.

        Raises:
            HistoryRecordError: ``text`` is no id.
        """
        parts = text.split("/")
        numbers = parts[1:2] + parts[4:5]
        if (
            len(parts) not in (2, 5, 6)
            or not all(_PART.fullmatch(part) for part in parts)
            or not all(_NUMBER.fullmatch(number) for number in numbers)
        ):
            raise HistoryRecordError(
                f"id: must be UID/attempt[/role/UID/attempt[/UID]] of a Framework, Task or Pod, not {_quoted(text)}"
            )
        values: list[Any] = [*parts]
        for place in range(1, len(parts), 3):
            values[place] = int(parts[place])
        return cls(**dict(zip(_ID_FIELDS, values, strict=False)))


_ID_FIELDS: Final = tuple(field.name for field in fields(RecordId))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """One record. ``namespace``, ``name``: of the Framework.

    ``time``: when the record was made, RFC 3339 in UTC with microseconds and a Z, so that times compare as texts.
    ``cluster``: a name from the configuration, or the UID of the namespace kube-system, "" if neither is known.
    ``generation``: of the Framework, 0 if not known. ``controller``: the version that made the record.
    ``object``: the Framework, Task, Pod or log, a JSON object; to encode a record it may be an ``orjson.Fragment``.
    """

    id: RecordId
    trigger: Trigger
    time: str
    cluster: str
    namespace: str
    name: str
    generation: int
    controller: str = __version__
    object: Any


_FIELDS: Final = tuple(field.name for field in fields(HistoryRecord))[1:]


def encode_record(record: HistoryRecord) -> bytes:
    """Return the line of a record, without the end of line."""
    return orjson.dumps({"id": str(record.id), **{name: getattr(record, name) for name in _FIELDS}})


_LOG_MARK: Final = f'"trigger":"{Trigger.POD_LOG}"'.encode()
_MARK_BYTES: Final = 8192
"""Id and trigger are the first fields."""


def is_log_line(line: bytes) -> bool:
    """Return whether a line of `encode_record` is the record of a log, without parsing it."""
    # The first one: objects have any keys further on.
    begin = line.find(b'"trigger":', 0, _MARK_BYTES)
    return begin >= 0 and line.startswith(_LOG_MARK, begin)


def decode_record(line: bytes) -> HistoryRecord:
    """Return the record of a line. Unknown fields are ignored: a later version may add some.

    Raises:
        HistoryRecordError: the line is not a record.
    """
    try:
        content = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise HistoryRecordError(f"no JSON: {error}") from None
    if not isinstance(content, dict):
        raise HistoryRecordError(f"must be a JSON object, not {_quoted(content)}")
    found = RecordId.parse(_text(content, "id"))
    trigger_text = _text(content, "trigger")
    try:
        trigger = Trigger(trigger_text)
    except ValueError:
        raise HistoryRecordError(f"trigger: must be one of {', '.join(Trigger)}, not {_quoted(trigger_text)}") from None
    time = _text(content, "time")
    try:
        datetime.fromisoformat(time)
        well_formed = _TIME.fullmatch(time) is not None
    except ValueError:
        well_formed = False
    if not well_formed:
        raise HistoryRecordError(f"time: must be like 2026-01-31T12:00:00.000000Z, not {_quoted(time)}")
    generation = content.get("generation")
    if type(generation) is not int or generation < 0:
        raise HistoryRecordError(f"generation: must be a number from 0, not {_quoted(generation)}")
    body = content.get("object")
    kind = body.get("kind") if isinstance(body, dict) else None
    if kind != KINDS[trigger] or found.kind != ("Pod" if kind == LOG_KIND else kind):
        raise HistoryRecordError(
            f"object: must be a {KINDS[trigger]} for {trigger}, with the id of one; "
            f"kind is {_quoted(kind)}, id {_quoted(str(found))}"
        )
    return HistoryRecord(
        id=found,
        trigger=trigger,
        time=time,
        cluster=_text(content, "cluster"),
        namespace=_text(content, "namespace", required=True),
        name=_text(content, "name", required=True),
        generation=generation,
        controller=_text(content, "controller"),
        object=body,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """The end of the log of one run of a container: the object of a record with `Trigger.POD_LOG`.

    ``index``: of the Task. ``run``: number of restarts of the container before this run. ``packed``: the bytes,
    compressed with gzip; b"" if there are none. ``size``: of the bytes, uncompressed. ``cut_start``, ``cut_end``:
    whether bytes are missing at that side. ``why``: the reason for which bytes, or all, are missing; "" if none are.
    """

    index: int
    pod_name: str
    node: str = ""
    container: str
    run: int = 0
    packed: bytes = b""
    size: int = 0
    cut_start: bool = False
    cut_end: bool = False
    why: str = ""

    def with_data(self, data: bytes) -> LogRecord:
        """Return the record with these bytes, or with the last `MAX_LOG_BYTES` of them."""
        cut = len(data) > MAX_LOG_BYTES
        data = data[-MAX_LOG_BYTES:]
        packed = gzip.compress(data, compresslevel=6, mtime=0) if data else b""
        return replace(self, packed=packed, size=len(data), cut_start=self.cut_start or cut)

    def data(self) -> bytes:
        """Return the bytes.

        Raises:
            HistoryRecordError: they are not ``size`` bytes, or more than `MAX_LOG_BYTES`.
        """
        return unpack_log(self.packed, self.size)

    def encode(self) -> dict[str, Any]:
        """Return the object."""
        return {
            "kind": LOG_KIND,
            "index": self.index,
            "podName": self.pod_name,
            "node": self.node,
            "container": self.container,
            "run": self.run,
            "data": base64.b64encode(self.packed).decode(),
            "size": self.size,
            "cutStart": self.cut_start,
            "cutEnd": self.cut_end,
            "why": self.why,
        }

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> LogRecord:
        """Return the record that ``encode`` wrote. Unknown fields are ignored.

        Raises:
            HistoryRecordError: a field is missing or invalid, or ``data`` is too large or not gzip.
        """
        numbers: dict[str, Any] = {field: body.get(field) for field in ("index", "run", "size")}
        for field, value in numbers.items():
            if type(value) is not int or not 0 <= value <= _MAX_INT32:
                raise HistoryRecordError(f"object.{field}: must be a number from 0, not {_quoted(value)}")
        for field in ("cutStart", "cutEnd"):
            if type(body.get(field)) is not bool:
                raise HistoryRecordError(f"object.{field}: must be true or false, not {_quoted(body.get(field))}")
        try:
            texts = {field: _text(body, field) for field in ("podName", "node", "container", "data", "why")}
        except HistoryRecordError as error:
            raise HistoryRecordError(f"object.{error}") from None
        for field, least in (("podName", 1), ("node", 0), ("container", 1)):
            if not least <= len(texts[field]) <= _MAX_NAME:
                rule = f"must have {least} to {_MAX_NAME} characters"
                raise HistoryRecordError(f"object.{field}: {rule}, not {_quoted(texts[field])}")
        try:
            packed = base64.b64decode(texts["data"], validate=True)
        except (binascii.Error, ValueError):
            raise HistoryRecordError("object.data: must be base64") from None
        unpack_log(packed, numbers["size"])
        return cls(
            index=numbers["index"],
            pod_name=texts["podName"],
            node=texts["node"],
            container=texts["container"],
            run=numbers["run"],
            packed=packed,
            size=numbers["size"],
            cut_start=body["cutStart"],
            cut_end=body["cutEnd"],
            why=texts["why"][:_MAX_WHY],
        )


def unpack_log(packed: bytes, size: int) -> bytes:
    """Return the bytes of a log.

    Raises:
        HistoryRecordError: they are not gzip with ``size`` bytes, or more than `MAX_LOG_BYTES`.
    """
    if size > MAX_LOG_BYTES:
        raise HistoryRecordError(f"object.size: must be at most {MAX_LOG_BYTES}, not {size}")
    if not packed:
        data, complete = b"", True
    else:
        # One byte more than expected: no more is decompressed of any data.
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        try:
            data = inflater.decompress(packed, size + 1)
        except zlib.error as error:
            raise HistoryRecordError(f"object.data: not gzip: {error}") from None
        complete = len(data) > size or (inflater.eof and not inflater.unused_data)
    if not complete or len(data) != size:
        raise HistoryRecordError(f"object.data: must be gzip with {size} bytes (size)")
    return data


def framework_attempt_id(framework: Mapping[str, Any]) -> RecordId:
    """Return the id of a Framework object; before its start, the first attempt's.

    If the status does not say which attempt it shows, the number of retries does, and else it is
    ``UNREADABLE_ATTEMPT``: the record must not take the place of another attempt's.

    Raises:
        HistoryRecordError: the UID is missing or invalid.
    """
    uid = _part(framework, "metadata", "uid")
    status = _at(framework, "status")
    for path in (("attemptStatus", "id"), ("retryPolicyStatus", "totalRetriedCount")):
        with suppress(HistoryRecordError):
            return RecordId(framework_uid=uid, attempt=_number(framework, "status", *path))
    has_started = status and (not isinstance(status, Mapping) or any(value is not None for value in status.values()))
    return RecordId(framework_uid=uid, attempt=UNREADABLE_ATTEMPT if has_started else 0)


def task_attempt_id(task: Mapping[str, Any]) -> RecordId:
    """Return the id of an object of kind Task.

    Raises:
        HistoryRecordError: a field is missing or invalid.
    """
    found = _id_in_annotations(task)
    task_attempt = _number(task, "status", "attemptStatus", "id")
    return replace(found, task_uid=_part(task, "metadata", "uid"), task_attempt=task_attempt)


def pod_id(pod: Mapping[str, Any]) -> RecordId:
    """Return the id of a Pod of a Framework.

    Raises:
        HistoryRecordError: a field is missing or invalid: users can change annotations.
    """
    return replace(
        _id_in_annotations(pod),
        task_uid=_part(pod, "metadata", "annotations", names.TASK_UID),
        task_attempt=_number(pod, "metadata", "annotations", names.TASK_ATTEMPT_ID),
        pod_uid=_part(pod, "metadata", "uid"),
    )


def _id_in_annotations(body: Mapping[str, Any]) -> RecordId:
    return RecordId(
        framework_uid=_part(body, "metadata", "annotations", names.FRAMEWORK_UID),
        attempt=_number(body, "metadata", "annotations", names.FRAMEWORK_ATTEMPT_ID),
        role=_part(body, "metadata", "annotations", names.TASKROLE_NAME),
    )


def _at(content: Any, *path: str) -> Any:
    for key in path:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def _part(content: Mapping[str, Any], *path: str) -> str:
    value = _at(content, *path)
    if not isinstance(value, str) or not _PART.fullmatch(value):
        raise HistoryRecordError(f"{'.'.join(path)}: must be a text without slash and space, not {_quoted(value)}")
    return value


def _number(content: Mapping[str, Any], *path: str) -> int:
    value = _at(content, *path)
    if type(value) not in (int, str) or not _NUMBER.fullmatch(str(value)):
        raise HistoryRecordError(f"{'.'.join(path)}: must be a number from 0, not {_quoted(value)}")
    return int(value)


def _text(content: Mapping[str, Any], field: str, *, required: bool = False) -> str:
    value = content.get(field)
    if not isinstance(value, str) or (required and not value):
        raise HistoryRecordError(f"{field}: must be a text{' that is not empty' * required}, not {_quoted(value)}")
    return value


def _quoted(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
