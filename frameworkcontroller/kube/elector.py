"""Leader election by a Lease as a state machine, which returns the next request and gets its result. Pure; no I/O.

    Follower                                          Leader
       ├─ no holder, expired, dead ──▶ acquire ──▶       ├─ write accepted ──▶ wait ──▶ renew
       ├─ another holder ──▶ watch                       ├─ answer lost ──▶ get: still the holder? renew
       └─ no watch ──▶ wait ──▶ get                      └─ another holder, no holder, no Lease ──▶ Follower

The protocol is client-go's, so ``kubectl get lease`` and other implementations understand it. It is safe without a
clock that two processes share:

- A write is guarded by the resourceVersion that was read: of concurrent writes one is accepted.
- A follower acquires a held lease only when it has not changed for its whole duration *since it was first observed*,
  or when the holder's process is known to have ended. A watch that is late or silent only prolongs the wait, or makes
  the write fail: the version proves that the lease has not changed.
- A leader counts its lease from the time at which it *sent* its last accepted write, and for ``renew_deadline`` only,
  which is shorter than the duration. So it has stopped (``is_leader``) before another process can see the lease expire.
- It is then halted, not deposed, because no other process may have acquired the lease. If a write that is guarded by
  the version of its own last write is accepted, no other process was the holder in between, and it continues.

Sources: coordination.k8s.io/v1 Lease; defaults and bounds of client-go's leaderelection.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

JITTER: Final = 1.2
"""Waits are up to this factor longer than the retry period, which keeps followers out of step."""

NOBODY: Final = ""

POLLS_WITHOUT_WATCH: Final = 30
"""Reads of the Lease, one every retry period, until a watch is tried again that the server has not kept open."""

_RELEASED_SEC: Final = 1
"""Duration of a released lease: the API server requires a positive one."""


class ClockReading(NamedTuple):
    """One moment by several clocks, in seconds."""

    monotonic: float
    boottime: float
    """Also counts while the computer is suspended, where the system has such a clock."""
    wall: float
    """Since the epoch. May be set, but it alone shows that a virtual machine was paused."""

    @classmethod
    def now(cls) -> ClockReading:
        """The present. Not an event loop's time, which may be as old as the current iteration of the loop."""
        boottime = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return cls(time.monotonic(), time.clock_gettime(boottime), time.time())

    def since(self, earlier: ClockReading) -> float:
        """Seconds since ``earlier`` by the clock that advanced most."""
        return max(self.monotonic - earlier.monotonic, self.boottime - earlier.boottime, self.wall - earlier.wall)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. Raises ValueError unless duration > renew_deadline > JITTER * retry_period > 0."""

    duration: int = 15
    """Followers wait this long after the last renewal that they observed."""
    renew_deadline: float = 10
    """A leader acts this long after its last renewal."""
    retry_period: float = 2
    """Time between two requests."""

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > JITTER * self.retry_period > 0:
            raise ValueError(f"not in proportion: {self}")


@dataclass(frozen=True, slots=True)
class LeaderElectionRecord:
    """A Lease as it was read. Records are equal if there was no write between them."""

    resource_version: str
    holder_identity: str
    lease_duration: float
    leader_transitions: int
    acquire_time: str | None
    lease: Mapping[str, Any] = field(compare=False, repr=False)

    @classmethod
    def of(cls, lease: Mapping[str, Any], otherwise: Timing) -> LeaderElectionRecord:
        """Read the Lease of any writer: missing and invalid fields get the values of ``otherwise``.

        Raises ValueError if it is not a stored object.
        """
        spec, metadata = lease.get("spec"), lease.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
        if not isinstance(version, str):
            raise ValueError("not an object with a resourceVersion")
        if not isinstance(spec, Mapping):
            spec = {}
        holder, duration, transitions = (
            spec.get(key) for key in ("holderIdentity", "leaseDurationSeconds", "leaseTransitions")
        )
        return cls(
            version,
            holder if isinstance(holder, str) else NOBODY,
            duration if isinstance(duration, int) and duration > 0 else otherwise.duration,
            transitions if isinstance(transitions, int) else 0,
            spec.get("acquireTime"),
            lease,
        )


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class AcquireOrRenew:
    """Write ``spec`` into ``lease``, guarded by its resourceVersion; None: create the Lease."""

    spec: Mapping[str, Any]
    lease: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class WatchLease:
    """Watch the Lease for changes after ``resource_version``, for ``seconds`` at most."""

    resource_version: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Send nothing for ``seconds``."""

    seconds: float


