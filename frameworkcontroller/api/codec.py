"""Encodes and decodes the JSON of statuses.

The JSON of a Task is cached on the Task (``TaskStatus.encoded``), so a status write costs the changed Tasks and one
join. Decoding accepts all statuses of the original controller.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

import orjson

from frameworkcontroller.api import fields, names
from frameworkcontroller.api.completion import CompletionStatus, DecidedRule, PodCompletion
from frameworkcontroller.api.problems import Problem, ProblemError
from frameworkcontroller.api.status import (
    AdmissionStatus,
    AutoscalingStatus,
    Condition,
    FirstFailure,
    FrameworkAttemptStatus,
    FrameworkStatus,
    NoticeStatus,
    ProgressStatus,
    RetryPolicyStatus,
    TaskAttemptStatus,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.api.timestamps import format_time

COMPRESSION_THRESHOLD_BYTES = 716_800
"""From this size on, the JSON of taskRoleStatuses is stored compressed, if compression is on (700 KiB)."""

_LARGE_COMPRESSED_BYTES = 640 << 10
"""From this size on, a better compression is worth its time: in base64 it is over half of etcd's limit."""

MAX_DECOMPRESSED_BYTES = 64 << 20
"""More than 10,000 Tasks need. A compressed status of more is refused (a gzip bomb)."""

MAX_DECOMPRESSED_VALUES = 2_000_000
"""So is one with more JSON values and keys; 10,000 Tasks have a third of it."""

