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
import sys
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

import orjson

from frameworkcontroller.api import fields, names
from frameworkcontroller.api.completion import CompletionStatus, ContainerCompletion, PodCompletion, Trigger
from frameworkcontroller.api.fields import FieldError
from frameworkcontroller.api.status import (
    Condition,
    FrameworkAttemptStatus,
    FrameworkStatus,
    RetryPolicyStatus,
    State,
    TaskAttemptStatus,
    TaskCounts,
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

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class StatusError(ValueError):
    """A stored status is invalid. The text names the field."""


# --- encoding ---------------------------------------------------------------------------------------------------


def encode_status(framework: str, status: FrameworkStatus, *, compress: bool = False) -> bytes:
    """JSON of the ``status`` of the Framework with the name ``framework``. ``compress``: see ``EncodedStatus``."""
    return EncodedStatus(framework, status, compress=compress).body


class EncodedStatus:
    """A status as JSON. Compression and digest, which are slow for many Tasks, are computed on first use.

    10,000 Tasks take up to 0.2 s to compress, outside the interpreter's lock.
    """

    def __init__(self, framework: str, status: FrameworkStatus, *, compress: bool = False) -> None:
        """``compress``: store the roles gzipped once they reach ``COMPRESSION_THRESHOLD_BYTES``."""
        self._head = _encode_head(framework, status)
        self._roles = _encode_roles(framework, status.attempt.roles)
        self._compress = compress

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
            # Must be last: taskRoleStatusesCompressed follows it.
            "taskRoleStatuses": orjson.Fragment(_ROLES),
        },
    }
    if status.observed_generation is not None:
        body["observedGeneration"] = status.observed_generation
    if status.task_counts is not None:
        body["taskCounts"] = asdict(status.task_counts)
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
                "taskStatuses": [orjson.Fragment(encode_task(framework, role.name, task)) for task in role.tasks],
            }
            for role in roles
        ]
    )


