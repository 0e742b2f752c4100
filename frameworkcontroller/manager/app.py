"""One controller: everything from the connection to the syncs, put together, started, and stopped.

It may run by itself (``cli``), inside another program, several in one process, and on an event loop of virtual time.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import logging
import random
import socket
import time
import uuid
from collections.abc import Callable, Set
from typing import Any, Final, Self, TypeVarTuple

import yaml
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import configmap_record, framework_record, pod_record
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.controller import eventbroadcaster
from frameworkcontroller.controller.eventbroadcaster import EventBroadcaster
from frameworkcontroller.controller.eventhandlers import EventHandlers, framework_key
from frameworkcontroller.controller.executor import Executor
from frameworkcontroller.controller.ledger import Ledger
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.controller.statecounts import StateCounts
from frameworkcontroller.controller.sync import BY_FRAMEWORK, Syncer
from frameworkcontroller.controller.workers import SyncResult, Workers
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.crd import ensure_crd
from frameworkcontroller.kube.crdguard import CrdGuard
from frameworkcontroller.kube.elector import Instant
from frameworkcontroller.kube.errors import may_pass
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.leaderelection import Election
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.kube.workqueue import WorkQueue
from frameworkcontroller.machine.model import Kind, Record
from frameworkcontroller.machine.reasons import Reason
from frameworkcontroller.manager.metrics import ControllerCollector, Metrics

Ts = TypeVarTuple("Ts")

_log: Final = logging.getLogger(__name__)

DRAIN_SEC: Final = 10.0
"""For so long a stopping controller waits for the syncs under way: well within the 30 s that Pods get by default."""

EVENTS_DRAIN_SEC: Final = 2.0
"""And for so long then until the Events of what they did are sent."""

RESYNC_SEC: Final = 600.0
"""How often every Framework that is not completed is looked at whole, whatever events said."""

STANDBY_RELIST_SEC: Final = 60.0
"""A new leader compares its warm caches with a list if they are older than this: their watches may have lost events."""

RELIST_SEC: Final = 600.0
RELIST_MAX_SEC: Final = 3600.0
RELIST_SEC_PER_OBJECT: Final = 0.3
"""How often the caches are compared with a list: the way back from a watch that has lost an event, which no later one
need make up for (a Pod's last, say). A Pod costs 11 us here then, and 7 KB of the API server: three a second at
most, up to the hour."""


def relist_sec(objects: int) -> float:
    """After how many seconds so many objects are listed anew."""
    return min(RELIST_MAX_SEC, max(RELIST_SEC, objects * RELIST_SEC_PER_OBJECT))


class Controller:
    """A controller of all Frameworks that one API server holds.

    ``async with Controller(config, connection) as controller`` has it running, and ready, within; ``run`` runs it until
    ``stop``.
    """

    def __init__(
        self,
        config: Config,
        connection: Connection,
        *,
        wall: Callable[[], float] = time.time,
        instant: Callable[[], Instant] = Instant.now,
        rng: random.Random | None = None,
        drain_sec: float = DRAIN_SEC,
        resync_sec: float = RESYNC_SEC,
    ) -> None:
        """``wall`` gives seconds since the epoch, ``instant`` those by which a leader's lease runs out.

        Create it on the loop it is to run on.

        Raises:
            ConfigError: there is to be a leader election, and nothing says in which namespace.
        """
        loop = asyncio.get_running_loop()
        self._config = config
        self._origin = connection.origin
        self._server = connection.server
        self._rng = random.Random() if rng is None else rng
        self._drain_sec = drain_sec
        self._resync_sec = resync_sec
        manifest = importlib.resources.files("frameworkcontroller").joinpath("crd", "frameworks.yaml").read_bytes()
        # The loader in C takes 5 ms for it, the other one 40.
        self._crd_manifest = yaml.load(manifest, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.metrics = Metrics(failure.code for failure in config.pod_failure_spec)
        limiter = RateLimiter(config.kube_client_qps, config.kube_client_burst)

        def client(**more: Any) -> KubeClient:
            return KubeClient(connection, observe=self.metrics.exchanged, wall=wall, **more)

        self._watcher = client(limiter=limiter)
        self.election: Election | None = None
        self._elector: KubeClient | None = None
        if config.leader_election.enabled:
            # Its requests must not wait behind those that they permit.
            self._elector = client()
            self.election = Election(
                self._elector,
                namespace=config.lease_namespace(connection.access.namespace),
                name=config.leader_election.lease_name,
                identity=f"{socket.gethostname()}_{uuid.uuid4()}",
                timing=config.leader_election.timing(),
                rng=self._rng,
                instant=instant,
                wall=wall,
            )
        self._acting = self.election is None
        self._client = client(limiter=limiter, fence=self.election)
        self.queue: WorkQueue[str] = WorkQueue(rng=self._rng)
        self.ledger = Ledger(compress=config.large_framework_compression)
        self.state_counts = StateCounts()
        snapshot_logger = SnapshotLogger(config.snapshot_triggers())
        handlers = EventHandlers(self.queue, self.ledger, snapshot_logger)
        ours = names.FRAMEWORK_NAME
        where = config.namespace
        self.frameworks = Informer(
            self._watcher,
            FRAMEWORKS,
            framework_record,
            namespace=where,
            rng=self._rng,
            relist_seconds=relist_sec,
            on_undecodable=self._framework_unreadable,
        )
        self.configmaps = Informer(
            self._watcher,
            CONFIGMAPS,
            configmap_record,
            namespace=where,
            label_selector=ours,
            rng=self._rng,
            relist_seconds=relist_sec,
        )
        self.pods = Informer(
            self._watcher,
            PODS,
            pod_record,
            namespace=where,
            label_selector=ours,
            indexers={BY_FRAMEWORK: lambda pod: (framework_key(pod),)},
            rng=self._rng,
            relist_seconds=relist_sec,
            on_deleted_object=self._if_acting(handlers.pod_object_deleted),
        )
        self._followed: dict[Kind, Informer[Any]] = {Kind.CONFIGMAP: self.configmaps, Kind.POD: self.pods}
        self.frameworks.add_handler(
            on_add=handlers.framework_added, on_update=handlers.framework_updated, on_delete=handlers.framework_deleted
        )
        self.configmaps.add_handler(
            on_add=self._if_acting(handlers.configmap_added),
            on_update=self._if_acting(handlers.configmap_updated),
            on_delete=self._if_acting(handlers.configmap_deleted),
        )
        self.pods.add_handler(
            on_add=self._if_acting(handlers.pod_added),
            on_update=self._if_acting(handlers.pod_updated),
            on_delete=self._if_acting(handlers.pod_deleted),
        )
        self.crd_guard = CrdGuard(
            self._watcher,
            self._crd_manifest,
            exists=lambda key: self.frameworks.lister.get(key) is not None,
            lost=self._statuses_refused,
            restored=self._statuses_taken,
            rng=self._rng,
        )
        self._events_client = client(
            limiter=RateLimiter(eventbroadcaster.QPS, eventbroadcaster.BURST), max_connections=2
        )
        self.events = EventBroadcaster(self._events_client, wall=wall, rng=self._rng, instance=socket.gethostname())
        self._recorder = EventRecorder(
            self.frameworks.lister, snapshot_logger, events=self.events if config.record_events else None
        )
        self._syncer = Syncer(
            self._client,
            Executor(self._client),
            self.ledger,
            frameworks=self.frameworks.lister,
            configmaps=self.configmaps.lister,
            pods=self.pods.lister,
            limits=config.plan_limits(),
            wall=wall,
            clock=loop.time,
            rng=self._rng,
            recorder=self._recorder,
            relist=lambda kind: self._followed[kind].relist(),
            listed=lambda kind: self._followed[kind].listed_since,
            wrote=self.metrics.wrote_status,
            count_attempts=self.metrics.count_attempts,
            status_absent=self.crd_guard.refused,
        )
        self.workers = Workers(
            self.queue, self._syncer, number=config.worker_number, synced=self._synced, clock=loop.time
        )
        self.queue.core.on_get, self.queue.core.on_done = self.metrics.queue_waited, self.metrics.queue_worked
        limiter.waited = self.metrics.limiter_waited
        self.metrics.registry.register(
            ControllerCollector(
                queue=self.queue.core,
                workers=self.workers,
                worker_number=config.worker_number,
                informers=self.informers,
                state_counts=self.state_counts,
                ledger=self.ledger,
                events=self.events.counters,
                limiter=limiter,
                leading=lambda: self.leading,
                status_lost=lambda: self.crd_guard.problem is not None,
            )
        )

    # --- use ---

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """Of everything that it watches."""
        return self.frameworks, self.configmaps, self.pods

    @property
    def warm_informers(self) -> tuple[Informer[Any], ...]:
        """Those whose caches it fills in any case. Frameworks are listed by a leader only (see ``_lead``)."""
        return self.informers if self.election is None else (self.configmaps, self.pods)

    @property
    def ready(self) -> bool:
        """Whether its caches are filled and syncs run, or will as soon as it leads: a standby is ready, too."""
        return self._ready.is_set()

    @property
    def leading(self) -> bool:
        """Whether it is the one to act at this moment. Without leader election it always is."""
        return self.election is None or self.election.leading

    async def wait_ready(self) -> None:
        """Wait until ``ready``."""
        await self._ready.wait()

    async def wait_stopped(self) -> None:
        """Wait until what ``async with`` runs has ended, and raise what it ended with."""
        if self._running is not None:
            await asyncio.shield(self._running)

    def stop(self) -> None:
        """Have ``run`` end: no sync starts any more, those under way may finish within ``drain_sec``."""
        self._stop.set()

    async def __aenter__(self) -> Self:
        """Run in the background; return once ready, or raise what kept it from that."""
        self._running = asyncio.create_task(self.run(), name="controller")
        ready = asyncio.create_task(self.wait_ready(), name="controller is ready")
        try:
            await asyncio.wait([self._running, ready], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.wait([self._running])
            raise
        finally:
            ready.cancel()
        if self._running.done():
            self._running.result()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.stop()
        if self._running is not None:
            await self._running

    async def run(self) -> None:
        """Run until ``stop``; once only. An API server that cannot be reached is waited for.

        Raises:
            KubeError: the API server will not have us: bad credentials, not permitted, not able to serve Frameworks.
        """
        _log.info("Starting for the API server %s (%s)", self._server, self._origin)
        serving = asyncio.create_task(self._serve(), name="controller at work")
        stopping = asyncio.create_task(self._stop.wait(), name="controller is stopped")
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                self._syncer.stop()
                await self.workers.stop(self._drain_sec)
                await self.events.drain(EVENTS_DRAIN_SEC)
        finally:
            self._ready.clear()
            stopping.cancel()
            serving.cancel()
            await asyncio.wait([serving, stopping])
            for client in (self._client, self._watcher, self._elector, self._events_client):
                if client is not None:
                    await client.close()
        if not serving.cancelled():
            # Nothing of it ends by itself, so what it ended with is an error.
            serving.result()
        _log.info("Stopped")

    # --- inside ---

    def _framework_unreadable(self, key: str, error: Exception, obj: dict[str, Any]) -> None:
        self._recorder.record_unreadable(key, error, obj)

    def _synced(self, key: str, result: SyncResult, seconds: float) -> None:
        self.metrics.synced(result, seconds)
        self.state_counts.update(key, self.ledger.get(key))

    def _statuses_refused(self, problem: str, keys: Set[str]) -> None:
        for key in keys:
            record = self.frameworks.lister.get(key)
            if record is not None:
                told = Record(Reason.STATUS_NOT_SERVED, problem, warning=True)
                self._recorder.record(key, record.uid, [told])

    def _statuses_taken(self, keys: Set[str]) -> None:
        for key in keys:
            # At once, and not after the back-off of all that time; API servers take a moment to serve it.
            self.queue.forget(key)
            self.queue.add_after(key, self._rng.uniform(1.0, 2.0))

    async def _serve(self) -> None:
        await self._install_crd()
        try:
            async with asyncio.TaskGroup() as group:
                for informer in (self.configmaps, self.pods):
                    group.create_task(informer.run(), name=f"informer of {informer.resource.qualified}")
                group.create_task(self.events.run(), name="events")
                group.create_task(self.crd_guard.run(), name="guard of the CRD")
                if self.election is None:
                    await self._act()
                    return
                # Whoever would have to wait for its caches is no use as a leader yet.
                for informer in self.warm_informers:
                    await informer.wait_synced()
                self._ready.set()
                await self.election.run(self._lead)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _lead(self) -> None:
        """One leadership: from the statuses that the leader before left behind, to being cancelled.

        They are read from the API server now, by consistent lists: a cache that was kept until now may be older than
        what that leader did last, and to act on an older status is to do things twice (docs/high-availability.md).
        """
        self._acting = True
        now = asyncio.get_running_loop().time()
        for informer in self.warm_informers:
            if now - informer.listed_since > STANDBY_RELIST_SEC:
                informer.relist()
        try:
            await self._act()
        finally:
            self._acting = False
            self.frameworks.reset()
            self.ledger.clear()
            self.state_counts.clear()

    async def _act(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.frameworks.run(), name=f"informer of {self.frameworks.resource.qualified}")
            # Before all three are there, what exists would look as if it did not.
            for informer in self.informers:
                await informer.wait_synced()
            group.create_task(self.workers.run(), name="workers")
            group.create_task(self._resync(), name="resync")
            self._ready.set()
            _log.info(
                "Ready: %d Frameworks, %d ConfigMaps and %d Pods are known",
                *(len(informer.lister) for informer in self.informers),
            )

    def _if_acting(self, handler: Callable[[*Ts], None]) -> Callable[[*Ts], None]:
        """What a standby sees is not its business: whoever leads next looks at everything anyway."""
        if self.election is None:
            return handler

        def handle(*event: *Ts) -> None:
            if self._acting:
                handler(*event)

        return handle

    async def _install_crd(self) -> None:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(may_pass),
            wait=wait_random(0.5, 1.5),
            before_sleep=_say_that_it_waits,
            sleep=asyncio.sleep,
        ):
            with attempt:
                crd = await ensure_crd(
                    self._watcher,
                    self._crd_manifest,
                    namespace=self._config.namespace,
                    check_interval=self._config.crd_established_check_interval_sec,
                    timeout=self._config.crd_established_check_timeout_sec,
                )
                self.crd_guard.start_with(crd)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._resync_sec * self._rng.uniform(0.9, 1.1))
            for key in self.ledger.resync():
                # Not all at once: it is not urgent, and there may be tens of thousands.
                self.queue.add_after(key, self._rng.uniform(0.0, self._resync_sec / 10))


def _say_that_it_waits(state: RetryCallState) -> None:
    _log.warning(
        "The API server cannot be used since %.0f s; waiting for it: %s",
        state.seconds_since_start or 0.0,
        state.outcome.exception() if state.outcome is not None else None,
    )