_FAST_BYTES = 16 << 20
"""Up to this size orjson parses, which takes fourteen times the size in memory."""

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Matches a string without an end, too: to search the end again from each quote within takes quadratic time."""


class StatusError(ValueError):
    """A stored status is invalid. The text names the field."""


# --- encoding ---------------------------------------------------------------------------------------------------


def encode_status(framework: str, status: FrameworkStatus) -> bytes:
    """JSON of the ``status`` of the Framework with the name ``framework``."""
    return EncodedStatus(framework, status).body


class EncodedStatus:
    """A status as JSON. Compression and digest, which are slow for many Tasks, are computed on first use.

    10,000 Tasks take up to 0.2 s to compress, outside the interpreter's lock.
    """

    def __init__(self, framework: str, status: FrameworkStatus, *, compress: bool = False) -> None:
        """``compress``: store the roles gzipped once they reach ``COMPRESSION_THRESHOLD_BYTES``."""
        self._head = _encode_head(framework, status)
        self._roles = _encode_roles(framework, status.attempt.roles)
        self._compress = compress
        self.added = added_fields(status, with_roles=not (compress and self.is_large))

    @property
    def is_large(self) -> bool:
        """Whether ``body`` and ``digest`` are slow."""
        return len(self._roles) >= COMPRESSION_THRESHOLD_BYTES

    def complete(self) -> None:
        """Compute ``body`` and ``digest``, for example in another thread."""
        _ = self.body, self.digest

    @cached_property
    def digest(self) -> bytes:
        """Digest of the content, which does not depend on compression."""
        digest = hashlib.blake2b(self._head, digest_size=16)
        digest.update(self._roles)
        return digest.digest()

    @cached_property
    def body(self) -> bytes:
        """JSON of the status."""
        if not (self._compress and self.is_large):
            return self._head.replace(_ROLES, self._roles)
        packed = gzip.compress(self._roles, compresslevel=1, mtime=0)
        if len(packed) > _LARGE_COMPRESSED_BYTES:
            packed = gzip.compress(self._roles, compresslevel=6, mtime=0)
        return self._head.replace(_ROLES, b'null,"taskRoleStatusesCompressed":"' + base64.b64encode(packed) + b'"')


AddedFields = dict[tuple[str | int, ...], Any]
"""Values of fields by path."""


def added_fields(status: FrameworkStatus | None, *, with_roles: bool = True) -> AddedFields:
    """The fields of the status made by `fields.added`. They are inputs of decisions, and an older CRD lacks them.

    A Framework without the features that they belong to has none. ``with_roles`` False: without compressed roles. The
    CRD has no fields of Tasks, which are kept.
    """
    if status is None:
        return {}
    attempt = status.attempt
    records: list[tuple[tuple[str | int, ...], Any]] = [
        ((), status),
        (("retryPolicyStatus",), status.retry),
        (("attemptStatus",), attempt),
    ]
    if attempt.completion_status is not None:
        records.append((("attemptStatus", "completionStatus"), attempt.completion_status))
    if with_roles:
        records += ((("attemptStatus", "taskRoleStatuses", at), role) for at, role in enumerate(attempt.roles))
    found: AddedFields = {}
    for path, record in records:
        for one in ADDED[type(record)]:
            if (value := getattr(record, one.name)) != one.default:
                # Progress changes often: only its presence counts.
                kept = tuple(value) if isinstance(value, list) else isinstance(value, ProgressStatus) or value
                found[*path, one.key] = kept
    return found


def dropped_fields(added: AddedFields, stored: Any) -> list[str]:
    """Which of the fields an API server has not stored. ``stored``: the JSON value of the status in its answer."""
    dropped: dict[str, None] = {}
    for path in added:
        value = stored
        for part in path:
            try:
                value = value[part]
            except (LookupError, TypeError):
                dropped[".".join(str(part) for part in ("status", *path) if isinstance(part, str))] = None
                break
    return list(dropped)


_ROLES = b"\0"
"""Placeholder for the roles in the rest of a status: a byte that JSON cannot contain."""


def _encode_head(framework: str, status: FrameworkStatus) -> bytes:
    attempt = status.attempt
    uid = attempt.configmap_uid
    body: dict[str, Any] = {
        "startTime": format_time(status.start_time),
        "runTime": _time(status.run_time),
        "completionTime": _time(status.completion_time),
        "transitionTime": format_time(status.transition_time),
        "state": status.state,
        "retryPolicyStatus": _retry(status.retry),
        "attemptStatus": {
            "id": attempt.id,
            "startTime": format_time(attempt.start_time),
            "runTime": _time(attempt.run_time),
            "completionTime": _time(attempt.completion_time),
            "instanceUID": None if uid is None else names.attempt_instance_uid(attempt.id, uid),
            "configMapName": names.configmap_name(framework),
            "configMapUID": uid,
            "completionStatus": _completion(attempt.completion_status),
            **_added(attempt),
            # Must be last: taskRoleStatusesCompressed follows it.
            "taskRoleStatuses": orjson.Fragment(_ROLES),
        },
        **_added(status),
    }
    if status.earliest_failures:
        body["earliestFailures"] = [_failure(one) for one in status.earliest_failures]
    if status.first_failure is not None:
        body["firstFailure"] = _failure(status.first_failure)
    body |= _not_empty({"phase": status.phase, "reason": status.reason, "message": status.message})
    if status.observed_generation is not None:
        body["observedGeneration"] = status.observed_generation
    if status.task_counts is not None:
        body["taskCounts"] = status.task_counts
    if status.conditions:
        body["conditions"] = [encode_condition(condition) for condition in status.conditions]
    return orjson.dumps(body)


def _encode_roles(framework: str, roles: list[TaskRoleStatus]) -> bytes:
    return orjson.dumps(
        [
            {
                "name": role.name,
                "instanceUID": role.instance_uid,
                "podGracefulDeletionTimeoutSec": role.pod_graceful_deletion_timeout_sec,
                **_added(role),
                **_counts(role),
                "taskStatuses": [orjson.Fragment(encode_task(framework, role.name, task)) for task in role.tasks],
            }
            for role in roles
        ]
    )


def _counts(role: TaskRoleStatus) -> dict[str, int]:
    found = {"readyTaskCount": role.ready_task_count, "updatedTaskCount": role.updated_task_count}
    return {key: count for key, count in found.items() if count is not None}


def encode_task(framework: str, role: str, task: TaskStatus) -> bytes:
    """JSON of one element of ``taskStatuses``."""
    if task.encoded is None:
        attempt = task.attempt
        uid = attempt.pod_uid
        body: dict[str, Any] = {
            "index": task.index,
            "instanceUID": task.instance_uid,
            "startTime": format_time(task.start_time),
            "runTime": _time(task.run_time),
            "completionTime": _time(task.completion_time),
            "transitionTime": format_time(task.transition_time),
            "state": task.state,
            "deletionPending": task.is_leaving,
            "retryPolicyStatus": _retry(task.retry),
            "attemptStatus": {
                "id": attempt.id,
                "startTime": format_time(attempt.start_time),
                "runTime": _time(attempt.run_time),
                "completionTime": _time(attempt.completion_time),
                "instanceUID": None if uid is None else names.attempt_instance_uid(attempt.id, uid),
                "podName": names.pod_name(framework, role, task.index),
                "podUID": uid,
                "podNodeName": attempt.pod_node_name,
                "podIP": attempt.pod_ip,
                "podHostIP": attempt.pod_host_ip,
                "completionStatus": _completion(attempt.completion_status),
            },
        }
        if _added_to_task(task) != _NOTHING_ADDED:
            body |= _added(task)
            body["attemptStatus"] |= _added(attempt)
        task.encoded = dumps_to_keep(body)
    return task.encoded


def pod_completion_body(pod: PodCompletion) -> dict[str, Any]:
    """JSON value of how a Pod ended, without empty fields; diagnostics quote it too."""
    containers = [
        {
            "name": container.name,
            **_not_empty({"reason": container.reason, "message": container.message, "signal": container.signal}),
            "code": container.code,
        }
        for container in pod.containers
    ]
    return _not_empty({"reason": pod.reason, "message": pod.message, "containers": containers})


def _not_empty(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value}


def _completion(completion: CompletionStatus | None) -> dict[str, Any] | None:
    if completion is None:
        return None
    body: dict[str, Any] = {
        "code": completion.code,
        "phrase": completion.phrase,
        "type": {"name": completion.type_name, "attributes": completion.attributes},
        "diagnostics": completion.diagnostics,
    }
    if completion.trigger is not None:
        body["trigger"] = {
            "message": completion.trigger.message,
            "taskRoleName": completion.trigger.task_role_name,
            "taskIndex": completion.trigger.task_index,
        }
    if completion.pod is not None:
        body["pod"] = pod_completion_body(completion.pod)
    return {**body, **_added(completion)}


def _decided_rule(decided: DecidedRule) -> dict[str, Any]:
    return {"action": decided.action, "rule": decided.rule}


def _admission(admission: AdmissionStatus) -> dict[str, Any]:
    return {
        "queueName": admission.queue_name,
        "workloadName": admission.workload_name,
        "workloadUID": admission.workload_uid,
        "clusterQueue": admission.cluster_queue,
        "podSets": [
            {
                "name": one.name,
                "count": one.count,
                "digest": one.digest,
                **_not_empty(
                    {
                        "reclaimed": one.reclaimed,
                        "nodeSelector": one.node_selector,
                        "tolerations": one.tolerations,
                        "labels": one.labels,
                        "annotations": one.annotations,
                        "schedulingGates": one.scheduling_gates,
                    }
                ),
            }
            for one in admission.pod_sets
        ],
    }


def _progress(progress: ProgressStatus) -> dict[str, Any]:
    return {
        "frameworkAttemptID": progress.framework_attempt_id,
        **encode_report(progress),
    }


def _notice(notice: NoticeStatus) -> dict[str, Any]:
    return {
        "frameworkAttemptID": notice.framework_attempt_id,
        "reason": notice.reason,
        "time": format_time(notice.time),
        "deadline": format_time(notice.deadline),
    }


def _autoscaling(autoscaling: AutoscalingStatus) -> dict[str, Any]:
    return {
        "taskNumber": autoscaling.task_number,
        # API servers of 2020 take an empty text for null.
        **_not_empty({"scalerID": autoscaling.scaler_id}),
        "scalerGeneration": autoscaling.scaler_generation,
    }


def encode_report(progress: ProgressStatus) -> dict[str, Any]:
    """JSON value of the data ``progress`` of the ConfigMap of an attempt."""
    values = {
        "percentage": progress.percentage,
        "remainingSeconds": progress.remaining_seconds,
        "step": progress.step,
        "metrics": [{"name": one.name, "value": one.value} for one in progress.metrics] or None,
        "firstReportTime": _time(progress.first_report_time),
        "lastReportTime": _time(progress.last_report_time),
        "lastChangeTime": _time(progress.last_change_time),
        "lastCheckpointTime": _time(progress.last_checkpoint_time),
        "lastCheckpointStep": progress.last_checkpoint_step,
    }
    return {key: value for key, value in values.items() if value is not None}


def _failure(failure: FirstFailure) -> dict[str, Any]:
    body: dict[str, Any] = {
        "frameworkAttemptID": failure.framework_attempt_id,
        "taskRoleName": failure.task_role_name,
        "taskIndex": failure.task_index,
        "taskAttemptID": failure.task_attempt_id,
        **_not_empty({"nodeName": failure.node_name, "containerName": failure.container_name}),
        "code": failure.code,
        "phrase": failure.phrase,
        "time": format_time(failure.time),
        "message": failure.message,
        "certain": failure.certain,
    }
    return {**body, "cascade": True} if failure.cascade else body


def encode_condition(condition: Condition) -> dict[str, Any]:
    """JSON value of one element of ``conditions``."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": format_time(condition.last_transition_time),
        "observedGeneration": condition.observed_generation,
    }