def encode_task(framework: str, role: str, task: TaskStatus) -> bytes:
    """JSON of one element of ``taskStatuses``."""
    if task.encoded is None:
        attempt = task.attempt
        uid = attempt.pod_uid
        task.encoded = dumps_to_keep(
            {
                "index": task.index,
                "instanceUID": task.instance_uid,
                "startTime": format_time(task.start_time),
                "runTime": _time(task.run_time),
                "completionTime": _time(task.completion_time),
                "transitionTime": format_time(task.transition_time),
                "state": task.state,
                "deletionPending": task.deletion_pending,
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
        )
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
    return body


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
    body = {
        "totalRetriedCount": retry.total_retried_count,
        "accountableRetriedCount": retry.accountable_retried_count,
        "retryDelaySec": retry.retry_delay_sec,
    }
    if retry.recent_retried_count:
        body["recentRetriedCount"] = retry.recent_retried_count
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
        return fields.needed_part({"status": body}, "status", _decode_status)
    except FieldError as error:
        raise StatusError(str(error)) from None


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
    """Whether the JSON text has too many values, each of which takes much more memory than its text."""
    if _marks(raw) <= MAX_DECOMPRESSED_VALUES:
        return False
    # Most marks may be inside of strings, the messages of containers. A status has fewer strings than values.
    texts = (raw.count(b'"') - raw.count(b'\\"')) // 2
    return texts > MAX_DECOMPRESSED_VALUES or _marks(_TEXT.sub(b"", raw)) > MAX_DECOMPRESSED_VALUES


def _marks(raw: bytes) -> int:
    return sum(raw.count(mark) for mark in (b",", b":", b"[", b"{"))


def _decode_status(body: Mapping[str, Any]) -> FrameworkStatus:
    return FrameworkStatus(
        start_time=fields.needed_time(body, "startTime"),
        run_time=fields.maybe_time(body, "runTime"),
        completion_time=fields.maybe_time(body, "completionTime"),
        transition_time=fields.needed_time(body, "transitionTime"),
        state=fields.needed_choice(body, "state", State),
        retry=_decode_retry_of(body),
        attempt=fields.needed_part(body, "attemptStatus", _decode_attempt),
        observed_generation=fields.maybe_number(body, "observedGeneration"),
        task_counts=fields.maybe_part(body, "taskCounts", _decode_task_counts),
        conditions=fields.each(body, "conditions", _decode_condition),
    )


def _decode_attempt(body: Mapping[str, Any]) -> FrameworkAttemptStatus:
    packed = fields.maybe_text(body, "taskRoleStatusesCompressed")
    if packed and body.get("taskRoleStatuses") is None:
        body = {**body, "taskRoleStatuses": decompress_roles(packed)}
    return FrameworkAttemptStatus(
        id=fields.needed_number(body, "id"),
        start_time=fields.needed_time(body, "startTime"),
        run_time=fields.maybe_time(body, "runTime"),
        completion_time=fields.maybe_time(body, "completionTime"),
        configmap_uid=fields.maybe_text(body, "configMapUID"),
        completion_status=fields.maybe_part(body, "completionStatus", _decode_completion),
        roles=fields.each(body, "taskRoleStatuses", _decode_role),
    )


def _decode_role(body: Mapping[str, Any]) -> TaskRoleStatus:
    tasks = fields.each(body, "taskStatuses", _decode_task)
    name = fields.needed_text(body, "name")
    for position, task in enumerate(tasks):
        task.role = name
        if task.index != position:
            raise FieldError(f"taskStatuses[{position}].index", f"{task.index} where {position} has to follow")
    return TaskRoleStatus(
        name=name,
        # The oldest statuses of the original have none, and neither do the Pods of the role.
        instance_uid=fields.text(body, "instanceUID"),
        pod_graceful_deletion_timeout_sec=fields.maybe_number(body, "podGracefulDeletionTimeoutSec"),
        tasks=tasks,
    )


def _decode_task(body: Mapping[str, Any]) -> TaskStatus:
    return TaskStatus(
        index=fields.needed_number(body, "index"),
        instance_uid=fields.text(body, "instanceUID"),
        start_time=fields.needed_time(body, "startTime"),
        run_time=fields.maybe_time(body, "runTime"),
        completion_time=fields.maybe_time(body, "completionTime"),
        transition_time=fields.needed_time(body, "transitionTime"),
        state=fields.needed_choice(body, "state", State),
        deletion_pending=fields.flag(body, "deletionPending"),
        retry=_decode_retry_of(body),
        attempt=fields.needed_part(body, "attemptStatus", _decode_task_attempt),
    )


def _decode_task_attempt(body: Mapping[str, Any]) -> TaskAttemptStatus:
    return TaskAttemptStatus(
        id=fields.needed_number(body, "id"),
        start_time=fields.needed_time(body, "startTime"),
        run_time=fields.maybe_time(body, "runTime"),
        completion_time=fields.maybe_time(body, "completionTime"),
        pod_uid=fields.maybe_text(body, "podUID"),
        pod_node_name=fields.maybe_text(body, "podNodeName"),
        pod_ip=fields.maybe_text(body, "podIP"),
        pod_host_ip=fields.maybe_text(body, "podHostIP"),
        completion_status=fields.maybe_part(body, "completionStatus", _decode_completion),
    )


def _decode_retry_of(body: Mapping[str, Any]) -> RetryPolicyStatus:
    return fields.maybe_part(body, "retryPolicyStatus", _decode_retry) or RetryPolicyStatus()


def _decode_retry(body: Mapping[str, Any]) -> RetryPolicyStatus:
    return RetryPolicyStatus(
        total_retried_count=fields.number(body, "totalRetriedCount"),
        accountable_retried_count=fields.number(body, "accountableRetriedCount"),
        retry_delay_sec=fields.maybe_number(body, "retryDelaySec"),
        recent_retried_count=fields.number(body, "recentRetriedCount"),
    )


def _decode_task_counts(body: Mapping[str, Any]) -> TaskCounts:
    return TaskCounts(*(fields.number(body, key) for key in ("total", "running", "succeeded", "failed")))


def _decode_completion(body: Mapping[str, Any]) -> CompletionStatus:
    name, attributes = fields.maybe_part(body, "type", _decode_type) or ("", None)
    return CompletionStatus(
        code=fields.needed_number(body, "code"),
        phrase=fields.text(body, "phrase"),
        type_name=name,
        attributes=attributes,
        diagnostics=fields.text(body, "diagnostics"),
        trigger=fields.maybe_part(body, "trigger", _decode_trigger),
        pod=fields.maybe_part(body, "pod", _decode_pod_completion),
    )


def _decode_type(body: Mapping[str, Any]) -> tuple[str, tuple[str, ...] | None]:
    attributes = body.get("attributes")
    if attributes is None:
        return fields.text(body, "name"), None
    if not isinstance(attributes, list) or not all(isinstance(attribute, str) for attribute in attributes):
        raise FieldError("attributes", f"{fields.quoted(attributes)} is not a list of texts")
    return fields.text(body, "name"), tuple(attributes)


def _decode_pod_completion(body: Mapping[str, Any]) -> PodCompletion:
    return PodCompletion(
        reason=fields.text(body, "reason"),
        message=fields.text(body, "message"),
        containers=tuple(fields.each(body, "containers", _decode_container)),
    )


def _decode_container(body: Mapping[str, Any]) -> ContainerCompletion:
    return ContainerCompletion(
        name=sys.intern(fields.needed_text(body, "name")),
        code=fields.number(body, "code"),
        reason=sys.intern(fields.text(body, "reason")),
        message=fields.text(body, "message"),
        signal=fields.number(body, "signal"),
    )


def _decode_trigger(body: Mapping[str, Any]) -> Trigger:
    return Trigger(fields.text(body, "message"), fields.text(body, "taskRoleName"), fields.number(body, "taskIndex"))


def _decode_condition(body: Mapping[str, Any]) -> Condition:
    return Condition(
        type=fields.needed_text(body, "type"),
        status=fields.needed_text(body, "status"),
        reason=fields.text(body, "reason"),
        message=fields.text(body, "message"),
        # The CRD does not require one, and other tools may write none.
        last_transition_time=fields.maybe_time(body, "lastTransitionTime") or 0,
        observed_generation=fields.number(body, "observedGeneration"),
    )
