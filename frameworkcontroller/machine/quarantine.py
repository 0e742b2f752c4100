"""The quarantine of a Framework that the controller cannot handle.

Causes: an invalid stored status, a violated invariant, an unexpected error. All knowledge of the Framework is dropped,
as after a crash, and no action is taken. Its Pods continue to run, unless it is to end (``QuarantineEnd``). The
controller retries from the stored status when the spec changes, every ten minutes, and when it starts.

Only the condition Stalled (reason Quarantined) is written, at its own path: this works for an unreadable status, too.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

import orjson

from frameworkcontroller.api.codec import EncodedStatus, StatusError
from frameworkcontroller.api.objects import Framework, FrameworkRecord
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.machine import conditions
from frameworkcontroller.machine.kernel.actions import Action, carry_out
from frameworkcontroller.machine.kernel.aside import Aside
from frameworkcontroller.machine.kernel.model import Env, Record, require
from frameworkcontroller.machine.kernel.protocol import (
    Call,
    Done,
    Emit,
    ReadLive,
    RequeueError,
    View,
    Warn,
    WriteStatus,
    failure,
    read_live,
)
from frameworkcontroller.machine.kernel.requests import (
    LARGE_BYTES,
    Answer,
    Get,
    Kind,
    PatchStatus,
    Refusal,
    Refused,
    Request,
    Unanswered,
)
from frameworkcontroller.machine.kernel.teardown import LOOK_SEC, delete_all
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.plan import reject
from frameworkcontroller.machine.specreading import Ends, ends_in

RETRY_SEC: Final = 600.0
"""Mean time in quarantine. A retry costs one read."""

_MAX_CAUSE: Final = 2000
"""Characters of the cause in logs, Events and the condition."""
_TRIES: Final = 3
"""Attempts in a row to write the condition while other clients write the Framework."""


def unreadable(error: Exception) -> Record:
    """The record of a Framework that cannot be decoded, and so is neither cached nor reconciled."""
    text = f"The controller cannot read this Framework and leaves it alone: {error}"
    return Record(LifeReason.QUARANTINED, text, warning=True)


def status_not_served(problem: str) -> Record:
    """The record of a Framework whose status the API server does not serve."""
    return Record(LifeReason.STATUS_NOT_SERVED, problem, warning=True)


def fields_dropped(fields: Sequence[str]) -> Record:
    """The record of a Framework that was applied with fields which the API server has dropped."""
    text = (
        f"The API server has dropped {', '.join(fields)}, which kubectl applied: its CustomResourceDefinition is older "
        "than the controller. Update it, then apply the Framework again"
    )
    return Record(LifeReason.FIELDS_DROPPED, text, warning=True)


class Quarantine(Aside):
    """Takes the place of a Framework's reconciler. Events do not concern it."""

    quarantined: bool = True
    is_left_alone: bool = True

    def __init__(self, record: FrameworkRecord, error: Exception, env: Env, *, logged_cause: str | None) -> None:
        """``error``: the cause. ``logged_cause``: the last one that was logged for this Framework."""
        super().__init__(record.key, record.uid)
        self.tracker = Tracker()
        """Empty."""
        expected = isinstance(error, StatusError)
        self.cause = (str(error) if expected else f"{type(error).__name__}: {error}")[:_MAX_CAUSE]
        self.released: FrameworkRecord | None = None
        """The live Framework, once it is to be retried."""
        self._generation = record.generation
        self._until = env.clock + RETRY_SEC * env.rng.uniform(0.9, 1.1)
        self._shown = False
        happened = Record(LifeReason.QUARANTINED, self._message(), warning=True)
        trace = None if expected else error
        self._effects.append(Emit([happened], log=logged_cause != self.cause, trace=trace))

    def is_large(self, call: Call, view: View) -> bool:  # noqa: ARG002 - as a reconciler has
        """Whether the call sends or receives more than ``LARGE_BYTES``."""
        return view.record is not None and len(view.record.spec_json) > LARGE_BYTES

    def describe(self, clock: float) -> dict[str, Any]:  # noqa: ARG002 - as a reconciler has
        """The state for debugging."""
        return {"quarantine": self.cause}

    def due(self, view: View) -> Call | Done:
        """Write the condition once, and read the Framework when it is to be retried."""
        record = view.record
        if record is None or record.uid != self.uid or self.released is not None:
            return Done()
        left = self._until - view.env.clock
        if left <= 0 or record.generation > self._generation:
            return ReadLive()
        return Done(left) if self._shown else WriteStatus()

    def exchange(self, view: View) -> Generator[Request, Answer, float | None]:
        if isinstance(self._call, ReadLive):
            self.released = read_live((yield Get(Kind.FRAMEWORK, self.name)), self.uid)
            return None
        yield from self._show(view)
        return self._until - view.env.clock

    def _show(self, view: View) -> Generator[Request, Answer, None]:
        for _ in range(_TRIES):
            live = read_live((yield Get(Kind.FRAMEWORK, self.name)), self.uid)
            change = self._change(live, view.env)
            if change is None:
                break
            path, value = change
            answer = yield PatchStatus(self.name, path, value, live.uid, live.generation, live.resource_version)
            match answer:
                case Refused(kind=Refusal.INVALID | Refusal.CONFLICT | Refusal.ALREADY_EXISTS, message=message):
                    again = read_live((yield Get(Kind.FRAMEWORK, self.name)), self.uid)
                    if again.resource_version != live.resource_version:
                        continue
                    self._effects.append(Warn(f"The API server refuses the condition Stalled: {message}"))
                case Refused(kind=Refusal.TOO_LARGE, message=message):
                    self._effects.append(Warn(f"The status is too large for the condition Stalled: {message}"))
                case Refused(message=message) | Unanswered(message=message):
                    raise failure(f"cannot write the condition Stalled: {message}", answer)
            break
        else:
            raise RequeueError("cannot write the condition Stalled: other clients keep changing the Framework")
        self._shown = True

    def _change(self, live: FrameworkRecord, env: Env) -> tuple[str, bytes | EncodedStatus] | None:
        """Path and value that add the condition; None if it is there, or the status has no valid place for it."""
        if not live.status:
            # Without a spec: the status has no Tasks.
            tracker = Tracker()
            framework = Framework(live.namespace, live.name, live.uid, live.generation, False, FrameworkSpec())
            reject(framework, tracker, self._message(), env, reason=LifeReason.QUARANTINED)
            return "/status", EncodedStatus(live.name, require(tracker.status, "status"))
        present = live.status.get("conditions") or [] if isinstance(live.status, dict) else None
        if not isinstance(present, list) or not all(isinstance(one, dict) for one in present):
            return None
        changed = conditions.with_stalled(present, LifeReason.QUARANTINED, self._message(), env, live.generation)
        return None if changed == present else ("/status/conditions", orjson.dumps(changed))

    def _message(self) -> str:
        return (
            f"The controller cannot handle this Framework and leaves it alone: {self.cause}. "
            f"It retries when the spec changes, and every {RETRY_SEC / 60:g} min. Until then, its Pods only "
            "end: by Stop, a suspension, the deadline, an eviction or a deletion"
        )


