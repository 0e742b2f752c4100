"""One controller: everything from the connection to the syncs, put together, started, and stopped.

It may run by itself (``cli``), inside another program, several in one process, and on an event loop of virtual time.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final, Self

import yaml
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import configmap_record, framework_record, pod_record
from frameworkcontroller.config import Config
from frameworkcontroller.controller.executor import FRAMEWORKS, Executor
from frameworkcontroller.controller.history import History
from frameworkcontroller.controller.ledger import Ledger
from frameworkcontroller.controller.queue import WorkQueue
from frameworkcontroller.controller.routing import Routing, framework_key
from frameworkcontroller.controller.sync import BY_FRAMEWORK, Syncer
from frameworkcontroller.controller.workers import Workers
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.crd import ensure_crd
from frameworkcontroller.kube.errors import ServerError, TooManyRequests, TransportError
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.limiter import Limiter
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.telemetry import Sources, Telemetry

_log: Final = logging.getLogger(__name__)

DRAIN_SEC: Final = 10.0
"""For so long a stopping controller waits for the syncs under way: well within the 30 s that Pods get by default."""

AUDIT_SEC: Final = 600.0
"""How often every Framework that is not completed is looked at whole, whatever events said."""


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
        rng: random.Random | None = None,
        drain_sec: float = DRAIN_SEC,
        audit_sec: float = AUDIT_SEC,
    ) -> None:
        """``wall`` gives seconds since the epoch. Create it on the loop it is to run on."""
        loop = asyncio.get_running_loop()
        self._config = config
        self._origin = connection.origin
        self._server = connection.server
        self._rng = random.Random() if rng is None else rng
        self._drain_sec = drain_sec
        self._audit_sec = audit_sec
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.telemetry = Telemetry(failure.code for failure in config.pod_failure_spec)
        limiter = Limiter(config.kube_client_qps, config.kube_client_burst)
        self._client = KubeClient(connection, limiter=limiter, observe=self.telemetry.exchanged, wall=wall)
        self.queue: WorkQueue[str] = WorkQueue(rng=self._rng)
        self.ledger = Ledger(compress=config.large_framework_compression)
        history = History(config.snapshot_triggers())
        routing = Routing(self.queue, self.ledger, history)
        ours = names.FRAMEWORK_NAME
        self.frameworks = Informer(self._client, FRAMEWORKS, framework_record, rng=self._rng)
        self.configmaps = Informer(self._client, CONFIGMAPS, configmap_record, label_selector=ours, rng=self._rng)
        self.pods = Informer(
            self._client,
            PODS,
            pod_record,
            label_selector=ours,
            indexers={BY_FRAMEWORK: lambda pod: (framework_key(pod),)},
            rng=self._rng,
            on_deleted_object=routing.pod_object_deleted,
        )
        self.frameworks.add_handler(
            on_add=routing.framework_added, on_update=routing.framework_updated, on_delete=routing.framework_deleted
        )
        self.configmaps.add_handler(
            on_add=routing.configmap_added, on_update=routing.configmap_updated, on_delete=routing.configmap_deleted
        )
        self.pods.add_handler(on_add=routing.pod_added, on_update=routing.pod_updated, on_delete=routing.pod_deleted)
        syncer = Syncer(
            self._client,
            Executor(self._client, clock=loop.time),
            self.ledger,
            frameworks=self.frameworks.store,
            configmaps=self.configmaps.store,
            pods=self.pods.store,
            limits=config.plan_limits(),
            wall=wall,
            clock=loop.time,
            rng=self._rng,
            history=history,
            wrote=self.telemetry.wrote_status,
            tallied=self.telemetry.tallied,
        )
        self.workers = Workers(
            self.queue, syncer, number=config.worker_number, synced=self.telemetry.synced, clock=loop.time
        )
        self.telemetry.attach(
            Sources(
                queue=self.queue.core,
                ledger=self.ledger,
                limiter=limiter,
                workers=self.workers,
                informers=self.informers,
                worker_number=config.worker_number,
            )
        )

    # --- use ---

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """Of everything that it watches."""
        return self.frameworks, self.configmaps, self.pods

    @property
    def ready(self) -> bool:
        """Whether its caches are filled and syncs run."""
        return self._ready.is_set()

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
                await self.workers.stop(self._drain_sec)
        finally:
            self._ready.clear()
            stopping.cancel()
            serving.cancel()
            await asyncio.wait([serving, stopping])
            await self._client.close()
        if not serving.cancelled():
            # Nothing of it ends by itself, so what it ended with is an error.
            serving.result()
        _log.info("Stopped")

    # --- inside ---

    async def _serve(self) -> None:
        await self._install_crd()
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self.informers:
                    group.create_task(informer.run(), name=f"informer of {informer.resource.qualified}")
                # Before all three are there, what exists would look as if it did not.
                for informer in self.informers:
                    await informer.wait_synced()
                group.create_task(self.workers.run(), name="workers")
                group.create_task(self._audit(), name="audit")
                self._ready.set()
                _log.info(
                    "Ready: %d Frameworks, %d ConfigMaps and %d Pods are known",
                    *(len(informer.store) for informer in self.informers),
                )
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _install_crd(self) -> None:
        crd = yaml.safe_load(importlib.resources.files(__package__).joinpath("crd", "frameworks.yaml").read_bytes())
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((TransportError, ServerError, TooManyRequests)),
            wait=wait_random(0.5, 1.5),
            before_sleep=_say_that_it_waits,
            sleep=asyncio.sleep,
        ):
            with attempt:
                await ensure_crd(
                    self._client,
                    crd,
                    check_interval=self._config.crd_established_check_interval_sec,
                    timeout=self._config.crd_established_check_timeout_sec,
                )

    async def _audit(self) -> None:
        while True:
            await asyncio.sleep(self._audit_sec * self._rng.uniform(0.9, 1.1))
            for key in self.ledger.audit():
                # Not all at once: it is not urgent, and there may be tens of thousands.
                self.queue.add_after(key, self._rng.uniform(0.0, self._audit_sec / 10))


def _say_that_it_waits(state: RetryCallState) -> None:
    _log.warning(
        "The API server cannot be used since %.0f s; waiting for it: %s",
        state.seconds_since_start or 0.0,
        state.outcome.exception() if state.outcome is not None else None,
    )
