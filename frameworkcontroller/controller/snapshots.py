"""Snapshots of objects at the ends of log lines, for log collectors.

Source: docs/manual.md, "History", and docs/logs.md. A snapshot is the compact JSON of an object as it was stored,
after a fixed mark. Collectors take the text after the last mark of a line, so no string inside may contain the mark.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import with_plain_roles
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.manifests import POD_LABELS
from frameworkcontroller.machine.model import Snapshot, Trigger

_log: Final = logging.getLogger(__name__)

IS_SNAPSHOT: Final[Mapping[str, Any]] = {"snapshot": True}
"""The ``extra`` of a log record that ends in a snapshot. In all other records the formatter escapes the mark."""

_MARK_ESCAPED: Final = "ObjectSnapshot\\u003a "
"""The mark inside a JSON string: parsers decode it, collectors do not match it."""

ALL_TRIGGERS: Final = frozenset(Trigger)

_MESSAGES: Final = {
    Trigger.FRAMEWORK_RETRY: "Framework will be retried",
    Trigger.FRAMEWORK_DELETION: "Framework will be deleted",
    Trigger.TASK_RETRY: "Task will be retried",
    Trigger.TASK_DELETION: "Task will be deleted",
}


class SnapshotLogger:
    """Logs the snapshots of the triggers that the configuration enables."""

    def __init__(self, triggers: Collection[Trigger] = ALL_TRIGGERS) -> None:
        self._triggers = frozenset(triggers)

    def wants(self, trigger: Trigger) -> bool:
        """Whether snapshots of this trigger are logged."""
        return trigger in self._triggers

    def log(self, framework: FrameworkRecord, resource_version: str, snapshots: Iterable[Snapshot]) -> None:
        """Log snapshots of a Framework. ``resource_version`` is that of the object with the status shown."""
        for snapshot in snapshots:
            if self.wants(snapshot.trigger):
                where = "" if snapshot.role is None else f"[{snapshot.role}][{snapshot.index}]"
                tail = snapshot_tail(framework, resource_version, snapshot)
                _log.info("[%s]%s: %s%s", framework.key, where, _MESSAGES[snapshot.trigger], tail, extra=IS_SNAPSHOT)


def snapshot_tail(framework: FrameworkRecord, resource_version: str, snapshot: Snapshot) -> str:
    """Return the end of the log line for a snapshot."""
    if snapshot.role is None:
        body = _framework(framework, resource_version, orjson.Fragment(snapshot.status_json))
    else:
        body = _task(framework, resource_version, snapshot.role, snapshot)
    return _tail(snapshot.trigger, body)


def deleted_framework_tail(framework: FrameworkRecord, status_json: bytes | None = None) -> str:
    """Return the end of the log line for a deleted Framework. ``status_json`` replaces its status."""
    status = _with_plain_roles(framework.status) if status_json is None else orjson.Fragment(status_json)
    return _tail(Trigger.FRAMEWORK_DELETION, _framework(framework, framework.resource_version, status))


def deleted_pod_tail(pod: Mapping[str, Any]) -> str:
    """Return the end of the log line for a deleted Pod."""
    return _tail(Trigger.POD_DELETION, {"apiVersion": "v1", "kind": "Pod", **pod})


def _tail(trigger: Trigger, body: Mapping[str, Any]) -> str:
    encoded = orjson.dumps(body).decode().replace(names.SNAPSHOT_MARK, _MARK_ESCAPED)
    return f": {trigger}: {names.SNAPSHOT_MARK}{encoded}"


def _framework(framework: FrameworkRecord, resource_version: str, status: Any) -> dict[str, Any]:
    metadata = orjson.loads(framework.metadata_json)
    metadata["resourceVersion"] = resource_version
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata,
        "spec": orjson.Fragment(framework.spec_json),
        "status": status,
    }


def _task(framework: FrameworkRecord, resource_version: str, role: str, snapshot: Snapshot) -> dict[str, Any]:
    spec = orjson.loads(framework.spec_json) or {}
    status = orjson.loads(snapshot.status_json)
    metadata = {
        "name": status["attemptStatus"]["podName"],
        "namespace": framework.namespace,
        "uid": status["instanceUID"],
        "resourceVersion": resource_version,
        "generation": framework.generation,
        "creationTimestamp": status["startTime"],
        "labels": {key: snapshot.annotations[key] for key in POD_LABELS},
        "annotations": snapshot.annotations,
    }
    if snapshot.deleted_at is not None:
        metadata["deletionTimestamp"] = format_time(snapshot.deleted_at)
        metadata["deletionGracePeriodSeconds"] = 0
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Task",
        "metadata": metadata,
        "spec": next((item.get("task") for item in spec.get("taskRoles") or () if item.get("name") == role), None),
        "status": orjson.Fragment(snapshot.status_json),
    }


def _with_plain_roles(status: Any) -> Any:
    """Decompress the roles of a status, which collectors cannot. What cannot be decompressed stays as it is."""
    try:
        return {**status, "attemptStatus": with_plain_roles(status["attemptStatus"])}
    except (KeyError, TypeError, ValueError):
        return status
