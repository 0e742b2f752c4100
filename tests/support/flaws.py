"""Flaws of a controller: changed requests, answers, caches and effects, between it and its driver.

A flaw needs no name inside the machine. It lasts for a ``with``, in the product's own driver and in the one of
``tests.support.driver``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch
from weakref import WeakKeyDictionary

import orjson

from frameworkcontroller.api.codec import EncodedStatus, encode_status
from frameworkcontroller.api.objects import FrameworkRecord, PodRecord
from frameworkcontroller.controller import driver as product
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.machine.kernel.model import Env, Observed
from frameworkcontroller.machine.kernel.protocol import Archive, Call, Done, Effect, Instruction, ReadLive, View, Wait
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
    Request,
)
from frameworkcontroller.machine.reconciler import Reconciler
from frameworkcontroller.manager import app
from tests.support import driver

Json = dict[str, Any]
Broken = Callable[[], AbstractContextManager[object]]

NOT_FOUND: Final = Refused(404, "not found", b"{}", reason="NotFound", kind=Refusal.OBJECT_NOT_FOUND)


class Flaw:
    """As it is, it changes nothing."""

    machine: Reconciler | None = None
    """Whose requests and views these are; None for requests of none."""

    def reply(self, request: Request) -> Answer | None:
        """The answer to a request that is not sent; None to send it."""
        return None

    def send(self, request: Request) -> Request:
        """A request on its way out."""
        return request

    def read(self, request: Get, body: Json) -> Json:
        """A live object on its way in."""
        return body

    def learn(self, request: Request, answer: Answer) -> None:
        """Take the answer to a request of the machine."""

    def record(self, record: FrameworkRecord) -> FrameworkRecord:
        """The Framework in the cache."""
        return record

    def observed(self, observed: Observed) -> Observed:
        """The objects in the caches."""
        return observed

    def env(self, env: Env) -> Env:
        """The clocks."""
        return env

    def effect(self, machine: Reconciler, effect: Effect) -> Effect | None:
        """An effect on its way out; None for none."""
        return effect

    def archived(self, archive: Archive, answer: Answer) -> Answer:
        """An answer of the history on its way in."""
        return answer

    def extra(self, view: View) -> Request | None:
        """A request that the machine has not asked for."""
        return None


class _View:
    def __init__(self, flaw: Flaw, view: View) -> None:
        self._flaw = flaw
        self._view = view

    @property
    def record(self) -> FrameworkRecord | None:
        record = self._view.record
        return None if record is None else self._flaw.record(record)

    @property
    def env(self) -> Env:
        return self._flaw.env(self._view.env)

    def observe(self, *, creating: bool) -> Observed:
        return self._flaw.observed(self._view.observe(creating=creating))


def flawed(make: Callable[[], Flaw]) -> Broken:
    """Controllers with a flaw, a new one for each ``with``."""
    return lambda: _flawed(make())


@contextmanager
def _flawed(flaw: Flaw) -> Iterator[None]:
    init, begin, ask, answered = Reconciler.__init__, Reconciler.begin, Reconciler.next, Reconciler.on_answer
    effects, archived = Reconciler.effects, Reconciler.on_archived
    transmit, send = driver.Controller.transmit, vars(product)["send"]
    reads = type(flaw).read is not Flaw.read
    extra: dict[Call, Request] = {}
    requests: dict[Call, Request] = {}

    def pass_on(machine: Reconciler, call: Call, request: Request | None) -> Request | None:
        while request is not None and (answer := flaw.reply(request)) is not None:
            request = answered(machine, call, answer)
        if request is not None:
            requests[call] = request
        return request

    def init_(machine: Reconciler, record: FrameworkRecord, **options: bool) -> None:
        flaw.machine = None
        init(machine, flaw.record(record), **options)

    def next_(machine: Reconciler, view: View) -> Instruction:
        flaw.machine = machine
        if (request := flaw.extra(view)) is not None:
            call = ReadLive()
            extra[call] = request
            return call
        instruction = ask(machine, _View(flaw, view))
        return Wait() if extra and isinstance(instruction, Done) else instruction

    def begin_(machine: Reconciler, call: Call, view: View) -> Request | None:
        flaw.machine = machine
        return extra[call] if call in extra else pass_on(machine, call, begin(machine, call, _View(flaw, view)))

    def on_answer(machine: Reconciler, call: Call, answer: Answer) -> Request | None:
        flaw.machine = machine
        if extra.pop(call, None) is not None:
            return None
        flaw.learn(requests[call], answer)
        return pass_on(machine, call, answered(machine, call, answer))

    def effects_(machine: Reconciler) -> list[Effect]:
        changed = [flaw.effect(machine, effect) for effect in effects(machine)]
        return [effect for effect in changed if effect is not None]

    def on_archived(machine: Reconciler, archive: Archive, answer: Answer) -> None:
        archived(machine, archive, flaw.archived(archive, answer))

    def hear(request: Request, answer: Answer) -> Answer:
        if reads and isinstance(request, Get) and isinstance(answer, Answered):
            answer = Answered(orjson.dumps(flaw.read(request, orjson.loads(answer.body))))
        return answer

    def transmit_(controller: driver.Controller, call: Call | None, request: Request, uid: str) -> Answer:
        flaw.machine = None
        if (answer := flaw.reply(request)) is not None:
            return answer
        return hear(request, transmit(controller, call, flaw.send(request), uid))

    async def send_(client: KubeClient, request: Request, *args: Any) -> Answer:
        flaw.machine = None
        if (answer := flaw.reply(request)) is not None:
            return answer
        answer = await send(client, flaw.send(request), *args)
        flaw.machine = None
        return hear(request, answer)

    with (
        patch.multiple(
            Reconciler,
            __init__=init_,
            next=next_,
            begin=begin_,
            on_answer=on_answer,
            effects=effects_,
            on_archived=on_archived,
        ),
        patch.object(driver.Controller, "transmit", transmit_),
        patch.object(product, "send", send_),
    ):
        yield


# --- requests and answers --------------------------------------------------------------------------------------------


def done(request: Request) -> Answered:
    """The answer to a request as if it had been executed."""
    metadata: Json = {"uid": f"uid of {request.name}", "resourceVersion": "1"}
    match request:
        case PatchStatus():
            metadata = {"uid": request.uid, "resourceVersion": request.resource_version}
            return Answered(orjson.dumps({"metadata": metadata, "status": status_in(request)}))
        case PatchFinalizers():
            held = [request.finalizer] if request.index is None else []
            metadata = {"uid": request.uid, "resourceVersion": request.resource_version, "finalizers": held}
        case Post(body=body):
            found = orjson.loads(body)
            return Answered(orjson.dumps({**found, "metadata": {**found["metadata"], **metadata}}))
    return Answered(orjson.dumps({"metadata": metadata}))


def status_in(request: Request) -> Json:
    """The status that a request writes; {} for other requests."""
    if not isinstance(request, PatchStatus) or request.path != "/status":
        return {}
    value = request.value.body if isinstance(request.value, EncodedStatus) else request.value
    status: Json = orjson.loads(value)
    return status


@dataclass
class Unsent(Flaw):
    """Requests for which ``of`` is true are not sent, and taken for executed (or as ``answered``)."""

    of: Callable[[Request], bool]
    answered: Callable[[Request], Answer] = done

    def reply(self, request: Request) -> Answer | None:
        return self.answered(request) if self.of(request) else None


@dataclass
class Sends(Flaw):
    """Requests are changed on their way out."""

    change: Callable[[Request], Request]

    def send(self, request: Request) -> Request:
        return self.change(request)


@dataclass
class Reads(Flaw):
    """Live objects of a kind are changed on their way in."""

    kind: Kind
    change: Callable[[Json], object]

    def read(self, request: Get, body: Json) -> Json:
        if request.kind is self.kind:
            self.change(body)
        return body


def reads(kind: Kind, change: Callable[[Json], object]) -> Broken:
    """Each live object of a kind is read with this change."""
    return flawed(lambda: Reads(kind, change))


def writes(change: Callable[[Json], None]) -> Broken:
    """Each status is changed on its way out."""

    def changed(request: Request) -> Request:
        status = status_in(request)
        if not status or not isinstance(request, PatchStatus):
            return request
        change(status)
        return replace(request, value=orjson.dumps(status))

    return flawed(lambda: Sends(changed))


def posts(kind: Kind, change: Callable[[Json], None]) -> Broken:
    """Each object of a kind is changed before it is created."""

    def changed(request: Request) -> Request:
        if not isinstance(request, Post) or request.kind is not kind:
            return request
        body = orjson.loads(request.body)
        change(body)
        return replace(request, name=body["metadata"]["name"], body=orjson.dumps(body))

    return flawed(lambda: Sends(changed))


def merges(kinds: frozenset[Kind], change: Callable[[Json], None]) -> Broken:
    """Each merge patch of an object of these kinds is changed on its way out."""

    def changed(request: Request) -> Request:
        if not isinstance(request, MergePatch) or request.kind not in kinds:
            return request
        body = orjson.loads(request.body)
        change(body)
        return replace(request, body=orjson.dumps(body))

    return flawed(lambda: Sends(changed))


def believes(of: Callable[[Json], object]) -> Broken:
    """A status counts as stored before it is, if ``of`` is true."""

    def is_believed(request: Request) -> bool:
        status = status_in(request)
        return bool(status) and bool(of(status))

    return flawed(lambda: Unsent(is_believed))


def unsent(kind: type[Request], *kinds: Kind, answered: Callable[[Request], Answer] = done) -> Broken:
    """Requests of that kind for objects of these kinds are taken for executed."""
    return flawed(lambda: Unsent(lambda one: isinstance(one, kind) and getattr(one, "kind", None) in kinds, answered))


def unfound(*kinds: Kind) -> Broken:
    """Objects of these kinds are never found by a live read."""
    return unsent(Get, *kinds, answered=lambda _: NOT_FOUND)


class Remembers(Flaw):
    """It never reads a Framework live: it believes its first cached state, and its own writes since."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Reconciler, Json] = WeakKeyDictionary()

    def record(self, record: FrameworkRecord) -> FrameworkRecord:
        if self.machine is not None and record.uid == self.machine.uid:
            first = {"status": self._first_status(record), "version": 0}
            known = self._known.setdefault(self.machine, first)
            known["version"] = max(known["version"], int(record.resource_version))
            metadata = {**orjson.loads(record.metadata_json), "resourceVersion": str(known["version"])}
            known |= {"metadata": metadata, "spec": orjson.loads(record.spec_json)}
        return record

    def _first_status(self, record: FrameworkRecord) -> Any:
        status = None if self.machine is None else self.machine.tracker.status
        return record.status if status is None else orjson.loads(encode_status(record.name, status))

    def reply(self, request: Request) -> Answer | None:
        if self.machine is None or not isinstance(request, Get) or request.kind is not Kind.FRAMEWORK:
            return None
        return Answered(orjson.dumps(self._known[self.machine]))

    def learn(self, request: Request, answer: Answer) -> None:
        if self.machine is None or not isinstance(answer, Answered):
            return
        if isinstance(request, PatchStatus | PatchFinalizers):
            known, metadata = self._known[self.machine], orjson.loads(answer.body)["metadata"]
            known |= {"version": int(metadata["resourceVersion"]), "status": status_in(request) or known["status"]}
            known["metadata"] |= metadata


