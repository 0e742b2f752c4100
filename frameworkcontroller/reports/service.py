"""The report server of one replica: its certificate, its listener, its checks and its writes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.reports.knowledge import TICK_SEC, Spell, Wakefulness, latest
from frameworkcontroller.reports.podtokens import PodTokens
from frameworkcontroller.reports.progresswriter import UNWRITTEN_SEC, ProgressWriter
from frameworkcontroller.reports.reporthandler import RESULTS, ReportHandler
from frameworkcontroller.reports.servercertificate import ServerCertificate
from frameworkcontroller.webaccess.boundedserver import BoundedServer, ListenError

_log: Final = logging.getLogger(__name__)

__all__ = ["ListenError", "ReportService"]

QPS: Final = 200.0
BURST: Final = 400
"""Requests to the API server, for all Pods that report."""

HEAD_SEC: Final = 10.0
IDLE_SEC: Final = 15.0
ANSWER_SEC: Final = 20.0
MAX_CONNECTIONS: Final = 2000
MAX_CONNECTIONS_OF_ADDRESS: Final = 100

_PROBE_SEC: Final = 15.0


class ReportService:
    """Serves reports within ``start`` and ``stop``."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        host: str,
        port: int,
        url: str | None,
        *,
        wall: Callable[[], float],
        rng: random.Random,
        exists: Callable[[str, str, str], bool | None],
        trusted_changed: Callable[[str], None],
        leading: Callable[[], bool] = lambda: True,
        watched_since: Callable[[], float | None] = lambda: 0.0,
    ) -> None:
        """``namespace``: of its Secret. ``host``, ``port``: to listen on. ``url``: for Pods; None: this address.

        ``exists``: see `PodTokens`. ``trusted_changed``: takes the authorities of the certificate, in PEM, once
        started and when they change. ``leading``: whether this replica acts. ``watched_since``: the time of the loop
        since when its cache of ConfigMaps is current.
        """
        self._loop = asyncio.get_running_loop()
        self._address = host, port
        self._url = url
        self._server: BoundedServer | None = None
        self._keeping: list[asyncio.Task[None]] = []
        self.connections = 0
        self.started_at: float | None = None
        self._leading, self._watched_since = leading, watched_since
        self._term = Spell(self._loop.time)
        self._wakefulness = Wakefulness(self._loop.time)
        self.authentication = PodTokens(client, self._loop.time, wall, exists)
        self.writer = ProgressWriter(client, self._loop.time, wall, rng)
        self.handler = ReportHandler(self.authentication, self.writer, clock=self._loop.time)
        own = urlsplit(url).hostname if url is not None else host
        self._certificate = ServerCertificate(client, namespace, own or "127.0.0.1", wall=wall, changed=trusted_changed)

    @property
    def url(self) -> str:
        """The address for Pods."""
        if self._url is not None:
            return self._url.rstrip("/")
        return "" if self._server is None else self._server.url

    @property
    def trusted(self) -> str:
        """The authorities of the certificate, in PEM."""
        return self._certificate.trusted

    @property
    def results(self) -> Mapping[str, int]:
        """Numbers of reports by result."""
        counts = self.handler.results
        return {result: counts[result] for result in (*RESULTS.values(), "other")}

    @property
    def problem(self) -> str | None:
        """Why Pods should report to another replica, None if there is no reason."""
        now = self._loop.time()
        for what, since in (("written", self.writer.failing_since), ("checked", self.authentication.failing_since)):
            if since is not None and now - since > UNWRITTEN_SEC:
                return f"reports cannot be {what} for {now - since:.0f} s"
        return None

    @property
    def works_since(self) -> float | None:
        """The time of the loop since when reports are taken and written without a failure, None while they are not."""
        if self.writer.failing_since is not None or self.authentication.failing_since is not None:
            return None
        return latest(self.started_at, self.writer.works_since or 0.0, self.authentication.works_since or 0.0)

    @property
    def known_since(self) -> float | None:
        """The time of the loop since when no report can have escaped this replica, None while one can."""
        term = self._term.since(holds=self._leading())
        return latest(term, self._watched_since(), self.works_since, self._wakefulness.since)

    async def prepare(self) -> None:
        """Get the certificate.

        Raises:
            KubeError: the API server does not allow it, or not now.
            AuthorityError: the Secret has no authority.
        """
        await self._certificate.renew()

    async def start(self) -> None:
        """Listen, with the certificate.

        Raises:
            ListenError: the port is in use, or the address does not belong to this machine.
        """
        server = BoundedServer(
            self.handler.application(),
            *self._address,
            tls=self._certificate.context,
            connected=self._connected,
            head_sec=HEAD_SEC,
            idle_sec=IDLE_SEC,
            answer_sec=ANSWER_SEC,
            drain_sec=1.0,
            max_connections=MAX_CONNECTIONS,
            max_of_address=MAX_CONNECTIONS_OF_ADDRESS,
        )
        await server.__aenter__()
        self._server = server
        self.started_at = self._loop.time()
        for name, work in (
            ("certificate", self._certificate.keep()),
            ("probe", self._probe()),
            ("wakefulness", self._tick()),
        ):
            self._keeping.append(asyncio.create_task(work, name=f"report server: {name}"))
        _log.info("Taking reports of progress on port %d, as %s", server.port, self.url)

    async def stop(self, seconds: float) -> None:
        """Stop listening, and write the pending reports, for at most this time."""
        self.started_at = None
        for task in self._keeping:
            task.cancel()
        server, self._server = self._server, None
        if server is not None:
            await server.__aexit__(None, None, None)
        await self.writer.stop(seconds)

    def _connected(self, number: int) -> None:
        self.connections = number

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SEC)
            self._wakefulness.tick()
            # So that the end of each condition is noticed.
            _ = self.known_since

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(_PROBE_SEC)
            await self.authentication.probe()
