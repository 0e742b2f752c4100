"""Phases of Tasks: what a person wants to know of a Task, and groups of Tasks with the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from frameworkcontroller.api.completion import NEVER_RETRIED, CompletionStatus
from frameworkcontroller.api.status import State, TaskStatus


class Phase(Enum):
    """A summary of a Task's state; the most interesting one first."""

    FAILED = "failed"
    WAITING = "waiting"
    ENDING = "ending"
    RUNNING = "running"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"


COLORS: Final = {
    Phase.FAILED: "red",
    Phase.WAITING: "yellow",
    Phase.ENDING: "magenta",
    Phase.RUNNING: "green",
    Phase.STOPPED: "dim",
    Phase.SUCCEEDED: "cyan",
}

BEFORE_RUNNING: Final = frozenset({State.CREATION_PENDING, State.CREATION_REQUESTED, State.PREPARING})


def phase_of(task: TaskStatus) -> Phase:
    """Return the phase of a Task."""
    if task.state is State.COMPLETED:
        return completed_phase(task.attempt.completion_status)
    if task.state is State.RUNNING:
        return Phase.RUNNING
    if task.state is State.ATTEMPT_COMPLETED and task.retry.retry_delay_sec:
        return Phase.WAITING
    return Phase.WAITING if task.state in BEFORE_RUNNING else Phase.ENDING


def completed_phase(completion: CompletionStatus | None) -> Phase:
    """Return the phase of a Task or Framework that has completed. One that was stopped has not failed."""
    if completion is not None and completion.succeeded:
        return Phase.SUCCEEDED
    if completion is not None and completion.code in NEVER_RETRIED:
        return Phase.STOPPED
    return Phase.FAILED


def count(tasks: Iterable[TaskStatus]) -> Counter[Phase]:
    """Count Tasks by phase."""
    return Counter(phase_of(task) for task in tasks)


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks with the same text."""

    text: str
    tasks: list[TaskStatus]

    @property
    def indexes(self) -> str:
        """The indexes as ``0-3,7``."""
        return ranges([task.index for task in self.tasks])


def group(tasks: Sequence[TaskStatus], text_of: Callable[[TaskStatus], str]) -> list[Group]:
    """Group Tasks by phase, state and text; sort by phase, then by size."""
    found: dict[tuple[Phase, State, str], list[TaskStatus]] = {}
    for task in tasks:
        found.setdefault((phase_of(task), task.state, text_of(task)), []).append(task)
    order = list(Phase)
    ranked = sorted(found.items(), key=lambda item: (order.index(item[0][0]), -len(item[1]), item[1][0].index))
    return [Group(text, members) for (_, _, text), members in ranked]


def ranges(indexes: Sequence[int], most: int = 6) -> str:
    """Format ascending numbers as ``0-3,7``, with ``…`` after ``most`` ranges."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:most]]
    return ",".join(shown + ["…"] * (len(runs) > most))