def _retry(retry: RetryPolicyStatus) -> dict[str, Any]:
    return {
        "totalRetriedCount": retry.total_retried_count,
        "accountableRetriedCount": retry.accountable_retried_count,
        "retryDelaySec": retry.retry_delay_sec,
        **_added(retry),
    }


def _added(record: Any) -> dict[str, Any]:
    """The JSON of those fields made by `fields.added` that do not have their default."""
    body: dict[str, Any] = {}
    for name, key, encode, default in _ADDED_STEPS[type(record)]:
        if (value := getattr(record, name)) != default:
            body[key] = value if encode is None else encode(value)
    return body


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else format_time(seconds)


def dumps_to_keep(value: Any) -> bytes:
    """JSON in no more memory than it needs.

    The result of ``orjson.dumps`` keeps its whole output buffer, 4 to 8 KiB even for a short text (with orjson 3.13),
    which adds up over the Tasks.
    """
    return bytes(memoryview(orjson.dumps(value)))


# --- decoding ---------------------------------------------------------------------------------------------------


def decode_status(body: Any) -> FrameworkStatus | None:
    """The status from the JSON value ``body``, None for an empty one.

    Raises:
        StatusError: the status is invalid.
    """
    if not body:
        return None
    try:
        status = _decode(body)
        for number, role in enumerate(status.attempt.roles):
            for position, task in enumerate(role.tasks):
                task.role = role.name
                if task.index != position:
                    path = ("attemptStatus", "taskRoleStatuses", number, "taskStatuses", position, "index")
                    raise ProblemError(Problem(path, f"must be {position}", task.index))
    except ProblemError as error:
        raise StatusError(str(error.below("status"))) from None
    return status


