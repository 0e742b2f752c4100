"""What the history has of a tracked status, and what it was asked to take.

In memory only: after a restart everything is sent again, under the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.model import Snapshot, SnapshotTrigger


@dataclass(slots=True)
class Archival:
    """The acknowledgments for one attempt of a Framework. A change of a status ends those for it (``changed``)."""

    tasks: set[TaskStatus] = field(default_factory=set)
    """Tasks whose persisted attempt is acknowledged."""
    framework: set[SnapshotTrigger] = field(default_factory=set)
    """Triggers for which the persisted Framework is acknowledged."""
    asked_tasks: dict[TaskStatus, Snapshot] = field(default_factory=dict)
    asked_framework: dict[SnapshotTrigger, Snapshot] = field(default_factory=dict)
    due: list[tuple[Snapshot, TaskStatus | None]] = field(default_factory=list)
    """What the current plan asks for. Task: None for the Framework."""
    gated: set[TaskKey | None] = field(default_factory=set)
    """Tasks, or the Framework (None), that wait for an acknowledgment and for nothing else."""
    retry: set[TaskKey] = field(default_factory=set)
    """Tasks to be asked for again after the back-off."""
    blocked: bool = False
    """Whether to plan the Framework again once its status is persisted."""
    since: float | None = None
    """From when on (monotonic seconds) nothing has been acknowledged of what was asked for; None: nothing is left."""
    problem: str = ""
    """What the sink has said last."""
    looked_back: bool = False
    """Whether the stall that the stored status may show is taken over."""

    def changed(self, subject: object) -> None:
        """The status of a Task, or of the Framework, is no longer the one that was asked for."""
        if isinstance(subject, TaskStatus):
            self.tasks.discard(subject)
            self.asked_tasks.pop(subject, None)
            self.gated.discard(subject.key)
        self.framework.clear()
        self.asked_framework.clear()

    def keep(self, tasks: Iterable[TaskStatus]) -> None:
        """Forget Tasks that no longer exist."""
        kept = set(tasks)
        self.tasks &= kept
        self.asked_tasks = {task: snapshot for task, snapshot in self.asked_tasks.items() if task in kept}
        keys = {task.key for task in kept}
        self.retry &= keys
        self.gated = {key for key in self.gated if key is None or key in keys}

    @property
    def is_open(self) -> bool:
        """Whether something is not acknowledged yet."""
        return bool(self.asked_tasks or self.asked_framework or self.retry or self.gated)

    def forget_tasks(self) -> None:
        """Forget the Tasks: the attempt of the Framework is over, and only its own record counts."""
        self.tasks.clear()
        self.asked_tasks.clear()
        self.retry.clear()
        self.gated &= {None}

    def forget(self) -> None:
        """Forget the attempt, which another one replaces."""
        for known in (self.tasks, self.framework, self.asked_tasks, self.asked_framework, self.gated, self.retry):
            known.clear()
        self.due.clear()
        self.blocked, self.since, self.problem = False, None, ""
