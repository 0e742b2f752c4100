"""A history's sink, and the checks of the archive-before-forget guarantee (H).

``ArchivedHistory`` is ``tests.support.history`` with a sink that stores, fails, hangs, answers twice, or stores and
gives no answer. After each change of the Framework, every attempt that was ever stored is in its status or, as it was
stored last, in the sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.status import Condition, State
from frameworkcontroller.machine.kernel.aside import Aside
from frameworkcontroller.machine.kernel.model import Limits, Snapshot, SnapshotTrigger
from frameworkcontroller.machine.kernel.protocol import Archive, Offer
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Kind, PatchFinalizers, Refused, Unanswered
from frameworkcontroller.machine.reconciler import Reconciler
from tests.support.driver import Controller
from tests.support.history import LIMITS, NAME, History
from tests.support.world import Body, Violation, World, is_deleting, name_of, uid_of

MODES: Final = ("stores", "fails", "hangs", "twice", "dies")
ARCHIVED: Final = replace(LIMITS, history=frozenset(SnapshotTrigger), history_blocks=True)
AttemptId = tuple[Any, ...]
"""UID and attempt of a Framework; of a Task also role, instance and attempt."""


@dataclass(slots=True)
class _Asked:
    controller: Controller
    machine: Reconciler | Aside
    uid: str
    archive: Archive


@dataclass(slots=True)
class Sink:
    """Where records are stored. ``mode``: one of MODES."""

    world: World
    mode: str = "stores"
    stored: dict[AttemptId, Any] = field(default_factory=dict)
    """The last content of each attempt."""
    requests: list[int] = field(default_factory=list)
    """The numbers of records of all requests."""
    offered: list[SnapshotTrigger] = field(default_factory=list)
    _asked: list[_Asked] = field(default_factory=list)

    def ask(self, controller: Controller, machine: Reconciler | Aside, archive: Archive) -> None:
        """A controller asks for records to be stored."""
        self.requests.append(len(archive.snapshots))
        self._asked.append(_Asked(controller, machine, machine.uid, archive))

    def offer(self, uid: str, offer: Offer) -> None:
        """A controller gives records, and wants no answer."""
        self.offered += [one.trigger for one in offer.snapshots]
        if self.mode != "fails":
            self._store(uid, offer.snapshots)

    def step(self) -> bool:
        """Answer one request, as the mode says. Return False without one."""
        if not self._asked or self.mode == "hangs":
            return False
        asked = self._asked.pop(0)
        answer: Answer = Answered(b"")
        if self.mode == "fails":
            answer = Refused(503, "the disk is full", b"")
        else:
            self._store(asked.uid, asked.archive.snapshots)
        if self.mode == "dies":
            answer = Unanswered("the connection was reset")
        self.world.tell(f"sink {self.mode}: {[one.trigger for one in asked.archive.snapshots]}")
        for _ in range(2 if self.mode == "twice" else 1):
            asked.machine.on_archived(asked.archive, answer)
        asked.controller.enqueue(asked.machine)
        return True

    def _store(self, uid: str, snapshots: Sequence[Snapshot]) -> None:
        for snapshot in snapshots:
            status = orjson.loads(snapshot.status_json)
            if snapshot.role is None:
                self.stored.update(attempts_in(uid, status))
            else:
                attempt = int(snapshot.annotations[names.FRAMEWORK_ATTEMPT_ID])
                self.stored[_task_id(uid, attempt, snapshot.role, status)] = status


def attempts_in(uid: str, status: Body) -> dict[AttemptId, Any]:
    """The attempts in a status. The content of a Framework's attempt excludes its Tasks."""
    attempt = status["attemptStatus"]
    of_tasks = {
        _task_id(uid, attempt["id"], role["name"], task): task
        for role in attempt["taskRoleStatuses"]
        for task in role["taskStatuses"]
    }
    return {(uid, attempt["id"]): {**attempt, "taskRoleStatuses": None}, **of_tasks}


def _task_id(uid: str, attempt: int, role: str, task: Body) -> AttemptId:
    return uid, attempt, role, task["instanceUID"], task["attemptStatus"]["id"]