class Elector:
    """The state of one candidate. Carry out ``instruction``, then call exactly one of the ``on_`` methods."""

    def __init__(
        self, identity: str, timing: Timing, rng: random.Random, *, has_ended: Callable[[str], bool] = lambda _: False
    ) -> None:
        """``identity`` must be unique to this process for all time.

        ``has_ended``: whether the process of that identity has certainly ended; its lease need not expire.
        """
        if identity == NOBODY:
            raise ValueError("an identity must not be empty")
        self.identity: Final = identity
        self._timing = timing
        self._rng = rng
        self._has_ended = has_ended
        self._observed: LeaderElectionRecord | None = None
        self._observed_at = 0.0
        self.term: int | None = None
        """The transition number of this leadership; None for a follower."""
        self._renewed_at = ClockReading(0.0, 0.0, 0.0)
        self._conflicts = 0
        self._polls = 0
        """Reads of the Lease until the next watch."""
        self._next: ReadLease | WatchLease | Pause | None = ReadLease()
        """None: acquire or renew the observed Lease."""

    def is_leader(self, now: ClockReading) -> bool:
        """True while no other process can lead."""
        return self.term is not None and now.since(self._renewed_at) < self._timing.renew_deadline

    def instruction(self, wall: float) -> ReadLease | AcquireOrRenew | WatchLease | Pause:
        return self._write(self.identity, self._timing.duration, wall) if self._next is None else self._next

    def on_wait_over(self) -> None:
        self._next = ReadLease() if self.term is None else None

    def on_get(self, found: LeaderElectionRecord | None, now: ClockReading) -> None:
        """The Lease was read, or a watch has shown it, at ``now``; None: it does not exist."""
        if found is None or not self._is_mine(found) or found.leader_transitions != self.term:
            self.term = None
        if found is not None and found != self._observed:
            self._observed, self._observed_at = found, now.monotonic
        left = self._time_left(now)
        if left > 0:
            # Also if the Lease was deleted: its holder may not know yet.
            self._conflicts = 0
            if found is not None and self._polls == 0:
                self._next = WatchLease(found.resource_version, left)
            else:
                self._polls = max(0, self._polls - 1)
                self._wait(left)
            return
        self._observed = found
        self._next = None

    def on_watch_over(self, now: ClockReading, *, lived: float) -> None:
        """The watch has ended, after ``lived`` seconds: by the time given, by the server or by an error."""
        if self._time_left(now) <= 0:
            # The write is accepted only if the Lease is as the watch has shown it.
            self._next = None
        elif lived >= self._timing.retry_period:
            self._next = ReadLease()
        else:
            # For example, watches are not permitted.
            self._polls = POLLS_WITHOUT_WATCH
            self._wait(self._time_left(now))

    def on_written(self, record: LeaderElectionRecord, sent: ClockReading) -> None:
        """The write was accepted, and resulted in ``record``. ``sent``: a time before it was sent."""
        self._observed = record
        self.term = record.leader_transitions
        self._renewed_at = sent
        self._conflicts = 0
        self._next = Pause(self._timing.retry_period)

    def on_conflict(self) -> None:
        """The write was refused: the Lease is not as it was observed, was deleted, or was created."""
        self._conflicts += 1
        if self._conflicts > 1:
            # Another client writes it all the time.
            self._wait(self._timing.retry_period)
        else:
            self._next = ReadLease()

    def on_failure(self, retry_after: float = 0.0) -> None:
        """The request failed; a write may have been accepted. ``retry_after`` is the server's."""
        # Obeyed, but a leader must be left a second attempt.
        least = max(self._timing.retry_period, min(retry_after, self._timing.renew_deadline / 2))
        self._wait(least, least)

    def release(self, wall: float, found: LeaderElectionRecord | None = None) -> AcquireOrRenew | None:
        """Return the write that releases the lease, which spares others its expiry; None for a follower.

        ``found``: the Lease as it was read after the first such write was refused, by a renewal that was in flight.
        """
        if found is not None:
            if not self._is_mine(found):
                return None
            self._observed = found
        elif self.term is None:
            return None
        self.term = None
        return self._write(NOBODY, _RELEASED_SEC, wall)

    def _write(self, holder: str, duration: int, wall: float) -> AcquireOrRenew:
        observed = self._observed
        renewed = _micro_time(wall)
        acquired, transitions = renewed, 0
        if observed is not None:
            transitions = observed.leader_transitions
            if self._is_mine(observed):
                acquired = observed.acquire_time or renewed
            else:
                transitions += 1
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "acquireTime": acquired,
            "renewTime": renewed,
            "leaseTransitions": transitions,
        }
        return AcquireOrRenew(spec, None if observed is None else observed.lease)

    def _is_mine(self, record: LeaderElectionRecord) -> bool:
        return record.holder_identity == self.identity

    def _time_left(self, now: ClockReading) -> float:
        """Seconds until the lease may be acquired; 0 or less if it may be now.

        By the monotonic clock, which cannot be set, and which only prolongs the wait if this process is suspended.
        """
        observed = self._observed
        if observed is None or observed.holder_identity == NOBODY or self._is_mine(observed):
            return 0.0
        if self._has_ended(observed.holder_identity):
            return 0.0
        return self._observed_at + observed.lease_duration - now.monotonic

    def _wait(self, at_most: float, at_least: float = 0.0) -> None:
        seconds = self._timing.retry_period * self._rng.uniform(1.0, JITTER)
        self._next = Pause(max(at_least, min(at_most, seconds)))


def _micro_time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
