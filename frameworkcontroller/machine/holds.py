"""Back-offs after failed actions, and the stalls that the Stalled condition reports."""

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
"""One Task's actions, all creations of Pods, or (None) the actions on ConfigMap and Framework."""

HOLD_BACKOFF: Final = Backoff(base=0.5, maximum=15.0, jitter=0.25)
"""A stuck Framework sends at most a few requests a minute, and recovers within ``maximum`` seconds."""


@dataclass(slots=True)
class Stall:
    """The reason for which a Task or Framework waits for a person or another component."""

    reason: Reason
    message: str


@dataclass(slots=True)
class Hold:
    """A back-off until ``until`` (monotonic seconds), after ``failures`` failures in a row."""

    failures: int
    until: float


class Holds:
    """Back-offs and stalls per object.

    The work queue's back-off, per Framework, would let one Task delay the others, and their events retry it early.
    """

    __slots__ = ("_holds", "_refused", "_refused_attempts", "stalls")

    def __init__(self) -> None:
        self.stalls: dict[TaskKey | None, Stall] = {}
        """The stall of each Task, or of the Framework itself (None)."""
        self._holds: dict[HoldKey, Hold] = {}
        self._refused = False
        self._refused_attempts = 0

    def hold(self, key: HoldKey, env: Env, at_least_sec: float = 0.0) -> int:
        """Back off after a failure, twice as long as the last time. Return the number of failures in a row.

        ``at_least_sec``: the Retry-After of the API server. A failure during a back-off does not count: its request was
        sent before.
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
        """Back off before the next attempt of a Task whose Pod was refused permanently.

        A policy that always retries, with an admission webhook or RBAC that always refuses, would be a tight loop. The
        back-offs of Task and Framework (``hold_attempt``) grow until a Pod is created.
        """
        self.hold(key, env)
        self._refused = True

    def hold_attempt(self, env: Env) -> None:
        """Back off before a new attempt of the Framework if Pods of the last one were refused permanently."""
        if self._refused:
            self._refused = False
            self._refused_attempts += 1
            self._holds[None] = Hold(self._refused_attempts - 1, env.clock)
            self.hold(None, env)

    def release_retries(self) -> None:
        """Reset the back-off of Framework attempts, as a Pod was created."""
        self._refused = False
        self._refused_attempts = 0

    def release(self, key: HoldKey) -> None:
        """End the back-off and, of a Task or the Framework, the stall."""
        self._holds.pop(key, None)
        if key != CREATIONS:
            self.stalls.pop(key, None)

    def until(self, key: HoldKey) -> float:
        """End of the back-off in monotonic seconds; 0 if there is none."""
        hold = self._holds.get(key)
        return 0.0 if hold is None else hold.until

    def end_stalls_of_pods(self) -> None:
        """End the stalls of all Tasks."""
        for key in [key for key in self.stalls if key is not None]:
            del self.stalls[key]

    def end_stall(self, key: TaskKey | None, reason: Reason) -> None:
        """End the stall if it has this reason."""
        stall = self.stalls.get(key)
        if stall is not None and stall.reason is reason:
            del self.stalls[key]

    def keep(self, exists: Callable[[TaskKey], object]) -> None:
        """Forget Tasks that no longer exist."""
        self._holds = {key: hold for key, hold in self._holds.items() if not isinstance(key, tuple) or exists(key)}
        self.stalls = {key: stall for key, stall in self.stalls.items() if key is None or exists(key)}

    def forget(self) -> None:
        """Forget all back-offs and stalls."""
        self.stalls.clear()
        self._holds.clear()
