"""What the history has of a tracked status, and what it was asked to take.

In memory only: after a restart everything is sent again, under the same ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from frameworkcontroller.api.codec import encode_status, encode_task
from frameworkcontroller.api.status import FrameworkStatus, TaskStatus
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.model import Snapshot, SnapshotTrigger
from frameworkcontroller.machine.kernel.part import PartState
from frameworkcontroller.machine.kernel.tracker import Tracker


@dataclass(slots=True, eq=False)
class Archival(PartState):
    """The acknowledgments for one attempt of a Framework. A change of a status ends those for it (``on_change``)."""

    of_attempt: ClassVar[bool] = True
    listens: ClassVar[bool] = True

    framework_name: str = ""
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
    since: float | None = None
    """From when on (monotonic seconds) nothing has been acknowledged of what was asked for; None: nothing is left."""
    problem: str = ""
    """The last failure, in the words of the sink."""

    @property
    def is_open(self) -> bool:
        """Whether something is not acknowledged yet."""
        return bool(self.asked_tasks or self.asked_framework or self.retry or self.gated)

    def on_change(self, subject: FrameworkStatus | TaskStatus | None) -> None:
        if isinstance(subject, TaskStatus):
            self.tasks.discard(subject)
            self.asked_tasks.pop(subject, None)
            self.gated.discard(subject.key)
        self.framework.clear()
        self.asked_framework.clear()

    def on_index(self, tracker: Tracker) -> None:
        kept = set(tracker.tasks())
        self.tasks &= kept
        self.asked_tasks = {task: snapshot for task, snapshot in self.asked_tasks.items() if task in kept}
        keys = {task.key for task in kept}
        self.retry &= keys
        self.gated = {key for key in self.gated if key is None or key in keys}

    def on_tasks_over(self) -> None:
        """Only the record of the Framework counts from now on."""
        self.tasks.clear()
        self.asked_tasks.clear()
        self.retry.clear()
        self.gated &= {None}

    def successor(self, tracker: Tracker, before: Tracker) -> Archival | None:
        """The acknowledgments of statuses that another controller has left as they were.

        Conditions do not count: no attempt is in them.
        """
        status, was, name = tracker.status, before.status, self.framework_name
        if status is None or was is None:
            return None
        if (status.attempt.id, status.attempt.configmap_uid) != (was.attempt.id, was.attempt.configmap_uid):
            return None
        kept = Archival(name)
        for task in self.tasks:
            now = tracker.task(task.key)
            if now is not None and encode_task(name, now.role, now) == encode_task(name, task.role, task):
                kept.tasks.add(now)
        if self.framework and _without_conditions(name, status) == _without_conditions(name, was):
            kept.framework = set(self.framework)
        return kept


def _without_conditions(name: str, status: FrameworkStatus) -> bytes:
    return encode_status(name, replace(status, conditions=[], observed_generation=None))


@dataclass(slots=True, eq=False)
class ArchiveMemory(PartState):
    """What this process knows of a Framework and its history over all attempts."""

    looked_back: bool = False
    """Whether the stall that the stored status may show is taken over."""
    finalizer_outdated: bool = False
    """True after a patch of the finalizer failed, apparently by its precondition."""
    unreported: bool = False
    """Whether the completion of the Framework is to be offered, once that is persisted."""
