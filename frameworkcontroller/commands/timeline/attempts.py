"""The attempts of a Framework and of its Tasks, from its status and from the history that controllers log.

A status knows the last attempt of each Task alone, and how many there were before. The object snapshots in the
controller's log (docs/manual.md, "History") know those before.
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
from frameworkcontroller.commands.humanize import code_and_phrase_of
from frameworkcontroller.commands.summary import tasks_of

_MARK: Final = ": ObjectSnapshot: "


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt. Times are seconds since the epoch: ``run`` when it first ran, ``end`` None while it goes on."""

    attempt: int
    start: int
    run: int | None
    end: int | None
    outcome: str
    """``succeeded``, ``failed``, ``stopped``, or empty while it goes on."""
    text: str
    node: str = ""


@dataclass(slots=True)
class Row:
    """What happened to one Task, or (``role`` empty) to the Framework. ``since``: when it began, maybe long before."""

    role: str
    index: int
    since: int
    retried: int = 0
    spans: dict[tuple[str, int], Span] = field(default_factory=dict)
    """By the UID of what it is an attempt of, and its number."""

    @property
    def ordered(self) -> list[Span]:
        """The attempts in the order of time."""
        return sorted(self.spans.values(), key=lambda span: (span.start, span.attempt))


class Chronicle:
    """Takes in what is known of one Framework, piece by piece and in any order."""

    def __init__(self, namespace: str, name: str, uid: str) -> None:
        self.namespace = namespace
        self.name = name
        self._uid = uid
        self._rows: dict[tuple[str, int], Row] = {}

    @property
    def rows(self) -> list[Row]:
        """The Framework's first, then each role's in order of index."""
        roles: dict[str, int] = {"": 0}
        for role, _ in self._rows:
            roles.setdefault(role, len(roles))
        return [row for _, row in sorted(self._rows.items(), key=lambda item: (roles[item[0][0]], item[0][1]))]

    def take_framework(self, framework: Mapping[str, Any]) -> None:
        """A Framework, as it is or as a snapshot has it. Other Frameworks, and one without status, are passed over.

        Raises:
            StatusError: its status is not one.
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

    def take_log(self, lines: Iterable[str]) -> int:
        """The snapshots in a controller's log. Returns how many were of this Framework."""
        taken = 0
        for snapshot in _snapshots(lines):
            metadata = snapshot.get("metadata") or {}
            annotations = metadata.get("annotations") or {}
            if snapshot.get("kind") == names.KIND and metadata.get("uid") == self._uid:
                self.take_framework(snapshot)
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
        # Of the same attempt, what was seen later knows how it ended.
        if known is None or known.end is None:
            row.spans[uid, span.attempt] = span


def _span(attempt: Mapping[str, Any]) -> Span:
    completion = attempt.get("completionStatus") or {}
    outcome, text = "", ""
    if completion:
        succeeded = (completion.get("type") or {}).get("name") == "Succeeded"
        stopped = completion["code"] in NEVER_RETRIED
        outcome = "succeeded" if succeeded else "stopped" if stopped else "failed"
        text = code_and_phrase_of(completion["code"], completion.get("phrase") or "")
    return Span(
        attempt["id"],
        parse_time(attempt["startTime"]),
        _time(attempt.get("runTime")),
        _time(attempt.get("completionTime")),
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
                continue  # cut off, as the last line of a copied log is
            if isinstance(found, dict):
                yield found


def _time(text: str | None) -> int | None:
    return None if text is None else parse_time(text)