# --- caches ----------------------------------------------------------------------------------------------------------


class Glasses(Flaw):
    """It sees another spec than the user's, in the cache and in live reads."""

    def __init__(self, change: Callable[[Json], object]) -> None:
        self._change = change

    def record(self, record: FrameworkRecord) -> FrameworkRecord:
        spec = orjson.loads(record.spec_json)
        self._change(spec)
        return replace(record, spec_json=orjson.dumps(spec))

    def read(self, request: Get, body: Json) -> Json:
        if request.kind is Kind.FRAMEWORK:
            self._change(body["spec"])
        return body


def sees_spec(change: Callable[[Json], object]) -> Broken:
    """The spec is seen with this change."""
    return flawed(lambda: Glasses(change))


def sees_roles(change: Callable[[Json], object]) -> Broken:
    """Each TaskRole is seen with this change."""
    return sees_spec(lambda spec: [change(role) for role in spec["taskRoles"]])


@dataclass
class Sees(Flaw):
    """It sees other objects in the caches than there are."""

    change: Callable[[Observed], Observed]

    def observed(self, observed: Observed) -> Observed:
        return self.change(observed)


def sees(change: Callable[[Observed], Observed]) -> Broken:
    """The caches are seen with this change."""
    return flawed(lambda: Sees(change))


