"""The event recorder: logs records of Frameworks and sends them as Events."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

from frameworkcontroller.controller.eventbroadcaster import EventBroadcaster
from frameworkcontroller.machine.model import Record
from frameworkcontroller.machine.quarantine import unreadable

_log: Final = logging.getLogger(__name__)


class EventRecorder:
    """Publishes records after the status that they are about is stored."""

    def __init__(self, events: EventBroadcaster | None) -> None:
        """``events`` None: no Events are sent."""
        self._events = events

    def record(
        self,
        key: str,
        uid: str,
        records: Collection[Record],
        *,
        log: bool = True,
        trace: Exception | None = None,
    ) -> None:
        """Send the Events of a Framework's records, and log them unless ``log`` is false.

        The log lines include the traceback of ``trace``.
        """
        for record in records if log else ():
            where = "" if record.role is None else f"[{record.role}][{record.index}]"
            level = logging.WARNING if record.warning else logging.INFO
            _log.log(level, "[%s]%s: %s: %s", key, where, record.reason, record.message, exc_info=trace)
        if self._events is not None:
            namespace, _, name = key.partition("/")
            self._events.broadcast(namespace, name, uid, records)

    def record_unreadable(self, key: str, error: Exception, obj: dict[str, Any]) -> None:
        """Record that a Framework cannot be decoded, and so is neither cached nor synced."""
        uid = obj["metadata"].get("uid", "")
        self.record(key, uid, [unreadable(error)])
