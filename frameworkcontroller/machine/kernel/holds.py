"""Back-offs after failed actions, stalls that the Stalled condition reports, and waits by rule (gates.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.model import Env
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason

CREATIONS: Final = "creations"
ObjectKey = TaskKey | str | None
"""One Task, another object (``Target.key``) or a matter of a part, or (None) ConfigMap and Framework."""
HoldKey = ObjectKey
"""The actions on one object, or all creations for Tasks (``CREATIONS``)."""

HOLD_BACKOFF: Final = Backoff(base=0.5, maximum=15.0, jitter=0.25)
"""A stuck Framework sends at most a few requests a minute, and recovers within ``maximum`` seconds."""


@dataclass(slots=True)
class Stall:
    """The reason for which a Task or Framework waits for a person or another component.

    ``companion``: the name of the object of a Task, other than its Pod, that caused it, "" if none did.
    """

    reason: Reason
    message: str
    companion: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why something is not done yet; no failure. ``until``: when to look again (monotonic seconds), None: an event."""

    reason: Reason
    message: str
    until: float | None = None


@dataclass(slots=True)
class Hold:
    """A back-off until ``until`` (monotonic seconds), after ``failures`` failures in a row. ``why``: the last one.

    ``companion``: the name of the object of a Task, other than its Pod, that caused all of them, "" if none did.
    """

    failures: int
    until: float
    why: str = ""
    reason: Reason = RequestReason.WAITING
    companion: str = ""


@dataclass(slots=True, frozen=True)
class Spared:
    """A terminating Pod that is not force-deleted before ``until`` (monotonic seconds), as its Node may run it."""

    uid: str
    until: float
    why: str


