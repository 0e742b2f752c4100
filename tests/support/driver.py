"""A controller in the world of ``tests.support.world``: the product's own reconciler, driven one small step at a time.

It gives calls their turns and sends their requests, in an order drawn at random: requests overlap, and time may pass
while they are in flight. Caches lag as the history wants. It can be dropped between any two steps, as if killed. It
runs a pass only when something says so (an event, or the reconciler's own requeue), so that a lost wake-up shows. No
rule of a sync is here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.objects import (
    ClaimRecord,
    CompanionRecord,
    ConfigMapRecord,
    FrameworkRecord,
    PodRecord,
    configmap_record,
    framework_record,
    pod_record,
)
from frameworkcontroller.api.workloads import WorkloadRecord
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete
from frameworkcontroller.machine.kernel.aside import Aside
from frameworkcontroller.machine.kernel.model import Capture, Env, Limits, Observed, Urgency
from frameworkcontroller.machine.kernel.protocol import (
    Act,
    Archive,
    Call,
    CaptureLogs,
    Done,
    Emit,
    Offer,
    ReadLive,
    Relist,
    Wait,
)
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    MergePatch,
    PatchFinalizers,
    PatchStatus,
    Post,
    Remove,
    Request,
)
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.history.finalization import Finalization, is_due
from frameworkcontroller.machine.parts.kueue.orphanedworkloads import OrphanRelease, orphans
from frameworkcontroller.machine.reconciler import Reconciler
from tests.support.guarantees import Guarantees
from tests.support.world import ApiRefusal, Body, Event, Lost, World

_VERBS: Final[dict[type[Request], str]] = {
    Get: "get",
    Post: "create",
    Remove: "delete",
    MergePatch: "patch",
    PatchFinalizers: "patch",
    PatchStatus: "write",
}
_RETRY: Final = Backoff(0.5, 30.0, 0.0)
_COMPANION_RECORDS: Final[dict[Kind, Callable[[Body], CompanionRecord]]] = {
    kind: kind.companion.decode for kind in Kind if kind.companion is not None
}
_CACHED: Final = (Kind.FRAMEWORK, Kind.CONFIGMAP, Kind.POD, *_COMPANION_RECORDS)
_LAZY_SEC: Final = 2.0
"""Duration of a status write at a slow API server."""
_LONG_SEC: Final = 121.0
"""More than a pass may take."""


class Sink(Protocol):
    """The sink of a history (tests.support.archive)."""

    def ask(self, controller: Controller, machine: Reconciler | Aside, archive: Archive) -> None:
        """Take the records, and answer later."""

    def offer(self, uid: str, offer: Offer) -> None:
        """Take the records of the Framework of that UID."""


class Logs(Protocol):
    """The reader of logs (tests.support.podlogs)."""

    def capture(self, controller: Controller, machine: Reconciler, capture: Capture) -> None:
        """Read the logs of a Pod."""

    def check_deletion(self, controller: Controller, action: Delete, seen: set[str]) -> None:
        """Check that the action may be carried out. ``seen``: UIDs of Pods that were seen to run."""


class Cache:
    """One controller's copies. Each kind is as far behind as the history wants, and never goes back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.frameworks: dict[str, FrameworkRecord] = {}
        self.configmaps: dict[str, ConfigMapRecord] = {}
        self.pods: dict[str, PodRecord] = {}
        self.companions: dict[Kind, dict[str, CompanionRecord]] = {kind: {} for kind in _COMPANION_RECORDS}
        self.position = {kind: len(world.events[kind]) for kind in Kind}
        self.listed = dict.fromkeys(Kind, world.clock)

    def behind(self, kind: Kind) -> int:
        """How many events the copy has not seen."""
        return len(self._world.events[kind]) - self.position[kind]

    def next_event(self, kind: Kind) -> Event:
        """The next event that the copy has not seen."""
        event = self._world.events[kind][self.position[kind]]
        self.position[kind] += 1
        return event


