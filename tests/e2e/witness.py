"""C1 to C4, checked on the files that containers write while they run.

Every container appends a line a second to a file of its own in a folder that all nodes share (witness.sh). An instance
certainly ran from its first line to its last one, so each overlap that is reported here is real.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

_OVER: Final = ("AttemptCompleted", "Completed")


@dataclass(frozen=True)
class Instance:
    """One instance of a Task, that is one Pod, as its containers saw it. Times: seconds since the machine's start."""

    namespace: str
    framework: str
    framework_uid: str
    framework_attempt: int
    pod: str
    task_uid: str
    task_attempt: int
    uid: str
    first: float
    last: float
    words: tuple[tuple[float, str], ...]

    def said(self, word: str) -> list[float]:
        """When it wrote the word."""
        return [at for at, one in self.words if one == word]

    def __str__(self) -> str:
        return (
            f"{self.namespace}/{self.pod} {self.uid} (attempt {self.framework_attempt} of {self.framework},"
            f" TaskAttempt {self.task_attempt}), which wrote from {self.first:.2f} to {self.last:.2f}"
        )


@dataclass(frozen=True)
class Stored:
    """A status of a Framework that was there at that time at the latest; None: the Framework is gone."""

    at: float
    uid: str
    status: Json | None


def read_instances(folder: Path) -> list[Instance]:
    """The lines that all containers in a namespace have written so far."""
    found: dict[str, tuple[list[str], list[tuple[float, str]]]] = {}
    for file in sorted(folder.glob("[0-9]*")):
        head, *lines = file.read_text().split("\n")
        if not lines:
            continue  # it begins just now
        marks = head.split(" ")
        # The last piece follows the last line break: it is empty, or a line in progress.
        words = [(float(at), word) for at, word in (line.split(" ") for line in lines[:-1])]
        found.setdefault(marks[-1], (marks, []))[1].extend(words)
    return sorted(
        (
            Instance(
                namespace=marks[0],
                framework=marks[1],
                framework_uid=marks[2],
                framework_attempt=int(marks[3]),
                pod=marks[4],
                task_uid=marks[5],
                task_attempt=int(marks[6]),
                uid=marks[7],
                first=min(words)[0],
                last=max(words)[0],
                words=tuple(sorted(words)),
            )
            for marks, words in found.values()
            if words
        ),
        key=lambda one: one.first,
    )


def overlaps(instances: Iterable[Instance]) -> list[str]:
    """Violations of C1 and C3: instances that ran at the same time and must not."""
    wrong = []
    ordered = sorted(instances, key=lambda one: one.first)
    for index, one in enumerate(ordered):
        for other in ordered[index + 1 :]:
            if other.first >= one.last:
                break
            if one.framework_uid != other.framework_uid:
                continue
            seconds = min(one.last, other.last) - other.first
            if one.pod == other.pod:
                wrong.append(f"C1: two instances of a Task for {seconds:.2f} s: {one}; {other}")
            elif one.framework_attempt != other.framework_attempt:
                wrong.append(f"C3: two attempts of a Framework for {seconds:.2f} s: {one}; {other}")
    return wrong


def outlived(instances: Iterable[Instance], history: Sequence[Stored]) -> list[str]:
    """Violations of C2 and C4: instances that wrote after a status was there by which they do not run."""
    wrong = []
    by_framework: dict[str, list[Stored]] = {}
    for stored in history:
        by_framework.setdefault(stored.uid, []).append(stored)
    for one in instances:
        known = False
        for stored in by_framework.get(one.framework_uid, ()):
            task = _task_of(one, stored.status)
            known = known or task is not None
            if not one.first <= stored.at < one.last:
                continue
            if (why := _why_not(one, stored.status, task, known)) is not None:
                wrong.append(f"{why}, {one.last - stored.at:.2f} s before the last line of {one}")
                break
    return wrong


def _task_of(one: Instance, status: Json | None) -> Json | None:
    roles = [] if status is None else status["attemptStatus"]["taskRoleStatuses"]
    tasks = (task for role in roles for task in role["taskStatuses"])
    return next((task for task in tasks if task["instanceUID"] == one.task_uid), None)


def _why_not(one: Instance, status: Json | None, task: Json | None, known: bool) -> str | None:
    """Why the instance cannot run by this status, which may have been read late; None if it may."""
    if status is None:
        return "C2/C4: the Framework is gone"
    number, state = status["attemptStatus"]["id"], status["state"]
    if number > one.framework_attempt or (number == one.framework_attempt and state in _OVER):
        return f"C4: the Framework is {state} in attempt {number}"
    if task is None:
        return "C2: the Task is deleted" if known else None
    number, state = task["attemptStatus"]["id"], task["state"]
    if number > one.task_attempt or (number == one.task_attempt and state in _OVER):
        return f"C2: the Task is {state} in attempt {number}"
    return None
