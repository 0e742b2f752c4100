"""The life of one container within its Pod: its stage, how it ended, and when it may be started again."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from frameworkcontroller.local.kubelet.pod import ContainerSpec

INITIAL_BACKOFF_SECONDS: Final = 10.0
MAX_BACKOFF_SECONDS: Final = 300.0


class Instant(NamedTuple):
    """One moment in seconds on two clocks: ``tick`` (the event loop's) for durations, ``wall`` (epoch) for reports."""

    tick: float
    wall: float


@dataclass(frozen=True, slots=True)
class Termination:
    """How one instance of a container ended. Times are epoch seconds; ``started_at`` is None if it never started.

    ``exit_code`` of a process ended by signal n is 128 + n. ``signal`` stays 0 unless a test sets it: the container
    runtimes of real clusters report the exit code alone.
    """

    exit_code: int
    reason: str
    finished_at: float
    started_at: float | None = None
    message: str = ""
    signal: int = 0


class Trouble(NamedTuple):
    """Why a container cannot be started just now, as the reason and message of its waiting state."""

    reason: str
    message: str


class Stage(Enum):
    """Where a container is. Live, that is, possibly having a process: STARTING and RUNNING."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class RestartBackoff:
    """When a container that ended may be started again.

    The kubelet's rule: the first restart is immediate, the next ones wait 10 s, 20 s, … up to 5 min after the container
    ended; an instance that outlived ten minutes from its start clears the record. Times are seconds of one clock.
    """

    __slots__ = ("_started", "delay")

    def __init__(self) -> None:
        self.delay = 0.0
        self._started = 0.0

    def due(self, finished: float) -> float:
        """The time from which the container that ended at ``finished`` may be started."""
        return finished if self._forgotten(finished) else finished + self.delay

    def restarted(self, now: float) -> None:
        """Note a restart."""
        if self.delay == 0 or self._forgotten(now):
            self.delay = INITIAL_BACKOFF_SECONDS
        else:
            self.delay = min(2 * self.delay, MAX_BACKOFF_SECONDS)
        self._started = now

    def _forgotten(self, now: float) -> bool:
        return now - self._started > 2 * MAX_BACKOFF_SECONDS


@dataclass(slots=True)
class Container:
    """One container. ``instance`` counts from 0 and is its restartCount; ``previous`` is how the one before ended."""

    spec: ContainerSpec
    stage: Stage = Stage.NEW
    instance: int = 0
    started_at: float = 0.0
    finished_tick: float = 0.0
    termination: Termination | None = None
    previous: Termination | None = None
    trouble: Trouble | None = None
    retry_at: float = 0.0
    stop_due: float | None = None
    backoff: RestartBackoff = field(default_factory=RestartBackoff)

    @property
    def live(self) -> bool:
        """Whether it may have a process."""
        return self.stage in (Stage.STARTING, Stage.RUNNING)

    @property
    def begun(self) -> bool:
        """Whether some instance of it has started."""
        return self.stage in (Stage.RUNNING, Stage.EXITED) or self.instance > 0

    @property
    def succeeded(self) -> bool:
        return self.stage is Stage.EXITED and self.termination is not None and self.termination.exit_code == 0

    @property
    def failed(self) -> bool:
        return self.stage is Stage.EXITED and not self.succeeded
