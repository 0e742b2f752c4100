"""The attempts of a Framework and of its Tasks, from its status and from the history that controllers log.

A status has the last attempt of each Task and the number of earlier ones. The object snapshots in the controller's log
(docs/manual.md, "History") have the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError
from frameworkcontroller.api.completion import NEVER_RETRIED
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.commands.diagnosis import code_and_phrase
from frameworkcontroller.commands.summary import maybe_time, tasks_of

_MARK: Final = f": {names.SNAPSHOT_MARK}"


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt. Times are seconds since the epoch: ``run`` of its first run, ``end`` of its end, if it has ended."""

    attempt: int
    start: int
    run: int | None
    end: int | None
    outcome: str
    """``succeeded``, ``failed``, ``stopped``, or empty before its end."""
    text: str
    node: str = ""


@dataclass(slots=True)
class Row:
    """The attempts of a Task, or (``role`` empty) of the Framework. ``since``: its start, which a span may follow."""

    role: str
    index: int
    since: int
    retried: int = 0
    spans: dict[tuple[str, int], Span] = field(default_factory=dict)
    """By the UID of the Task or Framework, and the number of the attempt."""

    @property
    def ordered(self) -> list[Span]:
        """The attempts by time."""
        return sorted(self.spans.values(), key=lambda span: (span.start, span.attempt))


class AttemptHistory:
    """Collects the attempts of one Framework from objects and snapshots, in any order."""

    def __init__(self, namespace: str, name: str, uid: str) -> None:
        self.namespace = namespace
        self.name = name
        self._uid = uid
        self._rows: dict[tuple[str, int], Row] = {}

    @property
    def rows(self) -> list[Row]:
        """The row of the Framework, then those of each role by index."""
        roles: dict[str, int] = {"": 0}
        for role, _ in self._rows:
            roles.setdefault(role, len(roles))
        return [row for _, row in sorted(self._rows.items(), key=lambda item: (roles[item[0][0]], item[0][1]))]

    def add_framework(self, framework: Mapping[str, Any]) -> None:
        """Add a Framework, current or from a snapshot. Skip other Frameworks, and one without status.

        Raises:
            StatusError: its status is invalid.
        """
        if (framework.get("metadata") or {}).get("uid") != self._uid or not framework.get("status"):
            return
        status = framework["status"]
        try:
            attempt = status["attemptStatus"]
            self._add("", 0, self._uid, status, attempt)
            for role, task in tasks_of(attempt):
                self._add(role, task["index"], task["instanceUID"], task, task["attemptStatus"])
        except StatusError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StatusError(f"status: {type(error).__name__}: {error}") from None

    def add_log(self, lines: Iterable[str]) -> int:
        """Add the snapshots in a controller's log. Return the number of those of this Framework."""
        taken = 0
        for snapshot in _snapshots(lines):
            metadata = snapshot.get("metadata") or {}
            annotations = metadata.get("annotations") or {}
            if snapshot.get("kind") == names.KIND and metadata.get("uid") == self._uid:
                self.add_framework(snapshot)
                taken += 1
            elif snapshot.get("kind") == "Task" and annotations.get(names.FRAMEWORK_UID) == self._uid:
                role, index = annotations[names.TASKROLE_NAME], int(annotations[names.TASK_INDEX])
                status = snapshot["status"]
                self._add(role, index, status["instanceUID"], status, status["attemptStatus"])
                taken += 1
        return taken

    def _add(self, role: str, index: int, uid: str, whole: Mapping[str, Any], attempt: Mapping[str, Any]) -> None:
        since = parse_time(whole["startTime"])
        row = self._rows.setdefault((role, index), Row(role, index, since))
        row.since = min(row.since, since)
        row.retried = max(row.retried, (whole.get("retryPolicyStatus") or {}).get("totalRetriedCount") or 0)
        span = _span(attempt)
        known = row.spans.get((uid, span.attempt))
        # A snapshot with the end of the attempt is the last one.
        if known is None or known.end is None:
            row.spans[uid, span.attempt] = span


def _span(attempt: Mapping[str, Any]) -> Span:
    completion = attempt.get("completionStatus") or {}
    outcome, text = "", ""
    if completion:
        succeeded = (completion.get("type") or {}).get("name") == "Succeeded"
        stopped = completion["code"] in NEVER_RETRIED
        outcome = "succeeded" if succeeded else "stopped" if stopped else "failed"
        text = code_and_phrase(completion["code"], completion.get("phrase") or "")
    return Span(
        attempt["id"],
        parse_time(attempt["startTime"]),
        maybe_time(attempt.get("runTime")),
        maybe_time(attempt.get("completionTime")),
        outcome,
        text,
        attempt.get("podNodeName") or "",
    )


def _snapshots(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        _, mark, tail = line.rpartition(_MARK)
        if mark:
            try:
                found = orjson.loads(tail)
            except ValueError:
                continue  # cut off, as the last line of a copied log may be
            if isinstance(found, dict):
                yield found
