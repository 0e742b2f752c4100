"""Drives the machines of Frameworks: gives calls their turns, sends their requests, and carries effects out.

The machine decides (machine/reconciler.py). The driver only puts a Framework into quarantine if its machine raises.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from frameworkcontroller.api import names
from frameworkcontroller.api.objectkinds import RESOURCES
from frameworkcontroller.api.objects import ClaimRecord, CompanionRecord, ConfigMapRecord, FrameworkRecord, PodRecord
from frameworkcontroller.api.workloads import WorkloadRecord
from frameworkcontroller.controller.reconcilers import Machine, Reconcilers
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.requestsender import send
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.fairness import FairSemaphore
from frameworkcontroller.kube.indexer import Lister
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.machine import remaining
from frameworkcontroller.machine.kernel.aside import Aside
from frameworkcontroller.machine.kernel.model import (
    AttemptCounters,
    Capture,
    Env,
    Limits,
    NotListed,
    Observed,
    Snapshot,
)
from frameworkcontroller.machine.kernel.pacing import AnswerTimes
from frameworkcontroller.machine.kernel.protocol import (
    Archive,
    Call,
    CaptureLogs,
    Done,
    Effect,
    Emit,
    LogSnapshots,
    Offer,
    OrphanReleased,
    Persisted,
    Relist,
    RequeueError,
    StatusWritten,
    Wait,
    Warn,
    WriteResult,
)
from frameworkcontroller.machine.kernel.requests import Answer, Kind, PatchStatus, Refusal, Refused, Unanswered
from frameworkcontroller.machine.parts.history.finalization import Finalization, is_due
from frameworkcontroller.machine.parts.kueue.orphanedworkloads import OrphanRelease, orphans, releases_of
from frameworkcontroller.machine.quarantine import Quarantine, QuarantineEnd
from frameworkcontroller.machine.reconciler import Reconciler
from frameworkcontroller.machine.specreading import read_spec

if TYPE_CHECKING:
    from frameworkcontroller.controller.historysink import HistorySink
    from frameworkcontroller.controller.logcapture import LogCapture

_log: Final = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 50
"""Requests in flight over all Frameworks: more did not raise the rate (docs/performance.md). Slow ones do not count
(see ``FairSemaphore``)."""

LARGE_IN_FLIGHT: Final = 5
"""Of these, requests with bodies or answers above 256 KiB: 50 of three megabytes would take a fifth of the memory."""

_MAX_CAUSES: Final = 4096
"""Frameworks whose last cause of quarantine is remembered, to log each cause once."""


@dataclass(eq=False, kw_only=True)
class Driver:
    """Reconciles Frameworks, one key at a time; many keys at once."""

    client: KubeClient
    reconcilers: Reconcilers
    frameworks: Lister[FrameworkRecord]
    configmaps: Lister[ConfigMapRecord]
    pods: Lister[PodRecord]
    """Its index is the key of the Framework."""
    find_companion: Callable[[Kind, str, str], CompanionRecord | NotListed | None]
    """Takes the kind, the key of the companion, and the key of its Framework."""
    list_claims: Callable[[str, bool], Iterable[ClaimRecord] | NotListed]
    """Takes the key of the Framework, and whether it needs volume claims."""
    limits: Limits
    wall: Callable[[], float]
    """Seconds since the epoch."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    rng: random.Random
    recorder: EventRecorder
    snapshots: SnapshotLogger
    relist: Callable[[Kind], None]
    """Starts a list to compare a cache with."""
    listed: Callable[[Kind], float]
    """The time, by ``clock``, at which the last complete list was requested."""
    wrote: Callable[[WriteResult, int], None]
    """For metrics: takes the result and the bytes of each status write."""
    count_attempts: Callable[[AttemptCounters], None]
    """For metrics: takes the attempts that an accepted write shows."""
    status_not_stored: Callable[[str], None]
    """Takes the key of a Framework whose status was not stored as it was sent: it is gone, or its CRD is not ours."""
    resources: Mapping[Kind, Resource] = field(default_factory=lambda: RESOURCES)
    """The resources of the kinds, in the versions that are served."""
    list_workloads: Callable[[str], Iterable[WorkloadRecord]] = lambda _: ()
    """Takes the key of a Framework, and gives the cached Workloads of its name."""
    history: HistorySink | None = None
    """None: the machine asks for nothing (``Limits.history``)."""
    logs: LogCapture | None = None
    """None: the machine asks for none (``Limits.keep_logs``)."""
    enqueue: Callable[[str], None] = lambda _: None
    """Takes the key of a Framework after an answer of the history."""
    reports_since: Callable[[], float | None] = lambda: None
    """The time by ``clock`` since when no report of progress can have escaped, None while one can."""
    answered: Callable[[Hashable, float, float], None] = lambda _kind, _seconds, _now: None
    """Takes the kind of each request, the seconds until its answer, and the time by ``clock``."""
    max_in_flight: InitVar[int] = MAX_IN_FLIGHT

    def __post_init__(self, max_in_flight: int) -> None:
        self.slots = FairSemaphore(max_in_flight)
        self.large_slots = FairSemaphore(LARGE_IN_FLIGHT)
        """Taken first: a waiting large request must not hold one of ``slots``."""
        self.parse_slot = FairSemaphore(1)
        """Of large specs."""
        self.answer_times = AnswerTimes()
        self.orphans_released = 0
        """Workloads released whose Framework was gone."""
        self._stopping = False
        self._archiving: set[asyncio.Task[None]] = set()
        self._finalizations: dict[str, Finalization] = {}
        self._quarantine_causes: LRUCache[str, str] = LRUCache(_MAX_CAUSES)
        """The last logged cause of quarantine, by the UID of the Framework."""

    def stop(self) -> None:
        """Start no more actions: for thousands of Tasks they would take longer than a stop may."""
        self._stopping = True
        for task in self._archiving:
            # The next process asks again.
            task.cancel()
        for machine in self.reconcilers.values():
            machine.stop()

    def remaining(self, key: str) -> int:
        """An estimate of the requests that the Framework needs next, for its turn."""
        machine = self.reconcilers.get(key)
        if machine is not None:
            return 0 if isinstance(machine, Quarantine) else remaining.of_tracker(machine.tracker)
        return remaining.of_record(self.frameworks.get(key))

    async def reconcile(self, key: str) -> float | None:
        """Reconcile one Framework. Returns the seconds until it is due without an event, None for never.

        Raises:
            RequeueError: a transient failure.
        """
        record = self.frameworks.get(key)
        due = [(await self._run(aside)).requeue_after for aside in self._orphans(key, record)]
        if record is None:
            # The garbage collector removes its objects.
            self.reconcilers.pop(key, None)
            self._finalizations.pop(key, None)
            return _earliest(due)
        try:
            machine = self.reconcilers.find(record) or self.reconcilers.open(record)
            await self._read_large_spec(machine)
            done = await self._run(machine)
            if isinstance(machine, Quarantine) and machine.released is not None:
                done = await self._run(self.reconcilers.open(machine.released))
        except Exception as error:  # noqa: BLE001 - an error must not affect other Frameworks
            done = await self._run(self._quarantine(record, error))
        due += [(await self._run(aside)).requeue_after for aside in self._asides(record)]
        if done.error is not None:
            # A copy: the traceback of the error itself would lead back to it.
            raise RequeueError(str(done.error), done.error.retry_after_sec)
        return _earliest([done.requeue_after, *due])

    def _orphans(
        self, key: str, record: FrameworkRecord | None, *, deleting_uid: str | None = None
    ) -> list[OrphanRelease]:
        """Workloads whose Framework (this key, another UID than the record's) no longer exists."""
        if not self.limits.kueue:
            return []
        uid = None if record is None else record.uid
        return [OrphanRelease(orphan, deleting_uid=deleting_uid) for orphan in orphans(self.list_workloads(key), uid)]

    def _asides(self, record: FrameworkRecord) -> list[Aside]:
        """Machines for a Framework that its own machine ignores."""
        key, machine = record.key, self.reconcilers.find(record)
        found: list[Aside] = []
        if machine is not None and machine.is_left_alone:
            if record.deletion_time is not None:
                found += self._orphans(key, None, deleting_uid=record.uid)
            elif isinstance(machine, Quarantine):
                workloads = self.list_workloads(key) if self.limits.kueue else ()
                found.append(QuarantineEnd(record, releases_of(record.uid, workloads, self._env().second)))
            if is_due(record):
                known = self._finalizations.get(key)
                if known is None or known.uid != record.uid:
                    known = self._finalizations[key] = Finalization(record)
                return [*found, known]
        self._finalizations.pop(key, None)
        return found

    def _env(self) -> Env:
        return Env(self.wall(), self.clock(), self.rng, self.limits)

    async def _read_large_spec(self, machine: Machine) -> None:
        """Parse a large spec in a thread, one at a time: it would delay all other Frameworks."""
        while isinstance(machine, Reconciler) and not self._stopping:
            record = self.frameworks.get(machine.key)
            if record is None or record.uid != machine.uid or not machine.must_read(record):
                return
            async with self.parse_slot.taken(machine.key, self.remaining(machine.key)):
                machine.on_read(await asyncio.to_thread(read_spec, record))

    async def _run(self, machine: Machine | Aside) -> Done:
        if self._stopping:
            machine.stop()
        async with _Run(self, machine) as run:
            return await run.until_done()

    def _quarantine(self, record: FrameworkRecord, error: Exception) -> Quarantine:
        machine = Quarantine(record, error, self._env(), logged_cause=self._quarantine_causes.get(record.uid))
        self._quarantine_causes.put(record.uid, machine.cause)
        self.reconcilers.put(record, machine)
        return machine

    def carry_out(self, machine: Machine | Aside, effect: Effect) -> None:
        match effect:
            case Emit(records, log, trace):
                self.recorder.record(machine.key, machine.uid, records, log=log, trace=trace)
            case LogSnapshots(snapshots, resource_version):
                record = self.frameworks.get(machine.key)
                if record is not None and record.uid == machine.uid:
                    self.snapshots.log(record, resource_version, snapshots)
            case Archive():
                # Not part of the run, which a sink that does not answer would hold up.
                task = asyncio.create_task(self._archive(machine, effect))
                self._archiving.add(task)
                task.add_done_callback(self._archiving.discard)
            case Offer(snapshots, resource_version):
                record = self.frameworks.get(machine.key)
                if self.history is not None and record is not None and record.uid == machine.uid:
                    self.history.offer(record, resource_version, snapshots)
            case CaptureLogs(capture):
                if self.logs is not None:
                    record = self.frameworks.get(machine.key)
                    generation = record.generation if record is not None and record.uid == machine.uid else 0
                    self.logs.capture(machine.key, generation, capture, partial(self._captured, machine, capture))
            case Relist(kind):
                self.relist(kind)
            case StatusWritten(result, size):
                self.wrote(result, size)
                if result == "pruned":
                    self.status_not_stored(machine.key)
            case Persisted(counters):
                self.count_attempts(counters)
            case OrphanReleased(workload):
                self.orphans_released += 1
                _log.info("[%s]: Released Workload %s, whose Framework is gone", machine.key, workload)
            case Warn(text):
                _log.warning("[%s]: %s", machine.key, text)
            case other:
                assert_never(other)

    def _captured(self, machine: Machine | Aside, capture: Capture) -> None:
        if isinstance(machine, Reconciler) and machine.on_captured(capture.id.pod_uid or ""):
            self.enqueue(machine.key)

    async def _archive(self, machine: Machine | Aside, effect: Archive) -> None:
        record = effect.framework or self.frameworks.get(machine.key)
        answer: Answer = Unanswered("the Framework is gone")
        if record is not None and record.uid == machine.uid:
            answer = await self._store(record, effect.resource_version, effect.snapshots)
        machine.on_archived(effect, answer)
        self.enqueue(machine.key)

    async def _store(self, record: FrameworkRecord, version: str, snapshots: Sequence[Snapshot]) -> Answer:
        if self.history is None:
            return Unanswered("the history has no sink")
        try:
            return await self.history.store(record, version, snapshots)
        except Exception as error:  # noqa: BLE001 - there must be an answer
            _log.exception("[%s]: The sink of the history failed", record.key)
            return Unanswered(f"{type(error).__name__}: {error}")


