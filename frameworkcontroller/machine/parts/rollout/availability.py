"""Which Tasks of a role are available, and which have its template. Costs the number of changes, not of Tasks."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.status import State, TaskRoleStatus, TaskStatus
from frameworkcontroller.machine.kernel.model import Env, Urgency
from frameworkcontroller.machine.kernel.part import PartState
from frameworkcontroller.machine.kernel.tracker import Tracker

_WITH_POD = (State.PREPARING, State.RUNNING)


class Watched(NamedTuple):
    """The settings of a watched role. ``template``: the hash of its template, "" without RollingUpdate."""

    template: str
    min_ready_seconds: int


class _ReadyPod(NamedTuple):
    """``since``: as its kubelet says. ``available_at``: monotonic seconds."""

    uid: str
    since: int | None
    available_at: float


class RoleTasks:
    """The Tasks of one role, by index, without those that are deletionPending."""

    __slots__ = ("_unready", "available", "completed", "old", "outgoing", "ready", "updated", "watched")

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.ready: dict[int, _ReadyPod] = {}
        self.available: set[int] = set()
        """Ready for ``min_ready_seconds``."""
        self.updated: set[int] = set()
        """Their attempt has the template."""
        self.old: set[int] = set()
        """They have a Pod of another template."""
        self.outgoing: set[int] = set()
        """Their attempt has another template, and they are not completed. It may end already."""
        self.completed: set[int] = set()
        self._unready: dict[int, str] = {}
        """The UIDs of Pods that this process has seen before they were ready."""

    def due(self, unavailable: int, limit: int, partition: int) -> list[int]:
        """The Tasks to replace now, in order. ``unavailable``: the number of Tasks that are not available.

        A Task whose Pod is not ready costs no availability, and goes first; then at most ``limit`` Tasks are between
        two templates. Any other goes while fewer than ``limit`` other Tasks are not available.
        """
        idle = [index for index in self.old if index not in self.available]
        room = limit - (unavailable - len(idle))
        down = (index for index in idle if index >= partition and index not in self.ready)
        found = heapq.nlargest(room, down) if room > 0 else []
        if unavailable < limit or (unavailable == limit and len(self.ready) > len(self.available)):
            up = (index for index in self.old if index >= partition and index in self.ready)
            for index in heapq.nlargest(limit, up):
                is_available = index in self.available
                if unavailable - (not is_available) >= limit:
                    break
                found.append(index)
                unavailable += is_available
        return found

    def outdated(self, task_number: int, partition: int) -> int:
        """The number of Tasks from ``partition`` on that neither have the template nor are completed."""
        done = self.updated | self.completed
        if partition:
            done = {index for index in done if index >= partition}
        return max(0, task_number - partition - len(done))

    def observe(self, tracker: Tracker, task: TaskStatus, pod: PodRecord, env: Env) -> None:
        """Note the state of the Pod of a Task, which is prepared or runs."""
        index = task.index
        if self.watched.template:
            is_updated = task.attempt.template_hash == self.watched.template
            (self.updated if is_updated else self.old).add(index)
            (self.old if is_updated else self.updated).discard(index)
            (self.outgoing.discard if is_updated else self.outgoing.add)(index)
        if not pod.ready or task.state is not State.RUNNING:
            self.ready.pop(index, None)
            self.available.discard(index)
            self._unready[index] = pod.uid
            return
        known = self.ready.get(index)
        if known is None or (known.uid, known.since) != (pod.uid, pod.ready_time):
            known = self.ready[index] = _ReadyPod(pod.uid, pod.ready_time, self._available_at(task, pod, env))
            self.available.discard(index)
        if known.available_at <= env.clock:
            self.available.add(index)
        else:
            tracker.agenda.look(task.key, known.available_at)

    def _available_at(self, task: TaskStatus, pod: PodRecord, env: Env) -> float:
        """When a Pod that has become ready is available, in monotonic seconds.

        By this process's own clock if it has seen the Pod become ready. Else, as after a restart, by the kubelet's,
        which may be wrong, but not before the Pod ran.
        """
        seconds = self.watched.min_ready_seconds
        was_seen = task.index in self.ready or self._unready.get(task.index) == pod.uid
        if was_seen or pod.ready_time is None:
            return env.clock + seconds
        since = max(pod.ready_time, task.attempt.run_time or task.attempt.start_time)
        return env.clock + max(0.0, min(since + seconds - env.now, seconds))

    def forget(self, index: int) -> None:
        """Forget the Pod of a Task."""
        self.ready.pop(index, None)
        self._unready.pop(index, None)
        self.available.discard(index)
        self.old.discard(index)

    def move(self, task: TaskStatus) -> None:
        """Note that a Task has moved to another state, or became deletionPending."""
        index = task.index
        if task.state in _WITH_POD and not task.is_leaving:
            return
        self.forget(index)
        if task.is_leaving or task.state is State.CREATION_PENDING:
            self.updated.discard(index)
            self.outgoing.discard(index)
            self.completed.discard(index)
        elif task.state is State.COMPLETED:
            self.outgoing.discard(index)
            self.completed.add(index)


class Availability(PartState):
    """The Tasks of the roles whose ready Tasks are counted."""

    __slots__ = ("before", "roles")
    of_attempt: ClassVar[bool] = True
    listens: ClassVar[bool] = True

    def __init__(self) -> None:
        self.roles: dict[str, RoleTasks] = {}
        self.before: dict[tuple[str, int], str] = {}
        """By attempt of a Task whose role got RollingUpdate since, the hash of the template before."""

    def watch(self, tracker: Tracker, wanted: Mapping[str, Watched]) -> None:
        """Count the Tasks of these roles only. Puts the Tasks of new and changed ones on the agenda."""
        for name in self.roles.keys() - wanted.keys():
            del self.roles[name]
        for name, watched in wanted.items():
            known = self.roles.get(name)
            if known is not None and known.watched == watched:
                continue
            made = self.roles[name] = RoleTasks(watched)
            for task in tracker.roles[name].tasks:
                if task.is_leaving:
                    continue
                if watched.template and task.attempt.template_hash:
                    is_updated = task.attempt.template_hash == watched.template
                    (made.updated if is_updated else made.outgoing).add(task.index)
                made.move(task)
            tracker.agenda.wake(task.key for task in tracker.roles[name].tasks)

    def observe(self, tracker: Tracker, task: TaskStatus, pod: PodRecord, env: Env) -> None:
        """Note the state of the Pod of a Task, and record its template, if its role is watched."""
        role = self.roles.get(task.role)
        if role is None or task.is_leaving or task.state not in _WITH_POD:
            return
        if role.watched.template and not task.attempt.template_hash:
            # A Pod without the label was created before the role had RollingUpdate.
            before = self.before.get(task.attempt_key, role.watched.template)
            task.attempt.template_hash = pod.template_hash or before
            tracker.change(task, Urgency.LATER, of_attempt=False)
        role.observe(tracker, task, pod, env)

    @staticmethod
    def show(tracker: Tracker, role: TaskRoleStatus, ready: int | None, updated: int | None) -> None:
        """Set the counts of a role. They are written with other changes, or after a second."""
        if (role.ready_task_count, role.updated_task_count) != (ready, updated):
            role.ready_task_count, role.updated_task_count = ready, updated
            tracker.urgency = max(tracker.urgency, Urgency.LATER)

    def on_move(self, tracker: Tracker, task: TaskStatus) -> None:
        if (role := self.roles.get(task.role)) is not None:
            role.move(task)

    def on_index(self, tracker: Tracker) -> None:
        for name in self.roles.keys() - tracker.roles.keys():
            del self.roles[name]

    def on_tasks_over(self) -> None:
        self.roles.clear()

    def successor(self, tracker: Tracker, before: Tracker) -> Availability:
        made = Availability()
        made.before = self.before
        return made
