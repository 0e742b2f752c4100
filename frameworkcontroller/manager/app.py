"""One controller: its parts, and how they start and stop.

It runs by itself (``cli``) or inside another program. Several can run in one process, also on a loop of virtual time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import yaml
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random

from frameworkcontroller.api.lastapplied import applied_fields
from frameworkcontroller.config.config import Config
from frameworkcontroller.controller import recorder
from frameworkcontroller.controller.driver import Driver
from frameworkcontroller.controller.eventhandlers import EventHandlers
from frameworkcontroller.controller.reconcilers import Reconcilers
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.controller.statecounts import StateCounts
from frameworkcontroller.controller.syncworkers import SyncResult, SyncWorkers
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.concurrency import ConcurrencyLimit
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.crd import ensure_crd
from frameworkcontroller.kube.crdguard import CrdGuard
from frameworkcontroller.kube.elector import ClockReading
from frameworkcontroller.kube.errors import may_pass
from frameworkcontroller.kube.fairness import namespace_of
from frameworkcontroller.kube.leaderelection import Election
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.kube.workqueue import WorkQueue
from frameworkcontroller.machine.kernel.model import KeepLogs, Reporting
from frameworkcontroller.machine.quarantine import fields_dropped, status_not_served
from frameworkcontroller.manager.controllermetrics import ControllerMetrics
from frameworkcontroller.manager.informers import Informers
from frameworkcontroller.manager.processlock import ProcessLock

if TYPE_CHECKING:
    from frameworkcontroller.controller.historysink import HistorySink
    from frameworkcontroller.controller.logcapture import LogCapture
    from frameworkcontroller.reports.service import ReportService

_log: Final = logging.getLogger(__name__)

_CRDS: Final = Path(__file__).parents[1] / "crd"

DRAIN_SEC: Final = 10.0
"""A stopping controller waits at most this long for its syncs: well below the default grace period of Pods, 30 s."""

EVENTS_DRAIN_SEC: Final = 2.0
"""After that it waits at most this long until the Events of these syncs are sent."""

RESYNC_SEC: Final = 600.0
"""Every Framework that is not completed is synced as a whole this often, with or without events."""

STANDBY_CACHE_SEC: Final = 60.0
"""A new leader compares warm caches older than this with a list, because their watches may have lost events."""

COMPARISON_DELAY_SEC: Final = 2.0
"""It does so after this time, as the first requests for Frameworks are more urgent."""


class Controller:
    """Controls all Frameworks of one API server.

    ``run`` runs it until ``stop``. ``async with Controller(config, connection) as controller`` runs it in the
    background, and enters when it is ready.
    """

    def __init__(
        self,
        config: Config,
        connection: Connection,
        *,
        wall: Callable[[], float] = time.time,
        instant: Callable[[], ClockReading] = ClockReading.now,
        rng: random.Random | None = None,
        drain_sec: float = DRAIN_SEC,
        resync_sec: float = RESYNC_SEC,
    ) -> None:
        """``wall``: seconds since the epoch. ``instant``: the clocks by which a leader's lease expires.

        It must be created on the loop that runs it.

        Raises:
            ConfigurationError: leader election is on, and no namespace is known for the Lease.
        """
        self._config = config
        self._rng = rng = random.Random() if rng is None else rng
        self._api_server = f"{connection.server} ({connection.origin})"
        self._drain_sec = drain_sec
        self._resync_sec = resync_sec
        self._crd_manifest = _crd_manifest("frameworks")
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None]
        loop = asyncio.get_running_loop()
        self.metrics = ControllerMetrics(one.code for one in config.pod_failure_spec if one.code is not None)

        # Clients and leader election.
        self._clients: list[KubeClient] = []

        def client(**options: Any) -> KubeClient:
            created = KubeClient(connection, observe=self.metrics.exchanged, wall=wall, **options)
            self._clients.append(created)
            return created

        self.limiter = limiter = RateLimiter(config.kube_client_qps, config.kube_client_burst)
        self.election: Election | None = None
        self._process_lock: ProcessLock | None = None
        if config.leader_election.enabled:
            lock_file = config.leader_election.lock_file
            self._process_lock = ProcessLock(None if lock_file is None else Path(lock_file), socket.gethostname())
            self.election = Election(
                # Without a rate limit: renewals must not wait behind the requests that depend on them.
                client(),
                namespace=config.lease_namespace(connection.access.namespace),
                name=config.leader_election.lease_name,
                identity=self._process_lock.identity,
                timing=config.leader_election.timing(),
                rng=rng,
                instant=instant,
                has_ended=self._process_lock.has_ended,
            )
        self._acting = self.election is None
        self._electing: asyncio.Task[None] | None = None
        self._warm = asyncio.Event()
        """Set while the caches are filled: an empty replica would delay all work if it led."""
        self._emptied = asyncio.Event()
        """Set when the cache of Frameworks is emptied, after a term."""
        self._watching_frameworks: asyncio.Task[None] | None = None
        self._frameworks_whole = asyncio.Event()
        """Set unless the cache has records without their status, of the last term."""
        self._reading_client = client(limiter=limiter)
        acting_client = client(limiter=limiter, fence=self.election)

        # From events to keys.
        limits = config.plan_limits()
        keeps_logs = limits.keep_logs is not KeepLogs.NONE
        self.queue: WorkQueue[str] = WorkQueue(
            rng=rng,
            namespace=namespace_of,
            work=lambda key: self._driver.remaining(key),  # noqa: PLW0108 - created below
        )
        self.reconcilers = Reconcilers(compress=config.large_framework_compression)
        self.state_counts = StateCounts(loop.time)
        snapshot_logger = SnapshotLogger(config.snapshot_triggers())
        self.history_sink: HistorySink | None = None
        if limits.history:
            from frameworkcontroller.manager.historysinks import open_sink

            self.history_sink = open_sink(config.history, namespace=config.namespace, wall=wall, rng=rng)
            self.metrics.add_history(self.history_sink)
        self.informers = Informers(
            self._reading_client,
            EventHandlers(self.queue, self.reconcilers, snapshot_logger, self.history_sink),
            namespace=config.namespace,
            rng=rng,
            acting=lambda: self._acting,
            enqueue=self.queue.add,
            install=self._install_companions,
            kueue=limits.kueue,
            runs=keeps_logs,
            on_undecodable=lambda *found: self.recorder.record_unreadable(*found),  # noqa: PLW0108 - created below
        )
        if self.history_sink is not None:
            self.history_sink.find_framework = self.informers.frameworks.lister.get
        self.crd_guard = CrdGuard(
            self._reading_client,
            self._crd_manifest,
            exists=lambda key: self.informers.frameworks.lister.get(key) is not None,
            lost=self._status_lost,
            restored=self._status_restored,
            outdated=self._crd_outdated,
            current=self._crd_current,
            rng=rng,
        )
        self._looked_for_dropped: set[str] = set()
        """UIDs of Frameworks checked for dropped fields of the spec."""

        self.log_capture: LogCapture | None = None
        if self.history_sink is not None and keeps_logs:
            from frameworkcontroller.controller.logcapture import LogCapture

            logs = config.history.logs
            self.log_capture = LogCapture(
                acting_client, self.history_sink, tail_bytes=logs.tail_bytes, concurrency=logs.concurrency
            )
            self.metrics.add_logs()

        # Reports of progress.
        self.report_service: ReportService | None = None
        self._trusted_for_reports = ""
        self._leads_synced = False
        """Whether it acts, with filled caches."""
        if config.progress_reports.address is not None:
            from frameworkcontroller.manager.reportserver import open_service

            self.report_service = open_service(
                config,
                client,
                connection.access.namespace,
                self.informers.pods,
                wall=wall,
                rng=rng,
                trusted_changed=self._report_to,
                leading=lambda: self._leads_synced and self.leading,
                watched_since=lambda: self.informers.configmaps.current_since,
            )

        # From keys to requests.
        self.recorder = EventRecorder(
            client(limiter=RateLimiter(recorder.QPS, recorder.BURST), max_connections=2),
            wall=wall,
            rng=rng,
            instance=socket.gethostname(),
            sends_events=config.record_events,
        )
        limit = ConcurrencyLimit(config.worker_number)
        self._driver = Driver(
            client=acting_client,
            reconcilers=self.reconcilers,
            frameworks=self.informers.frameworks.lister,
            configmaps=self.informers.configmaps.lister,
            pods=self.informers.pods.lister,
            find_companion=self.informers.find_companion,
            list_claims=self.informers.list_claims,
            resources=self.informers.resources,
            list_workloads=self.informers.list_workloads,
            history=self.history_sink,
            logs=self.log_capture,
            enqueue=self.queue.add,
            limits=limits,
            wall=wall,
            clock=loop.time,
            rng=rng,
            recorder=self.recorder,
            snapshots=snapshot_logger,
            relist=lambda kind: self.informers.of(kind).relist(),
            listed=lambda kind: self.informers.of(kind).listed_since,
            wrote=self.metrics.wrote_status,
            count_attempts=self.metrics.count_attempts,
            status_not_stored=self.crd_guard.refused,
            answered=limit.answered,
            reports_since=self.reports_since,
        )
        self.workers = SyncWorkers(
            self.queue,
            self._driver.reconcile,
            number=config.worker_number,
            limit=limit,
            synced=self._synced,
            clock=loop.time,
        )

        # Metrics.
        limiter.waited = self.metrics.limiter_waited
        self.queue.on_get = self.metrics.queue_waited
        self.queue.on_done = self.metrics.queue_worked

    # --- use ---

    @property
    def ready(self) -> bool:
        """Whether its caches are filled and it runs syncs, or would as soon as it leads."""
        return self._ready.is_set()

    @property
    def leading(self) -> bool:
        """Whether it may act now. Without leader election it always may."""
        return self.election is None or self.election.leading

    @property
    def worker_number(self) -> int:
        return self._config.worker_number

    @property
    def orphans_released(self) -> int:
        """The number of Workloads released whose Framework was gone."""
        return self._driver.orphans_released

    def reports_since(self) -> float | None:
        """The loop's time since when this process would know of every report of progress, None while it may not."""
        return None if self.report_service is None else self.report_service.known_since

    async def wait_ready(self) -> None:
        await self._ready.wait()

    async def wait_stopped(self) -> None:
        """Wait until the background run of ``async with`` has ended; raise its error."""
        await asyncio.shield(self._running)

    def stop(self) -> None:
        """Let ``run`` return: no sync starts, and those in progress may finish within ``drain_sec``."""
        self._stop.set()

    async def __aenter__(self) -> Self:
        """Run in the background. Returns when ready; raises the error that prevents it."""
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
        await self._running

    async def run(self) -> None:
        """Run until ``stop``; once only. Waits for an API server that is unavailable.

        Raises:
            KubeError: the API server refuses the credentials, denies a permission, or cannot serve Frameworks.
        ConfigurationError: the report server cannot be started as configured.
        """
        _log.info("Starting for the API server %s", self._api_server)
        working = asyncio.create_task(self._work(), name="controller at work")
        stopping = asyncio.create_task(self._stop.wait(), name="controller is stopped")
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self._driver.stop()
                await self.workers.stop(self._drain_sec)
                if self.log_capture is not None:
                    await self.log_capture.stop()
                await self._resign()
                await asyncio.gather(
                    self.recorder.drain(EVENTS_DRAIN_SEC), self._drain_history(), self._stop_reports(EVENTS_DRAIN_SEC)
                )
        finally:
            self._ready.clear()
            stopping.cancel()
            working.cancel()
            await asyncio.wait([working, stopping])
            await self._stop_reports(0.0)
            for client in self._clients:
                await client.close()
            if self._process_lock is not None:
                self._process_lock.release()
        if not working.cancelled():
            # It never returns, so it has raised.
            working.result()
        _log.info("Stopped")

    # --- start ---

    async def _work(self) -> None:
        """Everything that runs while the controller does; never returns."""
        await self._install_crd()
        if self.history_sink is not None:
            await self._name_cluster(self.history_sink)
        if self.report_service is not None:
            await self._start_reports(self.report_service)
        try:
            async with asyncio.TaskGroup() as group:
                for informer in (self.informers.configmaps, self.informers.pods):
                    group.create_task(informer.run(), name=f"informer of {informer.resource.qualified}")
                group.create_task(self._watch_frameworks(), name="informer of Frameworks")
                group.create_task(self.recorder.run(), name="events")
                if self.history_sink is not None:
                    group.create_task(self.history_sink.run(), name="history")
                group.create_task(self.crd_guard.run(), name="guard of the CRD")
                if self.election is None:
                    await self._act()
                else:
                    running = self.election.run(self._lead, willing=self._warm)
                    self._electing = group.create_task(running, name="leader election")
                    while True:
                        await self._wait_synced()
                        self._warm.set()
                        self._ready.set()
                        await self._emptied.wait()
                        self._emptied.clear()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _install_crd(self) -> None:
        async for attempt in _retrying():
            with attempt:
                self.crd_guard.start_with(await self._ensure_crd(self._crd_manifest))

    async def _install_companions(self) -> None:
        """Install the CRD of FrameworkRoleScalers, which the first Framework with autoscaling needs."""
        await self._ensure_crd(_crd_manifest("frameworkrolescalers"))

    async def _ensure_crd(self, manifest: Any) -> dict[str, Any]:
        return await ensure_crd(
            self._reading_client,
            manifest,
            namespace=self._config.namespace,
            check_interval=self._config.crd_established_check_interval_sec,
            timeout=self._config.crd_established_check_timeout_sec,
        )

    async def _name_cluster(self, sink: HistorySink) -> None:
        from frameworkcontroller.manager.historysinks import cluster_name

        async for attempt in _retrying():
            with attempt:
                sink.cluster = await cluster_name(self._config.history, self._reading_client)

    async def _start_reports(self, service: ReportService) -> None:
        from frameworkcontroller.manager import reportserver

        # Before the first Pod, which gets the authority of its certificate.
        async for attempt in _retrying():
            with attempt:
                await reportserver.prepare(service)
        await reportserver.start(service)
        self._report_to(self._trusted_for_reports)

    async def _stop_reports(self, seconds: float) -> None:
        if self.report_service is not None:
            await self.report_service.stop(seconds)

    def _report_to(self, trusted: str) -> None:
        """Let new attempts trust these authorities of the report server."""
        self._trusted_for_reports = trusted
        if self.report_service is not None and self.report_service.url:
            reporting = Reporting(self.report_service.url, trusted)
            self._driver.limits = replace(self._driver.limits, reporting=reporting)

    async def _drain_history(self) -> None:
        if self.history_sink is not None:
            from frameworkcontroller.manager.historysinks import DRAIN_SEC as HISTORY_DRAIN_SEC

            await self.history_sink.drain(HISTORY_DRAIN_SEC)

    async def _watch_frameworks(self) -> None:
        """Keep the cache of Frameworks; list them again after each term, whose tracked records have no status."""
        frameworks = self.informers.frameworks
        while True:
            self._frameworks_whole.set()
            watching = asyncio.create_task(frameworks.run(), name=f"informer of {frameworks.resource.qualified}")
            self._watching_frameworks = watching
            try:
                await asyncio.wait([watching])
            except asyncio.CancelledError:
                watching.cancel()
                await asyncio.wait([watching])
                raise
            if not watching.cancelled():
                watching.result()
            frameworks.reset()

    async def _wait_synced(self) -> None:
        await self._frameworks_whole.wait()
        for informer in self.informers:
            await informer.wait_synced()

    async def _lead(self) -> None:
        """One term as the leader; ends by cancellation.

        It acts on the caches that it kept as a standby. They may be older than the last writes of the previous leader,
        so nothing rests on a status before the API server has confirmed it (docs/high-availability.md).
        """
        self._acting = True
        try:
            await self._act()
        finally:
            self._acting = False
            self._leads_synced = False
            if self.log_capture is not None and not self._stop.is_set():
                self.log_capture.clear()
            self.reconcilers.clear()
            self.state_counts.clear()
            if not self._stop.is_set() and self._watching_frameworks is not None:
                self._warm.clear()
                self._frameworks_whole.clear()
                self._emptied.set()
                self._watching_frameworks.cancel()

    async def _resign(self) -> None:
        """Release the Lease, so that the next leader begins while the last Events are sent."""
        if self._electing is not None:
            self._electing.cancel()
            await asyncio.wait([self._electing])

    async def _act(self) -> None:
        async with asyncio.TaskGroup() as group:
            # With a cache that is not filled, objects that exist would seem absent.
            await self._wait_synced()
            self._leads_synced = True
            for kind, companion in self.informers.companions.items():
                group.create_task(companion.run(), name=f"companions of kind {kind}")
            if self.election is not None:
                for record in self.informers.frameworks.lister.values():
                    self.queue.add(record.key)
                group.create_task(self._compare_caches())
            group.create_task(self.workers.run(), name="workers")
            group.create_task(self._resync(), name="resync")
            self._ready.set()
            _log.info(
                "Ready: the caches hold %d Frameworks, %d ConfigMaps and %d Pods",
                *(len(informer.lister) for informer in self.informers),
            )

    async def _compare_caches(self) -> None:
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(COMPARISON_DELAY_SEC)
        self.informers.compare(older_than=now - STANDBY_CACHE_SEC)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._resync_sec * self._rng.uniform(0.9, 1.1))
            await self.resync()

    async def resync(self) -> None:
        """Sync every Framework that is not completed as a whole, within a tenth of the interval of that."""
        # From the specs in the cache, an API server may have dropped fields since they were written, such as suspend.
        for key in self.reconcilers.resync(from_cache=await self.crd_guard.is_current()):
            # Spread, because it is not urgent and there may be tens of thousands.
            self.queue.add_after(key, self._rng.uniform(0.0, self._resync_sec / 10))

    # --- reports of the parts ---

    def _status_lost(self, problem: str, keys: Set[str]) -> None:
        for key in keys:
            record = self.informers.frameworks.lister.get(key)
            if record is not None:
                self.recorder.record(key, record.uid, [status_not_served(problem)])

    def _status_restored(self, keys: Set[str]) -> None:
        for key in keys:
            # Soon, without the back-off of all that time; API servers take a moment to serve the subresource.
            self.queue.forget(key)
            self.queue.add_after(key, self._rng.uniform(1.0, 2.0))

    def _crd_outdated(self, missing: Sequence[str]) -> None:
        """The API server drops fields of specs. Only kubectl's last applied manifest shows them: check each once."""
        if not self._acting:
            return
        for record in self.informers.frameworks.lister.values():
            if record.uid in self._looked_for_dropped:
                continue
            self._looked_for_dropped.add(record.uid)
            if dropped := applied_fields(record.metadata_json, missing):
                self.recorder.record(record.key, record.uid, [fields_dropped(dropped)])

    def _crd_current(self) -> None:
        """The API server drops no field any longer: read all Frameworks again, as they are stored."""
        self._looked_for_dropped.clear()
        self.informers.frameworks.relist(anew=True)
        for key in self.reconcilers.resync():
            self.queue.add_after(key, self._rng.uniform(2.0, 60.0))

    def _synced(self, key: str, result: SyncResult, seconds: float) -> None:
        self.metrics.synced(result, seconds)
        self.state_counts.update(key, self.reconcilers.get(key))


def _crd_manifest(name: str) -> Any:
    text = (_CRDS / f"{name}.yaml").read_bytes()
    # The loader in C takes 5 ms for it, the one in Python 40.
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe


def _retrying() -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception(may_pass),
        wait=wait_random(0.5, 1.5),
        before_sleep=_log_unavailable,
        sleep=asyncio.sleep,
    )


def _log_unavailable(state: RetryCallState) -> None:
    _log.warning(
        "API server unavailable for %.0f s; retrying: %s",
        state.seconds_since_start or 0.0,
        state.outcome.exception() if state.outcome is not None else None,
    )