class _Run:
    """One run of a machine. An exit by an exception cancels the requests in flight; some may still be executed."""

    def __init__(self, driver: Driver, machine: Machine | Aside) -> None:
        self._driver = driver
        self._machine = machine
        self._view = _View(driver, machine)
        self._namespace = machine.key.partition("/")[0]
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered: asyncio.Event | None = None
        """Of the current wait for answers."""
        self._is_timed = False
        """Whether the wait for answers ends by itself."""
        self._done: Done | None = None
        self._error: BaseException | None = None

    async def __aenter__(self) -> _Run:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            if kind is asyncio.CancelledError and self._driver.reconcilers.get(self._machine.key) is self._machine:
                # The outcomes of its requests are unknown, as after a crash.
                self._driver.reconcilers.pop(self._machine.key)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if isinstance(self._machine, Aside):
                # It outlives an error of its own.
                self._machine.give_up()

    async def until_done(self) -> Done:
        """Follow the instructions of the machine until it is done."""
        while self._done is None:
            call, instruction = self._ask()
            if isinstance(instruction, Done):
                return instruction
            if call is not None and instruction.seconds is None and not self._tasks:
                # A single call needs no asyncio task.
                await self._perform(call)
                continue
            self._start(call)
            await self._wait(instruction.seconds)
        return self._done

    def _ask(self) -> tuple[Call | None, Wait | Done]:
        """Ask the machine until it has no more calls. Start all except the first."""
        first: Call | None = None
        while True:
            instruction = self._machine.next(self._view)
            self._carry_out_effects()
            match instruction:
                case Wait() | Done():
                    return first, instruction
                case _ if first is None:
                    first = instruction
                case _:
                    self._start(instruction)

    def _start(self, call: Call | None) -> None:
        if call is not None:
            task = asyncio.create_task(self._work(call))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _work(self, call: Call | None) -> None:
        """Perform a call, and those that may follow it: 1,000 creations need 50 tasks, and wake no other one."""
        while call is not None:
            await self._perform(call)
            call, instruction = self._ask()
            if isinstance(instruction, Done):
                self._done = instruction
            elif instruction.seconds is not None and not self._is_timed:
                self._end_wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._error is None:
            self._error = task.exception()
        if self._error is not None or not self._tasks:
            self._end_wait()

    def _end_wait(self) -> None:
        if self._answered is not None:
            self._answered.set()

    async def _wait(self, seconds: float | None) -> None:
        self._answered = asyncio.Event()
        self._is_timed = seconds is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._answered.wait()
        if self._error is not None:
            raise self._error

    async def _perform(self, call: Call) -> None:
        driver, machine = self._driver, self._machine
        if machine.is_large(call, self._view):
            async with driver.large_slots.taken(machine.key, driver.remaining(machine.key)):
                await self._send(call)
        else:
            await self._send(call)

    async def _send(self, call: Call) -> None:
        driver, machine = self._driver, self._machine
        async with driver.slots.taken(machine.key, driver.remaining(machine.key)):
            request = machine.begin(call, self._view)
            self._carry_out_effects()
            while request is not None:
                began = driver.clock()
                answer = await send(driver.client, request, self._namespace, machine.key, driver.resources)
                ended = driver.clock()
                driver.answered((type(request), getattr(request, "kind", Kind.FRAMEWORK)), ended - began, ended)
                if isinstance(request, PatchStatus):
                    # In seconds, for pauses between writes. `answered` serves for multiples of the fastest answer:
                    # where the best takes 100 ms, more requests in flight still help.
                    driver.answer_times.note(began, ended, request.size)
                    if _is_not_found(answer):
                        driver.status_not_stored(machine.key)
                request = machine.on_answer(call, answer)
                self._carry_out_effects()

    def _carry_out_effects(self) -> None:
        for effect in self._machine.effects():
            self._driver.carry_out(self._machine, effect)