def decompress_roles(text: str) -> Any:
    """The JSON value of ``taskRoleStatusesCompressed``.

    Raises:
        StatusError: it is not base64, gzip or JSON, or it is too large.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(base64.b64decode(text, validate=True))) as stream:
            raw = stream.read(MAX_DECOMPRESSED_BYTES + 1)
        if len(raw) > MAX_DECOMPRESSED_BYTES:
            raise ValueError(f"over {MAX_DECOMPRESSED_BYTES} bytes")
        if _holds_too_much(raw):
            raise ValueError(f"over {MAX_DECOMPRESSED_VALUES} values")
        return orjson.loads(raw) if len(raw) <= _FAST_BYTES else json.loads(raw)
    except (TypeError, ValueError, OSError, EOFError, RecursionError, zlib.error) as error:
        raise StatusError(f"status.attemptStatus.taskRoleStatusesCompressed: {error}") from None


def _holds_too_much(raw: bytes) -> bool:
    """Whether the JSON text has too many values: each takes much more memory than its text."""
    if _marks(raw) <= MAX_DECOMPRESSED_VALUES:
        return False
    # Most marks may be inside of strings, the messages of containers. A status has fewer strings than values.
    texts = (raw.count(b'"') - raw.count(b'\\"')) // 2
    return texts > MAX_DECOMPRESSED_VALUES or _marks(_TEXT.sub(b"", raw)) > MAX_DECOMPRESSED_VALUES


def _marks(raw: bytes) -> int:
    return sum(raw.count(mark) for mark in (b",", b":", b"[", b"{"))


def with_plain_roles(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of an ``attemptStatus`` with the roles decompressed.

    Raises:
        StatusError: they cannot be decompressed.
    """
    plain = dict(attempt)
    packed = plain.pop("taskRoleStatusesCompressed", None)
    if packed and plain.get("taskRoleStatuses") is None:
        plain["taskRoleStatuses"] = decompress_roles(packed)
    return plain


