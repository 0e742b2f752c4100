"""All decisions for one Framework, without I/O.

A driver asks for instructions (``next``) until it gets Wait or Done. It carries out each call: when the call has a
request slot, it asks for the request (``begin``), sends it, and passes the answer on (``on_answer``), which returns the
next request or None. Any number of actions and at most one write or read of the Framework run concurrently. After each
of these methods the driver takes ``effects``, before it sends anything.

Source: docs/lifecycle.md, "In order", and docs/guarantees.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Final

from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.names import split_pod_name
from frameworkcontroller.api.objects import CompanionRecord, ConfigMapRecord, FrameworkRecord, PodRecord
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Action, ChangeFinalizer, Create, PartAction, carry_out
from frameworkcontroller.machine.kernel.exchanges import NotAttempted
from frameworkcontroller.machine.kernel.model import Env, Snapshot, SnapshotTrigger, Urgency, require
from frameworkcontroller.machine.kernel.outcomes import drop
from frameworkcontroller.machine.kernel.protocol import (
    Act,
    Archive,
    Call,
    Done,
    Effect,
    Instruction,
    Outbox,
    ReadLive,
    RequeueError,
    View,
    Wait,
    WriteStatus,
    read_live,
)
from frameworkcontroller.machine.kernel.requests import LARGE_BYTES, Answer, Get, Kind, Request
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.knownframework import KnownFramework, digest_of
from frameworkcontroller.machine.parts import PARTS
from frameworkcontroller.machine.passes import Pass
from frameworkcontroller.machine.plan import fold
from frameworkcontroller.machine.specreading import ReadSpec
from frameworkcontroller.machine.statuswriter import Live, StatusWriter

_TASK_BYTES: Final = 500
"""Size of a Task in a status, at least."""


class Reconciler:
    """The reconciler of one Framework; ``tracker`` holds the status to be stored."""

    quarantined: bool = False

    def __init__(self, record: FrameworkRecord, *, compress: bool = False) -> None:
        """``compress``: config largeFrameworkCompression.

        Raises:
            StatusError: the stored status is invalid.
        """
        self.key, self.name, self.uid = record.key, record.name, record.uid
        status = decode_status(record.status)
        self.tracker = Tracker(status)
        self.known = KnownFramework(record, status)
        self._outbox = Outbox()
        self._writer = StatusWriter(self.known, self._outbox, compress=compress)
        self._pass: Pass | None = None
        self._exchanges: dict[Call, Generator[Request, Answer, Any]] = {}
        self._answers: list[tuple[Archive, Answer]] = []
        """Answers of the history, to be folded before the next plan."""
        self._offered: frozenset[SnapshotTrigger] = frozenset()
        self._stopping = False
        self._resync = False

    # --- events ---

    def on_framework_event(self, record: FrameworkRecord) -> None:
        """The Framework changed."""
        self.known.on_event(record)

    def on_pod_event(self, name: str) -> None:
        """A Pod changed: plan its Task."""
        parts = split_pod_name(name)
        if parts is not None:
            self.tracker.agenda.look(parts[1:])

    def on_readiness(self, name: str) -> bool:
        """A Pod became ready, or ceased to be. Return whether a role waits for that: then its Task is planned."""
        parts = split_pod_name(name)
        if parts is None or not any(part.is_watched(self.tracker, parts[1]) for part in PARTS.is_watched):
            return False
        self.tracker.agenda.look(parts[1:])
        return True

    def on_pod_dropped(self, last: PodRecord, *, removed: bool) -> None:
        """The cache dropped a Pod. ``last``: its last state. ``removed``: whether this shows that it is gone."""
        parts = split_pod_name(last.name)
        if parts is not None:
            self.tracker.pod_dropped(parts[1:], last, removed=removed)

    def on_configmap_dropped(self, last: ConfigMapRecord) -> None:
        """The cache dropped a ConfigMap: it is gone, or has lost its label. ``last``: its last state."""
        self.tracker.configmap_dropped(last.uid)
        if last.progress is not None:
            self.tracker.life.dropped_configmap = last

    def on_companion_event(self, record: CompanionRecord) -> None:
        """An object of a part changed. Most are looked at in every plan."""
        if (part := PARTS.of_kind(Kind(record.kind))) is not None:
            part.on_event(self.tracker, record)

    def on_companion_dropped(self, last: CompanionRecord) -> None:
        """The cache dropped an object of a part: it is gone, or has lost its label."""
        part = PARTS.of_kind(Kind(last.kind))
        if part is not None and (target := part.target_of(self.tracker, last)) is not None:
            drop(PARTS, self.tracker, target, last.uid)

    def on_companions_listed(self, kind: Kind, listed: float, find: Callable[[str], CompanionRecord | None]) -> bool:
        """The cache has all objects of the kind that existed at ``listed`` (monotonic seconds).

        Return whether it lacks one that was created before, which is planned then. ``find``: the cached one of a key.
        """
        namespace = self.key.partition("/")[0]
        lacking = self.tracker.expectations.observe_list(kind, listed, lambda name: find(f"{namespace}/{name}"))
        for target, uid in lacking:
            drop(PARTS, self.tracker, target, uid)
        return bool(lacking)

    def on_archived(self, archive: Archive, answer: Answer) -> None:
        """The history has answered: the next plan folds it."""
        self._answers.append((archive, answer))

    def on_captured(self, pod_uid: str) -> bool:
        """The logs of a Pod are kept, or followed. Return whether a deletion waits for that."""
        return any(part.on_captured(self.tracker, pod_uid) for part in PARTS.on_captured)

    def resync(self, *, from_cache: bool = True) -> bool:
        """Plan all Tasks in the next pass. Return False for a completed Framework, which needs none.

        ``from_cache``: by the spec in the cache, even of an older generation.
        """
        status = self.tracker.status
        if status is None or status.state is State.COMPLETED:
            return False
        self.tracker.look_at_all()
        self.tracker.expectations.confirmed.clear()
        for part in PARTS.on_resync:
            part.on_resync(self.tracker)
        self._resync |= from_cache
        return True

    def stop(self) -> None:
        """Start no more actions, and write the status at once."""
        self._stopping = True

    # --- queries of the driver ---

    @property
    def is_left_alone(self) -> bool:
        """Whether nothing is decided for the Framework: its status cannot be stored."""
        return self._writer.cannot_store

    @property
    def is_doubtful(self) -> bool:
        """Whether nothing is to be done by a status that only the cache has shown: a later one in the cache counts."""
        tracker = self.tracker
        return not self.known.stored.confirmed and tracker.status is not None and tracker.urgency is Urgency.NONE

    def is_large(self, call: Call, view: View) -> bool:
        """Whether the call sends or receives more than ``LARGE_BYTES``."""
        if isinstance(call, Act):
            return isinstance(call.action, Create | PartAction) and call.action.is_large
        status = max(self._writer.pacing.size, _TASK_BYTES * self.tracker.task_states.total)
        return status + (0 if view.record is None else len(view.record.spec_json)) > LARGE_BYTES

    def must_read(self, record: FrameworkRecord) -> bool:
        """Whether the next pass needs the spec of this record, which is large: give it to ``on_read`` before."""
        return self.known.must_read(record)

    def on_read(self, read: ReadSpec) -> None:
        """Keep a large spec for the next pass."""
        self.known.on_read(read)

    def effects(self) -> list[Effect]:
        """Take the effects that are due before the next request."""
        return self._outbox.take()

    def take_snapshots(self) -> list[Snapshot]:
        """Take the snapshots that were to be logged before the next request."""
        return self._outbox.take_snapshots()

    def describe(self, clock: float) -> dict[str, Any]:
        """The state for debugging, without the tracker. ``clock``: monotonic seconds."""
        known, writer = self.known, self._writer
        return {
            "resourceVersion": known.stored.resource_version,
            "generation": None if known.framework is None else known.framework.generation,
            "persistFirst": writer.must_write,
            "nextWriteInSeconds": max(0.0, writer.pacing.next_write - clock),
            "failedPreconditions": writer.failed_preconditions,
            "specError": known.spec_error or None,
            "quarantine": None,
        }

    # --- the protocol ---

    def next(self, view: View) -> Instruction:
        """The next instruction.

        Raises:
            InvariantError: the status violates an invariant.
            StatusError: a live read returned an invalid status.
        """
        current, env = self._pass, view.env
        if current is None:
            record = view.record
            if record is None or record.uid != self.uid:
                return Done()
            if self._resync:
                # Believe the cache, even at an older generation: a backup of the API server may have been restored.
                # If only the cache is old, the preconditions of the write fail.
                self._resync = False
                self.known.forget_spec()
            self._offered = frozenset().union(*(part.offered(env.limits) for part in PARTS.offered))
            framework = self.known.read(record, self.tracker.status, env.limits)
            current = self._pass = Pass(framework, self.tracker, self.known, self._writer, self._outbox, env.clock)
        batch = current.batch
        if current.done or self._stopping or current.is_interrupted(view):
            batch.stopped = True
        if (action := batch.start()) is not None:
            return Act(action)
        # Most passes have one action, and nothing to do before its end.
        tick_at = math.inf if batch.is_single else current.tick_at
        if current.framework_call is None and not (batch.in_flight and env.clock < tick_at):
            answers, self._answers = self._answers, []
            current.framework_call = current.decide(view, answers, stopping=self._stopping)
            if current.framework_call is not None:
                return current.framework_call
            if (action := batch.start()) is not None:
                return Act(action)
        if current.framework_call is not None:
            return Wait()
        if batch.in_flight:
            return Wait(None if batch.is_single else current.tick_at - env.clock)
        self._pass = None
        return current.end(env.clock)

    def begin(self, call: Call, view: View) -> Request | None:
        """The first request of ``call``, which has a slot now; None if it is no longer wanted."""
        current = require(self._pass, "pass")
        match call:
            case Act(action=action):
                if isinstance(action, ChangeFinalizer):
                    stored = self.known.stored
                    action = replace(action, resource_version=stored.resource_version, finalizers=stored.finalizers)
                interrupted = current.done or self._stopping or current.is_interrupted(view)
                if interrupted or not current.is_wanted(action):
                    current.batch.end(action, NotAttempted())
                    return None
                self._outbox.log_snapshots(self.known.stored.resource_version, self._offered)
                self._exchanges[call] = carry_out(action)
            case WriteStatus(catch_up=catch_up):
                self._exchanges[call] = self._write(current, view, catch_up=catch_up)
            case ReadLive(actions=actions):
                self._exchanges[call] = self._confirm(current, actions, view)
        return self._advance(call, None)

    def on_answer(self, call: Call, answer: Answer) -> Request | None:
        """The next request of ``call`` after ``answer``; None if the call is over."""
        return self._advance(call, answer)

    def _advance(self, call: Call, answer: Answer | None) -> Request | None:
        current = require(self._pass, "pass")
        exchange = self._exchanges[call]
        try:
            return next(exchange) if answer is None else exchange.send(answer)
        except StopIteration as end:
            if isinstance(call, Act):
                current.batch.end(call.action, end.value)
        except RequeueError as error:
            # Its traceback leads back to this pass: a cycle, which would keep the pass and its request in memory.
            current.done = Done(error=error.with_traceback(None))
        if not isinstance(call, Act):
            current.framework_call = None
        del self._exchanges[call]
        return None

    # --- writes and reads of the Framework ---

    def _write(self, current: Pass, view: View, *, catch_up: bool) -> Generator[Request, Answer, None]:
        record = view.record
        is_there = record is not None and record.uid == self.uid and not self.must_read(record)
        if catch_up and self.tracker.agenda and record is not None and is_there:
            current.catch_up(view, self.known.read(record, self.tracker.status, view.env.limits))
        written = yield from self._writer.write(self.tracker, view, self._offered)
        if isinstance(written, Live):
            self._take_over(current, written, view.env)
        elif written == "accepted":
            current.wrote(view.env.clock)
        elif written == "again":
            current.done = Done(0.0)

    def _confirm(self, current: Pass, actions: Sequence[Action], view: View) -> Generator[Request, Answer, None]:
        """Check by a live read that the cached status is the stored one, before the first actions that rest on it.

        A restored or lagging API server, or a proxy, may answer a list with an old status, and the watch repeats it.
        """
        try:
            live = read_live((yield Get(Kind.FRAMEWORK, self.name)), self.uid)
        except RequeueError:
            current.leave(actions, view.env)
            raise
        if not self.known.is_known(live):
            status = decode_status(live.status)
            self._take_over(current, Live(live, status, digest_of(self.name, status)), view.env)
        elif self.known.confirm(live, view.env.limits):
            current.batch.add(actions)
        else:
            current.leave(actions, view.env)
            current.done = Done(0.0)

    def _take_over(self, current: Pass, live: Live, env: Env) -> None:
        """Continue from the stored status.

        Drops unpersisted decisions, but not the outcomes of creations: Pods would exist that no status records.
        """
        tracker, before = Tracker(live.status), self.tracker
        tracker.inherit(before)
        if self.known.stored.may_be(live.digest):
            # Of this process: another controller has created nothing by it since.
            tracker.absence.begun_at = before.absence.begun_at
            tracker.absence.unrecorded = before.absence.unrecorded
        self.tracker = tracker
        self._outbox.drop_unpersisted()
        self.known.replace(live.record, live.status, live.digest)
        framework = self.known.read(live.record, live.status, env.limits)
        if any(part.reads_labels(env.limits) for part in PARTS.reads_labels) and not framework.spec.is_suspended:
            # Another controller may have begun since, with a ConfigMap that was taken for a late one here.
            tracker.absence.late.clear()
        if live.status is not None and (creations := self._writer.unwritten_creations):
            self._outbox.add_plan(fold(framework, tracker, creations, env), live.record.resource_version)
        self._writer.restart(must_write=tracker.urgency is not Urgency.NONE)
        current.take_over(tracker, Done(0.0) if live.error is None else Done(error=live.error))
