"""The end of a deleted Framework that the finalizer of the history holds, and for which nothing can be decided.

It is in quarantine, or its status cannot be stored. Its deletion cannot be undone: its objects are deleted, its stored
status goes to the history unchanged, and then the finalizer is removed.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import with_plain_roles
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.machine.kernel.actions import ChangeFinalizer, carry_out
from frameworkcontroller.machine.kernel.aside import Aside
from frameworkcontroller.machine.kernel.exchanges import FinalizersAre, Gone
from frameworkcontroller.machine.kernel.model import Env, Record, Snapshot, SnapshotTrigger
from frameworkcontroller.machine.kernel.protocol import Archive, Call, Done, Emit, RequeueError, View, read_live
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Get, Kind, Request, Target
from frameworkcontroller.machine.kernel.teardown import LOOK_SEC, delete_all
from frameworkcontroller.machine.parts.history.archiving import HistoryReason, finalizer_removed

_BACKOFF: Final = Backoff(1.0, 60.0)
"""After failures in a row: thousands of such Frameworks may wait for one sink."""

_FAILURES_TO_TELL: Final = 3


def is_due(record: FrameworkRecord) -> bool:
    """Whether the Framework is being deleted, and held by the finalizer of the history."""
    return record.deletion_time is not None and names.HISTORY_FINALIZER in record.finalizers


class Finalization(Aside):
    """The end of one Framework. In memory only: a new process begins again."""

    def __init__(self, record: FrameworkRecord) -> None:
        super().__init__(record.key, record.uid)
        self._storing = False
        """True until the history answers."""
        self._answered: tuple[Archive, Answer] | None = None
        """The last answer of the history, until the next pass."""
        self._unstored: Archive | None = None
        self._stored_version = ""
        """The resourceVersion of the status that the history has stored."""
        self._failures = 0
        self._not_before = 0.0

    def on_archived(self, archive: Archive, answer: Answer) -> None:
        """Take the answer in the next pass."""
        self._storing, self._answered = False, (archive, answer)

    def due(self, view: View) -> Call | Done:
        """Wait for the history and for the back-off."""
        if self._storing:
            # The answer starts another pass.
            return Done()
        if self._answered is not None:
            (archive, answer), self._answered = self._answered, None
            if isinstance(answer, Answered):
                self._stored_version = archive.resource_version
                self._failures, self._not_before = 0, 0.0
            else:
                self._unstored = archive
                text = f"The deleted Framework goes once the history has stored its last status: {answer.message}"
                self._failed(HistoryReason.UNAVAILABLE, text, view.env)
        left = self._not_before - view.env.clock
        return Done(left) if left > 0 else super().due(view)

    def exchange(self, view: View) -> Generator[Request, Answer, float | None]:
        """Return None once it is finalized, or while the history stores its last status."""
        env = view.env
        if self._unstored is not None:
            # Nothing of it runs. If its status has changed since, that is seen before the finalizer is removed.
            self._store(self._unstored)
            return None
        try:
            live = read_live((yield Get(Kind.FRAMEWORK, self.name)), self.uid)
        except RequeueError as error:
            return self._failed(
                RequestReason.FRAMEWORK_NOT_ANSWERED, f"Cannot read the deleted Framework: {error}", env
            )
        if not is_due(live):
            return None
        trigger = SnapshotTrigger.FRAMEWORK_DELETION
        waits = env.limits.history_blocks and trigger in env.limits.history
        if waits:
            if not (yield from delete_all(live, view.observe(creating=False).list_pods)):
                return LOOK_SEC
            if live.status and live.resource_version != self._stored_version:
                snapshot = Snapshot(trigger, orjson.dumps(plain_status(live.status)))
                self._store(Archive([snapshot], live.resource_version, framework=live))
                return None
        target = Target(Kind.FRAMEWORK, live.name)
        action = ChangeFinalizer(
            target, live.uid, names.HISTORY_FINALIZER, False, live.resource_version, live.finalizers
        )
        result = yield from carry_out(action)
        if isinstance(result, FinalizersAre | Gone):
            self._effects.append(Emit([finalizer_removed(complete=waits)]))
            return None
        words = getattr(result, "message", type(result).__name__)
        text = f"Cannot remove the finalizer {names.HISTORY_FINALIZER} of the deleted Framework: {words}"
        return self._failed(RequestReason.FRAMEWORK_NOT_ANSWERED, text, env)

    def _store(self, archive: Archive) -> None:
        self._storing, self._unstored = True, None
        self._effects.append(archive)

    def _failed(self, reason: Reason, text: str, env: Env) -> float:
        self._failures += 1
        delay = _BACKOFF.delay(self._failures, env.rng)
        self._not_before = env.clock + delay
        if self._failures == _FAILURES_TO_TELL:
            self._effects.append(Emit([Record(reason, text, warning=True)]))
        return delay


def plain_status(status: Any) -> Any:
    """Decompress the roles of a status. Invalid data is kept unchanged."""
    with suppress(KeyError, TypeError, ValueError):
        return {**status, "attemptStatus": with_plain_roles(status["attemptStatus"])}
    return status