def _with_instance_uid(body: dict[str, Any]) -> dict[str, Any]:
    # The oldest statuses of the original have none, and neither do their Pods.
    return {**body, "instanceUID": ""} if body.get("instanceUID") is None else body


def _with_plain_type(completion: dict[str, Any]) -> dict[str, Any]:
    kind = fields.maybe_object(completion, "type") or {}
    return {**completion, "type.name": kind.get("name"), "type.attributes": kind.get("attributes")}


_schema: Final = fields.Schema(
    keys={
        "attempt": "attemptStatus",
        "attributes": "type.attributes",
        "configmap_uid": "configMapUID",
        "framework_attempt_id": "frameworkAttemptID",
        "instance_uid": "instanceUID",
        "is_leaving": "deletionPending",
        "pod_host_ip": "podHostIP",
        "pod_ip": "podIP",
        "pod_uid": "podUID",
        "retry": "retryPolicyStatus",
        "roles": "taskRoleStatuses",
        "scaler_id": "scalerID",
        "task_attempt_id": "taskAttemptID",
        "tasks": "taskStatuses",
        "type_name": "type.name",
        "workload_uid": "workloadUID",
    },
    needed={"state"},
    prepare={
        FrameworkAttemptStatus: with_plain_roles,
        TaskRoleStatus: _with_instance_uid,
        TaskStatus: _with_instance_uid,
        CompletionStatus: _with_plain_type,
    },
)
_decode: Final = _schema.decoder(FrameworkStatus)

ADDED: Final[Mapping[type, tuple[fields.AddedField, ...]]] = {
    record: _schema.added(record)
    for record in (
        FrameworkStatus,
        FrameworkAttemptStatus,
        TaskRoleStatus,
        TaskStatus,
        TaskAttemptStatus,
        RetryPolicyStatus,
        CompletionStatus,
    )
}
"""The fields made by `fields.added`."""

_ENCODERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    AdmissionStatus: _admission,
    AutoscalingStatus: _autoscaling,
    ProgressStatus: _progress,
    NoticeStatus: _notice,
    DecidedRule: _decided_rule,
    fields.Time: format_time,
}
"""The JSON of a value by its type. Others are JSON."""

_ADDED_STEPS: Final = {
    record: tuple((one.name, one.key, _ENCODERS.get(one.hint), one.default) for one in added)
    for record, added in ADDED.items()
}
"""Name, key, encoder and default of these fields."""

_added_to_task: Final = attrgetter(
    *(one.name for one in ADDED[TaskStatus]), *(f"attempt.{one.name}" for one in ADDED[TaskAttemptStatus])
)
"""The values of these fields, all at once: there are many Tasks, and few have any."""

_NOTHING_ADDED: Final = _added_to_task(TaskStatus(0, "", 0, 0, TaskAttemptStatus(0, 0)))

decode_task: Final = _schema.decoder(TaskStatus)
"""The status of a Task, without its role. Raises ProblemError."""

decode_progress_status: Final = _schema.decoder(ProgressStatus)
"""The ``progress`` of a status. Raises ProblemError."""

decode_completion: Final = _schema.decoder(CompletionStatus)
"""A ``completionStatus``. Raises ProblemError."""