class QuarantineEnd(Aside):
    """Ends the Pods of a Framework in quarantine, if it is to end. Nothing is persisted: the status may be unreadable.

    ``releases``: actions for the time when nothing runs; if there are any, the attempt is to end.
    """

    def __init__(self, record: FrameworkRecord, releases: Sequence[Action]) -> None:
        super().__init__(record.key, record.uid)
        self._record = record
        self._releases = releases

    def exchange(self, view: View) -> Generator[Request, Answer, float | None]:
        """Return None if it is not to end, or has ended."""
        ends = ends_in(orjson.loads(self._record.spec_json), Ends())
        if not self._releases and not ends.is_asked_for and ends.active_deadline_seconds is None:
            return None
        try:
            live = read_live((yield Get(Kind.FRAMEWORK, self.name)), self.uid)
        except RequeueError:
            return LOOK_SEC
        ends = ends_in(orjson.loads(live.spec_json), Ends())
        if not self._releases and not ends.is_asked_for:
            left = _active_seconds_left(ends.active_deadline_seconds, live.status, view.env.now)
            if left is None or left > 0:
                return left
        if not (yield from delete_all(live, view.observe(creating=False).list_pods)):
            return LOOK_SEC
        for action in self._releases:
            yield from carry_out(action)
        return None


def _active_seconds_left(deadline: int | None, status: Any, now: float) -> float | None:
    """The time until the deadline; None if there is none, or the status does not say when the attempt began."""
    if deadline is None:
        return None
    try:
        started = parse_time(status["attemptStatus"]["executionStartTime"])
        before = status.get("accumulatedPastExecutionTimeSeconds") or 0
        return max(0.0, started + deadline - before - now)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
