"""One Framework for pure tests of its reconciler: its stored and cached objects, and a driver."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import orjson

from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.objects import (
    ConfigMapRecord,
    FrameworkRecord,
    PodRecord,
    configmap_record,
    framework_record,
    pod_record,
)
from frameworkcontroller.machine.kernel.aside import Aside
from frameworkcontroller.machine.kernel.model import Env, Limits, Observed, Record
from frameworkcontroller.machine.kernel.protocol import Act, Call, Done, Effect, Emit, Instruction, Wait
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    MergePatch,
    PatchFinalizers,
    PatchStatus,
    Post,
    Refusal,
    Refused,
    Remove,
    Request,
)
from frameworkcontroller.machine.quarantine import Quarantine
from frameworkcontroller.machine.reconciler import Reconciler
from tests.support.bench import Body, limits, role

CLOCK: Final = 1_000.0
"""Monotonic seconds at the beginning."""

NOW: Final = 1_700_000_000
"""Seconds since the epoch at the beginning."""

NAME: Final = "f"

_E = TypeVar("_E")


def refused(kind: Refusal, message: str = "no", *, retry_after_sec: float = 0.0) -> Refused:
    """A refusal of that kind."""
    return Refused(422, message, b"{}", retry_after_sec, kind=kind)


class OneFramework:
    """Framework ``f`` of namespace ``ns``: a small API server, and the view of its reconciler."""

    def __init__(self, *roles: Body, status: Any = None, limit: Limits | None = None, **spec: Any) -> None:
        """``status`` as it is stored; other keywords are fields of the spec."""
        self.clock = CLOCK
        self.limits = limit or limits()
        self.rng = random.Random(7)
        self.body: Body = {"spec": {"taskRoles": list(roles or (role(),)), **spec}, "status": status}
        self.body["metadata"] = {"namespace": "ns", "name": NAME, "uid": "uid-1", "generation": 1}
        self.objects: dict[str, Body] = {}
        """ConfigMap and Pods, by name."""
        self.record: FrameworkRecord | None = None
        self.configmap: ConfigMapRecord | None = None
        self.pods: dict[str, PodRecord] = {}
        self.shows = True
        """Whether the caches show each object as it is created."""
        self.drops: set[str] = set()
        """Names of fields that the API server does not know, anywhere in a status."""
        self._versions = 0
        self.annotate()
        self.show()

    # --- the view ---

    @property
    def env(self) -> Env:
        """Clocks, randomness and limits."""
        return Env(NOW + self.clock - CLOCK, self.clock, self.rng, self.limits)

    def observe(self, *, creating: bool) -> Observed:
        """The cached objects."""
        pods = list(self.pods.values())
        return Observed(self.configmap, self.pods.get, lambda: pods, creating=creating)

    # --- other clients ---

    def show(self) -> None:
        """The cache catches up with the Framework."""
        self.record = framework_record(self.body)

    def annotate(self) -> None:
        """A client writes the Framework."""
        self._versions += 1
        self.body["metadata"]["resourceVersion"] = f"v{self._versions}"

    def edit(self, *roles: Body, **spec: Any) -> None:
        """The user edits the spec."""
        self.body["spec"] |= {**({"taskRoles": list(roles)} if roles else {}), **spec}
        self.body["metadata"]["generation"] += 1
        self.annotate()

    def edit_and_show(self, *roles: Body, **spec: Any) -> None:
        """The user edits the spec, and the cache shows it."""
        self.edit(*roles, **spec)
        self.show()

    def delete(self) -> None:
        """The user deletes the Framework, in the foreground."""
        self.body["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        self.annotate()

    def replace(self) -> None:
        """The Framework is gone, and another one has its name."""
        self.body["metadata"] |= {"uid": "uid-2", "generation": 1}
        self.body["status"] = None
        self.annotate()

    def store(self, status: Any) -> None:
        """Another client writes the status."""
        self.body["status"] = status
        self.annotate()

    def run(self, name: str, phase: str = "Running") -> PodRecord:
        """The cache shows the Pod in that phase."""
        body = self.objects[name]
        body["status"] = {"phase": phase, "podIP": "10.0.0.1", "hostIP": "10.0.1.1"}
        self.pods[name] = pod_record(body)
        return self.pods[name]

    # --- the API server ---

    @property
    def status(self) -> Any:
        """The stored status."""
        return self.body["status"]

    def answer(self, request: Request) -> Answer:
        """Execute a request, and answer it."""
        match request:
            case Get(Kind.FRAMEWORK, _):
                # Not by the encoder of the product: an API server keeps deeper objects.
                return Answered(json.dumps(self.body).encode())
            case Get(_, name):
                found = self.objects.get(name)
                return refused(Refusal.OBJECT_NOT_FOUND) if found is None else Answered(orjson.dumps(found))
            case Post(kind, name, body):
                found = orjson.loads(body)
                found["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "1"}
                self.objects[name] = found
                if self.shows:
                    self._show(kind, name)
                return Answered(orjson.dumps(found))
            case Remove(_, name):
                self.objects.pop(name, None)
                return Answered(b'{"metadata": {}}')
            case PatchStatus():
                return self._patch(request)
            case PatchFinalizers():
                return self._patch_finalizers(request)
            case MergePatch():
                return Answered(b'{"metadata": {}}')

    def _show(self, kind: Kind, name: str) -> None:
        if kind is Kind.CONFIGMAP:
            self.configmap = configmap_record(self.objects[name])
        else:
            self.pods[name] = pod_record(self.objects[name])

    def _patch_finalizers(self, request: PatchFinalizers) -> Answer:
        metadata = self.body["metadata"]
        found: list[str] = metadata.setdefault("finalizers", [])
        place = request.index
        is_same = place is None or found[place : place + 1] == [request.finalizer]
        if (request.uid, request.resource_version) != (metadata["uid"], metadata["resourceVersion"]) or not is_same:
            return refused(Refusal.INVALID, "a test failed")
        found[place or 0 : len(found) if place is None else place + 1] = (
            [*found, request.finalizer] if place is None else []
        )
        self.annotate()
        return Answered(orjson.dumps({"metadata": metadata}))

    def _patch(self, request: PatchStatus) -> Answer:
        metadata = self.body["metadata"]
        tested = request.uid, request.generation, request.resource_version
        if tested != (metadata["uid"], metadata["generation"], metadata["resourceVersion"]):
            return refused(Refusal.INVALID, "a test failed")
        value = _without(orjson.loads(body_of(request)), self.drops)
        if request.path == "/status":
            self.store(value)
        else:
            assert request.path == "/status/conditions"
            self.store({**self.status, "conditions": value})
        return Answered(orjson.dumps(self.body if request.whole else {"metadata": self.body["metadata"]}))


def _without(value: Any, dropped: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(item, dropped) for name, item in value.items() if name not in dropped}
    return [_without(item, dropped) for item in value] if isinstance(value, list) else value


def body_of(request: Request) -> bytes:
    """The value that a status write writes."""
    assert isinstance(request, PatchStatus)
    return request.value.body if isinstance(request.value, EncodedStatus) else request.value


def written(request: Request | None) -> Any:
    """The same, decoded."""
    assert request is not None
    return orjson.loads(body_of(request))


class Driver:
    """Follows a machine's instructions, one call at a time or as the test wants."""

    def __init__(self, world: OneFramework, machine: Reconciler | Quarantine | Aside | None = None) -> None:
        """``machine`` None: a reconciler that begins with the cached Framework."""
        self.world = world
        if machine is None:
            assert world.record is not None
            machine = Reconciler(world.record)
        self.machine = machine
        self.requests: list[Request] = []
        """All that were sent."""
        self.effects: list[Effect] = []
        """All that were taken, and not looked at yet."""
        self._take_effects()

    @property
    def reconciler(self) -> Reconciler:
        """The machine, which is one."""
        assert isinstance(self.machine, Reconciler)
        return self.machine

    # --- step by step ---

    def next(self) -> Instruction:
        """The next instruction."""
        instruction = self.machine.next(self.world)
        self._take_effects()
        return instruction

    def expect(self, kind: type[_E]) -> _E:
        """The next instruction, of that class."""
        instruction = self.next()
        assert isinstance(instruction, kind), instruction
        return instruction

    def failed(self) -> Exception:
        """The error with which the pass ends."""
        error = self.expect(Done).error
        assert error is not None
        return error

    def call(self) -> Call:
        """The next instruction, which is a call."""
        call = self.next()
        assert not isinstance(call, Wait | Done), call
        return call

    def begin(self, call: Call) -> Request | None:
        """The turn of the call has come: its first request."""
        request = self.machine.begin(call, self.world)
        return self._sent(request)

    def on_answer(self, call: Call, answer: Answer) -> Request | None:
        """The answer to the last request of the call: the next one."""
        return self._sent(self.machine.on_answer(call, answer))

    def serve(self, call: Call, request: Request | None) -> None:
        """Answer the call until it is over."""
        while request is not None:
            request = self.on_answer(call, self.world.answer(request))

    def do(self, call: Call) -> Request | None:
        """Carry the call out; its first request."""
        request = self.begin(call)
        self.serve(call, request)
        return request

    # --- many steps ---

    def until(self, kind: type[Request], name: str = "") -> tuple[Call, Request]:
        """Carry calls out until one begins with a request of that kind (for that object), which is not answered."""
        for _ in range(100):
            instruction = self.next()
            if isinstance(instruction, Done):
                self._wait(instruction)
                continue
            assert not isinstance(instruction, Wait), instruction
            request = self.begin(instruction)
            if isinstance(request, kind) and name in ("", request.name):
                return instruction, request
            self.serve(instruction, request)
        raise AssertionError(f"no {kind.__name__} {name}")

    def finish(self) -> Done:
        """Carry all calls of the pass out, one by one."""
        for _ in range(1000):
            instruction = self.next()
            if isinstance(instruction, Done):
                return instruction
            assert not isinstance(instruction, Wait), instruction
            self.do(instruction)
        raise AssertionError("the pass does not end")

    def settle(self) -> Done:
        """Passes, until nothing is due within a minute."""
        for _ in range(100):
            done = self.finish()
            if done.error is not None or done.requeue_after is None or done.requeue_after >= 60:
                return done
            self._wait(done)
        raise AssertionError("it does not settle")

    def run_all(self) -> None:
        """Up to where all Pods run, and the status says so."""
        self.settle()
        for name in self.world.pods:
            self.world.run(name)
            self.reconciler.on_pod_event(name)
        self.settle()

    def _wait(self, done: Done) -> None:
        assert done.error is None, done.error
        assert done.requeue_after is not None
        self.world.clock += done.requeue_after

    # --- its acts ---

    def take(self, kind: type[_E]) -> list[_E]:
        """Take the effects of that kind, and forget all others."""
        found: list[_E] = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects.clear()
        return found

    def records(self) -> list[Record]:
        """Take the records that were emitted."""
        return [record for effect in self.take(Emit) for record in effect.records]

    def sent(self) -> list[str]:
        """Take the requests that were sent, in words."""
        told = [f"{type(request).__name__} {request.name}" for request in self.requests]
        self.requests.clear()
        return told

    def _sent(self, request: Request | None) -> Request | None:
        self._take_effects()
        if request is not None:
            self.requests.append(request)
        return request

    def _take_effects(self) -> None:
        self.effects.extend(self.machine.effects())


def acts(driver: Driver) -> Iterator[Act]:
    """The actions that may be started now."""
    while isinstance(call := driver.next(), Act):
        yield call
    assert isinstance(call, Wait)
