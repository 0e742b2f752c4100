"""A Framework of ``tests.support.bench`` in a queue of Kueue: its Workload as it is, and as the cache shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework, QueueLabels
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.api.workloads import WorkloadRecord, workload_name, workload_record
from frameworkcontroller.machine.kernel.actions import Action, Delete, PartAction, Patch, carry_out
from frameworkcontroller.machine.kernel.exchanges import Accepted, Result
from frameworkcontroller.machine.kernel.outcomes import drop
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    MergePatch,
    Post,
    Refusal,
    Refused,
    Request,
    Target,
)
from frameworkcontroller.machine.parts import PARTS
from frameworkcontroller.machine.parts.kueue.queueing import Queueing
from tests.support.bench import NOW, UID, Bench, Body, limits, role
from tests.support.kueue import set_condition
from tests.support.world import merged

NAME = workload_name("f", UID)
TARGET = Target(Kind.WORKLOAD, NAME)
NOT_FOUND = Refused(404, "not found", b"{}", reason="NotFound", kind=Refusal.OBJECT_NOT_FOUND)
CONFLICT = Refused(409, "changed", b"{}", reason="Conflict", kind=Refusal.CONFLICT)


class QueuedBench(Bench):
    """A Framework with the label of the queue ``team-a``."""

    def __init__(self, *roles: Body, **options: Any) -> None:
        super().__init__(*(roles or (role(),)), limit=replace(limits(), kueue=True), **options)
        self.queue: QueueLabels | None = QueueLabels("team-a")
        self.live: Body | None = None
        """The Workload."""
        self.classes: dict[str, int] = {}
        self.flavors: dict[str, Body] = {"gold": {"nodeLabels": {"flavor": "gold"}}}
        self.requests: list[Request] = []
        self.refuses: Callable[[Body], str | None] = lambda _: None
        """Why a webhook refuses that patch of the Workload, None if it does not."""
        self._versions = 0

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
        match request:
            case Get(Kind.WORKLOAD):
                return NOT_FOUND if self.live is None else self._answered(self.live)
            case Get(Kind.RESOURCE_FLAVOR, name) if name in self.flavors:
                return self._answered({"metadata": {"name": name}, "spec": self.flavors[name]})
            case Get(Kind.WORKLOAD_PRIORITY_CLASS | Kind.PRIORITY_CLASS, name) if name in self.classes:
                return self._answered({"metadata": {"name": name}, "value": self.classes[name]})
            case Get():
                return NOT_FOUND
            case Post(Kind.WORKLOAD, _, raw):
                if self.live is not None:
                    return Refused(409, "exists", b"{}", reason="AlreadyExists", kind=Refusal.ALREADY_EXISTS)
                self.live = orjson.loads(raw)
                self._versions += 1
                uid = f"workload-{self._versions}"
                self.live["metadata"] |= {"uid": uid, "creationTimestamp": format_time(NOW)}
                return self._answered(self.changed())
            case MergePatch(Kind.WORKLOAD, _, raw, subresource):
                return self._merge(orjson.loads(raw), subresource)
        raise AssertionError(request)

    def _merge(self, change: Body, subresource: str) -> Answer:
        if self.live is None:
            return NOT_FOUND
        if (why := self.refuses(change)) is not None:
            return Refused(403, why, b"{}", reason="Forbidden")
        metadata = change.get("metadata", {})
        for name in ("uid", "resourceVersion"):
            if metadata.get(name) not in (None, self.live["metadata"][name]):
                return CONFLICT
        allowed = {"status"} if subresource else {"metadata", "spec"}
        self.live = merged(self.live, {key: value for key, value in change.items() if key in allowed})
        body = self.changed()
        if "deletionTimestamp" in body["metadata"] and not body["metadata"].get("finalizers"):
            self.live = None
        return self._answered(body)

    def _answered(self, body: Body) -> Answered:
        return Answered(orjson.dumps(body))

    def changed(self) -> Body:
        """The Workload has another version."""
        assert self.live is not None
        self._versions += 1
        self.live["metadata"]["resourceVersion"] = str(self._versions)
        return self.live

    # --- Kueue, and the cache ---

    def see(self) -> None:
        """The cache shows the Workload as it is, if it has the label by which it is watched."""
        before = self.services.pop(NAME, None)
        is_watched = self.live is not None and names.FRAMEWORK_NAME in self.live["metadata"].get("labels", ())
        if before is not None and (self.live is None or not is_watched or self.live["metadata"]["uid"] != before.uid):
            drop(PARTS, self.tracker, TARGET, before.uid)
        if self.live is not None and is_watched:
            self.live["metadata"]["namespace"] = "ns"
            self.services[NAME] = workload_record(self.live)
            self.tracker.part(Queueing).known = True

    @property
    def cached(self) -> WorkloadRecord | None:
        """The Workload in the cache."""
        found = self.services.get(NAME)
        assert found is None or isinstance(found, WorkloadRecord)
        return found

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

    def evict(self, reason: str = "Preempted", *, see: bool = True) -> None:
        """Kueue asks for the quota."""
        self.say(("Evicted", True, reason, f"evicted for {reason}"), see=see)

    def delete_workload(self, *, see: bool = True) -> None:
        """Somebody deletes the Workload, which its finalizer holds."""
        assert self.live is not None
        self.live["metadata"]["deletionTimestamp"] = format_time(int(self.now))
        self.changed()
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
        """Plan, and carry out what is asked of the Workload; the names of the actions."""
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
    """What the labels ask for."""
    return QueueLabels(queue, priority_class, seconds)


def running(*roles: Body, **spec: Any) -> QueuedBench:
    """A Framework whose Pods run, which Kueue knows."""
    bench = QueuedBench(*roles, **spec)
    bench.begin()
    bench.all_pods_run()
    return bench


def code(bench: QueuedBench) -> int | None:
    """The completion code of the current attempt."""
    completion = bench.status.attempt.completion_status
    return None if completion is None else completion.code


def told(bench: QueuedBench, kind: str) -> tuple[str, str, str] | None:
    """Status, reason and message of a condition."""
    found = next((one for one in bench.status.conditions if one.type == kind), None)
    return None if found is None else (found.status, found.reason, found.message)


def live(bench: QueuedBench) -> Body:
    """The Workload, which exists."""
    assert bench.live is not None
    return bench.live
