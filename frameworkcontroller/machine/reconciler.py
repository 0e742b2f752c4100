"""One Framework's reconciler: every decision of a sync, without I/O.

A driver asks for instructions (``next``) until it is told to wait, or that the pass is done. It carries each call out:
once its turn has come, it asks for the request (``begin``), sends it, and hands the answer in (``on_answer``), until
there is no further request. Two lanes run beside each other: any number of actions, and at most one write or read of
the Framework. After each of these four methods the driver takes ``effects``, before it sends anything.

Source: docs/lifecycle.md ("The sync") and docs/guarantees.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

import orjson

from frameworkcontroller.api.codec import EncodedStatus, decode_status
from frameworkcontroller.api.names import split_pod_name
from frameworkcontroller.api.objects import Framework, FrameworkRecord, ObjectError, PodRecord, decode_framework
from frameworkcontroller.api.spec import FrameworkSpec, SpecError, parse_spec
from frameworkcontroller.api.status import FrameworkStatus, State
from frameworkcontroller.machine.batch import Batch
from frameworkcontroller.machine.exchanges import (
    Answer,
    Answered,
    Get,
    PatchStatus,
    Request,
    carry_out,
    no_object,
    resource_version,
)
from frameworkcontroller.machine.model import (
    Action,
    AttemptCounters,
    Create,
    Created,
    Delete,
    Env,
    Exists,
    Kind,
    NotAttempted,
    Observed,
    Outcome,
    Plan,
    Record,
    Refresh,
    Refusal,
    Refused,
    Snapshot,
    Unanswered,
    Urgency,
    known,
)
from frameworkcontroller.machine.plan import fold, plan, reject
from frameworkcontroller.machine.reasons import Reason
from frameworkcontroller.machine.tracker import Tracker

# --- times ---------------------------------------------------------------------------------------------------------

TICK_SEC: Final = 1.0
"""Interval of plans while actions are in flight."""

SHOW_SEC: Final = 5.0
"""Interval of status writes while actions are in flight: each takes from the API server what the actions need."""

BATCH_SEC: Final = 120.0
"""Time after which a pass starts no more actions; the next one goes on. A long batch must not look like a hung sync to
the liveness check: 10,000 creations of ten seconds each take more than half an hour."""

PLANS_PER_PASS: Final = 8
"""Plans in a row that need nothing but each other; the next pass goes on."""

BREATH_FACTOR: Final = 1.0
BREATH_MAX_SEC: Final = 2.0
"""Least time between two writes that can wait, in multiples of the duration of the last one: a large status keeps the
API server busy for at most half of the time."""

QUIET_SEC: Final = 1.0
"""Silence after which a change is not taken for the first of many, and is written at once."""

RIDE_SEC: Final = 1.0
RIDE_FACTOR: Final = 10.0
RIDE_MAX_SEC: Final = 10.0
"""Time that a step waits to be written with the next one, which is expected at once: the slower the API server, the
longer it takes to come."""

TOO_LARGE_RETRY_SEC: Final = 300.0
"""Time after which a status that was too large is sent again unchanged: the limit may have been raised."""

_TIMER_SLACK_SEC: Final = 0.001
_GUARDS_FAILED_AT_ONCE: Final = 3
"""Failed preconditions in a row before the next write waits: somebody else writes as often, or the cache is of another
time (an API server that was restored from a backup)."""

_COMPRESS: Final = "set largeFrameworkCompression: true in the controller's configuration, or run fewer Tasks"
_FEWER: Final = "it is compressed already: run fewer Tasks, or let them end with shorter messages"

_NOT_THERE: Final = "the API server does not find the Framework, which the cache still shows"
"""Only the cache ends a Framework: a proxy, or an API server that starts, may answer 404 too. The tracked status must
outlive that, since the cache gave its own copy up."""


# --- instructions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """Carry out the action."""

    action: Action


@dataclass(frozen=True, slots=True, eq=False)
class WriteStatus:
    """Write the tracked status. ``catch_up``: plan the events that came while the write waited for its turn first."""

    catch_up: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ReadLive:
    """Read the Framework live."""


Call = Act | WriteStatus | ReadLive


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for an answer, or (if not None) for that many seconds."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Transient:
    """A failure that may pass. ``retry_after_sec``: the least wait that the API server asked for."""

    message: str
    retry_after_sec: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """The pass is over. ``requeue_after``: seconds to the next one, None for never; after ``error``, a back-off."""

    requeue_after: float | None = None
    error: Transient | None = None


Instruction = Call | Wait | Done


# --- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emit:
    """Log records and make Events of them. ``log`` False: Events only. ``trace``: an exception to log with them."""

    records: list[Record]
    log: bool = True
    trace: Exception | None = None


@dataclass(frozen=True, slots=True)
class LogSnapshots:
    """Log snapshots for the history. ``resource_version``: of the Framework that holds what they show."""

    snapshots: list[Snapshot]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Relist:
    """Compare the cache of that kind with a list."""

    kind: Kind


WriteResult = Literal["accepted", "landed", "conflict", "not_found", "too_large", "error"]
"""Result of a status write. ``landed``: accepted, as a live read showed after the answer was lost."""


@dataclass(frozen=True, slots=True)
class StatusWritten:
    """A status write was answered: its result, and the size of the status in bytes."""

    result: WriteResult
    size: int


@dataclass(frozen=True, slots=True)
class Persisted:
    """The attempts that ended and were retried, as the accepted status shows."""

    attempt_counters: AttemptCounters


@dataclass(frozen=True, slots=True)
class Warn:
    """Log a warning."""

    text: str


Effect = Emit | LogSnapshots | Relist | StatusWritten | Persisted | Warn


class View(Protocol):
    """The world as it is whenever it is asked."""

    @property
    def record(self) -> FrameworkRecord | None:
        """The cached object of the Framework's key: possibly a namesake."""

    @property
    def env(self) -> Env:
        """Clocks, randomness and limits."""

    def observe(self, *, creating: bool) -> Observed:
        """The cached objects of the Framework. ``creating``: creations of its Pods are in flight."""


