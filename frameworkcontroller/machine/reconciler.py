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
from dataclasses import dataclass, field, replace
from typing import Any, Final

from frameworkcontroller import depths
from frameworkcontroller.api import names
from frameworkcontroller.api.codec import (
    AddedFields,
    EncodedStatus,
    added_fields,
    decode_status,
    dropped_fields,
)
from frameworkcontroller.api.names import split_pod_name
from frameworkcontroller.api.objects import (
    CompanionRecord,
    Framework,
    FrameworkRecord,
    PodRecord,
    QueueLabels,
)
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import FrameworkStatus, State
from frameworkcontroller.machine.ending import Ends, ends_in, ends_of, spec_to_end
from frameworkcontroller.machine.kernel.actions import (
    Action,
    ChangeFinalizer,
    Create,
    Outcome,
    PartAction,
    carry_out,
    needs_live_status,
)
from frameworkcontroller.machine.kernel.batch import Batch
from frameworkcontroller.machine.kernel.model import (
    Env,
    Observed,
    Plan,
    Record,
    Snapshot,
    SnapshotTrigger,
    Urgency,
    require,
)
from frameworkcontroller.machine.kernel.outcomes import drop
from frameworkcontroller.machine.kernel.pacing import Pacing
from frameworkcontroller.machine.kernel.protocol import (
    NOT_FOUND,
    Act,
    Archive,
    Call,
    Done,
    Effect,
    Emit,
    Instruction,
    LogSnapshots,
    Offer,
    Persisted,
    ReadLive,
    Relist,
    RequeueError,
    StatusWritten,
    View,
    Wait,
    Warn,
    WriteResult,
    WriteStatus,
    failure,
    read_live,
)
from frameworkcontroller.machine.kernel.requests import (
    LARGE_BYTES,
    Answer,
    Answered,
    Get,
    Kind,
    PatchStatus,
    Refusal,
    Refused,
    Request,
    Unanswered,
    metadata_in,
)
from frameworkcontroller.machine.kernel.results import Created, Exists, FinalizersAre, NotAttempted, Outdated
from frameworkcontroller.machine.kernel.stored import Stored, digest_of
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.parts import PARTS
from frameworkcontroller.machine.plan import archived, fold, plan, reject, stall
from frameworkcontroller.machine.specreading import LARGE_SPEC_BYTES, ReadSpec, read_spec

# --- times ---------------------------------------------------------------------------------------------------------


TICK_SEC: Final = 1.0
"""Interval of plans while actions are in flight."""

SHOW_SEC: Final = 5.0
"""Interval of status writes while actions are in flight, with which they compete for the API server."""

BATCH_SEC: Final = 120.0
"""Time after which a pass starts no more actions; the next pass continues. A long batch must not look like a hung sync
to the liveness check: 10,000 creations of ten seconds each take more than half an hour."""

PLANS_PER_PASS: Final = 8
"""Maximum number of plans in a row without an action or write; the next pass continues."""

TOO_LARGE_RETRY_SEC: Final = 300.0
"""Interval of attempts to write an unchanged status that was too large: the limit may have been raised."""

PRUNED_RETRY_SEC: Final = 30.0
"""Interval of attempts to write a status of which the API server dropped fields: its CRD may have been updated."""

_TASK_BYTES: Final = 500
"""Size of a Task in a status, at least."""

_TIMER_SLACK_SEC: Final = 0.001
_FAILED_PRECONDITIONS_AT_ONCE: Final = 3
"""Failed preconditions in a row before a back-off. Causes: a client that writes as often, or an API server that was
restored from a backup."""

_REFUSALS_TO_LEAVE: Final = 5
"""Refusals in a row of a status, for no precondition, after which a deleted Framework is left alone. Otherwise its
deletion would wait indefinitely for an end that cannot be persisted (machine/parts/history/finalization.py)."""

_COMPRESS_STATUS: Final = "set largeFrameworkCompression: true in the controller's configuration, or run fewer Tasks"
_SHRINK_STATUS: Final = "it is compressed already: run fewer Tasks, or let them end with shorter messages"


# --- the state of a reconciler ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Pass:
    """One pass, from the work queue's key to ``Done``. Times are monotonic seconds.

    While ``framework_call`` is set, nothing is folded or planned. Once ``done`` is, the batch is stopped and no call
    begins, so that no ``framework_call`` follows. Without ``done``, the pass ends when nothing is left to do.
    """

    framework: Framework
    show_at: float
    stop_at: float
    tick_at: float = 0.0
    batch: Batch = field(default_factory=Batch)
    framework_call: WriteStatus | ReadLive | None = None
    """The write or read of the Framework in flight."""
    planned: bool = False
    """Whether the first plans are made."""
    requeue_at: float | None = None
    done: Done | None = None
    """The end of the pass if a call decided it: by an error, or by news that another pass has to plan."""

    def requeue(self, seconds: float | None, clock: float) -> None:
        """Let the next pass begin ``seconds`` after ``clock`` at the latest."""
        if seconds is not None and (self.requeue_at is None or clock + seconds < self.requeue_at):
            self.requeue_at = clock + seconds


