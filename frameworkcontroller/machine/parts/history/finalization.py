"""The end of a deleted Framework that the finalizer of the history holds, and for which nothing can be decided.

It is in quarantine, or its status cannot be stored. Its deletion cannot be taken back: what runs of it is deleted, its
stored status goes to the history as it is, and then the finalizer is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import with_plain_roles
from frameworkcontroller.api.objects import FrameworkRecord, PodRecord
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.machine.kernel.actions import ChangeFinalizer, carry_out
from frameworkcontroller.machine.kernel.exchanges import FinalizersAre, Gone
from frameworkcontroller.machine.kernel.model import Env, Record, Snapshot, SnapshotTrigger, require
from frameworkcontroller.machine.kernel.protocol import RequeueError, read_live
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Get, Kind, Request, Target
from frameworkcontroller.machine.kernel.teardown import LOOK_SEC, delete_all
from frameworkcontroller.machine.parts.history.archiving import HistoryReason, finalizer_removed

_BACKOFF: Final = Backoff(1.0, 60.0)
"""After failures in a row: thousands of such Frameworks may wait for one sink."""

_FAILURES_TO_TELL: Final = 3


@dataclass(frozen=True, slots=True)
class StoreLast:
    """Store the last status of the Framework in the history. ``Farewell.stored`` takes the answer."""

    framework: FrameworkRecord
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Look:
    """Look at the Framework again after this number of seconds; None: it is over. ``records``: to be emitted."""

    after: float | None
    records: list[Record] = field(default_factory=list)


def is_due(record: FrameworkRecord) -> bool:
    """Whether the Framework is being deleted, and held by the finalizer of the history."""
    return record.deletion_time is not None and names.HISTORY_FINALIZER in record.finalizers


class Farewell:
    """The end of one Framework. In memory only: a new process begins again."""

    def __init__(self, record: FrameworkRecord) -> None:
        self.uid = record.uid
        self.storing: StoreLast | None = None
        """What the history is asked to store, and has not answered yet."""
        self._name = record.name
        self._again: StoreLast | None = None
        """What it has not stored."""
        self._stored_version = ""
        """The resourceVersion of the status that it has stored."""
        self._failures = 0
        self._not_before = 0.0

    def wait(self, clock: float) -> float:
        """Seconds until the back-off is over. ``clock``: monotonic seconds."""
        return max(0.0, self._not_before - clock)

    def look(
        self, list_pods: Callable[[], Iterable[PodRecord]], env: Env
    ) -> Generator[Request, Answer, StoreLast | Look]:
        """One look at the Framework. ``list_pods``: the cached Pods with its name."""
        if self._again is not None:
            # Nothing of it runs. If its status has changed since, that is seen before the finalizer is removed.
            self.storing, self._again = self._again, None
            return self.storing
        try:
            live = read_live((yield Get(Kind.FRAMEWORK, self._name)), self.uid)
        except RequeueError as error:
            return self._failed(
                RequestReason.FRAMEWORK_NOT_ANSWERED, f"Cannot read the deleted Framework: {error}", env
            )
        if not is_due(live):
            return Look(None)
        trigger = SnapshotTrigger.FRAMEWORK_DELETION
        waits = env.limits.history_blocks and trigger in env.limits.history
        if waits:
            if not (yield from delete_all(live, list_pods)):
                return Look(LOOK_SEC)
            if live.status and live.resource_version != self._stored_version:
                snapshot = Snapshot(trigger, orjson.dumps(_with_plain_roles(live.status)))
                self.storing = StoreLast(live, snapshot)
                return self.storing
        target = Target(Kind.FRAMEWORK, live.name)
        action = ChangeFinalizer(
            target, live.uid, names.HISTORY_FINALIZER, False, live.resource_version, live.finalizers
        )
        result = yield from carry_out(action)
        if isinstance(result, FinalizersAre | Gone):
            return Look(None, [finalizer_removed(complete=waits)])
        words = getattr(result, "message", type(result).__name__)
        text = f"Cannot remove the finalizer {names.HISTORY_FINALIZER} of the deleted Framework: {words}"
        return self._failed(RequestReason.FRAMEWORK_NOT_ANSWERED, text, env)

    def stored(self, answer: Answer, env: Env) -> Look:
        """Take the answer of the history."""
        asked, self.storing = require(self.storing, "storing"), None
        if isinstance(answer, Answered):
            self._stored_version = asked.framework.resource_version
            self._failures, self._not_before = 0, 0.0
            return Look(0.0)
        self._again = asked
        text = f"The deleted Framework goes once the history has stored its last status: {answer.message}"
        return self._failed(HistoryReason.UNAVAILABLE, text, env)

    def _failed(self, reason: Reason, text: str, env: Env) -> Look:
        self._failures += 1
        delay = _BACKOFF.delay(self._failures, env.rng)
        self._not_before = env.clock + delay
        told = [Record(reason, text, warning=True)] if self._failures == _FAILURES_TO_TELL else []
        return Look(delay, told)


def _with_plain_roles(status: Any) -> Any:
    """Decompress the roles of a status, if they can be."""
    with suppress(KeyError, TypeError, ValueError):
        return {**status, "attemptStatus": with_plain_roles(status["attemptStatus"])}
    return status