@dataclass(slots=True)
class View:
    """The controller's caches and clocks."""

    controller: Controller

    @property
    def record(self) -> FrameworkRecord | None:
        """The cached Framework."""
        return self.controller.cache.frameworks.get(self.controller.name)

    @property
    def env(self) -> Env:
        """The world's clocks."""
        world, answer_sec = self.controller.world, _LAZY_SEC if self.controller.lazy else 0.0
        return Env(world.now, world.clock, self.controller.rng, self.controller.limits, answer_sec)

    def observe(self, *, creating: bool) -> Observed:
        """The cached objects."""
        cache, name = self.controller.cache, self.controller.name
        return Observed(
            cache.configmaps.get(names.configmap_name(name)),
            cache.pods.get,
            lambda: [pod for pod in cache.pods.values() if names.framework_of(pod.name) == name],
            configmaps_listed=cache.listed[Kind.CONFIGMAP],
            pods_listed=cache.listed[Kind.POD],
            find_companion=lambda kind, one: cache.companions[kind].get(one),
            list_claims=lambda _needed: [
                claim
                for claim in cache.companions[Kind.VOLUME_CLAIM].values()
                if isinstance(claim, ClaimRecord) and claim.framework == name
            ],
            served_version=lambda kind: self.controller.world.served.get(kind, ""),
            creating=creating,
        )