def sees_pods(change: Callable[[PodRecord], PodRecord | None]) -> Broken:
    """Each Pod in the caches is seen with this change; None: it is not seen."""

    def changed(observed: Observed) -> Observed:
        pods = lambda: [found for one in observed.list_pods() if (found := change(one)) is not None]  # noqa: E731
        find = lambda name: None if (one := observed.find_pod(name)) is None else change(one)  # noqa: E731
        return replace(observed, find_pod=find, list_pods=pods)

    return sees(changed)


# --- clients, and several flaws --------------------------------------------------------------------------------------


def deleting_with(**forced: Any) -> Broken:
    """All that is deleted is deleted with these arguments."""

    class Careless(KubeClient):
        async def delete(self, *args: Any, **more: Any) -> bytes:
            return await super().delete(*args, **{**more, **forced})

    return lambda: patch.object(app, "KubeClient", Careless)


def without_test_of(path: str) -> Broken:
    """Statuses are written without a test of the Framework's ``path``."""

    class Careless(KubeClient):
        async def patch(self, *args: Any, **more: Any) -> bytes:
            resource, name, body, *rest = args
            guards = [item for item in orjson.loads(body) if item["path"] != path]
            return await super().patch(resource, name, orjson.dumps(guards), *rest, **more)

    return lambda: patch.object(app, "KubeClient", Careless)


def all_of(*broken: Broken) -> Broken:
    """Several at once."""

    @contextmanager
    def entered(left: tuple[Broken, ...]) -> Generator[None, None, None]:
        if not left:
            yield
            return
        with left[0](), entered(left[1:]):
            yield

    return lambda: entered(broken)
