"""The base of the state of a part that counts the Tasks with a ready Pod. Costs the number of changes, not of Tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine.kernel.part import PartState
from frameworkcontroller.machine.kernel.tracker import Tracker


class ReadyTasks(PartState):
    """The Tasks of the watched roles that run with a ready Pod and are not deletionPending."""

    __slots__ = ("ready",)
    listens: ClassVar[bool] = True

    def __init__(self) -> None:
        self.ready: dict[str, set[int]] = {}
        """The indexes of such Tasks by watched role."""

    def watch(self, tracker: Tracker, roles: Iterable[str]) -> None:
        """Count the ready Pods of these roles only. Puts the Tasks of new ones on the agenda."""
        before, wanted = self.ready, {role for role in roles if role in tracker.roles}
        if before.keys() == wanted:
            return
        self.ready = {role: before.get(role, set()) for role in wanted}
        for role in wanted - before.keys():
            tracker.agenda.wake(task.key for task in tracker.roles[role].tasks)

    def observe(self, task: TaskStatus, pod: PodRecord) -> None:
        """Note whether the Pod of a Task, which is not being deleted, is ready, if its role is watched."""
        if (indexes := self.ready.get(task.role)) is not None:
            (indexes.add if pod.ready and _may_be_ready(task) else indexes.discard)(task.index)

    def on_move(self, tracker: Tracker, task: TaskStatus) -> None:
        if (indexes := self.ready.get(task.role)) is not None and not _may_be_ready(task):
            indexes.discard(task.index)

    def on_index(self, tracker: Tracker) -> None:
        if self.ready:
            self.watch(tracker, self.ready)

    def on_tasks_over(self) -> None:
        self.ready.clear()


def _may_be_ready(task: TaskStatus) -> bool:
    return task.state is State.RUNNING and not task.is_leaving
