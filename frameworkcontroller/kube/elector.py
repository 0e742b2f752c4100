"""Leader election by a Lease, as a state machine: what was read goes in, what to do next comes out. Pure; no I/O.

    Follower                                   Leader
       ├─ nobody's, expired ──▶ claim ──▶         ├─ claim accepted ──▶ rest ──▶ claim (renew)
       │                                          ├─ answer lost ──▶ look: ours still? claim
       └─ somebody's ──▶ rest ──▶ look            └─ somebody's, nobody's, gone ──▶ Follower

The protocol is client-go's, so its users, ``kubectl get lease`` and other implementations understand it. What makes it
safe, with no clock that two processes share:

- A claim is a write guarded by the resourceVersion that was read: of several claims one is accepted.
- A follower claims what somebody holds only after it has not changed for its whole duration *since it was first seen*.
- A leader counts its lease from when it *sent* its last accepted claim, and for ``renew_deadline`` only, which is
  shorter than the duration. So it has stopped (``holds``) before anybody can have seen the lease expire.
- After that it is not deposed, but halted: the lease may have nobody else yet. If a claim guarded by the version of its
  own last claim is accepted after all, nobody else can have held the lease in between, and it goes on.

Sources: coordination.k8s.io/v1 Lease; defaults and bounds of client-go's leaderelection.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

JITTER: Final = 1.2
"""A pause is up to so many times as long as the retry period, so that followers do not ask in step."""

NOBODY: Final = ""

_RELEASED_SEC: Final = 1
"""Duration of a lease that was given up: the API server wants one above 0."""


class Instant(NamedTuple):
    """One moment by several clocks, in seconds."""

    monotonic: float
    boottime: float
    """Also counts while the machine is suspended, where the system has such a clock."""
    wall: float
    """Since the epoch. May be set, but is the only one to tell that a virtual machine was paused."""

    @classmethod
    def now(cls) -> Instant:
        """This moment. Not an event loop's time, which may be as old as the loop's current round."""
        monotonic = time.monotonic()
        return cls(monotonic, _boottime(monotonic), time.time())

    def since(self, earlier: Instant) -> float:
        """Seconds since ``earlier`` by the clock that says the most."""
        return max(self.monotonic - earlier.monotonic, self.boottime - earlier.boottime, self.wall - earlier.wall)


def _boottime(otherwise: float) -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return otherwise if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. Raises ValueError unless duration > renew_deadline > JITTER * retry_period > 0."""

    duration: int = 15
    """How long followers wait for a sign of life."""
    renew_deadline: float = 10
    """How long a leader acts after its last one."""
    retry_period: float = 2
    """How long everybody pauses between two requests."""

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > JITTER * self.retry_period > 0:
            raise ValueError(f"not in proportion: {self}")


@dataclass(frozen=True, slots=True)
class Held:
    """A Lease as it was read. Two are equal if nobody has written it in between."""

    version: str
    holder: str
    duration: float
    transitions: int
    acquired: str | None
    renewed: str | None
    document: Mapping[str, Any] = field(compare=False, repr=False)

    @classmethod
    def of(cls, document: Mapping[str, Any], otherwise: Timing) -> Held:
        """From the object, whoever wrote it: what is missing, or not what it must be, is as in ``otherwise``.

        Raises ValueError if it is no stored object at all.
        """
        spec, metadata = document.get("spec"), document.get("metadata")
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
            spec.get("renewTime"),
            document,
        )


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Write ``spec`` into ``document``, under its resourceVersion; None: create it."""

    spec: Mapping[str, Any]
    document: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing for so many seconds."""

    seconds: float


