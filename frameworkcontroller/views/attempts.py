"""The attempts of a Framework and of its Tasks, from its status and from the history that controllers log.

A status has the last attempt of each Task and the number of earlier ones. The object snapshots in the controller's log
(docs/history-records.md) have the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status, decode_task
from frameworkcontroller.api.status import FrameworkAttemptStatus, FrameworkStatus, TaskAttemptStatus, TaskStatus

Attempt: TypeAlias = FrameworkAttemptStatus | TaskAttemptStatus

_MARK: Final = f": {names.SNAPSHOT_MARK}"


@dataclass(slots=True)
class Row:
    """The attempts of a Task, or (``role`` empty) of the Framework. ``since``: its start, maybe before the attempts."""

    role: str
    index: int
    since: int
    retried: int = 0
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    """By the UID of the Task or Framework, and the number of the attempt."""

    @property
    def ordered(self) -> list[Attempt]:
        """The attempts by time."""
        return sorted(self.attempts.values(), key=lambda attempt: (attempt.start_time, attempt.id))


class AttemptHistory:
    """Collects the attempts of one Framework from objects and snapshots, in any order."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._rows: dict[tuple[str, int], Row] = {}

    @property
    def rows(self) -> list[Row]:
        """The row of the Framework, then the Tasks by role and index."""
        roles: dict[str, int] = {"": 0}
        for role, _ in self._rows:
            roles.setdefault(role, len(roles))
        return [row for _, row in sorted(self._rows.items(), key=lambda item: (roles[item[0][0]], item[0][1]))]

    def add_framework(self, framework: Mapping[str, Any]) -> None:
        """Add the Framework, current or from a snapshot. Skip it without status.

        Raises:
            StatusError: its status is invalid.
        """
        status = decode_status(framework.get("status"))
        if status is not None:
            self.add_status(status)
            status.attempt.roles = []

    def add_status(self, status: FrameworkStatus) -> None:
        """Add the attempts in a status of the Framework."""
        self._add("", 0, self._uid, status)
        for role in status.attempt.roles:
            for task in role.tasks:
                self.add_task(role.name, task)

    def add_task(self, role: str, task: TaskStatus) -> None:
        """Add an attempt of a Task."""
        self._add(role, task.index, task.instance_uid, task)

    def add_framework_attempt(self, attempt: FrameworkAttemptStatus) -> None:
        """Add an attempt of the Framework from other data than a status, which takes precedence."""
        row = self._rows.setdefault(("", 0), Row("", 0, attempt.start_time))
        row.since = min(row.since, attempt.start_time)
        row.attempts.setdefault((self._uid, attempt.id), attempt)

    def add_log(self, lines: Iterable[str]) -> int:
        """Add the snapshots of this Framework in a controller's log. Return their number."""
        taken = 0
        for line in lines:
            _, mark, tail = line.rpartition(_MARK)
            try:
                snapshot = orjson.loads(tail) if mark else None
            except ValueError:
                continue  # cut off, as the last line of a copied log may be
            if not isinstance(snapshot, dict):
                continue
            metadata = snapshot.get("metadata") or {}
            annotations = metadata.get("annotations") or {}
            if snapshot.get("kind") == names.KIND and metadata.get("uid") == self._uid:
                self.add_framework(snapshot)
                taken += 1
            elif snapshot.get("kind") == "Task" and annotations.get(names.FRAMEWORK_UID) == self._uid:
                task = decode_task(snapshot["status"])
                self._add(annotations[names.TASKROLE_NAME], task.index, task.instance_uid, task)
                taken += 1
        return taken

    def _add(self, role: str, index: int, uid: str, status: FrameworkStatus | TaskStatus) -> None:
        row = self._rows.setdefault((role, index), Row(role, index, status.start_time))
        row.since = min(row.since, status.start_time)
        row.retried = max(row.retried, status.retry.total_retried_count)
        key = uid, status.attempt.id
        # A snapshot with the end of the attempt is the last one.
        if key not in row.attempts or row.attempts[key].completion_time is None:
            row.attempts[key] = status.attempt