_Exchange = Generator[Request, Answer, None]


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
        self.stored = Stored.in_cache(record, status)
        self.spec_error = ""
        """Why the spec is invalid."""
        self._ends = Ends()
        """What ends the Framework, by the last spec, or the last one in which each field was valid."""
        self._compress = compress
        self._has_queues = False
        """Config kueue: whether queue labels count."""
        self._queue: QueueLabels | None = None
        """The queue labels, as the last live read or a later version in the cache has shown them."""
        self._labels_version = ""
        """The resourceVersion in the cache whose labels were looked at last."""
        self._cached_held = names.HISTORY_FINALIZER in record.finalizers
        """Whether the Framework had the finalizer of the history when the cache was looked at last."""
        self._held_version = record.resource_version
        """The resourceVersion in the cache of which that is known."""
        self._takes: frozenset[SnapshotTrigger] = frozenset()
        """Triggers of which the history may store something, and nothing waits for it."""
        self._framework: Framework | None = None
        """At the newest known generation."""
        self._large_spec: ReadSpec | None = None
        """The last spec that was parsed, if it is large."""
        self._creation_outcomes: list[Outcome] = []
        """Outcomes of creations since the last accepted write, to be folded into another status after a take-over."""
        self._records: list[Record] = []
        """To be emitted when the status that shows them is accepted."""
        self._snapshots: list[Snapshot] = []
        """To be logged before the next request, which may delete or overwrite their objects."""
        self._persist_first = False
        """Whether the tracked status must be written before the next decision."""
        self._pacing = Pacing()
        self._not_before = 0.0
        """When (monotonic seconds) to retry a status that was too large, or of which fields were dropped."""
        self._cannot_store = False
        """Whether the API server has refused the tracked status, or dropped fields of it."""
        self._refusals = 0
        """In a row, of the tracked status, for no precondition."""
        self._too_large_logged = ""
        self._failed_preconditions = 0
        self._stopping = False
        self._resync = False
        self._pass: _Pass | None = None
        self._archived: list[tuple[Archive, Answer]] = []
        """Answers of the history, to be looked at by the next plan."""
        self._exchanges: dict[Call, Generator[Request, Answer, Any]] = {}
        self._effects: list[Effect] = []

    # --- events ---

    def on_framework_event(self, record: FrameworkRecord) -> None:
        """The Framework changed. If only its spec did, know its version: no write of the status is refused for it.

        The newer generation shows that the cache is ahead of what was known; the status, that it is the stored one.
        Later the record has no status.
        """
        known = self._framework
        if known is not None and record.generation > known.generation:
            self.stored.see_spec(record)

    def on_pod_event(self, name: str) -> None:
        """A Pod changed: plan its Task."""
        parts = split_pod_name(name)
        if parts is not None:
            self.tracker.agenda.add(parts[1:])

    def on_readiness(self, name: str) -> bool:
        """A Pod became ready, or ceased to be. Return whether a role waits for that: then its Task is planned."""
        parts = split_pod_name(name)
        if parts is None or not any(part.is_watched(self.tracker, parts[1]) for part in PARTS.is_watched):
            return False
        self.tracker.agenda.add(parts[1:])
        return True

    def on_pod_dropped(self, last: PodRecord, *, removed: bool) -> None:
        """The cache dropped a Pod. ``last``: its last state. ``removed``: whether this shows that it is gone."""
        parts = split_pod_name(last.name)
        if parts is not None:
            self.tracker.pod_dropped(parts[1:], last, removed=removed)

    def on_configmap_dropped(self, uid: str) -> None:
        """The cache dropped a ConfigMap: it is gone, or has lost its label."""
        self.tracker.configmap_dropped(uid)

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
        lacking = self.tracker.objects.listed(kind, listed, lambda name: find(f"{namespace}/{name}"))
        for target, uid in lacking:
            drop(PARTS, self.tracker, target, uid)
        return bool(lacking)

    def on_archived(self, archive: Archive, answer: Answer) -> None:
        """The history has answered: plan what waits for it."""
        self._archived.append((archive, answer))

    def resync(self, *, from_cache: bool = True) -> bool:
        """Plan all Tasks in the next pass. Return False for a completed Framework, which needs none.

        ``from_cache``: by the spec in the cache, even of an older generation.
        """
        status = self.tracker.status
        if status is None or status.state is State.COMPLETED:
            return False
        self.tracker.look_at_all()
        self.tracker.objects.confirmed.clear()
        for part in PARTS.on_resync:
            part.on_resync(self.tracker)
        self._resync |= from_cache
        return True

    def stop(self) -> None:
        """Start no more actions, and write the status at once."""
        self._stopping = True

    @property
    def is_left_alone(self) -> bool:
        """Whether nothing is decided for the Framework: its status cannot be stored."""
        return self._cannot_store

    @property
    def is_doubtful(self) -> bool:
        """Whether nothing is to be done by a status that only the cache has shown: a later one in the cache counts."""
        tracker = self.tracker
        return not self.stored.confirmed and tracker.status is not None and tracker.urgency is Urgency.NONE

    def is_large(self, call: Call, view: View) -> bool:
        """Whether the call sends or receives more than ``LARGE_BYTES``."""
        if isinstance(call, Act):
            return isinstance(call.action, Create | PartAction) and call.action.is_large
        record, tracker = view.record, self.tracker
        status = max(self._pacing.size, _TASK_BYTES * tracker.task_count)
        return status + (0 if record is None else len(record.spec_json)) > LARGE_BYTES

    def effects(self) -> list[Effect]:
        """Take the effects that are due before the next request."""
        effects, self._effects = self._effects, []
        return effects

    def take_snapshots(self) -> list[Snapshot]:
        """Take the snapshots that were to be logged before the next request."""
        snapshots, self._snapshots = self._snapshots, []
        return snapshots

    def describe(self, clock: float) -> dict[str, Any]:
        """The state for debugging, without the tracker. ``clock``: monotonic seconds."""
        return {
            "resourceVersion": self.stored.resource_version,
            "generation": None if self._framework is None else self._framework.generation,
            "persistFirst": self._persist_first,
            "nextWriteInSeconds": max(0.0, self._pacing.next_write - clock),
            "failedPreconditions": self._failed_preconditions,
            "specError": self.spec_error or None,
            "quarantine": None,
        }

    # --- large specs ---

    def must_read(self, record: FrameworkRecord) -> bool:
        """Whether the next pass needs the spec of this record, which is large: give it to ``on_read`` before."""
        known, large = self._framework, self._large_spec
        is_new = known is None or record.generation > known.generation
        return is_new and len(record.spec_json) > LARGE_SPEC_BYTES and not (large is not None and large.is_of(record))

    def on_read(self, read: ReadSpec) -> None:
        """Keep a large spec for the next pass."""
        self._large_spec = read

    def _read_spec(self, record: FrameworkRecord) -> ReadSpec:
        read = self._large_spec
        if read is None or not read.is_of(record):
            read = read_spec(record)
            self._large_spec = read if read.digest else None
        return read

    # --- the protocol ---

    def next(self, view: View) -> Instruction:
        """The next instruction.

        Raises:
            InvariantError: the status violates an invariant.
            StatusError: a live read returned an invalid status.
        """
        current, clock = self._pass, view.env.clock
        limits = view.env.limits
        self._has_queues = limits.kueue
        self._takes = frozenset() if limits.history_blocks else limits.history
        if current is None:
            record = view.record
            if record is None or record.uid != self.uid:
                return Done()
            if self._resync:
                # Believe the cache, even at an older generation: a backup of the API server may have been restored.
                # If only the cache is old, the preconditions of the write fail.
                self._resync, self._framework = False, None
            current = self._pass = _Pass(self._read(record), clock + SHOW_SEC, clock + BATCH_SEC)
        batch = current.batch
        if current.done or self._is_interrupted(current, view):
            batch.stopped = True
        if (action := batch.start()) is not None:
            return Act(action)
        # Most passes have one action, and nothing to do before its end.
        tick_at = math.inf if batch.is_single else current.tick_at
        if current.framework_call is None and not (batch.in_flight and clock < tick_at):
            current.tick_at = clock + TICK_SEC
            current.framework_call = self._decide(current, view)
            if current.framework_call is not None:
                return current.framework_call
            if (action := batch.start()) is not None:
                return Act(action)
        if current.framework_call is not None:
            return Wait()
        if batch.in_flight:
            return Wait(None if batch.is_single else current.tick_at - clock)
        return self._end(current, view)

    def begin(self, call: Call, view: View) -> Request | None:
        """The first request of ``call``, which has a slot now; None if it is no longer wanted."""
        current = require(self._pass, "pass")
        exchange: Generator[Request, Answer, Any]
        match call:
            case Act(action=action):
                if isinstance(action, ChangeFinalizer):
                    stored = self.stored
                    action = replace(action, resource_version=stored.resource_version, finalizers=stored.finalizers)
                if not self._is_wanted(current, action, view):
                    current.batch.end(action, NotAttempted())
                    return None
                self._log_snapshots()
                exchange = carry_out(action)
            case WriteStatus(catch_up=catch_up):
                exchange = self._write(current, view, catch_up=catch_up)
            case ReadLive(actions=actions):
                exchange = self._confirm(current, actions, view)
        self._exchanges[call] = exchange
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

    # --- a pass ---

    def _decide(self, current: _Pass, view: View) -> WriteStatus | ReadLive | None:
        """Fold outcomes, plan actions into the batch, and return the next write or read of the Framework.

        To be called only while no write or read is in flight.
        """
        batch = current.batch
        if (outcomes := batch.take()) and any(isinstance(outcome.action, Create) for outcome in outcomes):
            self._pacing.created_at = view.env.clock
        self._fold(current, outcomes, view)
        self._take_archived(current, view)
        if current.done:
            return None
        if self._persist_first:
            too_early = self._not_before - view.env.clock
            if too_early > 0 and self.tracker.process.generation == current.framework.generation:
                current.requeue(too_early, view.env.clock)
                return None
            return WriteStatus()
        read = None
        if not current.planned:
            read = self._plan_first(current, view)
        elif batch.is_open and not batch.stopped:
            read = self._plan_more(current, view)
        call = read or self._write_if_due(current, view)
        return ReadLive() if call is None and not batch.is_open and self._is_outdated(view) else call

    def _plan_first(self, current: _Pass, view: View) -> ReadLive | None:
        """Plan until there are actions, an urgent change, or no work."""
        if self._must_read_first(view):
            return ReadLive()
        current.planned = True
        tracker, env = self.tracker, view.env
        observed = view.observe(creating=False)
        step = Plan()
        for _ in range(PLANS_PER_PASS):
            step = self._plan(current.framework, observed, env)
            if step.actions or tracker.urgency is Urgency.NOW or not tracker.is_busy:
                break
        current.requeue(step.requeue_after, env.clock)
        return self._propose(current, step.actions, view)

    def _must_read_first(self, view: View) -> bool:
        """Whether a live read must come before the first plan, as what a plan gives to the history counts at once."""
        if self.stored.confirmed:
            return False
        if names.HISTORY_FINALIZER in self.stored.finalizers and not self._cached_held:
            return True
        status = self.tracker.status
        return bool(view.env.limits.history) and status is not None and status.state is not State.COMPLETED

    def _is_outdated(self, view: View) -> bool:
        """Whether the status may be outdated that gives nothing to do: the cache shows a later version than its own.

        Without that, an outdated status does no harm: live reads come before actions, and writes have preconditions.
        """
        if not self.is_doubtful:
            return False
        record = view.record
        return record is not None and record.uid == self.uid and record.resource_version != self.stored.resource_version

    def _plan_more(self, current: _Pass, view: View) -> ReadLive | None:
        """Plan the events since the last plan while actions are in flight.

        After an urgent change, no more actions are started, and it is persisted when none is in flight: no Pod is
        created for an attempt that the stored status shows as over.
        """
        batch, tracker, env = current.batch, self.tracker, view.env
        step = self._plan(current.framework, view.observe(creating=batch.is_creating), env)
        current.requeue(step.requeue_after, env.clock)
        # A creation is awaited; other actions are planned again after their outcome.
        known = [action for action in step.actions if action.target in batch and not isinstance(action, Create)]
        self._leave(current, known, view)
        read = self._propose(current, [action for action in step.actions if action.target not in batch], view)
        if tracker.urgency is Urgency.NOW or tracker.is_completing or env.clock >= current.stop_at:
            batch.stopped = True
        return read

    def _plan(self, framework: Framework, observed: Observed, env: Env) -> Plan:
        step = plan(framework, self.tracker, observed, env)
        self._records.extend(step.records)
        self._snapshots.extend(step.snapshots)
        version = self.stored.resource_version
        for records in step.archives:
            snapshots, tasks = [one for one, _ in records], [task for _, task in records]
            self._effects.append(Archive(snapshots, version, tasks))
        if step.offers:
            self._effects.append(Offer(step.offers, version))
        self._effects.extend(map(Relist, step.relist))
        return step

    def _propose(self, current: _Pass, actions: list[Action], view: View) -> ReadLive | None:
        """Queue actions; return a live read that must come first if they rest on a status only the cache has shown."""
        if current.batch.stopped:
            self._leave(current, actions, view)
        elif self.stored.confirmed and not any(map(needs_live_status, actions)):
            current.batch.add(actions)
        elif actions:
            # Also for an orphan, which may be recorded in a status that another controller has just written.
            return ReadLive(actions)
        return None

    def _write_if_due(self, current: _Pass, view: View) -> WriteStatus | None:
        tracker, clock = self.tracker, view.env.clock
        if tracker.urgency is Urgency.NONE:
            return None
        early = self._pacing.due(tracker, clock, view.env.answer_sec) - clock
        if current.batch.is_open:
            is_due = early <= 0 and (clock >= current.show_at or (tracker.is_awaited and current.batch.is_long))
            return WriteStatus() if is_due and not current.batch.stopped else None
        if early > _TIMER_SLACK_SEC and not self._stopping:
            # End the pass: settled Tasks need not wait for this write.
            current.requeue(early, clock)
            return None
        # Work that is left is for the next pass; only new events may join this write.
        return WriteStatus(catch_up=not tracker.is_busy)

    def _end(self, current: _Pass, view: View) -> Done:
        self._pass = None
        tracker = self.tracker
        if tracker.urgency is Urgency.NONE:
            # No write will follow: a request failed the first time, or the Framework was deleted.
            self._emit_records()
        if current.done:
            return current.done
        if tracker.is_busy and not self._persist_first:
            return Done(0.0)
        if tracker.status is not None and tracker.status.state is State.COMPLETED and tracker.is_clean:
            # Save memory: most Frameworks of a big cluster are completed.
            self._framework = self._large_spec = None
            tracker.drop_encoded()
        return Done(None if current.requeue_at is None else max(0.0, current.requeue_at - view.env.clock))

    def _is_interrupted(self, current: _Pass, view: View) -> bool:
        """Whether the Framework is gone or changed by its user, or the controller stops."""
        if self._stopping:
            return True
        record, framework = view.record, current.framework
        if record is None or record.uid != self.uid:
            return True
        return record.generation > framework.generation or (record.deletion_time is not None) > framework.deleting

    def _is_wanted(self, current: _Pass, action: Action, view: View) -> bool:
        """Whether an action is still wanted now that it has a slot."""
        if current.done or self._is_interrupted(current, view):
            return False
        if not isinstance(action, Create):
            # Even if no more are started: where slots are scarce, every pass would drop it.
            return True
        # An earlier creation whose answer was lost may have created the Pod.
        tracker, target = self.tracker, action.target
        part = PARTS.of(target)
        if target.kind is Kind.POD and not tracker.awaits_pod(target):
            return False
        if part is not None and not part.is_wanted(tracker, target):
            return False
        return not current.batch.stopped

    # --- knowledge ---

    def _read(self, record: FrameworkRecord) -> Framework:
        """The Framework at the newest known generation."""
        before = self._framework
        held = self._read_finalizer(record)
        deleting = record.deletion_time is not None
        queue = self._read_labels(record)
        if before is not None and record.generation <= before.generation and deleting <= before.deleting:
            if before.queue != queue or before.held != held:
                self._framework = before = replace(before, queue=queue, held=held)
            return before
        if before is not None and record.generation < before.generation:
            spec, generation = before.spec, before.generation
        else:
            generation = record.generation
            spec = self._spec_of(self._read_spec(record))
        ignored = "" if self._has_queues or record.queue is None else record.queue.queue_name
        self._framework = Framework(
            record.namespace, record.name, record.uid, generation, deleting, spec, queue, ignored, held, self.spec_error
        )
        return self._framework

    def _spec_of(self, read: ReadSpec) -> FrameworkSpec:
        """The spec to go by."""
        self.spec_error = read.error
        if read.spec is None:
            self._ends = ends_in(read.ends, self._ends)
            return spec_to_end(self._ends, self.tracker.status)
        self._ends = ends_of(read.spec)
        return read.spec

    def _read_finalizer(self, record: FrameworkRecord) -> bool:
        """Whether the Framework has the finalizer of the history. A change by others that the cache shows is read live.

        The cache may be behind the answer that has shown our own change.
        """
        held = names.HISTORY_FINALIZER in self.stored.finalizers
        if record.resource_version != self._held_version:
            self._held_version = record.resource_version
            cached = names.HISTORY_FINALIZER in record.finalizers
            if cached not in (self._cached_held, held):
                self.stored.confirmed = False
            self._cached_held = cached
        return held

    def _read_labels(self, record: FrameworkRecord) -> QueueLabels | None:
        """The queue labels. They have no generation: if the cache shows others than are known, a live read decides."""
        if not self._has_queues or record.resource_version == self._labels_version:
            return self._queue
        if record.queue != self._queue:
            self.stored.confirmed = False
            self._queue = record.queue
        self._labels_version = record.resource_version
        return self._queue

    def _fold(self, current: _Pass, outcomes: list[Outcome], view: View) -> None:
        """Fold outcomes into the tracked status."""
        if not outcomes:
            return
        for outcome in outcomes:
            action = outcome.action
            if isinstance(outcome.result, FinalizersAre):
                self._take_finalizers(current, outcome.result)
            elif isinstance(action, ChangeFinalizer) and isinstance(outcome.result, Outdated):
                self.stored.confirmed = False
            is_recorded = PARTS.of(action.target) is None
            if is_recorded and isinstance(action, Create) and isinstance(outcome.result, Created | Exists):
                # Without the body, which may be large.
                self._creation_outcomes.append(replace(outcome, action=replace(action, source=b"")))
        env = view.env
        folded = fold(current.framework, self.tracker, outcomes, env)
        self._records.extend(folded.records)
        self._effects.extend(map(Relist, folded.relist))
        current.requeue(folded.requeue_after, env.clock)

    def _take_finalizers(self, current: _Pass, now: FinalizersAre) -> None:
        """The patch has tested the version, so that the status is as it was."""
        if self.stored.resource_version != now.before:
            return
        self.stored.resource_version, self.stored.finalizers = now.resource_version, now.finalizers
        held = names.HISTORY_FINALIZER in now.finalizers
        current.framework = replace(current.framework, held=held)
        if self._framework is not None:
            self._framework = replace(self._framework, held=held)

    def _take_archived(self, current: _Pass, view: View) -> None:
        """Fold the answers of the history."""
        if not self._archived:
            return
        answers, self._archived = self._archived, []
        if self.tracker.status is not None:
            folded = archived(current.framework, self.tracker, answers, view.env)
            self._records.extend(folded.records)
            current.requeue(folded.requeue_after, view.env.clock)

    def _leave(self, current: _Pass, actions: Sequence[Action], view: View) -> None:
        """Do not carry out actions now: the next plan decides on them again."""
        self._fold(current, [Outcome(action, NotAttempted()) for action in actions], view)

    # --- effects ---

    def _emit_records(self) -> None:
        if self._records:
            records, self._records = self._records, []
            self._effects.append(Emit(records))

    def _log_snapshots(self) -> None:
        if self._snapshots:
            snapshots, version = self.take_snapshots(), self.stored.resource_version
            self._effects.append(LogSnapshots(snapshots, version))
            if offered := [one for one in snapshots if one.trigger in self._takes]:
                self._effects.append(Offer(offered, version))

    # --- the status write ---

    def _write(self, current: _Pass, view: View, *, catch_up: bool) -> _Exchange:
        """Write the tracked status. docs/guarantees.md explains the preconditions."""
        if catch_up:
            self._catch_up(current, view)
        framework, tracker = require(self._framework, "Framework"), self.tracker
        # After a take-over nothing is decided yet: outcomes are valid for any spec.
        generation = framework.generation if tracker.process.generation is None else tracker.process.generation
        encoded = EncodedStatus(self.name, require(tracker.status, "status"), compress=self._compress)
        self._log_snapshots()
        began = view.env.clock
        self._persist_first = True
        whole = encoded.added != self.stored.added
        answer = yield self._patch(generation, encoded, whole=whole)
        match _version_in(answer):
            case str(version) if whole and (dropped := _dropped_from(answer, encoded.added)):
                self._count(encoded, "pruned")
                self._stall_pruned(current, version, answer, dropped, view)
            case str(version):
                self._count(encoded, "accepted")
                self._accept(version, encoded.digest, encoded.added)
                clock = view.env.clock
                self._pacing.wrote(began, clock, len(encoded.body))
                current.show_at = clock + SHOW_SEC
            case Refused(kind=Refusal.NOT_FOUND | Refusal.OBJECT_NOT_FOUND) as failed:
                self._count(encoded, "not_found")
                raise failure(NOT_FOUND, failed)
            case Refused(kind=Refusal.INVALID | Refusal.CONFLICT | Refusal.ALREADY_EXISTS) as failed:
                live = read_live((yield Get(Kind.FRAMEWORK, self.name)), self.uid)
                self._resolve(current, live, generation, encoded, failed, view)
            case Refused(kind=Refusal.TOO_LARGE) as failed:
                yield from self._stall(current, generation, encoded, failed, view)
            case failed:
                self._count(encoded, "error")
                self.stored.unsure = encoded.digest
                if isinstance(failed, Refused) and failed.kind is Refusal.OTHER and failed.by_api:
                    self._refused_status()
                raise failure(f"cannot write the status: {failed.message}", failed)

    def _catch_up(self, current: _Pass, view: View) -> None:
        """Plan the events since the write was decided: the busier the API server, the more each write contains."""
        record = view.record
        if not self.tracker.agenda or record is None or record.uid != self.uid or self.must_read(record):
            return
        current.done = Done(0.0)
        framework = self._read(record)
        self._leave(current, self._plan(framework, view.observe(creating=False), view.env).actions, view)

    def _patch(self, generation: int, encoded: EncodedStatus, *, whole: bool = False) -> PatchStatus:
        version = self.stored.resource_version
        return PatchStatus(self.name, "/status", encoded, self.uid, generation, version, whole)

    def _count(self, encoded: EncodedStatus, result: WriteResult) -> None:
        self._effects.append(StatusWritten(result, len(encoded.body)))

    def _accept(self, version: str, digest: bytes, added: AddedFields) -> None:
        """The tracked status is stored."""
        tracker = self.tracker
        self.stored = Stored.in_answer(self.name, version, self.stored.finalizers, digest, added)
        self._pacing.rested = tracker.is_at_rest
        self._pacing.unwritten_since = None
        self._persist_first = False
        self._failed_preconditions = self._refusals = 0
        self._cannot_store = False
        self._too_large_logged = ""
        self._creation_outcomes.clear()
        tracker.persisted()
        if tracker.holds.end_stall(None, LifeReason.FIELDS_DROPPED):
            tracker.agenda.look()
        counters, tracker.process.counters = tracker.process.counters, None
        if counters is not None:
            self._effects.append(Persisted(counters))
        self._emit_records()

    def _resolve(
        self,
        current: _Pass,
        live: FrameworkRecord,
        generation: int,
        encoded: EncodedStatus,
        refused: Refused,
        view: View,
    ) -> None:
        """Handle a failed precondition, by comparison with the live Framework."""
        stored = self.stored
        if live.resource_version == stored.resource_version and live.generation == generation:
            if self.spec_error:
                # Servers before 1.30 refuse every status of an object with an invalid spec: emit that without a write.
                found = [one for one in self._records if one.reason is LifeReason.INVALID_SPEC]
                self._records = [one for one in self._records if one.reason is not LifeReason.INVALID_SPEC]
                self._effects.extend([Emit(found)] if found else [])
            self._count(encoded, "conflict")
            self._refused_status()
            raise failure(f"the API server refuses the status: {refused.message}", refused)
        status = decode_status(live.status)
        digest = digest_of(self.name, status)
        if digest == encoded.digest:
            # The write had been accepted: an earlier answer was lost.
            self._count(encoded, "landed")
            self.stored.finalizers = live.finalizers
            self._accept(live.resource_version, digest, encoded.added)
            return
        self._count(encoded, "conflict")
        current.done = Done(0.0)
        is_known = stored.may_be(digest)
        if is_known and live.generation == generation:
            # Only metadata changed, or the last write had been accepted.
            stored.changed(live.resource_version, digest)
            stored.finalizers, stored.added = live.finalizers, added_fields(status)
        else:
            if not is_known:
                self._effects.append(Warn("status changed by another writer; continuing from the stored version"))
            self._take_over(live, status, digest, view)
        self._precondition_failed(refused)

    def _refused_status(self) -> None:
        self._refusals += 1
        self._cannot_store |= self._refusals >= _REFUSALS_TO_LEAVE

    def _precondition_failed(self, refused: Refused) -> None:
        self._failed_preconditions += 1
        if self._failed_preconditions > _FAILED_PRECONDITIONS_AT_ONCE:
            text = f"the Framework changes before each write of its status: {refused.message}"
            raise failure(text, refused)

    def _stall(
        self, current: _Pass, generation: int, encoded: EncodedStatus, refused: Refused, view: View
    ) -> _Exchange:
        """Handle a status that is too large: set the Stalled condition in the stored one, and decide nothing else."""
        live = read_live((yield Get(Kind.FRAMEWORK, self.name)), self.uid)
        if (live.generation, live.resource_version) != (generation, self.stored.resource_version):
            self._resolve(current, live, generation, encoded, refused, view)
            return
        self._count(encoded, "too_large")
        tracker = Tracker(decode_status(live.status))
        framework = require(self._framework, "Framework")
        text = (
            f"The status, {len(encoded.body)} bytes, does not fit into the API server ({refused.message}): "
            f"{_SHRINK_STATUS if self._compress else _COMPRESS_STATUS}. "
            "Until then the controller does nothing for this Framework"
        )
        # Without a spec: a Framework without a status gets one without Tasks, which fits.
        without = replace(framework, spec=FrameworkSpec(), invalid="")
        step = reject(without, tracker, text, view.env, reason=LifeReason.STATUS_TOO_LARGE)
        current.done = Done(0.0)
        if tracker.urgency is not Urgency.NONE:
            said = EncodedStatus(self.name, require(tracker.status, "status"), compress=self._compress)
            answer = yield self._patch(generation, said)
            match _version_in(answer):
                case str(version):
                    self.stored.changed(version, said.digest)
                case Refused(kind=Refusal.INVALID | Refusal.CONFLICT | Refusal.ALREADY_EXISTS) as failed:
                    self._precondition_failed(failed)
                    return
                case Refused(kind=Refusal.TOO_LARGE, message=message):
                    # Not even the condition fits: log it, once per refusal.
                    if self._too_large_logged == message:
                        step.records.clear()
                    self._too_large_logged = message
                case failed:
                    raise failure("cannot write the condition Stalled of a status that is too large", failed)
        self._cannot_store = True
        self._not_before = view.env.clock + TOO_LARGE_RETRY_SEC
        if step.records:
            self._effects.append(Emit(step.records))

    def _stall_pruned(self, current: _Pass, version: str, answer: Answer, dropped: list[str], view: View) -> None:
        """Handle a status that is stored without some fields: nothing is decided before they are.

        The condition Stalled is part of the same status, which is written again at intervals.
        """
        self._cannot_store = True
        status = decode_status(_status_in(answer))
        digest, added = digest_of(self.name, status), added_fields(status)
        self.stored = Stored.in_answer(self.name, version, self.stored.finalizers, digest, added)
        text = (
            f"The API server drops {', '.join(dropped)}: its CustomResourceDefinition is older than this controller. "
            "Until it is updated, the controller does nothing for this Framework"
        )
        before = self.tracker.holds.stalls.get(None)
        is_new = before is None or before.reason is not LifeReason.FIELDS_DROPPED
        framework = require(self._framework, "Framework")
        self._effects.append(Emit(stall(framework, self.tracker, LifeReason.FIELDS_DROPPED, text, view.env).records))
        self._not_before = view.env.clock + (0.0 if is_new else PRUNED_RETRY_SEC)
        current.done = Done(0.0)

    # --- live reads ---

    def _confirm(self, current: _Pass, actions: Sequence[Action], view: View) -> _Exchange:
        """Check by a live read that the cached status is the stored one, before the first actions that rest on it.

        A restored or lagging API server, or a proxy, may answer a list with an old status, and the watch repeats it.
        """
        try:
            live = read_live((yield Get(Kind.FRAMEWORK, self.name)), self.uid)
        except RequeueError:
            self._leave(current, actions, view)
            raise
        framework = self._framework
        if self.stored.has_status_of(live) and framework is not None and live.generation == framework.generation:
            self.stored.resource_version, self.stored.finalizers = live.resource_version, live.finalizers
            self.stored.confirmed = True
            held = names.HISTORY_FINALIZER in live.finalizers
            if held != framework.held:
                self._framework = replace(framework, held=held)
                self._leave(current, actions, view)
                current.done = Done(0.0)
            elif live.queue == framework.queue or not self._has_queues:
                current.batch.add(actions)
            else:
                self._queue, self._framework = live.queue, replace(framework, queue=live.queue)
                self._leave(current, actions, view)
                current.done = Done(0.0)
        else:
            status = decode_status(live.status)
            self._take_over(live, status, digest_of(self.name, status), view)
            current.done = Done(0.0)

    def _take_over(self, live: FrameworkRecord, status: FrameworkStatus | None, digest: bytes, view: View) -> None:
        """Continue from the stored status.

        Drops unpersisted decisions, but not the outcomes of creations: a Pod with an unrecorded UID would be an orphan.
        """
        tracker = Tracker(status)
        tracker.inherit(self.tracker)
        if self.stored.may_be(digest):
            # Of this process: another controller has created nothing by it since.
            tracker.absence.begun_at = self.tracker.absence.begun_at
            tracker.absence.unrecorded = self.tracker.absence.unrecorded
        self.tracker = tracker
        added = added_fields(status)
        self.stored = Stored.in_answer(self.name, live.resource_version, live.finalizers, digest, added)
        self._records.clear()
        self._snapshots.clear()
        # The generation may be older: the API server may have been restored from a backup.
        self._framework = None
        framework = self._read(live)
        if self._has_queues and not framework.spec.is_suspended:
            # Another controller may have begun since, with a ConfigMap that was taken for a late one here.
            tracker.absence.late.clear()
        if status is not None and self._creation_outcomes:
            self._records.extend(fold(framework, tracker, self._creation_outcomes, view.env).records)
        self._persist_first = tracker.urgency is not Urgency.NONE
        self._not_before = 0.0


def _status_in(answer: Answer) -> Any:
    return depths.loads(answer.body).get("status") if isinstance(answer, Answered) else None


def _dropped_from(answer: Answer, added: AddedFields) -> list[str]:
    return dropped_fields(added, _status_in(answer))


def _version_in(answer: Answer) -> str | Refused | Unanswered:
    """The resourceVersion of the written Framework; the failure if it was not written."""
    if not isinstance(answer, Answered):
        return answer
    metadata = metadata_in(answer.body, "resourceVersion")
    return metadata if isinstance(metadata, Unanswered) else str(metadata["resourceVersion"])