# --- the state of a reconciler ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Stored:
    """The object that the API server is known to hold.

    After a failed precondition, version and digest tell whether somebody else wrote the status, or only the rest.
    """

    resource_version: str
    digest: bytes
    unsure: bytes | None = None
    """Digest of the last write, if its answer was lost: it may be the stored one."""
    confirmed: bool = False
    """The API server itself has shown it, and not only the cache."""


@dataclass(slots=True)
class Pacing:
    """When a status that can wait is written. Times are monotonic seconds."""

    rested: bool = False
    """The last written status showed no Task on its way: one such need not follow another at once."""
    unwritten_since: float | None = None
    write_sec: float = 0.0
    """Duration of the last write."""
    next_write: float = 0.0

    def due(self, tracker: Tracker, clock: float) -> float:
        """The time to write the tracked status."""
        urgency = tracker.urgency
        if urgency is Urgency.NOW:
            return 0.0
        if self.unwritten_since is None:
            self.unwritten_since = clock
        if urgency is Urgency.SOON and tracker.is_at_rest and not self.rested:
            # The last of what was on its way has come: there is nothing to gather this with.
            return 0.0
        wait = 0.0
        if urgency is Urgency.LATER:
            wait = min(RIDE_MAX_SEC, max(RIDE_SEC, RIDE_FACTOR * self.write_sec))
        elif self.unwritten_since - self.next_write < QUIET_SEC:
            wait = min(BREATH_MAX_SEC, self.write_sec)
        return max(self.next_write, self.unwritten_since + wait)

    def wrote(self, began: float, clock: float) -> None:
        """Note that a write was accepted which began then."""
        self.write_sec = clock - began
        self.next_write = clock + min(BREATH_MAX_SEC, BREATH_FACTOR * self.write_sec)


