"""Drives the machines of Frameworks: gives them their turns, sends their requests, and carries their effects out.

Nothing is decided here (machine/reconciler.py does), except that an exception puts its Framework into quarantine.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import ConfigMapRecord, FrameworkRecord, PodRecord
from frameworkcontroller.controller.reconcilers import Machine, Reconcilers
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.requests import send
from frameworkcontroller.controller.requeue import RequeueError
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.fairsemaphore import FairSemaphore
from frameworkcontroller.kube.indexer import Lister
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.machine.exchanges import Answer, PatchStatus
from frameworkcontroller.machine.model import AttemptCounters, Env, Kind, Limits, Observed, Refusal, Refused
from frameworkcontroller.machine.quarantine import Quarantine
from frameworkcontroller.machine.reconciler import (
    Call,
    Done,
    Effect,
    Emit,
    LogSnapshots,
    Persisted,
    Relist,
    StatusWritten,
    Wait,
    Warn,
    WriteResult,
)

_log: Final = logging.getLogger(__name__)

BY_FRAMEWORK: Final = "framework"
"""Index of the cache's Pods by the key of the Framework that their names belong to."""

MAX_IN_FLIGHT: Final = 50
"""Requests in flight over all Frameworks: the most that still raised the rate when it was measured
(docs/performance.md). ``FairSemaphore`` says which do not count."""


_MAX_STORIES: Final = 4096
"""Frameworks of which the log remembers the cause of quarantine."""


