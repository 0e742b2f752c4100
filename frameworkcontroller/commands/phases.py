"""How the Tasks of a role stand: how many are in which standing, and of which the same is to be said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from frameworkcontroller.api.completion import NEVER_RETRIED, CompletionStatus
from frameworkcontroller.api.status import State, TaskStatus


class Standing(Enum):
    """In the order in which a person looks at them."""

    FAILED = "failed"
    WAITING = "waiting"
    ENDING = "ending"
    RUNNING = "running"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"


COLOURS: Final = {
    Standing.FAILED: "red",
    Standing.WAITING: "yellow",
    Standing.ENDING: "magenta",
    Standing.RUNNING: "green",
    Standing.STOPPED: "dim",
    Standing.SUCCEEDED: "cyan",
}

BEFORE_IT_RUNS: Final = frozenset({State.CREATION_PENDING, State.CREATION_REQUESTED, State.PREPARING})


def standing(task: TaskStatus) -> Standing:
    """What a person would say of the Task."""
    if task.state is State.COMPLETED:
        return ended_as(task.attempt.completion_status)
    if task.state is State.RUNNING:
        return Standing.RUNNING
    if task.state is State.ATTEMPT_COMPLETED and task.retry.retry_delay_sec:
        return Standing.WAITING
    return Standing.WAITING if task.state in BEFORE_IT_RUNS else Standing.ENDING


def ended_as(completion: CompletionStatus | None) -> Standing:
    """How something that has completed did so. What was stopped on purpose has not failed."""
    if completion is not None and completion.succeeded:
        return Standing.SUCCEEDED
    if completion is not None and completion.code in NEVER_RETRIED:
        return Standing.STOPPED
    return Standing.FAILED


def count(tasks: Iterable[TaskStatus]) -> Counter[Standing]:
    """How many are in which standing."""
    return Counter(standing(task) for task in tasks)


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks of which the same is to be said."""

    text: str
    tasks: list[TaskStatus]

    @property
    def indexes(self) -> str:
        """``0-3,7``."""
        return ranges([task.index for task in self.tasks])


def group(tasks: Sequence[TaskStatus], text_of: Callable[[TaskStatus], str]) -> list[Group]:
    """The Tasks by what is to be said of them, the most interesting first, then the most numerous."""
    found: dict[tuple[Standing, State, str], list[TaskStatus]] = {}
    for task in tasks:
        found.setdefault((standing(task), task.state, text_of(task)), []).append(task)
    order = list(Standing)
    ranked = sorted(found.items(), key=lambda item: (order.index(item[0][0]), -len(item[1]), item[1][0].index))
    return [Group(text, members) for (_, _, text), members in ranked]


def ranges(indexes: Sequence[int], most: int = 6) -> str:
    """Ascending numbers as ``0-3,7``; those after ``most`` ranges as ``…``."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    told = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:most]]
    return ",".join(told + ["…"] * (len(runs) > most))