class ArchivedHistory(History):
    """A history of a controller whose sink blocks."""

    def __init__(self, seed: int = 0, *, limits: Limits = ARCHIVED, **options: Any) -> None:
        super().__init__(seed, limits=limits, **options)
        self.sink = Sink(self.world)
        self.given_up: set[str] = set()
        """UIDs of Frameworks of which others have removed the finalizer, or that never had it."""
        self._persisted: dict[AttemptId, Any] = {}
        """What was last stored of each attempt that had begun."""
        self._looked_at = 0
        self._orphaned: set[str] = set()
        """UIDs of Frameworks whose objects were to stay."""
        self.others.append(self.sink.step)
        self.world.watchers.append(self._look)
        self.guarantees.on_finalizers = self._check_finalizers
        self.guarantees.on_creation = self._check_creation
        for controller in self.controllers:
            controller.sink = self.sink

    def _start(self, name: str) -> Controller:
        controller = super()._start(name)
        if hasattr(self, "sink"):
            controller.sink = self.sink
        return controller

    # --- checks ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        events = self.world.events[Kind.FRAMEWORK]
        for event in events[self._looked_at :]:
            body = orjson.loads(event.raw)
            uid, status = uid_of(body), body.get("status")
            now = attempts_in(uid, status) if status else {}
            kept = {} if event.removed else now
            if status and status["state"] != State.CREATION_PENDING:
                self._persisted |= now
            if uid not in self.given_up:
                self._check_archive(uid, kept)
        self._looked_at = len(events)

    def _check_archive(self, uid: str, kept: dict[AttemptId, Any]) -> None:
        for attempt, content in list(self._persisted.items()):
            if attempt[0] != uid or attempt in kept:
                continue
            archived = self.sink.stored.get(attempt)
            if archived != content:
                what = "not" if archived is None else f"in another state {orjson.dumps(archived).decode()}"
                text = f"H: {attempt} left the status, and is {what} in the archive: {orjson.dumps(content).decode()}"
                raise self.world.violation(text)

    def _check_finalizers(self, request: PatchFinalizers, framework: Body) -> None:
        if request.index is None or uid_of(framework) in self.given_up or not is_deleting(framework):
            return
        left = [name_of(one) for one in self._objects_of(uid_of(framework))]
        if left and not self.guarantees.loose:
            raise self.world.violation(f"H: the finalizer is removed while {left} exist")
        attempt = (uid_of(framework), framework["status"]["attemptStatus"]["id"])
        if attempt in self._persisted and attempt not in self.sink.stored:
            raise self.world.violation(f"H: the finalizer is removed before {attempt} is in the archive")

    def _check_creation(self, uid: str, kind: Kind) -> None:
        framework = self.framework
        if kind is not Kind.CONFIGMAP or framework is None or uid_of(framework) != uid or uid in self.given_up:
            return
        if names.HISTORY_FINALIZER not in framework["metadata"].get("finalizers", ()):
            raise self.world.violation("H: a ConfigMap is created before the finalizer is there")

    def _objects_of(self, uid: str) -> list[Body]:
        return [
            body
            for kind in (Kind.CONFIGMAP, Kind.POD)
            for body in self.world.objects[kind].values()
            if (body["metadata"].get("annotations") or {}).get(names.FRAMEWORK_UID) == uid
        ]

    @property
    def is_held(self) -> bool:
        """Whether the Framework has the finalizer."""
        return self.framework is not None and names.HISTORY_FINALIZER in self.framework["metadata"].get(
            "finalizers", ()
        )

    # --- what happens ------------------------------------------------------------------------------------------------

    def set_sink(self, mode: str) -> None:
        """From now on the sink works in this way."""
        self.world.tell(f"the sink {mode}")
        self.sink.mode = mode

    def step_sink(self, steps: int) -> None:
        """The sink answers some requests."""
        for _ in range(steps):
            if not self.sink.step():
                break

    def delete(self, *, foreground: bool) -> None:
        if self.framework is None or not self.is_held:
            if self.framework is not None:
                self.given_up.add(uid_of(self.framework))
            super().delete(foreground=foreground)
        else:
            self.world.tell(f"user: delete the Framework{' in the foreground' if foreground else ''}, which is held")
            self.world.delete(Kind.FRAMEWORK, NAME, foreground=foreground)

    def orphan(self) -> None:
        """The user deletes the Framework, and wants its objects to stay."""
        if self.framework is not None and self.is_held:
            self.world.tell("user: delete the Framework, orphaning what it owns")
            self._orphaned.add(uid_of(self.framework))
            for body in self.world.owned(Kind.CONFIGMAP, uid_of(self.framework)):
                self.world.edit(Kind.CONFIGMAP, name_of(body), lambda one: one["metadata"].update(ownerReferences=[]))
            self.world.delete(Kind.FRAMEWORK, NAME)

    def remove_finalizer(self) -> None:
        """A user removes the finalizer."""
        if self.framework is not None and self.is_held and uid_of(self.framework) not in self._orphaned:
            self.world.tell("somebody removes the finalizer")
            self.given_up.add(uid_of(self.framework))
            if is_deleting(self.framework):
                self.guarantees.abandoned.add(uid_of(self.framework))
            self.world.edit(Kind.FRAMEWORK, NAME, _let_go)

    # --- the fair end ------------------------------------------------------------------------------------------------

    def _says_what_is_awaited(self, told: Condition) -> bool:
        return "the history has not yet stored" in told.message or super()._says_what_is_awaited(told)

    def _mend(self) -> None:
        self.set_sink("stores")

    def _whatever_stands_in_the_way_is_told(self, *, alone: bool) -> None:
        super()._whatever_stands_in_the_way_is_told(alone=alone)
        self._mend()

    def end(self) -> None:
        """Faults stop: check that everything comes to its end, and the archive has it."""
        if self.framework is not None and is_deleting(self.framework):
            self._mend()
            self.lose_node(lost=False)
            self.set_quota(None)
            self.retreat()
            del self.controllers[1:]
            self._until("the deleted Framework goes", lambda: self.framework is None, step=lambda: None)
        elif self.spec is not None and self.spec.retry_policy.max_retry_count == -2:
            # If a role waits for another one without Tasks, it never comes to rest.
            self.set_retry(None, fancy=False, limit=0)
        self.finish()


def _let_go(body: Body) -> None:
    found = body["metadata"]["finalizers"]
    body["metadata"]["finalizers"] = [one for one in found if one != names.HISTORY_FINALIZER]


__all__ = ["ARCHIVED", "MODES", "ArchivedHistory", "Sink", "Violation"]