class Driver:
    """Reconciles Frameworks, one key at a time; many keys at once."""

    def __init__(
        self,
        client: KubeClient,
        reconcilers: Reconcilers,
        *,
        frameworks: Lister[FrameworkRecord],
        configmaps: Lister[ConfigMapRecord],
        pods: Lister[PodRecord],
        limits: Limits,
        wall: Callable[[], float],
        clock: Callable[[], float],
        rng: random.Random,
        recorder: EventRecorder,
        max_in_flight: int = MAX_IN_FLIGHT,
        relist: Callable[[Kind], None] = lambda _: None,
        listed: Callable[[Kind], float] = lambda _: -math.inf,
        wrote: Callable[[WriteResult, int], None] = lambda _result, _size: None,
        count_attempts: Callable[[AttemptCounters], None] = lambda _: None,
        status_absent: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``wall``: seconds since the epoch. ``clock``: monotonic seconds. ``pods`` has the index ``BY_FRAMEWORK``.

        ``relist`` has a cache compared with a list; ``listed`` says when, by ``clock``, that was last asked for.
        ``status_absent`` takes the key of each Framework whose status write was answered 404. For metrics,
        ``wrote(result, bytes)`` takes each status write, ``count_attempts`` those that an accepted one shows.
        """
        self.client = client
        self.reconcilers = reconcilers
        self.frameworks = frameworks
        self.configmaps = configmaps
        self.pods = pods
        self.slots = FairSemaphore(max_in_flight)
        self.listed = listed
        self._limits = limits
        self._wall = wall
        self._clock = clock
        self._rng = rng
        self._recorder = recorder
        self._relist = relist
        self._wrote = wrote
        self._count_attempts = count_attempts
        self._status_absent = status_absent
        self._stopping = False
        self._stories: LRUCache[str, str] = LRUCache(_MAX_STORIES)
        """The cause of quarantine that the log has named last, by the UID of the Framework."""

    @property
    def env(self) -> Env:
        """The present."""
        return Env(self._wall(), self._clock(), self._rng, self._limits)

    def stop(self) -> None:
        """Start no more actions: a Framework of thousands of Tasks has some for longer than a stop waits."""
        self._stopping = True
        for machine in self.reconcilers:
            machine.stop()

    async def reconcile(self, key: str) -> float | None:
        """Bring one Framework forward; in how many seconds it is due again by itself, None for never.

        Raises:
            RequeueError: it failed in a way that may pass.
        """
        record = self.frameworks.get(key)
        if record is None:
            # The garbage collector removes what it owned.
            self.reconcilers.forget(key)
            return None
        try:
            machine = self.reconcilers.find(record) or self.reconcilers.open(record)
            done = await self._run(machine)
            if isinstance(machine, Quarantine) and machine.released is not None:
                done = await self._run(self.reconcilers.open(machine.released))
        except Exception as error:  # noqa: BLE001 - one Framework's trouble, whatever it is, must not touch the others
            done = await self._run(self._quarantine(record, error))
        if done.error is not None:
            raise RequeueError(done.error.message, done.error.retry_after_sec)
        return done.requeue_after

    async def _run(self, machine: Machine) -> Done:
        if self._stopping:
            machine.stop()
        async with _Run(self, machine) as run:
            return await run.until_done()

    def _quarantine(self, record: FrameworkRecord, error: Exception) -> Quarantine:
        machine = Quarantine(record, error, self.env, told=self._stories.get(record.uid))
        self._stories.put(record.uid, machine.story)
        self.reconcilers.put(record, machine)
        return machine

    def status_absent(self, key: str) -> None:
        """A status write of that Framework was answered 404: it is gone, or there is no status subresource."""
        self._status_absent(key)

    def carry_out(self, machine: Machine, effect: Effect) -> None:
        """Carry an effect out."""
        match effect:
            case Emit(records, log, trace) if log:
                self._recorder.record(machine.key, machine.uid, records, trace=trace)
            case Emit(records):
                self._recorder.emit_events(machine.key, machine.uid, records)
            case LogSnapshots(snapshots, resource_version):
                self._recorder.log_snapshots(machine.key, machine.uid, resource_version, snapshots)
            case Relist(kind):
                self._relist(kind)
            case StatusWritten(result, size):
                self._wrote(result, size)
            case Persisted(counters):
                self._count_attempts(counters)
            case Warn(text):
                _log.warning("[%s]: %s", machine.key, text)


class _Run:
    """One pass of one machine. Left early, requests in flight are given up: they may be executed all the same."""

    def __init__(self, driver: Driver, machine: Machine) -> None:
        self._driver = driver
        self._machine = machine
        self._view = _View(driver, machine)
        self._namespace = machine.key.partition("/")[0]
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()
        self._error: BaseException | None = None

    async def __aenter__(self) -> _Run:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            if kind is asyncio.CancelledError and self._driver.reconcilers.get(self._machine.key) is self._machine:
                # As after a crash: what its requests did is not known.
                self._driver.reconcilers.forget(self._machine.key)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until_done(self) -> Done:
        """Follow the machine's instructions until it is done."""
        waiting: Call | None = None
        while True:
            instruction = self._machine.next(self._view)
            self._carry_out_effects()
            match instruction:
                case Done():
                    return instruction
                case Wait(seconds):
                    if waiting is not None and seconds is None and not self._tasks:
                        # The only call needs no task.
                        await self._perform(waiting)
                    else:
                        self._start(waiting)
                        await self._wait(seconds)
                    waiting = None
                case _:
                    self._start(waiting)
                    waiting = instruction

    def _start(self, call: Call | None) -> None:
        if call is not None:
            task = asyncio.create_task(self._perform(call))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._error is None:
            self._error = task.exception()
        self._answered.set()

    async def _wait(self, seconds: float | None) -> None:
        self._answered.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._answered.wait()
        if self._error is not None:
            raise self._error

    async def _perform(self, call: Call) -> None:
        driver, machine = self._driver, self._machine
        async with driver.slots.taken(machine.key):
            request = machine.begin(call, self._view)
            self._carry_out_effects()
            while request is not None:
                answer = await send(driver.client, request, self._namespace, machine.key)
                if isinstance(request, PatchStatus) and _is_not_found(answer):
                    driver.status_absent(machine.key)
                request = machine.on_answer(call, answer)
                self._carry_out_effects()

    def _carry_out_effects(self) -> None:
        for effect in self._machine.effects():
            self._driver.carry_out(self._machine, effect)


def _is_not_found(answer: Answer) -> bool:
    return isinstance(answer, Refused) and answer.kind in (Refusal.NOT_FOUND, Refusal.OBJECT_NOT_FOUND)


class _View:
    """What the caches and clocks show of one Framework."""

    __slots__ = ("_driver", "_key", "_name", "_namespace")

    def __init__(self, driver: Driver, machine: Machine) -> None:
        self._driver = driver
        self._key = machine.key
        self._namespace, _, self._name = machine.key.partition("/")

    @property
    def record(self) -> FrameworkRecord | None:
        return self._driver.frameworks.get(self._key)

    @property
    def env(self) -> Env:
        return self._driver.env

    def observe(self, *, creating: bool) -> Observed:
        driver = self._driver
        return Observed(
            driver.configmaps.get(f"{self._namespace}/{names.configmap_name(self._name)}"),
            _Pods(driver.pods, self._namespace),
            lambda: driver.pods.by_index(BY_FRAMEWORK, self._key).values(),
            configmaps_listed=driver.listed(Kind.CONFIGMAP),
            pods_listed=driver.listed(Kind.POD),
            creating=creating,
        )


class _Pods:
    """The cache's Pods of one namespace, by name."""

    __slots__ = ("_namespace", "_store")

    def __init__(self, store: Lister[PodRecord], namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def get(self, name: str, /) -> PodRecord | None:
        return self._store.get(f"{self._namespace}/{name}")