class Controller:
    """One process of the controller, for the one Framework of that ``name``."""

    def __init__(
        self, world: World, guarantees: Guarantees, name: str, limits: Limits, seed: int, label: str = "A"
    ) -> None:
        """``label`` is the controller's own name in the story."""
        self.label = label
        self.world = world
        self.guarantees = guarantees
        self.name = name
        self.limits = limits
        self.rng = random.Random(seed)
        self.cache = Cache(world)
        self.reconciler: Reconciler | None = None
        self.lazy = False
        """Whether each status write takes long, so that the next one waits."""
        self.thorough = False
        """Whether every pass looks at every Task, as if nothing were known of changes."""
        self.limit = 100
        """Most actions that are started in one pass."""
        self.passes = 0
        self.sink: Sink | None = None
        """The sink of the history."""
        self.logs: Logs | None = None
        """The reader of logs."""
        self._seen: set[str] = set()
        """UIDs of Pods that had begun to run before the pass."""
        self._order = random.Random(~seed)
        self._view = View(self)
        self._enqueued = True
        self._requeue_at: float | None = None
        self._failures = 0
        self._look_after: float | None = None
        self._finalization: Finalization | None = None
        # State of the running pass.
        self._active = False
        self._asked_at: float | None = None
        self._started = 0
        self._turns: list[Call] = []
        self._requests: dict[Call, Request] = {}
        for kind in _CACHED:
            self.relist(kind)

    # --- when it works ---

    @property
    def due(self) -> bool:
        """Whether it has anything to do at this moment."""
        return self._active or self._enqueued or (self._requeue_at is not None and self._requeue_at <= self.world.clock)

    @property
    def requeue_at(self) -> float | None:
        """When it has something to do by itself, by the clock that is never put back."""
        return self._requeue_at

    @property
    def is_settled(self) -> bool:
        """Whether its last pass went well and left nothing to be written."""
        unwritten = self.reconciler is not None and self.reconciler.tracker.urgency is not Urgency.NONE
        return not self._failures and not unwritten

    @property
    def next_action(self) -> Action | None:
        """The action whose request the next step sends, if that is certain."""
        match self._turns, list(self._requests):
            case [], [Act(action=action)] if self._asked_at is not None:
                return action
        return None

    def enqueue(self, machine: Reconciler | Aside) -> None:
        """The history has answered the machine."""
        self._enqueued |= machine in (self.reconciler, self._finalization)

    def step(self) -> None:
        """One small step: at most one request, or one instruction."""
        try:
            self._step()
        except (AssertionError, Lost, ApiRefusal):
            raise
        except Exception as error:
            raise self.world.violation(f"{type(error).__name__}: {error}") from error

    def tell(self, text: str) -> None:
        """Add an act of this controller to the story."""
        self.world.tell(f"[{self.label}] {text}")

    def probe(self) -> None:
        """Once at rest, looking at everything must show nothing to do: else a wake-up was lost.

        Nor anything that is due before the alarm that is set.
        """
        reconciler, record = self.reconciler, self._view.record
        if self.due or record is None or reconciler is None or reconciler.uid != record.uid:
            return
        if not self.is_settled:
            return
        reconciler.tracker.look_at_all()
        done = reconciler.next(self._view)
        emitted = [one for one in reconciler.effects() if isinstance(one, Emit)]
        if not isinstance(done, Done) or emitted or reconciler.tracker.urgency is not Urgency.NONE:
            raise self.world.violation(f"Lost wake-up: at rest, and there is something to do: {done} {emitted}")
        if done.requeue_after is not None:
            due = self.world.clock + done.requeue_after
            if self._requeue_at is None or self._requeue_at > due:
                raise self.world.violation(f"Lost alarm: due in {done.requeue_after}s, set for {self._requeue_at}")

    # --- caches ---

    def deliver(self, kind: Kind, count: int) -> None:
        """Let the copy of ``kind`` see its next ``count`` events."""
        for _ in range(min(count, self.cache.behind(kind))):
            event = self.cache.next_event(kind)
            body = orjson.loads(event.raw)
            if event.removed:
                self._apply(kind, event.name, None, body)
            elif kind is Kind.FRAMEWORK or _is_labelled(body):
                self._apply(kind, event.name, body, None)
            else:
                # A watch reports an object that stops to match as deleted, in its last matching state.
                self._apply(kind, event.name, None, None if event.before is None else orjson.loads(event.before))

    def relist(self, kind: Kind) -> None:
        """Let the copy of ``kind`` jump to the live objects, without the events between."""
        live = self.world.objects[kind]
        self.cache.position[kind] = len(self.world.events[kind])
        self.cache.listed[kind] = self.world.clock
        known: dict[str, str] = {name: record.uid for name, record in self._copy(kind).items()}
        for name, uid in known.items():
            body = live.get(name)
            if (
                body is None
                or body["metadata"]["uid"] != uid
                or (kind is not Kind.FRAMEWORK and not _is_labelled(body))
            ):
                self._apply(kind, name, None, None)
        for name, body in live.items():
            if kind is Kind.FRAMEWORK or _is_labelled(body):
                self._apply(kind, name, orjson.loads(orjson.dumps(body)), None)
        if kind in _COMPANION_RECORDS and self.reconciler is not None:
            find = self.cache.companions[kind].get
            if self.reconciler.on_companions_listed(kind, self.world.clock, lambda key: find(key.partition("/")[2])):
                self._enqueued = True

    def catch_up(self) -> None:
        """Let all copies see everything."""
        for kind in _CACHED:
            self.deliver(kind, self.cache.behind(kind))

    def _copy(self, kind: Kind) -> Mapping[str, FrameworkRecord | ConfigMapRecord | PodRecord | CompanionRecord]:
        if kind is Kind.FRAMEWORK:
            return self.cache.frameworks
        if kind in self.cache.companions:
            return self.cache.companions[kind]
        return self.cache.configmaps if kind is Kind.CONFIGMAP else self.cache.pods

    def _apply(self, kind: Kind, name: str, body: Body | None, final: Body | None) -> None:
        if kind is Kind.FRAMEWORK:
            self._apply_framework(name, body)
        elif kind is Kind.CONFIGMAP:
            self._apply_configmap(name, body, final)
        elif kind in _COMPANION_RECORDS:
            self._apply_companion(kind, name, None if body is None else _COMPANION_RECORDS[kind](body))
        else:
            self._apply_pod(name, body, final)

    def _apply_framework(self, name: str, body: Body | None) -> None:
        old = self.cache.frameworks.pop(name, None)
        new = None if body is None else framework_record(body)
        if new is not None:
            self.cache.frameworks[name] = new
        is_doubtful = self.reconciler is not None and self.reconciler.is_doubtful
        if name == self.name and (old is None or new is None or old.inputs != new.inputs or is_doubtful):
            self._enqueued = True

    def _apply_configmap(self, name: str, body: Body | None, final: Body | None) -> None:
        old = self.cache.configmaps.pop(name, None)
        new = None if body is None else configmap_record(body)
        if new is not None:
            self.cache.configmaps[name] = new
            if old is None or old.inputs != new.inputs:
                self._enqueued |= names.framework_of(new.name) == self.name
        elif old is not None and names.framework_of(old.name) == self.name:
            if self.reconciler is not None:
                self.reconciler.on_configmap_dropped(old if final is None else configmap_record(final))
            self._enqueued = True

    def _apply_companion(self, kind: Kind, name: str, new: CompanionRecord | None) -> None:
        copy = self.cache.companions[kind]
        old = copy.pop(name, None)
        if new is not None:
            copy[name] = new
        if old is not None and (new is None or new.uid != old.uid) and self.reconciler is not None:
            self.reconciler.on_companion_dropped(old)
        if old is None or new is None or old.inputs != new.inputs:
            for one in (old, new):
                if one is not None and one.framework == self.name:
                    self._enqueued = True
                    if self.reconciler is not None:
                        self.reconciler.on_companion_event(one)

    def _apply_pod(self, name: str, body: Body | None, final: Body | None) -> None:
        old = self.cache.pods.pop(name, None)
        new = None if body is None else pod_record(body, runs=True)
        if new is not None:
            self.cache.pods[name] = new
            if old is None or old.inputs != new.inputs:
                self._touch_pod(new)
            elif new.ready != old.ready and names.framework_of(new.name) == self.name:
                self._enqueued |= self.reconciler is not None and self.reconciler.on_readiness(new.name)
        elif old is not None:
            if self.reconciler is not None and names.framework_of(old.name) == self.name:
                last = old if final is None else pod_record(final)
                self.reconciler.on_pod_dropped(last, removed=final is not None and last.is_removed)
            self._touch_pod(old)

    def _touch_pod(self, pod: PodRecord) -> None:
        if names.framework_of(pod.name) == self.name:
            self._enqueued = True
            if self.reconciler is not None:
                self.reconciler.on_pod_event(pod.name)

    # --- one pass ---

    def _step(self) -> None:
        if not self._active:
            if not self.due:
                return
            self._enqueued, self._requeue_at = False, None
            self.passes += 1
            record = self._view.record
            self._look_after = self._release_orphans(record)
            if record is None:
                self.reconciler, self._failures = None, 0
                self._requeue_in(self._look_after)
                return
            if self.reconciler is None or self.reconciler.uid != record.uid:
                self.reconciler = Reconciler(record)
            self._active, self._started = True, 0
            self._seen = {pod.uid for pod in self.cache.pods.values() if pod.runs}
            self._asked_at = None
            if self.thorough:
                self.reconciler.tracker.look_at_all()
        calls = [*self._turns, *self._requests]
        must_ask = self._asked_at != self.world.clock
        # With a single call in flight it is asked first, so that tests know the next request.
        ask = not calls or (must_ask and (len(calls) == 1 or self._order.random() < 0.5))
        call = None if ask else self._order.choice(calls)
        if call is None:
            self._ask()
        elif call in self._requests:
            request = self._requests.pop(call)
            answer = self.transmit(call, request, self._known().uid)
            self._continue(call, answer)
        else:
            self._turns.remove(call)
            self._continue(call, None)

    def _ask(self) -> None:
        reconciler = self._known()
        with self._watched():
            instruction = reconciler.next(self._view)
        match instruction:
            case Wait():
                self._asked_at = self.world.clock
            case Done(requeue_after=after, error=error):
                self._active = False
                self._failures = 0 if error is None else self._failures + 1
                ended = self._end()
                if error is not None:
                    self.tell(f"retries: {error}")
                    self._requeue_at = self.world.clock + _RETRY.delay(self._failures, self.rng)
                else:
                    times = [one for one in (after, self._look_after, ended) if one is not None]
                    self._requeue_in(min(times, default=None))
            case call:
                self._turns.append(call)

    def _requeue_in(self, seconds: float | None) -> None:
        if seconds is not None:
            self._enqueued |= seconds <= 0
            self._requeue_at = self.world.clock + seconds if seconds > 0 else None

    def _release_orphans(self, record: FrameworkRecord | None) -> float | None:
        """Release the Workloads of Frameworks that are gone. Return the seconds until one is due again."""
        if not self.limits.kueue:
            return None
        workloads = [one for one in self.cache.companions[Kind.WORKLOAD].values() if isinstance(one, WorkloadRecord)]
        found = orphans(workloads, None if record is None else record.uid)
        due = [self._run(OrphanRelease(orphan)) for orphan in found if orphan.framework == self.name]
        return min((seconds for seconds in due if seconds is not None), default=None)

    def _end(self) -> float | None:
        """Finalize a deleted Framework that its machine ignores. Return the seconds until it is due again."""
        reconciler, record = self._known(), self._view.record
        if record is None or record.uid != reconciler.uid or not reconciler.is_left_alone or not is_due(record):
            self._finalization = None
            return None
        if self._finalization is None or self._finalization.uid != record.uid:
            self._finalization = Finalization(record)
        return self._run(self._finalization)

    def _run(self, aside: Aside) -> float | None:
        """Run a pass. Return the seconds until the next one."""
        while not isinstance(instruction := aside.next(self._view), Done):
            assert isinstance(instruction, ReadLive)
            request = aside.begin(instruction, self._view)
            while request is not None:
                request = aside.on_answer(instruction, self.transmit(None, request, aside.uid))
        for effect in aside.effects():
            if isinstance(effect, Archive):
                assert self.sink is not None
                self.sink.ask(self, aside, effect)
        return instruction.requeue_after

    def _continue(self, call: Call, answer: Answer | None) -> None:
        """Begin the call, or hand the answer in."""
        reconciler = self._known()
        self._asked_at = None
        with self._watched():
            if answer is not None:
                request = reconciler.on_answer(call, answer)
            else:
                request = reconciler.begin(call, self._view)
        if request is not None:
            self._requests[call] = request
        if answer is None and request is not None and isinstance(call, Act):
            self._started += 1
            if isinstance(call.action, Create) and reconciler.known.spec_error:
                raise self.world.violation(f"{_name_action(call.action)}: the spec is invalid")
            if isinstance(call.action, Delete) and not call.action.force:
                self._check_grace(call.action)
                if self.logs is not None:
                    self.logs.check_deletion(self, call.action, self._seen)
            if self._started >= self.limit:
                self.world.go_by(_LONG_SEC)

    def _known(self) -> Reconciler:
        assert self.reconciler is not None
        return self.reconciler

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Check the tracked status after a change, and carry the effects out."""
        reconciler = self._known()
        tracker = reconciler.tracker
        before = self._encoded(tracker)
        yield
        if reconciler.tracker.status is not None and self._encoded(reconciler.tracker) != before:
            self.guarantees.planned(before if reconciler.tracker is tracker else b"", reconciler.tracker, self.name)
        for effect in reconciler.effects():
            match effect:
                case Emit(records):
                    for item in records:
                        where = "" if item.role is None else f"{item.role}[{item.index}] "
                        self.tell(f"{where}{item.reason}: {item.message}")
                case Relist(kind):
                    self.relist(kind)
                case Archive() if self.sink is not None:
                    self.sink.ask(self, reconciler, effect)
                case CaptureLogs(capture) if self.logs is not None:
                    self.logs.capture(self, reconciler, capture)
                case Offer() if self.sink is not None:
                    self.sink.offer(reconciler.uid, effect)

    def _encoded(self, tracker: Tracker) -> bytes:
        return b"" if tracker.status is None else encode_status(self.name, tracker.status)

    def _check_grace(self, action: Delete) -> None:
        """C1, C3: no Pod that is seen to have ended goes while its containers run, within its grace period."""
        for pod in self.cache.pods.values():
            by_owner = action.target.kind is Kind.CONFIGMAP and pod.identity.controller_uid == action.uid
            if pod.running_grace_sec is None or pod.identity.deleting or not (by_owner or pod.uid == action.uid):
                continue
            if self.world.clock < self.world.grace_ends.get(pod.uid, 0):
                raise self.world.violation(f"{_name_action(action)}: containers of {pod.name} still run")

    # --- requests ---

    def transmit(self, call: Call | None, request: Request, uid: str) -> Answer:
        """Send a request for the Framework of that UID."""
        if self.lazy and isinstance(request, PatchStatus):
            self.world.go_by(_LAZY_SEC)
        answer = self.world.answer(request, partial(self._execute, call, request, uid))
        told = "done" if isinstance(answer, Answered) else answer.message
        self.tell(f"{_name_request(call, request)} -> {told}")
        return answer

    def _execute(self, call: Call | None, request: Request, uid: str) -> Body:
        """Have the world execute the request for the Framework of that UID, as fate has it."""
        guarantees, action = self.guarantees, call.action if isinstance(call, Act) else None

        def before(body: Body | None) -> None:
            match request:
                case Get(Kind.NODE, name):
                    guarantees.node_read(getattr(action, "uid", ""), name)
                case Post(kind):
                    assert action is not None
                    assert body is not None
                    guarantees.creating(uid, action.target, body)
                    guarantees.on_creation(uid, kind)
                case Remove(kind, _, target_uid) if action is None:
                    guarantees.ending(uid, kind, target_uid)
                case Remove(_, _, target_uid):
                    assert action is not None
                    guarantees.deleting(uid, action, target_uid)

        def patched(old: Body, new: Body) -> None:
            assert isinstance(request, MergePatch)
            guarantees.patching(uid, request.kind, old, new)

        execute = partial(
            self.world.perform,
            request,
            before=before,
            made=guarantees.created,
            patched=patched,
            held=guarantees.on_finalizers,
        )
        body: Body = self.world.request(self.label, _VERBS[type(request)], request.name, execute)
        return body


def _is_labelled(body: Body) -> bool:
    return names.FRAMEWORK_NAME in (body["metadata"].get("labels") or {})


def _name_action(action: Action) -> str:
    uid = getattr(action, "uid", "")
    flags = "".join(f" {flag}" for flag in ("force", "confirm") if getattr(action, flag, False))
    return f"{type(action).__name__} {action.target.name}{uid and ' '}{uid}{flags} (attempt {action.target.attempt_id})"


def _name_request(call: Call | None, request: Request) -> str:
    what = f"{type(request).__name__} {request.name}"
    if isinstance(request, PatchStatus):
        what = f"{what} at generation {request.generation}"
    return f"{what} of {_name_action(call.action)}" if isinstance(call, Act) else what