@dataclass(slots=True)
class _Pass:
    """One pass: from the work queue's key to ``Done``."""

    framework: Framework
    show_at: float
    stop_at: float
    tick_at: float = 0.0
    batch: Batch = field(default_factory=Batch)
    lane: WriteStatus | ReadLive | None = None
    planned: bool = False
    """The first plans are made."""
    unproven: list[Action] = field(default_factory=list)
    """Actions that wait for a live read to show the status that they rest on."""
    wake_at: float | None = None
    again: bool = False
    """Another pass is due at once: the status is another one by now, or not all is planned."""
    early: float | None = None
    """Seconds until the status is to be written."""
    error: Transient | None = None


class TransientError(Exception):
    """Ends an exchange with a failure that may pass."""

    def __init__(self, message: str, retry_after_sec: float = 0.0) -> None:
        super().__init__(message)
        self.transient = Transient(message, retry_after_sec)


Lane = Generator[Request, Answer, None]


class Reconciler:
    """Decides everything for one Framework; ``tracker`` holds the status that is expected to be stored."""

    quarantined: bool = False

    def __init__(self, record: FrameworkRecord, *, compress: bool = False) -> None:
        """``record`` holds the status as the API server does. ``compress``: config largeFrameworkCompression.

        Raises:
            StatusError: the stored status is not one.
        """
        self.key, self.name, self.uid = record.key, record.name, record.uid
        status = decode_status(record.status)
        self.tracker = Tracker(status)
        self.stored = Stored(record.resource_version, self._digest(status))
        self.spec_error: str | None = None
        self._compress = compress
        self._framework: Framework | None = None
        """At the newest generation seen, in the cache or by a live read."""
        self._learnt: list[Outcome] = []
        """Outcomes of creations since the last accepted write: another status may have to learn them, too."""
        self._records: list[Record] = []
        """To be emitted once the status that shows them is accepted."""
        self._snapshots: list[Snapshot] = []
        """To be logged before the next request, which may lose their objects."""
        self._persist_first = False
        """The tracked status must be written before anything else is decided."""
        self._pacing = Pacing()
        self._not_before = 0.0
        """Time (monotonic seconds) to send a status again that was too large."""
        self._too_large_told = ""
        self._guards_failed = 0
        self._stopping = False
        self._pass: _Pass | None = None
        self._exchanges: dict[Call, Generator[Request, Answer, Any]] = {}
        self._effects: list[Effect] = []

    # --- events ---

    def on_pod_event(self, name: str) -> None:
        """A Pod of that name changed: look at its Task."""
        parts = split_pod_name(name)
        if parts is not None:
            self.tracker.agenda.add(parts[1:])

    def on_pod_dropped(self, last: PodRecord, *, removed: bool) -> None:
        """The cache dropped the Pod. ``last``: its last known state. ``removed``: which shows that it is gone."""
        parts = split_pod_name(last.name)
        if parts is not None:
            self.tracker.pod_dropped(parts[1:], last, removed=removed)

    def on_configmap_dropped(self, uid: str) -> None:
        """The cache dropped the ConfigMap of that UID: it is gone, or has lost its label."""
        self.tracker.configmap_dropped(uid)

    def resync(self) -> bool:
        """Look at everything in the next pass, as if nothing were known of changes. False: it is completed."""
        status = self.tracker.status
        if status is None or status.state is State.COMPLETED:
            return False
        self.tracker.touch_all()
        return True

    def stop(self) -> None:
        """Start no more actions, and write what is known at once."""
        self._stopping = True

    def effects(self) -> list[Effect]:
        """Take the effects that are due before the next request."""
        effects, self._effects = self._effects, []
        return effects

    def take_snapshots(self) -> list[Snapshot]:
        """Take the snapshots that the next request would have logged."""
        snapshots, self._snapshots = self._snapshots, []
        return snapshots

    def describe(self, clock: float) -> dict[str, Any]:
        """What debugging shows of it, beside the tracker. ``clock``: monotonic seconds."""
        return {
            "resourceVersion": self.stored.resource_version,
            "generation": None if self._framework is None else self._framework.generation,
            "persistFirst": self._persist_first,
            "nextWriteInSeconds": max(0.0, self._pacing.next_write - clock),
            "guardsFailed": self._guards_failed,
            "specError": self.spec_error,
            "quarantine": None,
        }

    # --- the protocol ---

    def next(self, view: View) -> Instruction:
        """The next instruction.

        Raises:
            InvariantError: the status is where it can never be.
            StatusError: a live read shows a status that is none.
        """
        now = self._pass
        if now is None:
            record = view.record
            if record is None or record.uid != self.uid:
                return Done()
            clock = view.env.clock
            now = self._pass = _Pass(self._read(record), clock + SHOW_SEC, clock + BATCH_SEC)
        batch = now.batch
        if self._is_interrupted(now, view):
            batch.stopped = True
        if (action := batch.start()) is not None:
            return Act(action)
        clock = view.env.clock
        if now.lane is None and not (batch.in_flight and clock < now.tick_at):
            now.tick_at = clock + TICK_SEC
            now.lane = self._decide(now, view)
            if now.lane is not None:
                return now.lane
            if (action := batch.start()) is not None:
                return Act(action)
        if now.lane is not None:
            return Wait()
        if batch.in_flight:
            # One action, as most passes have, is over soon, and nothing waits behind it.
            return Wait(None if batch.is_single else now.tick_at - clock)
        return self._end(now, view)

    def begin(self, call: Call, view: View) -> Request | None:
        """The first request of ``call``, whose turn has come; None: it is not wanted any more."""
        now = known(self._pass, "pass")
        exchange: Generator[Request, Answer, Any]
        match call:
            case Act(action=action):
                if not self._is_wanted(now, action, view):
                    now.batch.end(action, NotAttempted())
                    return None
                self._log_snapshots()
                exchange = carry_out(action, now.framework)
            case WriteStatus(catch_up=catch_up):
                exchange = self._write(now, view, catch_up=catch_up)
            case ReadLive():
                exchange = self._confirm(now, view)
        self._exchanges[call] = exchange
        return self._advance(now, call, lambda: next(exchange))

    def on_answer(self, call: Call, answer: Answer) -> Request | None:
        """The next request of ``call`` after ``answer``; None: the call is over."""
        exchange = self._exchanges[call]
        return self._advance(known(self._pass, "pass"), call, lambda: exchange.send(answer))

    def _advance(self, now: _Pass, call: Call, step: Callable[[], Request]) -> Request | None:
        try:
            return step()
        except StopIteration as end:
            if isinstance(call, Act):
                now.batch.end(call.action, end.value)
        except TransientError as error:
            now.error = error.transient
        if not isinstance(call, Act):
            now.lane = None
        del self._exchanges[call]
        return None

    # --- a pass ---

    def _decide(self, now: _Pass, view: View) -> WriteStatus | ReadLive | None:
        """Fold, plan, and say what to do with the Framework; actions go to the batch. No write or read is in flight."""
        batch = now.batch
        self._fold(now, batch.take(), view)
        if batch.is_open and (now.error or now.again or self._must_stop(now, view)):
            batch.stopped = True
            self._fold(now, batch.take(), view)
        if now.error or now.again:
            return None
        if self._persist_first:
            return self._persist(now, view)
        if not now.planned:
            self._plan_first(now, view)
        elif batch.is_open and not batch.stopped:
            self._plan_more(now, view)
        if now.unproven:
            return ReadLive()
        return self._write_if_due(now, view)

    def _persist(self, now: _Pass, view: View) -> WriteStatus | None:
        too_early = self._not_before - view.env.clock
        if too_early > 0 and self.tracker.generation == now.framework.generation:
            now.early = too_early
            return None
        return WriteStatus()

    def _plan_first(self, now: _Pass, view: View) -> None:
        """Plan until there are actions, something is to be persisted, or nothing is left."""
        now.planned = True
        tracker, env = self.tracker, view.env
        observed = view.observe(creating=False)
        step = Plan()
        for _ in range(PLANS_PER_PASS):
            if self.spec_error is None:
                step = plan(now.framework, tracker, observed, env)
            else:
                step = reject(now.framework, tracker, self.spec_error, env)
            self._keep(step)
            if step.actions or self.spec_error is not None or tracker.urgency is Urgency.NOW or not tracker.is_busy:
                break
        self._wake_after(now, step.wake_after, env)
        self._propose(now, step.actions)

    def _plan_more(self, now: _Pass, view: View) -> None:
        """Plan the events that came while actions are in flight.

        Once something is decided on which the whole Framework waits, or its attempt is over, no more actions are
        started, and that is persisted only when none is in flight: nothing is ever created for an attempt that the
        stored status shows as over.
        """
        env = view.env
        step = plan(now.framework, self.tracker, view.observe(creating=now.batch.is_creating), env)
        self._keep(step)
        self._wake_after(now, step.wake_after, env)
        known_targets = [action for action in step.actions if action.target in now.batch]
        # The outcome of a creation is awaited; anything else is asked for again once its own is known.
        self._leave(now, (action for action in known_targets if not isinstance(action, Create)), view)
        self._propose(now, [action for action in step.actions if action.target not in now.batch])
        if self._must_stop(now, view):
            now.batch.stopped = True

    def _propose(self, now: _Pass, actions: list[Action]) -> None:
        """Have actions done: at once, if the API server itself has shown the status that they rest on."""
        # An object that the tracked status does not record may be in one that another controller has just written.
        if self.stored.confirmed and not any(map(_needs_live_status, actions)):
            now.batch.add(actions)
        else:
            now.unproven = actions

    def _write_if_due(self, now: _Pass, view: View) -> WriteStatus | None:
        tracker, clock = self.tracker, view.env.clock
        if tracker.urgency is Urgency.NONE:
            return None
        early = self._pacing.due(tracker, clock) - clock
        if now.batch.is_open:
            return WriteStatus() if not now.batch.stopped and clock >= now.show_at and early <= 0 else None
        if early > _TIMER_SLACK_SEC and not self._stopping:
            # What is settled need not wait for what is not: Pods that are still to be created, say.
            now.early = early
            return None
        # What is left over is the next pass's; only what comes while this write waits can go with it.
        return WriteStatus(catch_up=not tracker.is_busy)

    def _end(self, now: _Pass, view: View) -> Done:
        self._pass = None
        tracker = self.tracker
        if now.error is not None:
            return Done(error=now.error)
        if tracker.urgency is Urgency.NONE and not now.again and not self._persist_first:
            # No status will show them: the first failure of a request, or the deletion of the Framework itself.
            self._emit_records()
        if now.again or (tracker.is_busy and self.spec_error is None and not self._persist_first):
            return Done(0.0)
        clock = view.env.clock
        wake_after = None if now.wake_at is None else max(0.0, now.wake_at - clock)
        if now.early is not None:
            return Done(now.early if wake_after is None else min(now.early, wake_after))
        self._shrink()
        return Done(wake_after)

    def _is_interrupted(self, now: _Pass, view: View) -> bool:
        """Whether the Framework is gone, its user wants something else by now, or all is to stop."""
        if self._stopping:
            return True
        record, framework = view.record, now.framework
        if record is None or record.uid != self.uid:
            return True
        return record.generation > framework.generation or (record.deletion_time is not None) > framework.deleting

    def _must_stop(self, now: _Pass, view: View) -> bool:
        """Whether no more actions may be started: the tracked status is to be persisted once none is in flight."""
        over = self.tracker.urgency is Urgency.NOW or self.tracker.is_completing
        return over or now.again or view.env.clock >= now.stop_at or self._is_interrupted(now, view)

    def _is_wanted(self, now: _Pass, action: Action, view: View) -> bool:
        """Whether an action is still to be done, now that its turn has come."""
        if now.batch.stopped or self._is_interrupted(now, view):
            return False
        # A creation that was given up may have been executed late, and its Pod be over by now.
        is_creation = isinstance(action, Create) and action.target.kind is Kind.POD
        return not is_creation or self.tracker.awaits_pod(action.target)

    # --- what is learnt ---

    def _read(self, record: FrameworkRecord) -> Framework:
        """The Framework at the newest generation known; ``spec_error`` says why its spec cannot be run."""
        before = self._framework
        deleting = record.deletion_time is not None
        if before is not None and record.generation <= before.generation and deleting <= before.deleting:
            return before
        if before is not None and record.generation < before.generation:
            spec, generation = before.spec, before.generation
        else:
            generation = record.generation
            try:
                spec, self.spec_error = parse_spec(orjson.loads(record.spec_json)), None
            except SpecError as error:
                spec, self.spec_error = FrameworkSpec(), str(error)
        self._framework = Framework(record.namespace, record.name, record.uid, generation, deleting, spec)
        return self._framework

    def _keep(self, step: Plan) -> None:
        self._records.extend(step.records)
        self._snapshots.extend(step.snapshots)

    def _fold(self, now: _Pass, outcomes: list[Outcome], view: View) -> None:
        """Fold outcomes into the status as it is tracked now."""
        if not outcomes:
            return
        for outcome in outcomes:
            action = outcome.action
            if isinstance(action, Create) and isinstance(outcome.result, Created | Exists):
                # Without the template: a status may wait for long, and a Pod's may be large.
                self._learnt.append(replace(outcome, action=replace(action, template=b"")))
        env = view.env
        folded = fold(now.framework, self.tracker, outcomes, env)
        self._records.extend(folded.records)
        self._effects.extend(map(Relist, folded.relist))
        self._wake_after(now, folded.wake_after, env)

    def _leave(self, now: _Pass, actions: Iterable[Action], view: View) -> None:
        """Have actions asked for again: they are not carried out now."""
        self._fold(now, [Outcome(action, NotAttempted()) for action in actions], view)

    @staticmethod
    def _wake_after(now: _Pass, seconds: float | None, env: Env) -> None:
        if seconds is not None and (now.wake_at is None or env.clock + seconds < now.wake_at):
            now.wake_at = env.clock + seconds

    def _shrink(self) -> None:
        """Keep of a completed Framework what its retention needs: most Frameworks of a big cluster are completed."""
        status = self.tracker.status
        if status is not None and status.state is State.COMPLETED and self.tracker.is_clean:
            self._framework = None
            for _, task in self.tracker.tasks():
                task.encoded = None

    # --- effects ---

    def _emit_records(self) -> None:
        if self._records:
            records, self._records = self._records, []
            self._effects.append(Emit(records))

    def _log_snapshots(self) -> None:
        if self._snapshots:
            self._effects.append(LogSnapshots(self.take_snapshots(), self.stored.resource_version))

    # --- the status write ---

    def _write(self, now: _Pass, view: View, *, catch_up: bool) -> Lane:
        """Write the tracked status under its preconditions (docs/guarantees.md says why they are enough)."""
        if catch_up:
            self._catch_up(now, view)
        framework, tracker = known(self._framework, "Framework"), self.tracker
        # What was only learnt, and not decided, goes with any spec.
        generation = framework.generation if tracker.generation is None else tracker.generation
        encoded = EncodedStatus(self.name, known(tracker.status, "status"), compress=self._compress)
        self._log_snapshots()
        began = view.env.clock
        self._persist_first = True
        answer = yield self._patch(generation, encoded)
        version = None
        if isinstance(answer, Answered) and (version := resource_version(answer.body)) is None:
            answer = no_object(answer.body)
        match answer:
            case Answered():
                self._count(encoded, "accepted")
                self._accept(known(version, "resourceVersion"), encoded.digest)
                self._pacing.wrote(began, view.env.clock)
                now.show_at = view.env.clock + SHOW_SEC
            case Refused(kind=Refusal.NOT_FOUND | Refusal.OBJECT_NOT_FOUND):
                self._count(encoded, "not_found")
                raise TransientError(_NOT_THERE, answer.retry_after_sec)
            case Refused(kind=Refusal.INVALID | Refusal.CONFLICT | Refusal.ALREADY_EXISTS):
                live = yield from self._read_live()
                self._resolve(now, live, generation, encoded, answer, view)
            case Refused(kind=Refusal.TOO_LARGE):
                self._count(encoded, "too_large")
                yield from self._stall(now, generation, encoded, answer, view)
            case Refused(message=message) | Unanswered(message=message):
                self._count(encoded, "error")
                self.stored.unsure = encoded.digest
                raise transient(f"cannot write the status: {message}", answer)

    def _catch_up(self, now: _Pass, view: View) -> None:
        """Plan the events that came while the write waited for its turn.

        The busier the API server is, the longer that is, and the fewer writes it gets.
        """
        record = view.record
        if not self.tracker.agenda or record is None or record.uid != self.uid:
            return
        now.again = True
        framework = self._read(record)
        if self.spec_error is None:
            step = plan(framework, self.tracker, view.observe(creating=False), view.env)
            self._keep(step)
            self._leave(now, step.actions, view)

    def _patch(self, generation: int, encoded: EncodedStatus) -> PatchStatus:
        return PatchStatus(self.name, "/status", encoded, self.uid, generation, self.stored.resource_version)

    def _count(self, encoded: EncodedStatus, result: WriteResult) -> None:
        self._effects.append(StatusWritten(result, len(encoded.body)))

    def _accept(self, version: str, digest: bytes) -> None:
        """The API server holds the tracked status."""
        tracker = self.tracker
        self.stored = Stored(version, digest, confirmed=True)
        self._pacing.rested = tracker.is_at_rest
        self._pacing.unwritten_since = None
        self._persist_first = False
        self._guards_failed = 0
        self._not_before = 0.0
        self._too_large_told = ""
        self._learnt.clear()
        tracker.persisted()
        counters, tracker.attempt_counters = tracker.attempt_counters, None
        if counters is not None:
            self._effects.append(Persisted(counters))
        self._emit_records()

    def _resolve(
        self, now: _Pass, live: FrameworkRecord, generation: int, encoded: EncodedStatus, refused: Refused, view: View
    ) -> None:
        """A precondition failed: find in the live Framework which one, and what to believe from now on."""
        stored = self.stored
        if live.resource_version == stored.resource_version and live.generation == generation:
            if self.spec_error is not None:
                # Servers before 1.30 take no status for an object whose spec they would refuse now: told without.
                self._emit_records()
            self._count(encoded, "conflict")
            raise transient(f"the API server refuses the status: {refused.message}", refused)
        status = decode_status(live.status)
        digest = self._digest(status)
        if digest == encoded.digest:
            # The write had landed: an earlier answer was lost.
            self._count(encoded, "landed")
            self._accept(live.resource_version, digest)
            return
        self._count(encoded, "conflict")
        now.again = True
        if digest in (stored.digest, stored.unsure) and live.generation == generation:
            # Only metadata changed, or the write before this one had landed: the stored status is as known.
            stored.resource_version, stored.digest = live.resource_version, digest
        else:
            if digest not in (stored.digest, stored.unsure):
                self._effects.append(Warn("status changed by another writer; continuing from the stored version"))
            self._take_over(live, status, digest, view)
        self._guards_failed += 1
        if self._guards_failed > _GUARDS_FAILED_AT_ONCE:
            text = f"the Framework keeps changing under the writes of its status: {refused.message}"
            raise transient(text, refused)

    def _stall(self, now: _Pass, generation: int, encoded: EncodedStatus, refused: Refused, view: View) -> Lane:
        """The status is larger than the API server stores: say so in the stored one, and decide nothing more."""
        live = yield from self._read_live()
        if (live.generation, live.resource_version) != (generation, self.stored.resource_version):
            self._resolve(now, live, generation, encoded, refused, view)
            return
        tracker = Tracker(decode_status(live.status))
        framework = known(self._framework, "Framework")
        text = (
            f"The status, {len(encoded.body)} bytes, does not fit into the API server ({refused.message}): "
            f"{_FEWER if self._compress else _COMPRESS}. Until then nothing more is done for this Framework"
        )
        # Without a spec, so that a Framework without a status gets one without Tasks, which fits.
        step = reject(replace(framework, spec=FrameworkSpec()), tracker, text, view.env, reason=Reason.STATUS_TOO_LARGE)
        now.again = True
        if tracker.urgency is not Urgency.NONE:
            said = EncodedStatus(self.name, known(tracker.status, "status"), compress=self._compress)
            answer = yield self._patch(generation, said)
            match answer:
                case Answered(body=body) if (version := resource_version(body)) is not None:
                    self.stored.resource_version, self.stored.digest = version, said.digest
                case Refused(kind=Refusal.INVALID | Refusal.CONFLICT | Refusal.ALREADY_EXISTS):
                    return
                case Refused(kind=Refusal.TOO_LARGE, message=message):
                    # Not even the condition fits any more: the log has to do, once for each refusal.
                    if self._too_large_told == message:
                        step.records.clear()
                    self._too_large_told = message
                case _:
                    raise transient("cannot write that the status is too large", answer)
        self._not_before = view.env.clock + TOO_LARGE_RETRY_SEC
        if step.records:
            self._effects.append(Emit(step.records))

    # --- live reads ---

    def _confirm(self, now: _Pass, view: View) -> Lane:
        """Before the first action that rests on the status of the cache: make sure that it is the stored one.

        Lists are consistent reads, but a server that was restored or lags behind, or a proxy, may answer with the past,
        and the watch then repeats it: what was right to do then would undo what was done since.
        """
        actions, now.unproven = now.unproven, []
        try:
            live = yield from self._read_live()
        except TransientError:
            self._leave(now, actions, view)
            raise
        status = decode_status(live.status)
        digest = self._digest(status)
        framework = self._framework
        if digest == self.stored.digest and framework is not None and live.generation == framework.generation:
            self.stored.resource_version = live.resource_version
            self.stored.confirmed = True
            now.batch.add(actions)
        else:
            self._take_over(live, status, digest, view)
            now.again = True

    def _read_live(self) -> Generator[Request, Answer, FrameworkRecord]:
        answer = yield Get(Kind.FRAMEWORK, self.name)
        live = read_live(answer)
        if live is None:
            raise transient(_NOT_THERE, answer)
        if live.uid != self.uid:
            raise TransientError("the Framework was deleted, and another one of its name created")
        return live

    def _take_over(self, live: FrameworkRecord, status: FrameworkStatus | None, digest: bytes, view: View) -> None:
        """Continue from the stored status.

        Decisions that rest on another spec or status are dropped and taken anew. What was learnt from creations is not:
        an object whose UID is not recorded would have no owner.
        """
        tracker = Tracker(status)
        tracker.inherit(self.tracker)
        self.tracker = tracker
        self.stored = Stored(live.resource_version, digest, confirmed=True)
        self._records.clear()
        self._snapshots.clear()
        # Even an older generation: the API server may have been restored from a backup.
        self._framework = None
        framework = self._read(live)
        if status is not None and self._learnt:
            self._records.extend(fold(framework, tracker, self._learnt, view.env).records)
        self._persist_first = tracker.urgency is not Urgency.NONE
        self._not_before = 0.0

    def _digest(self, status: FrameworkStatus | None) -> bytes:
        return b"" if status is None else EncodedStatus(self.name, status).digest


def read_live(answer: Answer) -> FrameworkRecord | None:
    """The Framework that a live read was answered with, None if there is none.

    Raises:
        TransientError: no usable answer.
    """
    match answer:
        case Answered(body=body):
            try:
                return decode_framework(body)
            except ObjectError as error:
                raise TransientError(f"cannot read the Framework: {error}") from error
        case Refused(kind=Refusal.NOT_FOUND | Refusal.OBJECT_NOT_FOUND):
            return None
    raise transient(answer.message, answer)


def transient(message: str, answer: Answer) -> TransientError:
    """The failure after ``answer``, with the wait that it asks for."""
    return TransientError(message, answer.retry_after_sec if isinstance(answer, Refused) else 0.0)


def _needs_live_status(action: Action) -> bool:
    return isinstance(action, Refresh) or (isinstance(action, Delete) and action.stray)
