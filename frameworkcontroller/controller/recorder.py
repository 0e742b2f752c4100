"""The event recorder: logs records of Frameworks and sends them as Events; logs snapshots."""

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
    """Publishes records after the status that they are about is stored, and snapshots before their objects change."""

    def __init__(
        self,
        frameworks: Lister[FrameworkRecord],
        snapshots: SnapshotLogger,
        *,
        events: EventBroadcaster | None = None,
    ) -> None:
        """Without ``events``, no Events are sent."""
        self._frameworks = frameworks
        self._snapshots = snapshots
        self._events = events

    def record(self, key: str, uid: str, records: Iterable[Record], *, trace: Exception | None = None) -> None:
        """Log records of a Framework and send their Events. The log lines include the traceback of ``trace``."""
        records = list(records)
        for record in records:
            where = "" if record.role is None else f"[{record.role}][{record.index}]"
            level = logging.WARNING if record.warning else logging.INFO
            _log.log(level, "[%s]%s: %s: %s", key, where, record.reason, record.message, exc_info=trace)
        self.emit_events(key, uid, records)

    def record_unreadable(self, key: str, error: Exception, obj: dict[str, Any]) -> None:
        """Record that a Framework cannot be decoded, and so is neither cached nor synced."""
        uid = obj["metadata"].get("uid", "")
        text = f"The controller cannot read this Framework and leaves it alone: {error}"
        self.record(key, uid, [Record(Reason.QUARANTINED, text, warning=True)])

    def emit_events(self, key: str, uid: str, records: Iterable[Record]) -> None:
        """Send the Events of records that are in the log already."""
        if self._events is not None:
            namespace, _, name = key.partition("/")
            self._events.broadcast(namespace, name, uid, records)

    def log_snapshots(self, key: str, uid: str, resource_version: str, snapshots: Iterable[Snapshot]) -> None:
        """Log snapshots of a Framework. ``resource_version`` is that of the object with the status shown."""
        framework = self._frameworks.get(key)
        if framework is None or framework.uid != uid:
            return
        self._snapshots.log(framework, resource_version, snapshots)