class Holds:
    """Back-offs, stalls and waits per object.

    The work queue's back-off, per Framework, would let one Task delay the others, and their events retry it early.
    """

    __slots__ = ("_holds", "_made", "_refused", "_refused_attempts", "_spared", "_waits", "stalls")

    def __init__(self) -> None:
        self.stalls: dict[ObjectKey, Stall] = {}
        """The stall of each Task, of a companion, or of the Framework itself (None)."""
        self._holds: dict[HoldKey, Hold] = {}
        self._made: dict[ObjectKey, Hold] = {}
        self._waits: dict[Reason, dict[TaskKey | None, Wait]] = {}
        self._spared: dict[TaskKey, Spared] = {}
        self._refused = False
        self._refused_attempts = 0

    def hold(
        self,
        key: HoldKey,
        env: Env,
        why: str,
        at_least_sec: float = 0.0,
        reason: Reason = RequestReason.WAITING,
        *,
        companion: str = "",
    ) -> int:
        """Back off after a failure, twice as long as the last time. Return the number of failures in a row.

        ``at_least_sec``: the Retry-After of the API server. A failure during a back-off does not count: its request was
        sent before. ``companion``: as of ``Hold``.
        """
        held = self._holds.get(key)
        if held is not None and held.companion != companion:
            held.companion = companion = ""
        if held is not None and held.until > env.clock:
            held.until = max(held.until, env.clock + at_least_sec)
            return held.failures
        failures = 1 if held is None else held.failures + 1
        delay = HOLD_BACKOFF.delay(failures, env.rng)
        self._holds[key] = Hold(failures, env.clock + max(delay, at_least_sec), why, reason, companion)
        return failures

    def hold_retry(self, key: TaskKey, env: Env, why: str) -> None:
        """Back off before the next attempt of a Task whose Pod was refused permanently.

        A policy that always retries, with an admission webhook or RBAC that always refuses, would be a tight loop. The
        back-offs of Task and Framework (``hold_attempt``) grow until a Pod is created.
        """
        self.hold(key, env, why)
        self._refused = True

    def hold_attempt(self, env: Env) -> None:
        """Back off before a new attempt of the Framework if Pods of the last one were refused permanently."""
        if self._refused:
            self._refused = False
            self._refused_attempts += 1
            self._holds[None] = Hold(self._refused_attempts - 1, env.clock)
            self.hold(None, env, "Pods of the last FrameworkAttempt were refused")

    def spare(self, key: TaskKey, spared: Spared) -> bool:
        """Do not force-delete the Task's Pod for now. Return whether this is new for that Pod."""
        last = self._spared.get(key)
        self._spared[key] = spared
        return last is None or last.uid != spared.uid

    def spared(self, key: TaskKey, uid: str) -> Spared | None:
        """Why the Task's Pod of that UID was not force-deleted, None if that was not tried."""
        last = self._spared.get(key)
        return last if last is not None and last.uid == uid else None

    def release_retries(self) -> None:
        """Reset the back-off of Framework attempts, as a Pod was created."""
        self._refused = False
        self._refused_attempts = 0

    def release(self, key: HoldKey) -> None:
        """End the back-off and, of a Task or the Framework, the stall."""
        self._holds.pop(key, None)
        if key != CREATIONS:
            self.stalls.pop(key, None)
        if isinstance(key, tuple):
            self._spared.pop(key, None)

    def release_companion(self, key: HoldKey, companion: str) -> None:
        """End the back-off and the stall of the Task that this companion caused. A stall by its Pod stays."""
        hold, stall = self._holds.get(key), self.stalls.get(key)
        if hold is not None and hold.companion == companion:
            del self._holds[key]
        if stall is not None and stall.companion == companion:
            del self.stalls[key]

    def hold_repetition(self, key: ObjectKey, env: Env) -> None:
        """Back off after a creation or change, from the second one in a row on, and longer each time."""
        last = self._made.get(key)
        again = 0 if last is None or env.clock > last.until + HOLD_BACKOFF.maximum else last.failures + 1
        self._made[key] = Hold(again, env.clock + (HOLD_BACKOFF.delay(again, env.rng) if again else 0.0))

    def until(self, key: HoldKey) -> float:
        """End of the back-off in monotonic seconds; 0 if there is none."""
        hold, made = self._holds.get(key), self._made.get(key) if self._made else None
        return max(0.0 if hold is None else hold.until, 0.0 if made is None else made.until)

    def has_failed(self, key: HoldKey) -> bool:
        """Whether the last action failed, whose back-off may be over."""
        return key in self._holds

    def held(self, key: HoldKey, clock: float) -> Hold | None:
        """The back-off, None if there is none or it is over."""
        hold = self._holds.get(key)
        return hold if hold is not None and hold.until > clock else None

    def end_stalls_of_pods(self) -> None:
        """End the stalls of all Tasks."""
        for key in [key for key in self.stalls if isinstance(key, tuple)]:
            del self.stalls[key]

    def set_stall(self, key: ObjectKey, stall: Stall | None) -> None:
        """Set the stall, or end any (None)."""
        if stall is None:
            self.stalls.pop(key, None)
        else:
            self.stalls[key] = stall

    def end_stall(self, key: ObjectKey, reason: Reason) -> bool:
        """End the stall if it has this reason. Return whether it had."""
        stall = self.stalls.get(key)
        if stall is None or stall.reason is not reason:
            return False
        del self.stalls[key]
        return True

    def wait(self, key: TaskKey | None, wait: Wait | None) -> None:
        """Keep the wait of a Task, or of the start of the attempt (None). With no ``wait``, it is over."""
        for reason, waiters in list(self._waits.items()):
            if wait is None or wait.reason is not reason:
                waiters.pop(key, None)
                if not waiters:
                    del self._waits[reason]
        if wait is not None:
            self._waits.setdefault(wait.reason, {})[key] = wait

    def end_waits(self) -> None:
        self._waits.clear()

    def waits(self) -> dict[Reason, Wait]:
        """For each reason to wait, one of the waits. Does not cost the number of Tasks."""
        if not self._waits:
            return {}
        return {reason: next(iter(waiters.values())) for reason, waiters in self._waits.items()}

    def waiters(self, reason: Reason) -> list[TaskKey]:
        return [key for key in self._waits.get(reason, ()) if key is not None]

    def keep(self, exists: Callable[[TaskKey], object]) -> None:
        """Forget Tasks that no longer exist."""
        self._holds = {key: hold for key, hold in self._holds.items() if not isinstance(key, tuple) or exists(key)}
        self.stalls = {key: stall for key, stall in self.stalls.items() if not isinstance(key, tuple) or exists(key)}
        for key in {key for waiters in self._waits.values() for key in waiters if key is not None and not exists(key)}:
            self.wait(key, None)
        self._spared = {key: spared for key, spared in self._spared.items() if exists(key)}

    def keep_others(self, is_wanted: Callable[[ObjectKey], bool]) -> None:
        """Forget unwanted keys of neither a Task nor the Framework."""
        for key in {*self.stalls, *self._holds, *self._made}:
            if isinstance(key, str) and key != CREATIONS and not is_wanted(key):
                self.release(key)
                self._made.pop(key, None)

    def forget(self) -> None:
        self.stalls.clear()
        self._holds.clear()
        self._made.clear()
        self._waits.clear()
        self._spared.clear()
