"""Leader election over the network: carries out the instructions of an elector, and runs the work of a leader."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.kube import errors
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.elector import (
    NOBODY,
    AcquireOrRenew,
    ClockReading,
    Elector,
    LeaderElectionRecord,
    Pause,
    ReadLease,
    Timing,
    WatchLease,
)
from frameworkcontroller.kube.resources import LEASES

_log: Final = logging.getLogger(__name__)

_TIMER_SLACK_SECONDS: Final = 0.002
"""Timers may ring early, and a lease must have expired."""

_RELEASE_SECONDS: Final = 3.0
"""Timeout for the release of the lease by a stopping leader; without it others wait for the expiry."""


class NotLeading(errors.TransportError):
    """The request was not sent, because another process may hold the lease."""

    def __init__(self) -> None:
        super().__init__("not sent: this replica may no longer be the leader", maybe_sent=False)


class Election:
    """A candidate for the Lease ``name`` in ``namespace``, and the `Fence` of the leader's requests.

    ``client`` is for the Lease alone and has no rate limit: a renewal must not wait behind the leader's requests.
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
        instant: Callable[[], ClockReading] = ClockReading.now,
        has_ended: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``has_ended``: whether the process of that identity has certainly ended."""
        self.identity = identity
        """The identity of this candidate in the Lease."""
        self._namespace = namespace
        self._name = name
        self._lease = f"{namespace}/{name}"
        self._client = client
        self._timing = timing
        self._instant = instant
        self._elector = Elector(identity, timing, random.Random() if rng is None else rng, has_ended=has_ended)
        self._renewed = asyncio.Event()
        self._failing = False
        self._logged_holder: str | None = None
        self._logged_unwatched = False
        self._logged_halt = False

    @property
    def leading(self) -> bool:
        """True if this candidate may act now, by the current time."""
        return self._elector.is_leader(self._instant())

    def check(self) -> None:
        """Check the time before a request is written to the network. Raises NotLeading if it must not be sent."""
        if not self.leading:
            raise NotLeading

    async def wait_leading(self) -> None:
        while not self.leading:
            await self._renewed.wait()

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]], *, willing: asyncio.Event | None = None) -> None:
        """Take part until cancelled, then release the lease. Errors of the server are logged and retried.

        Until ``willing`` is set it only observes the lease: if its holder dies meanwhile, the lease expires no later.

        ``lead`` is called when a leadership begins and cancelled when it ends; the next cannot begin before ``lead``
        has returned. A late renewal alone does not cancel it: see `kube.elector`. Its exceptions are raised here.
        """
        leading: asyncio.Task[None] | None = None
        try:
            while True:
                if leading is not None and self._elector.term is None:
                    _log.warning("Lost the lease %s: now a standby", self._lease)
                    await _end(leading)
                    leading = None
                elif leading is None and self._elector.term is not None:
                    text = "Acquired the lease %s as %s (transition %d): leading"
                    _log.info(text, self._lease, self.identity, self._elector.term)
                    leading = asyncio.create_task(lead(), name="leading")
                await self._step(leading, willing)
                if leading is not None and leading.done():
                    leading.result()
                    raise AssertionError("the work of a leader returned without being cancelled")
        finally:
            try:
                if leading is not None:
                    await _end(leading)
            finally:
                await self._release()

    async def _step(self, leading: asyncio.Task[None] | None, willing: asyncio.Event | None) -> None:
        match self._elector.instruction(self._instant().wall):
            case Pause(seconds=seconds):
                if leading is None:
                    await asyncio.sleep(seconds)
                else:
                    await asyncio.wait([leading], timeout=seconds)
                self._elector.on_wait_over()
            case WatchLease(resource_version=version, seconds=seconds):
                await self._watch(version, seconds)
            case ReadLease():
                await self._get()
            case AcquireOrRenew() if willing is not None and not willing.is_set():
                # Then with the time of then. If the lease has changed meanwhile, the write is refused.
                await willing.wait()
            case AcquireOrRenew() as update:
                await self._acquire_or_renew(update)

    async def _watch(self, version: str, seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        problem: object = None
        try:
            async with (
                asyncio.timeout(seconds + _TIMER_SLACK_SECONDS) as limit,
                self._client.watch(
                    LEASES, self._namespace, resource_version=version, field_selector=f"metadata.name={self._name}"
                ) as lines,
            ):
                async for line in lines:
                    if not self._on_event(line):
                        continue
                    match self._elector.instruction(self._instant().wall):
                        case WatchLease(seconds=seconds):
                            limit.reschedule(clock() + seconds + _TIMER_SLACK_SECONDS)
                        case _:
                            return
        except TimeoutError:
            pass
        except errors.KubeError as error:
            problem = error
        lived = clock() - began
        if problem is not None and lived < self._timing.retry_period and not self._logged_unwatched:
            self._logged_unwatched = True
            every = self._timing.retry_period
            _log.warning("Cannot watch the lease %s; reading it every %g s: %s", self._lease, every, problem)
        self._elector.on_watch_over(self._instant(), lived=lived)

    def _on_event(self, line: bytes) -> bool:
        """Pass an event of the watch on. Return whether it shows the Lease.

        Raises:
            KubeError: the watch cannot continue.
        """
        try:
            event = orjson.loads(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                raise errors.error_from_status(obj)
            if kind == "BOOKMARK" or obj["metadata"]["name"] != self._name:
                return False
            found = None if kind == "DELETED" else LeaderElectionRecord.of(obj, self._timing)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.TransportError(f"the event is not of a Lease: {line[:100]!r}") from error
        self._observe(found)
        return True

    async def _get(self) -> None:
        found: LeaderElectionRecord | None = None
        try:
            found = await self._record(self._client.get(LEASES, self._name, self._namespace))
        except errors.ObjectNotFound:
            pass
        except (errors.KubeError, TimeoutError) as error:
            self._failed(error)
            return
        self._failing = False
        self._observe(found)

    def _observe(self, found: LeaderElectionRecord | None) -> None:
        self._elector.on_get(found, self._instant())
        holder = NOBODY if found is None else found.holder_identity
        if self._elector.term is None and holder not in (self._logged_holder, NOBODY, self.identity):
            self._logged_holder = holder
            _log.info("The lease %s is held by %s: standing by", self._lease, holder)

    async def _acquire_or_renew(self, update: AcquireOrRenew) -> None:
        # Others may observe the write from now on, and count the duration of the lease.
        sent = self._instant()
        try:
            record = await self._record(self._write(update))
        except (errors.KubeError, TimeoutError) as error:
            # The object that is not found is the Lease, which was deleted, or the namespace of a new one.
            is_gone = isinstance(error, errors.ObjectNotFound) and update.lease is not None
            if is_gone or isinstance(error, errors.Conflict):
                self._elector.on_conflict()
            else:
                self._failed(error)
        else:
            self._failing = False
            if self._logged_halt:
                self._logged_halt = False
                _log.info("Renewed the lease %s, which had no other holder: requests continue", self._lease)
            self._elector.on_written(record, sent)
            self._renewed.set()
            self._renewed = asyncio.Event()

    async def _write(self, update: AcquireOrRenew) -> bytes:
        if update.lease is None:
            body: dict[str, Any] = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": update.spec,
            }
            return await self._client.create(LEASES, orjson.dumps(body), self._namespace)
        # Other fields are kept: labels, and fields of newer API servers.
        body = {**update.lease, "spec": {**(update.lease.get("spec") or {}), **update.spec}}
        return await self._client.replace(LEASES, self._name, orjson.dumps(body), self._namespace)

    async def _record(self, request: Awaitable[bytes]) -> LeaderElectionRecord:
        async with asyncio.timeout(self._timing.renew_deadline / 2):
            answer = await request
        try:
            return LeaderElectionRecord.of(orjson.loads(answer), self._timing)
        except (ValueError, AttributeError) as error:
            raise errors.TransportError(f"the API server's answer is not a Lease: {answer[:100]!r}") from error

    def _failed(self, error: Exception) -> None:
        self._elector.on_failure((error.retry_after or 0.0) if isinstance(error, errors.ApiError) else 0.0)
        text = str(error) or f"no answer within {self._timing.renew_deadline / 2:g} s"
        if not self._failing:
            _log.warning("Cannot read or write the lease %s; retrying: %s", self._lease, text)
        self._failing = True
        if self._elector.term is not None and not self.leading and not self._logged_halt:
            self._logged_halt = True
            deadline = self._timing.renew_deadline
            _log.warning("The lease %s was not renewed for %g s: no requests until it is", self._lease, deadline)

    async def _release(self) -> None:
        update = self._elector.release(self._instant().wall)
        with suppress(TimeoutError, errors.KubeError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                while update is not None:
                    try:
                        await self._write(update)
                    except errors.Conflict:
                        # A renewal was cancelled that the API server has accepted.
                        found = await self._record(self._client.get(LEASES, self._name, self._namespace))
                        update = self._elector.release(self._instant().wall, found)
                    else:
                        _log.info("Released the lease %s", self._lease)
                        return


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
