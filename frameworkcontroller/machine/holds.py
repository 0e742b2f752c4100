"""What is held back after failures, and why a Framework is stalled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.machine.agenda import TaskKey
from frameworkcontroller.machine.model import Env
from frameworkcontroller.machine.reasons import Reason

CREATIONS: Final = "creations"
HoldKey = TaskKey | Literal["creations"] | None
"""One Task's actions, all creations of Pods, or (None) the Framework's own actions."""

HOLD_BACKOFF: Final = Backoff(base=0.5, maximum=15.0, jitter=0.25)
"""A stuck Framework costs the API server a few requests a minute at most, and recovers within this many seconds."""


@dataclass(slots=True)
class Stall:
    """Why something waits for a person or another component."""

    reason: Reason
    message: str


@dataclass(slots=True)
class Hold:
    """A back-off after ``failures`` failures in a row: not before ``until`` (monotonic seconds)."""

    failures: int
    until: float


class Holds:
    """Back-offs and stalls.

    They are the machine's, per object, and not the work queue's, per Framework: one Task's trouble must not delay the
    others, and their events must not retry it early.
    """

    __slots__ = ("_holds", "_refused", "_refused_attempts", "stalls")

    def __init__(self) -> None:
        self.stalls: dict[TaskKey | None, Stall] = {}
        """The stall of each Task, or of the Framework itself (None)."""
        self._holds: dict[HoldKey, Hold] = {}
        self._refused = False
        self._refused_attempts = 0

    def hold(self, key: HoldKey, env: Env, at_least_sec: float = 0.0) -> int:
        """Hold back what just failed, twice as long as the last time; the number of failures in a row.

        ``at_least_sec``: the wait that the API server asked for. What fails while it is held back was sent before that:
        it is no further failure.
        """
        held = self._holds.get(key)
        if held is not None and held.until > env.clock:
            held.until = max(held.until, env.clock + at_least_sec)
            return held.failures
        failures = 1 if held is None else held.failures + 1
        delay = HOLD_BACKOFF.delay(failures, env.rng)
        self._holds[key] = Hold(failures, env.clock + max(delay, at_least_sec))
        return failures

    def hold_retry(self, key: TaskKey, env: Env) -> None:
        """Hold back a Task whose Pod was refused for good: its next attempt would be refused as fast.

        A policy that retries always, with an admission webhook or RBAC that refuses always, would be a tight loop. Each
        attempt is held back for longer, and so is the next one of the Framework (``hold_attempt``), until a Pod is
        created.
        """
        self.hold(key, env)
        self._refused = True

    def hold_attempt(self, env: Env) -> None:
        """Hold back a new attempt of the Framework, if the one before ended with refused Pods."""
        if self._refused:
            self._refused = False
            self._refused_attempts += 1
            self._holds[None] = Hold(self._refused_attempts - 1, env.clock)
            self.hold(None, env)

    def release_retries(self) -> None:
        """A Pod was created: no attempt of the Framework is held back."""
        self._refused = False
        self._refused_attempts = 0

    def release(self, key: HoldKey) -> None:
        """It worked: forget its failures, and its stall."""
        self._holds.pop(key, None)
        if key != CREATIONS:
            self.stalls.pop(key, None)

    def until(self, key: HoldKey) -> float:
        """The time (monotonic seconds) before which it is held back; 0 if it is not."""
        hold = self._holds.get(key)
        return 0.0 if hold is None else hold.until

    def end_stalls_of_pods(self) -> None:
        """End the stalls of all Tasks."""
        for key in [key for key in self.stalls if key is not None]:
            del self.stalls[key]

    def end_stall(self, key: TaskKey | None, reason: Reason) -> None:
        """End the stall for that reason."""
        stall = self.stalls.get(key)
        if stall is not None and stall.reason is reason:
            del self.stalls[key]

    def keep(self, exists: Callable[[TaskKey], bool]) -> None:
        """Forget Tasks that do not exist any more."""
        self._holds = {key: hold for key, hold in self._holds.items() if not isinstance(key, tuple) or exists(key)}
        self.stalls = {key: stall for key, stall in self.stalls.items() if key is None or exists(key)}

    def forget(self) -> None:
        """Forget back-offs and stalls."""
        self.stalls.clear()
        self._holds.clear()