class Elector:
    """One candidate. Follow ``instruction``, and report what came of it by exactly one of the ``on_`` methods."""

    def __init__(self, identity: str, timing: Timing, rng: random.Random) -> None:
        """``identity`` is this process's alone, for ever."""
        if identity == NOBODY:
            raise ValueError("an identity must not be empty")
        self.identity: Final = identity
        self._timing = timing
        self._rng = rng
        self._seen: Held | None = None
        self._seen_at = 0.0
        self._term: int | None = None
        self._proved = Instant(0.0, 0.0, 0.0)
        self._conflicts = 0
        self._wants: Look | Rest | None = Look()
        """None: to claim what was seen last."""

    @property
    def term(self) -> int | None:
        """Which leadership of all there were this is; None: it leads not, or not any more."""
        return self._term

    @property
    def holder(self) -> str:
        """Who held the lease when it was last seen; "" for nobody."""
        return NOBODY if self._seen is None else self._seen.holder

    def holds(self, now: Instant) -> bool:
        """Whether nobody else can lead at this moment."""
        return self._term is not None and now.since(self._proved) < self._timing.renew_deadline

    def instruction(self, wall: float) -> Look | Claim | Rest:
        """What to do now."""
        return self._claim(wall) if self._wants is None else self._wants

    def on_rest_over(self) -> None:
        """The pause has passed."""
        self._wants = Look() if self._term is None else None

    def on_look(self, found: Held | None, now: Instant) -> None:
        """The lease is such; None: there is none. ``now``: when the answer was there."""
        if found is None or not self._is_mine(found) or found.transitions != self._term:
            self._term = None
        if found is not None and found != self._seen:
            self._seen, self._seen_at = found, now.monotonic
        left = self._left(now)
        if left > 0:
            # Also if it is not there any more: its holder may not know that yet.
            self._conflicts = 0
            self._rest(left)
            return
        self._seen = found
        self._wants = None

    def on_claimed(self, found: Held, sent: Instant) -> None:
        """The claim was accepted and the lease is such now. ``sent``: before the claim was sent."""
        self._seen = found
        self._term = found.transitions
        self._proved = sent
        self._conflicts = 0
        self._wants = Rest(self._timing.retry_period)

    def on_conflict(self) -> None:
        """The claim was refused, as the lease is not as it was seen, or not there, or there."""
        self._conflicts += 1
        if self._conflicts > 1:
            # Somebody writes all the time.
            self._rest(self._timing.retry_period)
        else:
            self._wants = Look()

    def on_failure(self, retry_after: float = 0.0) -> None:
        """The request failed; if it was a claim, it may have been accepted. ``retry_after``: as the server asked."""
        # Obeyed, but not so that a leader has no second chance.
        least = max(self._timing.retry_period, min(retry_after, self._timing.renew_deadline / 2))
        self._rest(least, least)

    def release(self, wall: float) -> Claim | None:
        """What gives the lease up, so that others need not wait until it expires; None: it is not ours."""
        if self._term is None or self._seen is None:
            return None
        self._term = None
        spec = {
            "holderIdentity": NOBODY,
            "leaseDurationSeconds": _RELEASED_SEC,
            "acquireTime": self._seen.acquired,
            "renewTime": _micro_time(wall),
            "leaseTransitions": self._seen.transitions,
        }
        return Claim(spec, self._seen.document)

    # --- inside ---

    def _claim(self, wall: float) -> Claim:
        seen = self._seen
        renewed = _micro_time(wall)
        acquired, transitions = renewed, 0
        if seen is not None:
            transitions = seen.transitions
            if self._is_mine(seen):
                acquired = seen.acquired or renewed
            else:
                transitions += 1
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._timing.duration,
            "acquireTime": acquired,
            "renewTime": renewed,
            "leaseTransitions": transitions,
        }
        return Claim(spec, None if seen is None else seen.document)

    def _is_mine(self, held: Held) -> bool:
        return held.holder == self.identity

    def _left(self, now: Instant) -> float:
        """Seconds for which what was seen keeps everybody else from claiming; not above 0 if it does not.

        By the one clock that nobody can set and that, should this process be suspended, only makes it wait for longer.
        """
        seen = self._seen
        if seen is None or seen.holder == NOBODY or self._is_mine(seen):
            return 0.0
        return self._seen_at + seen.duration - now.monotonic

    def _rest(self, at_most: float, at_least: float = 0.0) -> None:
        pause = self._timing.retry_period * self._rng.uniform(1.0, JITTER)
        self._wants = Rest(max(at_least, min(at_most, pause)))


def _micro_time(wall: float) -> str:
    """A ``MicroTime``."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
