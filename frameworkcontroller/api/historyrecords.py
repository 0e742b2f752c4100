"""Records of the history: one line of JSON for each state that the controller is about to forget.

Source: docs/manual.md, "History". A record is identified by its attempt. It is delivered at least once, and the same
attempt may come again in a later state: of records with the same id, the one with the trigger of the latest of
`STAGES` counts, and of several the one with the latest ``time``.
"""

from __future__ import annotations

import re
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


KINDS: Final[Mapping[Trigger, str]] = {trigger: trigger.name.partition("_")[0].capitalize() for trigger in Trigger}
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
}
"""The triggers of one attempt in the order of its life: one that waits for its retry may still be completed or deleted,
never the other way round. Clocks of controllers may differ, so their times alone do not tell."""

_PART: Final = re.compile(r"[^/\x00-\x20\x7f]{1,253}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_SHOWN: Final = 100


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
    ``object``: the Framework, Task or Pod, a JSON object; to encode a record it may be an ``orjson.Fragment``.
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
    if not kind == found.kind == KINDS[trigger]:
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
