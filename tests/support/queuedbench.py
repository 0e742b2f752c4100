"""A Framework of ``tests.support.bench`` in a queue of Kueue: its Workload as it is, and as the cache shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework, QueueLabels
from frameworkcontroller.api.workloads import workload_name, workload_record
from frameworkcontroller.machine.kernel.actions import Action, Delete, PartAction, Patch, carry_out
from frameworkcontroller.machine.kernel.exchanges import Accepted, Result
from frameworkcontroller.machine.kernel.outcomes import drop
from frameworkcontroller.machine.kernel.requests import Answer, Kind, MergePatch, Request, Target
from frameworkcontroller.machine.parts import PARTS
from frameworkcontroller.machine.parts.kueue.queueing import Queueing
from tests.support.bench import UID, Bench, Body, limits, role
from tests.support.kueue import set_condition
from tests.support.world import ApiRefusal, World

NAME = workload_name("f", UID)
TARGET = Target(Kind.WORKLOAD, NAME)


class QueuedBench(Bench):
    """A Framework with the label of the queue ``team-a``."""

    def __init__(self, *roles: Body, **options: Any) -> None:
        super().__init__(*(roles or (role(),)), limit=replace(limits(), kueue=True), **options)
        self.queue: QueueLabels | None = QueueLabels("team-a")
        self.world = World()
        self.classes: dict[str, int] = {}
        self.flavors: dict[str, Body] = {"gold": {"nodeLabels": {"flavor": "gold"}}}
        self.requests: list[Request] = []
        self.refuses: Callable[[Body], str | None] = lambda _: None
        """Why a webhook refuses that patch of the Workload, None if it does not."""

    @property
    def framework(self) -> Framework:
        """The Framework with its labels."""
        return replace(super().framework, queue=self.queue)

    # --- the API server ---

    def perform(self, action: Action, *, write: bool = True) -> Result:
        """Carry an action on the Workload out, and fold its outcome."""
        result = self._carry_out(action)
        self.fold(action, result, write=write)
        return result

    def _carry_out(self, action: Action) -> Result:
        exchange = carry_out(action)
        try:
            request = next(exchange)
            while True:
                self.requests.append(request)
                request = exchange.send(self._answer(request))
        except StopIteration as end:
            result: Result = end.value
            return result

    def _answer(self, request: Request) -> Answer:
        world = self.world
        world.now = self.now
        world.objects[Kind.RESOURCE_FLAVOR] = {
            name: {"metadata": {"name": name}, "spec": spec} for name, spec in self.flavors.items()
        }
        world.objects[Kind.WORKLOAD_PRIORITY_CLASS] = world.objects[Kind.PRIORITY_CLASS] = {
            name: {"metadata": {"name": name}, "value": value} for name, value in self.classes.items()
        }
        if isinstance(request, MergePatch) and (why := self.refuses(orjson.loads(request.body))) is not None:
            return ApiRefusal(403, "Forbidden", why).answer
        return world.answer(request)

    @property
    def live(self) -> Body | None:
        """The Workload."""
        return self.world.objects[Kind.WORKLOAD].get(NAME)

    @live.setter
    def live(self, body: Body | None) -> None:
        self.world.objects[Kind.WORKLOAD] = {} if body is None else {NAME: body}

    def changed(self) -> Body:
        """The Workload has another version."""
        self.world.edit(Kind.WORKLOAD, NAME, lambda _: None)
        assert self.live is not None
        return self.live

    # --- Kueue, and the cache ---

    def see(self) -> None:
        """The cache shows the Workload as it is, if it has the label by which it is watched."""
        before = self.services.pop(NAME, None)
        is_watched = self.live is not None and names.FRAMEWORK_NAME in self.live["metadata"].get("labels", ())
        if before is not None and (self.live is None or not is_watched or self.live["metadata"]["uid"] != before.uid):
            drop(PARTS, self.tracker, TARGET, before.uid)
        if self.live is not None and is_watched:
            self.services[NAME] = workload_record(self.live)
            self.tracker.part(Queueing).known = True

    def say(self, *conditions: tuple[str, bool, str, str], see: bool = True, **status: Any) -> None:
        """Kueue sets conditions, and other fields of the status."""
        assert self.live is not None
        found = self.live.setdefault("status", {})
        found.update(status)
        for kind, holds, reason, message in conditions:
            set_condition(found, kind, holds, reason, message, self.now)
        self.changed()
        if see:
            self.see()

    def admit(self, *, see: bool = True, **assigned: Any) -> None:
        """Kueue admits the Workload. ``assigned``: more fields of the assignment of each podSet."""
        assert self.live is not None
        assignments = [
            {"name": one["name"], "count": one["count"], "flavors": {"cpu": "gold"}, **assigned}
            for one in self.live["spec"]["podSets"]
        ]
        self.say(
            ("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue cq"),
            ("Admitted", True, "Admitted", "The workload is admitted"),
            ("Evicted", False, "QuotaReserved", ""),
            see=see,
            admission={"clusterQueue": "cq", "podSetAssignments": assignments},
        )

    def admit_then_settle(self, **assigned: Any) -> None:
        """Kueue admits the Workload, and all that follows is done."""
        self.admit(**assigned)
        self.settle()

    def evict_then_settle(self, reason: str = "Preempted") -> None:
        """Kueue asks for the quota, and all that follows is done."""
        self.evict(reason)
        self.settle()

    def found(self, kind: str) -> tuple[str, str] | None:
        """Status and reason of a condition of the Workload."""
        conditions = live(self).get("status", {}).get("conditions", [])
        return next(((one["status"], one["reason"]) for one in conditions if one["type"] == kind), None)

    def say_then_plan(self, *conditions: tuple[str, bool, str, str], **status: Any) -> None:
        """Kueue sets conditions, and other fields of the status, and a plan follows."""
        self.say(*conditions, **status)
        self.plan()

    def changed_and_seen(self) -> None:
        """The Workload has another version, which the cache shows."""
        self.changed()
        self.see()

    def evict(self, reason: str = "Preempted", *, see: bool = True) -> None:
        """Kueue asks for the quota."""
        self.say(("Evicted", True, reason, f"evicted for {reason}"), see=see)

    def delete_workload(self, *, see: bool = True) -> None:
        """A user deletes the Workload, which its finalizer holds."""
        self.world.now = self.now
        self.world.delete(Kind.WORKLOAD, NAME)
        if see:
            self.see()

    # --- walking on ---

    def do(self, action: Action) -> bool:
        """Carry an action on the Workload out, which the cache shows at once. Return False for others."""
        if isinstance(action, Delete) and action.target == TARGET:
            self.delete_workload(see=False)
            self.fold(action, Accepted())
        elif isinstance(action, PartAction) or (isinstance(action, Patch) and action.target == TARGET):
            self.perform(action)
        else:
            return False
        self.see()
        return True

    def act(self) -> list[str]:
        """Plan, and carry out the actions on the Workload; their names."""
        made = self.plan()
        for action in made.actions:
            self.do(action)
        return [type(action).__name__ for action in made.actions]

    def run(self, name: str = "f-a-0") -> None:
        """The Pod runs, and its Task does."""
        self.show(name, phase="Running", podIP="10.0.0.1", hostIP="10.0.1.1", nodeName="node-1")
        self.act()

    def enter(self) -> None:
        """Up to where the cache shows the Workload."""
        while self.live is None:
            self.act()

    def begin(self) -> None:
        """Up to where the admission is persisted."""
        self.enter()
        self.admit()
        while self.status.admission is None:
            self.act()

    def all_pods_run(self) -> None:
        """Up to where all Pods run, which Kueue knows."""
        self.settle()
        for name in list(self.pods):
            self.run(name)
        self.settle()


def queue_labels(queue: str = "team-a", priority_class: str = "", seconds: str = "") -> QueueLabels:
    """The labels of a queued Framework."""
    return QueueLabels(queue, priority_class, seconds)


def entered(*roles: Body, **spec: Any) -> QueuedBench:
    """A Framework whose Workload the cache shows."""
    bench = QueuedBench(*roles, **spec)
    bench.enter()
    return bench


def admitted(*roles: Body, **spec: Any) -> QueuedBench:
    """A Framework whose Workload is admitted. No plan has seen that yet."""
    bench = entered(*roles, **spec)
    bench.admit()
    return bench


def begun(*roles: Body, **spec: Any) -> QueuedBench:
    """A Framework whose admission is persisted."""
    bench = QueuedBench(*roles, **spec)
    bench.begin()
    return bench


def running(*roles: Body, **spec: Any) -> QueuedBench:
    """A Framework whose Pods run, which Kueue knows."""
    bench = QueuedBench(*roles, **spec)
    bench.begin()
    bench.all_pods_run()
    return bench


def told(bench: QueuedBench, kind: str) -> tuple[str, str, str] | None:
    """Status, reason and message of a condition."""
    found = next((one for one in bench.status.conditions if one.type == kind), None)
    return None if found is None else (found.status, found.reason, found.message)


def live(bench: QueuedBench) -> Body:
    """The Workload, which exists."""
    assert bench.live is not None
    return bench.live
