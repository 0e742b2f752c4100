"""Snapshots of objects at the ends of log lines, for log collectors.

Source: docs/history-records.md, and docs/logs.md. A snapshot is the compact JSON of an object as it was stored,
after a fixed mark. Collectors take the text after the last mark of a line, so no string inside may contain the mark.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.manifests import POD_LABELS
from frameworkcontroller.machine.kernel.model import Snapshot, SnapshotTrigger
from frameworkcontroller.machine.parts.history.finalization import plain_status

_log: Final = logging.getLogger(__name__)

IS_SNAPSHOT: Final[Mapping[str, Any]] = {"snapshot": True}
"""The ``extra`` of a log record that ends in a snapshot. In all other records the formatter escapes the mark."""

_MARK_ESCAPED: Final = "ObjectSnapshot\\u003a "
"""The mark inside a JSON string: parsers decode it, collectors do not match it."""

ALL_TRIGGERS: Final = frozenset(SnapshotTrigger) - {SnapshotTrigger.FRAMEWORK_COMPLETION}
"""Triggers of log lines: a completed Framework is logged when it is deleted."""

_MESSAGES: Final = {
    SnapshotTrigger.FRAMEWORK_RETRY: "Framework will be retried",
    SnapshotTrigger.FRAMEWORK_DELETION: "Framework will be deleted",
    SnapshotTrigger.TASK_RETRY: "Task will be retried",
    SnapshotTrigger.TASK_DELETION: "Task will be deleted",
}


class SnapshotLogger:
    """Logs the snapshots of the triggers that the configuration enables."""

    def __init__(self, triggers: Collection[SnapshotTrigger] = ALL_TRIGGERS) -> None:
        self._triggers = frozenset(triggers)

    def wants(self, trigger: SnapshotTrigger) -> bool:
        return trigger in self._triggers

    def log(self, framework: FrameworkRecord, resource_version: str, snapshots: Iterable[Snapshot]) -> None:
        """Log snapshots of a Framework. ``resource_version``: of the object with this status."""
        objects = SnapshotObjects(framework, resource_version)
        for snapshot in snapshots:
            if self.wants(snapshot.trigger):
                where = "" if snapshot.role is None else f"[{snapshot.role}][{snapshot.index}]"
                message = f"[{framework.key}]{where}: {_MESSAGES[snapshot.trigger]}"
                _write(message, snapshot.trigger, objects.of(snapshot))

    def log_deleted_framework(
        self, framework: FrameworkRecord, *, remark: str = "", status_json: bytes | None = None
    ) -> None:
        """Log a deleted Framework. ``status_json`` replaces its status."""
        body = deleted_framework_object(framework, status_json)
        _write(f"[{framework.key}]: Framework was deleted{remark}", SnapshotTrigger.FRAMEWORK_DELETION, body)

    def log_deleted_pod(self, key: str, pod: Mapping[str, Any]) -> None:
        message = f"[{key}]: Pod {pod['metadata']['name']} was deleted"
        _write(message, SnapshotTrigger.POD_DELETION, pod_object(pod))


class SnapshotObjects:
    """The objects of snapshots of one Framework, for log lines and records of the history."""

    def __init__(self, framework: FrameworkRecord, resource_version: str) -> None:
        """``resource_version``: of the object with this status."""
        self._framework = framework
        self._resource_version = resource_version
        self._task_specs: dict[str, Any] | None = None

    def of(self, snapshot: Snapshot) -> dict[str, Any]:
        """The object of a snapshot, with parts that are encoded."""
        if snapshot.role is None:
            status = orjson.Fragment(snapshot.status_json)
            return _framework(self._framework, self._resource_version, status)
        return self._task(snapshot.role, snapshot)

    def _task(self, role: str, snapshot: Snapshot) -> dict[str, Any]:
        status = orjson.loads(snapshot.status_json)
        metadata = {
            "name": status["attemptStatus"]["podName"],
            "namespace": self._framework.namespace,
            "uid": status["instanceUID"],
            "resourceVersion": self._resource_version,
            "generation": self._framework.generation,
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
            "spec": self._task_spec(role),
            "status": orjson.Fragment(snapshot.status_json),
        }

    def _task_spec(self, role: str) -> Any:
        """The encoded spec of the Tasks of a role: thousands of Tasks may need it. None if the role is gone."""
        if self._task_specs is None:
            spec = orjson.loads(self._framework.spec_json) or {}
            self._task_specs = {}
            for item in spec.get("taskRoles") or ():
                self._task_specs.setdefault(item.get("name"), orjson.Fragment(orjson.dumps(item.get("task"))))
        return self._task_specs.get(role)


def deleted_framework_object(framework: FrameworkRecord, status_json: bytes | None = None) -> dict[str, Any]:
    """A deleted Framework. ``status_json`` replaces its status."""
    status = plain_status(framework.status) if status_json is None else orjson.Fragment(status_json)
    return _framework(framework, framework.resource_version, status)


def pod_object(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A Pod of a list or watch, with its kind."""
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _write(message: str, trigger: SnapshotTrigger, body: Mapping[str, Any]) -> None:
    encoded = orjson.dumps(body).decode().replace(names.SNAPSHOT_MARK, _MARK_ESCAPED)
    _log.info("%s: %s: %s%s", message, trigger, names.SNAPSHOT_MARK, encoded, extra=IS_SNAPSHOT)


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
