"""Phases: what a person wants to know of the state of a Task."""

from __future__ import annotations

from enum import Enum
from typing import Final

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.status import State, TaskStatus

BEFORE_RUNNING: Final = frozenset({State.CREATION_PENDING, State.CREATION_REQUESTED, State.PREPARING})


class Phase(Enum):
    """A summary of a Task's state, its color, and its cell in bars; the most interesting one first."""

    FAILED = ("failed", "red", "x")
    WAITING = ("waiting", "yellow", "░")
    ENDING = ("ending", "magenta", "▒")
    RUNNING = ("running", "green", "▓")
    STOPPED = ("stopped", "dim", "-")
    SUCCEEDED = ("succeeded", "cyan", "█")

    def __init__(self, label: str, color: str, cell: str) -> None:
        self.label = label
        self.color = color
        self.cell = cell


def phase_of(task: TaskStatus) -> Phase:
    """Return the phase of a Task."""
    if task.state is State.COMPLETED:
        return completed_phase(task.attempt.completion_status)
    if task.state is State.RUNNING:
        return Phase.RUNNING
    backs_off = task.state is State.ATTEMPT_COMPLETED and task.retry.retry_delay_sec
    return Phase.WAITING if backs_off or task.state in BEFORE_RUNNING else Phase.ENDING


def completed_phase(completion: CompletionStatus | None) -> Phase:
    """Return the phase of a Task or Framework that has completed. One that was stopped has not failed."""
    if completion is None or completion.unexpected:
        return Phase.FAILED
    return Phase.SUCCEEDED if completion.succeeded else Phase.STOPPED