def _earliest(times: Iterable[float | None]) -> float | None:
    return min((seconds for seconds in times if seconds is not None), default=None)


def _is_not_found(answer: Answer) -> bool:
    return isinstance(answer, Refused) and answer.kind in (Refusal.NOT_FOUND, Refusal.OBJECT_NOT_FOUND)


class _View:
    """The view of one Framework: caches and clocks."""

    __slots__ = ("_driver", "_key", "_name", "_namespace")

    def __init__(self, driver: Driver, machine: Machine | Aside) -> None:
        self._driver = driver
        self._key = machine.key
        self._namespace, _, self._name = machine.key.partition("/")

    @property
    def record(self) -> FrameworkRecord | None:
        return self._driver.frameworks.get(self._key)

    @property
    def env(self) -> Env:
        driver, clock = self._driver, self._driver.clock()
        answer_sec, reports_since = driver.answer_times.smoothed(clock), driver.reports_since()
        return Env(driver.wall(), clock, driver.rng, driver.limits, answer_sec, reports_since)

    def observe(self, *, creating: bool) -> Observed:
        driver = self._driver
        return Observed(
            driver.configmaps.get(f"{self._namespace}/{names.configmap_name(self._name)}"),
            lambda name: driver.pods.get(f"{self._namespace}/{name}"),
            lambda: driver.pods.by_index(self._key).values(),
            configmaps_listed=driver.listed(Kind.CONFIGMAP),
            pods_listed=driver.listed(Kind.POD),
            find_companion=lambda kind, name: driver.find_companion(kind, f"{self._namespace}/{name}", self._key),
            list_claims=lambda needed: driver.list_claims(self._key, needed),
            served_version=lambda kind: driver.resources[kind].version,
            creating=creating,
        )
