"""The state of one container in its Pod: stage, termination, and restart back-off."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from frameworkcontroller.backoff import exponential
from frameworkcontroller.local.kubelet.pod import ContainerSpec

INITIAL_BACKOFF_SECONDS: Final = 10.0
MAX_BACKOFF_SECONDS: Final = 300.0


class ContainerTime(NamedTuple):
    """One moment in seconds on two clocks: ``tick`` (the event loop's) for durations, ``wall`` (epoch) for reports."""

    tick: float
    wall: float


@dataclass(frozen=True, slots=True)
class Termination:
    """The end of one instance of a container. Times are epoch seconds; ``started_at`` is None if it never started.

    ``exit_code`` of a process ended by signal n is 128 + n. Only tests set ``signal``: real container runtimes report
    just the exit code.
    """

    exit_code: int
    reason: str
    finished_at: float
    started_at: float | None = None
    message: str = ""
    signal: int = 0


class Trouble(NamedTuple):
    """Reason and message of the waiting state of a container that cannot be started now."""

    reason: str
    message: str


class Stage(Enum):
    """The stage of a container. It may have a process (is live) in STARTING and RUNNING."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class RestartBackoff:
    """The restart delay of a container, by the kubelet's rule.

    The first restart is immediate, the next ones wait 10 s, 20 s, … up to 5 min after the end. An instance that ran for
    more than ten minutes resets the delay. Times are seconds of one clock.
    """

    __slots__ = ("_restarts", "_started")

    def __init__(self) -> None:
        self._restarts = 0
        self._started = 0.0

    @property
    def delay(self) -> float:
        """Seconds from the end of the container to its next restart."""
        return exponential(INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, self._restarts)

    def due(self, finished: float) -> float:
        """The earliest restart after an end at ``finished``."""
        return finished if self._forgotten(finished) else finished + self.delay

    def restarted(self, now: float) -> None:
        """Record a restart."""
        self._restarts = 1 if self._forgotten(now) else self._restarts + 1
        self._started = now

    def _forgotten(self, now: float) -> bool:
        return now - self._started > 2 * MAX_BACKOFF_SECONDS


@dataclass(slots=True)
class Container:
    """One container.

    ``instance``, from 0, is its restartCount; ``previous`` is the previous instance's termination; ``probed`` is the
    result of its readiness probe.
    """

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
    probed: bool = False
    backoff: RestartBackoff = field(default_factory=RestartBackoff)

    @property
    def live(self) -> bool:
        """Whether it may have a process."""
        return self.stage in (Stage.STARTING, Stage.RUNNING)

    @property
    def ready(self) -> bool:
        """Whether it runs, and its readiness probe has succeeded."""
        return self.stage is Stage.RUNNING and (self.spec.readiness is None or self.probed)

    @property
    def begun(self) -> bool:
        """Whether an instance of it has started."""
        return self.stage in (Stage.RUNNING, Stage.EXITED) or self.instance > 0

    @property
    def succeeded(self) -> bool:
        return self.stage is Stage.EXITED and self.termination is not None and self.termination.exit_code == 0

    @property
    def failed(self) -> bool:
        return self.stage is Stage.EXITED and not self.succeeded
