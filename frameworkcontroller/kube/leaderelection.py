"""Takes part in a leader election: drives the elector over the network, and runs what only a leader may do."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.elector import NOBODY, Claim, Elector, Held, Instant, Look, Rest, Timing
from frameworkcontroller.kube.errors import ApiError, Conflict, KubeError, ObjectNotFound, TransportError
from frameworkcontroller.kube.resources import LEASES

_log: Final = logging.getLogger(__name__)

_RELEASE_SECONDS: Final = 3.0
"""For so long a stopping leader tries to give its lease up; if it cannot, others wait until it expires."""


class NotLeading(TransportError):
    """The lease is, or may be, somebody else's: nothing was sent."""

    def __init__(self) -> None:
        super().__init__("not sent: this replica may not be the leader any more", maybe_sent=False)


class Election:
    """One candidate for the Lease ``name`` in ``namespace``. It is the `Fence` of the leader's requests, too.

    ``client`` is for the Lease alone, without a rate limit: a renewal must not wait behind what it permits.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing,
        rng: random.Random | None = None,
        instant: Callable[[], Instant] = Instant.now,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``wall`` gives seconds since the epoch."""
        self.namespace = namespace
        self.name = name
        self._client = client
        self._timing = timing
        self._instant = instant
        self._wall = wall
        self._elector = Elector(identity, timing, random.Random() if rng is None else rng)
        self._claimed = asyncio.Event()
        self._trouble: str | None = None
        self._told_holder: str | None = None
        self._told_halt = False

    @property
    def identity(self) -> str:
        """What this candidate is called in the Lease."""
        return self._elector.identity

    @property
    def leading(self) -> bool:
        """Whether this candidate may act at this moment. Asks the clocks."""
        return self._elector.holds(self._instant())

    def check(self) -> None:
        """The last look at the clocks before a request is written to the network.

        Raises:
            NotLeading: it must not be sent.
        """
        if not self.leading:
            raise NotLeading

    async def wait_leading(self) -> None:
        """Wait until ``leading``."""
        while not self.leading:
            await self._claimed.wait()

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Take part until cancelled; then give the lease up. Trouble with the server is logged and waited out.

        ``lead`` is called at the beginning of each leadership, and cancelled when that is over; the next cannot begin
        before it has ended. It is left alone while the lease is only not renewed in time: see `kube.elector`. What it
        raises is raised here.
        """
        leading: asyncio.Task[None] | None = None
        try:
            while True:
                if leading is not None and self._elector.term is None:
                    _log.warning("Lost the lease %s/%s: now a standby", self.namespace, self.name)
                    await _end(leading)
                    leading = None
                elif leading is None and self._elector.term is not None:
                    _log.info(
                        "Acquired the lease %s/%s as %s (transition %d): leading",
                        self.namespace,
                        self.name,
                        self.identity,
                        self._elector.term,
                    )
                    leading = asyncio.create_task(_run(lead), name="leading")
                await self._step(leading)
                if leading is not None and leading.done():
                    leading.result()
                    raise AssertionError("what only a leader does ends only when it is cancelled")
        finally:
            try:
                if leading is not None:
                    await _end(leading)
            finally:
                await self._release()

    async def _step(self, leading: asyncio.Task[None] | None) -> None:
        match self._elector.instruction(self._wall()):
            case Rest(seconds=seconds):
                if leading is None:
                    await asyncio.sleep(seconds)
                else:
                    await asyncio.wait([leading], timeout=seconds)
                self._elector.on_rest_over()
            case Look():
                await self._look()
            case Claim() as claim:
                await self._claim(claim)

    async def _look(self) -> None:
        found: Held | None = None
        try:
            async with asyncio.timeout(self._timing.renew_deadline / 2):
                found = self._held(await self._client.get(LEASES, self.name, self.namespace))
        except ObjectNotFound:
            pass
        except (KubeError, TimeoutError) as error:
            self._failed(error)
            return
        self._trouble = None
        self._elector.on_look(found, self._instant())
        if self._elector.term is None and self._elector.holder not in (self._told_holder, NOBODY, self.identity):
            self._told_holder = self._elector.holder
            _log.info("The lease %s/%s is held by %s: standing by", self.namespace, self.name, self._elector.holder)

    async def _claim(self, claim: Claim) -> None:
        # From now on the claim may be seen, and the time run by which others think that this one is alive.
        sent = self._instant()
        try:
            async with asyncio.timeout(self._timing.renew_deadline / 2):
                held = self._held(await self._write(claim))
        except Conflict:
            self._elector.on_conflict()
        except ObjectNotFound as error:
            if claim.document is None:
                # Not the Lease, then, but its namespace.
                self._failed(error)
            else:
                self._elector.on_conflict()
        except (KubeError, TimeoutError) as error:
            self._failed(error)
        else:
            self._trouble = None
            if self._told_halt:
                self._told_halt = False
                _log.info("Renewed the lease %s/%s, which nobody else has had: leading on", self.namespace, self.name)
            self._elector.on_claimed(held, sent)
            self._claimed.set()
            self._claimed = asyncio.Event()

    async def _write(self, claim: Claim) -> bytes:
        if claim.document is None:
            body: dict[str, Any] = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": claim.spec,
            }
            return await self._client.create(LEASES, orjson.dumps(body), self.namespace)
        # The rest of it is others': labels, fields of newer API servers.
        body = {**claim.document, "spec": {**(claim.document.get("spec") or {}), **claim.spec}}
        return await self._client.replace(LEASES, self.name, orjson.dumps(body), self.namespace)

    def _held(self, answer: bytes) -> Held:
        try:
            return Held.of(orjson.loads(answer), self._timing)
        except (ValueError, AttributeError) as error:
            raise TransportError(f"the API server's answer is not a Lease: {answer[:100]!r}") from error

    def _failed(self, error: Exception) -> None:
        self._elector.on_failure((error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)
        text = str(error) or f"no answer within {self._timing.renew_deadline / 2:g} s"
        if self._trouble is None:
            _log.warning("Cannot use the lease %s/%s, trying again: %s", self.namespace, self.name, text)
        self._trouble = text
        if self._elector.term is not None and not self.leading and not self._told_halt:
            self._told_halt = True
            _log.warning(
                "The lease %s/%s was not renewed for %g s: nothing is sent until it is",
                self.namespace,
                self.name,
                self._timing.renew_deadline,
            )

    async def _release(self) -> None:
        claim = self._elector.release(self._wall())
        if claim is None:
            return
        with suppress(TimeoutError, KubeError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._write(claim)
                _log.info("Released the lease %s/%s", self.namespace, self.name)


async def _run(lead: Callable[[], Awaitable[None]]) -> None:
    await lead()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
