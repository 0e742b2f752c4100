"""Tells what happened, once it is certain: as a log line and an Event. Logs snapshots before their objects change."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.controller.eventbroadcaster import EventBroadcaster
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.kube.indexer import Lister
from frameworkcontroller.machine.model import Record, Snapshot
from frameworkcontroller.machine.reasons import Reason

_log: Final = logging.getLogger(__name__)


class EventRecorder:
    """Tells records of Frameworks."""

    def __init__(
        self,
        frameworks: Lister[FrameworkRecord],
        snapshot_logger: SnapshotLogger,
        *,
        events: EventBroadcaster | None = None,
    ) -> None:
        """``events`` None: none are made."""
        self._frameworks = frameworks
        self._snapshot_logger = snapshot_logger
        self._events = events

    def record(self, key: str, uid: str, records: Iterable[Record], *, trace: Exception | None = None) -> None:
        """What happened to that Framework. ``trace``: an error whose trace the log is to show, too."""
        records = list(records)
        for record in records:
            where = "" if record.role is None else f"[{record.role}][{record.index}]"
            level = logging.WARNING if record.warning else logging.INFO
            _log.log(level, "[%s]%s: %s: %s", key, where, record.reason, record.message, exc_info=trace)
        self.emit_events(key, uid, records)

    def record_unreadable(self, key: str, error: Exception, obj: dict[str, Any]) -> None:
        """That Framework cannot even be taken into the cache: nothing can be done for it, nor written to it."""
        uid = obj["metadata"].get("uid", "")
        text = f"The controller cannot read this Framework and leaves it alone: {error}"
        self.record(key, uid, [Record(Reason.QUARANTINED, text, warning=True)])

    def emit_events(self, key: str, uid: str, records: Iterable[Record]) -> None:
        """What the log has told before, by Events alone."""
        if self._events is not None:
            namespace, _, name = key.partition("/")
            self._events.broadcast(namespace, name, uid, records)

    def log_snapshots(self, key: str, uid: str, resource_version: str, snapshots: Iterable[Snapshot]) -> None:
        """Log snapshots of that Framework. ``resource_version``: of the object that held what they show."""
        framework = self._frameworks.get(key)
        if framework is None or framework.uid != uid:
            return
        self._snapshot_logger.log(framework, resource_version, snapshots)
