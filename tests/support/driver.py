"""A controller around the machine, one small step at a time, for the world of ``tests.support.world``.

It does what the product's sync does in the same order (observe, plan, act, fold, persist), over caches that lag as the
history wants, and can be dropped between any two steps as if it had been killed. It looks at its Framework only when
something says so (an event, the machine's own wake-up or business), so that a lost wake-up shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.objects import (
    ConfigMapRecord,
    Framework,
    FrameworkRecord,
    Identity,
    PodRecord,
    configmap_record,
    framework_record,
    identity_of,
    pod_record,
)
from frameworkcontroller.api.spec import FrameworkSpec, SpecError, parse_spec
from frameworkcontroller.machine.failure import classify_creation_refusal
from frameworkcontroller.machine.model import (
    Accepted,
    Action,
    Cleanup,
    Confirm,
    Create,
    Created,
    Delete,
    Env,
    Exists,
    Gone,
    Kind,
    Limits,
    NotAttempted,
    Observed,
    Outcome,
    Refresh,
    Refused,
    Relabel,
    Remains,
    Result,
    Target,
    Unanswered,
    Urgency,
)
from frameworkcontroller.machine.plan import fold, plan, reject
from frameworkcontroller.machine.tracker import Tracker
from tests.support.guarantees import Guarantees
from tests.support.world import NAMESPACE, ApiRefusal, Body, Event, Lost, World

Steps = Generator[None, None, None]


@dataclass(slots=True)
class Entry:
    """What the controller knows of the Framework beyond its caches."""

    uid: str
    tracker: Tracker
    version: str
    stored: bytes
    framework: Framework | None = None
    spec_error: str | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    persist_first: bool = False
    gone: bool = False
    """The API server said that there is no such Framework any more; the cache will say so too."""


class Cache:
    """One controller's copies. Each kind is as far behind as the history wants, and never goes back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.frameworks: dict[str, FrameworkRecord] = {}
        self.configmaps: dict[str, ConfigMapRecord] = {}
        self.pods: dict[str, PodRecord] = {}
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
        self.entry: Entry | None = None
        self.lazy = False
        """Whether a status that can wait does wait."""
        self.hasty = False
        """Whether it may plan again before it writes a status that cannot wait: nothing may go wrong by that."""
        self.thorough = False
        """Whether every plan looks at every Task, as if nothing were known of what changed."""
        self.slice = 100
        """How many actions it starts in one sync."""
        self.syncs = 0
        self.next_action: Action | None = None
        """The action that the next step carries out, if it does."""
        self._touched = True
        self._wake_at: float | None = None
        self._unwritten = False
        self._work: Steps | None = None
        for kind in Kind:
            self.relist(kind)

    # --- when it works ---

    @property
    def due(self) -> bool:
        """Whether it has anything to do at this moment."""
        return (
            self._work is not None
            or self._touched
            or (self._wake_at is not None and self._wake_at <= self.world.clock)
            or (self._unwritten and not self.lazy)
        )

    @property
    def wake_at(self) -> float | None:
        """When it has something to do by itself, by the clock that is never put back."""
        return self._wake_at

    def step(self) -> None:
        """One small step: at most one request, or one plan, or one fold."""
        if self._work is None:
            if not self.due:
                return
            self._touched = False
            self._wake_at = None
            self.syncs += 1
            self._work = self._sync()
        try:
            next(self._work)
        except StopIteration:
            self._work = None
        except (AssertionError, Lost, ApiRefusal):
            raise
        except Exception as error:
            raise self.world.violation(f"{type(error).__name__}: {error}") from error

    def tell(self, text: str) -> None:
        """Add what this controller does to the story."""
        self.world.tell(f"[{self.label}] {text}")

    def probe(self) -> None:
        """Once at rest, looking at everything must show nothing to do: else a wake-up was lost.

        Nor anything that is due before the alarm that is set.
        """
        entry = self.entry
        record = self.cache.frameworks.get(self.name)
        if self.due or entry is None or entry.gone or entry.spec_error or record is None or entry.uid != record.uid:
            return
        if not entry.tracker.is_clean:
            return
        entry.tracker.touch_all()
        step = plan(self._read(record, entry), entry.tracker, self._observed(), self._env())
        if step.actions or step.records or step.urgency is not Urgency.NONE or entry.tracker.is_busy:
            todo = [_name_action(action) for action in step.actions] + [item.message for item in step.records]
            raise self.world.violation(f"Lost wake-up: at rest, and there is something to do: {todo}")
        if step.wake_after is not None:
            due = self.world.clock + step.wake_after
            if self._wake_at is None or self._wake_at > due:
                raise self.world.violation(f"Lost alarm: due in {step.wake_after}s, set for {self._wake_at}")

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
                # What stops to match is told as deleted, in the state in which it still matched.
                self._apply(kind, event.name, None, None if event.before is None else orjson.loads(event.before))

    def relist(self, kind: Kind) -> None:
        """Let the copy of ``kind`` jump to what there is now, whatever it missed."""
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

    def catch_up(self) -> None:
        """Let all copies see everything."""
        for kind in Kind:
            self.deliver(kind, self.cache.behind(kind))

    def _copy(self, kind: Kind) -> dict[str, FrameworkRecord] | dict[str, ConfigMapRecord] | dict[str, PodRecord]:
        if kind is Kind.FRAMEWORK:
            return self.cache.frameworks
        return self.cache.configmaps if kind is Kind.CONFIGMAP else self.cache.pods

    def _apply(self, kind: Kind, name: str, body: Body | None, final: Body | None) -> None:
        if kind is Kind.FRAMEWORK:
            self._apply_framework(name, body)
        elif kind is Kind.CONFIGMAP:
            self._apply_configmap(name, body, final)
        else:
            self._apply_pod(name, body, final)

    def _apply_framework(self, name: str, body: Body | None) -> None:
        old = self.cache.frameworks.pop(name, None)
        new = None if body is None else framework_record(body)
        if new is not None:
            self.cache.frameworks[name] = new
        if name == self.name and (
            old is None
            or new is None
            or (old.uid, old.generation, old.deletion_time) != (new.uid, new.generation, new.deletion_time)
        ):
            self._touched = True

    def _apply_configmap(self, name: str, body: Body | None, final: Body | None) -> None:
        old = self.cache.configmaps.pop(name, None)
        new = None if body is None else configmap_record(body)
        if new is not None:
            self.cache.configmaps[name] = new
            if old is None or old.identity != new.identity:
                self._touched |= names.framework_of(new.name) == self.name
        elif old is not None and names.framework_of(old.name) == self.name:
            if self.entry is not None:
                self.entry.tracker.configmap_dropped(old.uid)
            self._touched = True

    def _apply_pod(self, name: str, body: Body | None, final: Body | None) -> None:
        old = self.cache.pods.pop(name, None)
        new = None if body is None else pod_record(body)
        if new is not None:
            self.cache.pods[name] = new
            if old is None or _essence(old) != _essence(new):
                self._touch_pod(new)
        elif old is not None:
            parts = names.split_pod_name(old.name)
            if self.entry is not None and parts is not None:
                last = old if final is None else pod_record(final)
                self.entry.tracker.pod_dropped(parts[1:], last, removed=final is not None and last.is_removed)
            self._touch_pod(old)

    def _touch_pod(self, pod: PodRecord) -> None:
        parts = names.split_pod_name(pod.name)
        if names.framework_of(pod.name) == self.name:
            self._touched = True
            if self.entry is not None and parts is not None:
                self.entry.tracker.agenda.add(parts[1:])

    # --- one sync ---

    def _sync(self) -> Steps:
        record = self.cache.frameworks.get(self.name)
        if record is None:
            self.entry = None
            self._unwritten = False
            return
        if self.entry is None or self.entry.uid != record.uid:
            self.entry = _entry_of(record)
        entry = self.entry
        if entry.gone:
            return
        framework = self._read(record, entry)
        if entry.persist_first:
            yield
            if not (yield from self._write(entry)):
                self._touched = True
                return
            framework = self._read(record, entry)
        tracker = entry.tracker
        wake_at = yield from self._plan_and_act(entry, framework)
        self._unwritten = tracker.urgency is not Urgency.NONE
        if self.hasty and self._unwritten and self.rng.random() < 0.5:
            self._touched = True
            return
        if tracker.urgency is Urgency.NOW or (self._unwritten and not self.lazy):
            yield
            if not (yield from self._write(entry)):
                self._touched = True
                return
        if tracker.is_busy and entry.spec_error is None:
            self._touched = True
        else:
            self._wake_at = wake_at

    def _plan_and_act(self, entry: Entry, framework: Framework) -> Generator[None, None, float | None]:
        tracker = entry.tracker
        if entry.spec_error is not None:
            return self._at(reject(framework, tracker, entry.spec_error, self._env()).wake_after)
        if self.thorough:
            tracker.touch_all()
        before = b"" if tracker.status is None else encode_status(self.name, tracker.status)
        step = plan(framework, tracker, self._observed(), self._env())
        wakes = [self._at(step.wake_after)]
        for item in step.records:
            where = "" if item.role is None else f"{item.role}[{item.index}] "
            self.tell(f"{where}{item.reason}: {item.message}")
        self.guarantees.planned(before, tracker, self.name)
        if not step.actions:
            return wakes[0]
        for action in step.actions:
            if isinstance(action, Delete) and not action.force:
                self._check_grace(action)
        if any(_needs_live_status(action) for action in step.actions):
            yield
            if not self._is_stored(entry, step.actions):
                self._touched = True
                return wakes[0]
        outcomes: list[Outcome] = []
        stopped = False
        for position, action in enumerate(step.actions):
            if stopped or position >= self.slice:
                outcomes.append(Outcome(action, NotAttempted()))
                continue
            self.next_action = action
            yield
            self.next_action = None
            result = self._carry_out(entry, action)
            stopped = isinstance(result, Refused | Unanswered)
            outcomes.append(Outcome(action, result))
        yield
        entry.outcomes.extend(
            item for item in outcomes if isinstance(item.action, Create) and isinstance(item.result, Created | Exists)
        )
        folded = fold(framework, tracker, outcomes, self._env())
        for kind in folded.relist:
            self.relist(kind)
        self.guarantees.planned(before, tracker, self.name)
        wakes.append(self._at(folded.wake_after))
        return min((wake for wake in wakes if wake is not None), default=None)

    def _check_grace(self, action: Delete) -> None:
        """C1, C3: no Pod that is seen to have ended goes while its containers run, within its grace period."""
        for pod in self.cache.pods.values():
            by_owner = action.target.kind is Kind.CONFIGMAP and pod.identity.controller_uid == action.uid
            if pod.running_grace_sec is None or pod.identity.deleting or not (by_owner or pod.uid == action.uid):
                continue
            if self.world.clock < self.world.grace_ends.get(pod.uid, 0):
                raise self.world.violation(f"{_name_action(action)}: containers of {pod.name} still run")

    def _at(self, seconds: float | None) -> float | None:
        return None if seconds is None else self.world.clock + seconds

    def _observed(self) -> Observed:
        return Observed(
            self.cache.configmaps.get(names.configmap_name(self.name)),
            self.cache.pods,
            self._list_pods,
            configmaps_listed=self.cache.listed[Kind.CONFIGMAP],
            pods_listed=self.cache.listed[Kind.POD],
        )

    def _list_pods(self) -> list[PodRecord]:
        return [pod for pod in self.cache.pods.values() if names.framework_of(pod.name) == self.name]

    def _env(self) -> Env:
        return Env(self.world.now, self.world.clock, self.rng, self.limits)

    def _read(self, record: FrameworkRecord, entry: Entry) -> Framework:
        known = entry.framework
        deleting = record.deletion_time is not None
        if known is None or record.generation > known.generation:
            try:
                spec, entry.spec_error = parse_spec(orjson.loads(record.spec_json)), None
            except SpecError as error:
                spec, entry.spec_error = FrameworkSpec(), str(error)
            known = Framework(NAMESPACE, self.name, record.uid, record.generation, deleting, spec)
        entry.framework = replace(known, deleting=known.deleting or deleting)
        return entry.framework

    # --- the status write ---

    def _write(self, entry: Entry) -> Generator[None, None, bool]:
        framework = entry.framework
        assert framework is not None
        assert entry.tracker.status is not None
        generation = entry.tracker.generation if entry.tracker.generation is not None else framework.generation
        encoded = encode_status(self.name, entry.tracker.status)
        entry.persist_first = True
        uid, version = entry.uid, entry.version

        def execute() -> str:
            return self.world.write_status(self.name, uid, generation, version, encoded)

        try:
            entry.version = self.world.request(self.label, "write", f"the status at generation {generation}", execute)
        except Lost:
            return False
        except ApiRefusal as refusal:
            self.tell(f"status write at generation {generation}: {refusal}")
            if refusal.code == 429:
                return False
            yield
            return self._resolve(entry, generation, encoded)
        self._accepted(entry, encoded)
        return True

    def _accepted(self, entry: Entry, encoded: bytes) -> None:
        entry.stored = encoded
        entry.persist_first = False
        entry.outcomes.clear()
        entry.tracker.persisted()
        self._unwritten = False

    def _read_live(self, entry: Entry) -> FrameworkRecord | None:
        try:
            live = framework_record(orjson.loads(orjson.dumps(self.world.get(Kind.FRAMEWORK, self.name))))
        except ApiRefusal:
            live = None
        if live is None or live.uid != entry.uid:
            entry.gone = True
            self._unwritten = False
            return None
        return live

    def _is_stored(self, entry: Entry, actions: list[Action]) -> bool:
        """Whether a live read shows the status that the actions rest on; if not, the entry is up to date now."""
        assert entry.framework is not None
        try:
            live = self.world.request(self.label, "get", self.name, lambda: self._read_live(entry))
        except (Lost, ApiRefusal):
            fold(
                entry.framework,
                entry.tracker,
                [Outcome(action, NotAttempted()) for action in actions],
                self._env(),
            )
            return False
        if live is None:
            return False
        stored = _entry_of(live)
        if stored.stored == entry.stored and live.generation == entry.framework.generation:
            entry.version = live.resource_version
            return True
        self._take_over(entry, live, stored)
        return False

    def _resolve(self, entry: Entry, generation: int, encoded: bytes) -> bool:
        live = self._read_live(entry)
        if live is None:
            return False
        stored = _entry_of(live)
        entry.version = live.resource_version
        if stored.stored == encoded:
            self._accepted(entry, encoded)
            return True
        if stored.stored == entry.stored and live.generation == generation:
            return False
        self._take_over(entry, live, stored)
        return False

    def _take_over(self, entry: Entry, live: FrameworkRecord, stored: Entry) -> None:
        stored.tracker.inherit(entry.tracker)
        entry.tracker, entry.stored, entry.version = stored.tracker, stored.stored, live.resource_version
        framework = self._read(live, entry)
        if entry.tracker.status is not None and entry.outcomes:
            fold(framework, entry.tracker, entry.outcomes, self._env())
        entry.persist_first = entry.tracker.urgency is not Urgency.NONE

    # --- actions ---

    def _carry_out(self, entry: Entry, action: Action) -> Result:
        try:
            result = self._attempt(entry, action)
        except Lost as lost:
            result = Unanswered(str(lost))
        except ApiRefusal as refusal:
            result = _refused(refusal)
        self.tell(f"{_name_action(action)} -> {result if not isinstance(result, Refused) else result.code}")
        return result

    def _attempt(self, entry: Entry, action: Action) -> Result:
        target = action.target
        match action:
            case Create(body=body, controller_uid=owner):
                return self._create(entry, target, body, owner)
            case Delete(uid=uid, force=force, confirm=confirm):
                if not self._delete(entry, action, uid, force=force):
                    return Gone()
                return self._confirm(target, uid) if confirm else Accepted()
            case Cleanup(controller_uid=owner):
                found = self._look(target)
                return Gone() if found is None or found.controller_uid != owner else Exists(found)
            case Confirm(uid=uid):
                return self._confirm(target, uid)
            case Refresh():
                return Remains("the stored status is as old")
            case Relabel(uid=uid):
                return self._relabel(target, uid)

    def _create(self, entry: Entry, target: Target, body: bytes, owner: str) -> Result:
        def execute() -> Body:
            template = orjson.loads(body)
            self.guarantees.creating(entry.uid, target, template)
            return self.world.create(target.kind, template, made=self.guarantees.created)

        try:
            made: Body = self.world.request(self.label, "create", target.name, execute)
        except ApiRefusal as refusal:
            if refusal.reason == "AlreadyExists":
                return Exists(self._namesake(target), refusal.message)
            if target.kind is Kind.POD and classify_creation_refusal(_refused(refusal)) is not None:
                found = self._namesake(target)
                if found is not None and found.controller_uid == owner:
                    return Exists(found)
            raise
        return Created(made["metadata"]["uid"])

    def _namesake(self, target: Target) -> Identity | None:
        try:
            return self._look(target)
        except ApiRefusal as refusal:
            # Not a refusal of the creation.
            raise Lost(f"{target.name} may be there") from refusal

    def _delete(self, entry: Entry, action: Action, uid: str, *, force: bool = False) -> bool:
        target = action.target

        def execute() -> None:
            self.guarantees.deleting(entry.uid, action, uid)
            grace = 0 if force else None
            self.world.delete(target.kind, target.name, uid=uid, grace=grace, foreground=target.kind is not Kind.POD)

        try:
            self.world.request(self.label, "delete", f"{target.name} {uid}", execute)
        except ApiRefusal as refusal:
            if refusal.code == 404:
                return False
            if refusal.code == 409:
                found = self._look(target)
                if found is not None and found.uid == uid:
                    raise
                return False
            raise
        return True

    def _confirm(self, target: Target, uid: str) -> Result:
        found = self._find(target)
        if found is None or found["metadata"]["uid"] != uid:
            return Gone()
        return Remains("is still there", unlabelled=not _is_labelled(found))

    def _relabel(self, target: Target, uid: str) -> Result:
        def execute() -> bool:
            body = self.world.get(target.kind, target.name)
            if body["metadata"]["uid"] != uid:
                return False
            labels = {**(body["metadata"].get("labels") or {}), names.FRAMEWORK_NAME: self.name}
            self.guarantees.relabelling(body)
            self.world.edit(target.kind, target.name, lambda found: found["metadata"].update(labels=labels))
            return True

        try:
            return Accepted() if self.world.request(self.label, "patch", target.name, execute) else Gone()
        except ApiRefusal as refusal:
            if refusal.code == 404:
                return Gone()
            raise

    def _look(self, target: Target) -> Identity | None:
        marks = names.POD_IDENTITY if target.kind is Kind.POD else names.CONFIGMAP_IDENTITY
        found = self._find(target)
        return None if found is None else identity_of(found["metadata"], marks)

    def _find(self, target: Target) -> Body | None:
        read: Callable[[], Body] = lambda: self.world.get(target.kind, target.name)  # noqa: E731
        try:
            found: Body = self.world.request(self.label, "get", target.name, read)
            return found
        except ApiRefusal as refusal:
            if refusal.code == 404:
                return None
            raise


def _refused(refusal: ApiRefusal) -> Refused:
    return Refused(refusal.code, refusal.message, refusal.status_json, reason=refusal.reason)


def _entry_of(record: FrameworkRecord) -> Entry:
    status = decode_status(record.status)
    stored = b"" if status is None else encode_status(record.name, status)
    return Entry(record.uid, Tracker(status), record.resource_version, stored)


def _needs_live_status(action: Action) -> bool:
    return isinstance(action, Refresh) or (isinstance(action, Delete) and action.stray)


def _is_labelled(body: Body) -> bool:
    return names.FRAMEWORK_NAME in (body["metadata"].get("labels") or {})


def _essence(pod: PodRecord) -> tuple[object, ...]:
    return (pod.identity, pod.phase, pod.node_name, pod.pod_ip, pod.host_ip, pod.running_grace_sec)


def _name_action(action: Action) -> str:
    uid = getattr(action, "uid", "")
    flags = "".join(f" {flag}" for flag in ("force", "confirm") if getattr(action, flag, False))
    return f"{type(action).__name__} {action.target.name}{uid and ' '}{uid}{flags} (attempt {action.target.attempt_id})"
