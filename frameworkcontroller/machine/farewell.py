"""The end of a Framework that is left alone: of one in quarantine that is asked to end, and of a deleted one.

``end_quarantined`` deletes what runs of a Framework in quarantine after Stop, a suspension, its deadline or an
eviction. Nothing of that is persisted, as the status may be unreadable.

``Farewell`` is for a deleted one that the finalizer of the history holds.
It is quarantined, or its status cannot be stored. Nothing can be decided for it, and its deletion
cannot be taken back: what runs of it is deleted, its stored status goes to the history as it is, and then the finalizer
is removed.
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
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.api.workloads import WorkloadRecord
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.machine.ending import Ends, ends_in
from frameworkcontroller.machine.kernel.actions import (
    ChangeFinalizer,
    Confirm,
    Delete,
    Exists,
    FinalizersAre,
    Gone,
    LookUp,
    Target,
    carry_out,
)
from frameworkcontroller.machine.kernel.context import is_of_framework
from frameworkcontroller.machine.kernel.model import Env, Record, Snapshot, SnapshotTrigger, require
from frameworkcontroller.machine.kernel.protocol import RequeueError, read_live
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Get, Kind, Request
from frameworkcontroller.machine.parts.history import archiving as history
from frameworkcontroller.machine.parts.kueue.workloadactions import GiveBack

LOOK_SEC: Final = 5.0
"""Time until the Framework is looked at again while something of it may run. Mostly an event comes before."""

_BACKOFF: Final = Backoff(1.0, 60.0)
"""After failures in a row: thousands of such Frameworks may wait for one sink."""

_FAILURES_TO_TELL: Final = 3
_PODS_AT_ONCE: Final = 50


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
            return self._failed(Reason.FRAMEWORK_NOT_ANSWERED, f"Cannot read the deleted Framework: {error}", env)
        if not is_due(live):
            return Look(None)
        trigger = SnapshotTrigger.FRAMEWORK_DELETION
        waits = env.limits.history_blocks and trigger in env.limits.history
        if waits:
            if not (yield from _nothing_runs(live, list_pods)):
                return Look(LOOK_SEC)
            if live.status and live.resource_version != self._stored_version:
                snapshot = Snapshot(trigger, orjson.dumps(_with_plain_roles(live.status)))
                self.storing = StoreLast(live, snapshot)
                return self.storing
        target = Target(Kind.FRAMEWORK, live.name)
        action = ChangeFinalizer(target, live.uid, False, live.resource_version, live.finalizers)
        result = yield from carry_out(action)
        if isinstance(result, FinalizersAre | Gone):
            return Look(None, [history.finalizer_removed(complete=waits)])
        words = getattr(result, "message", type(result).__name__)
        text = f"Cannot remove the finalizer {names.HISTORY_FINALIZER} of the deleted Framework: {words}"
        return self._failed(Reason.FRAMEWORK_NOT_ANSWERED, text, env)

    def stored(self, answer: Answer, env: Env) -> Look:
        """Take the answer of the history."""
        asked, self.storing = require(self.storing, "storing"), None
        if isinstance(answer, Answered):
            self._stored_version = asked.framework.resource_version
            self._failures, self._not_before = 0, 0.0
            return Look(0.0)
        self._again = asked
        text = f"The deleted Framework goes once the history has stored its last status: {answer.message}"
        return self._failed(Reason.HISTORY_UNAVAILABLE, text, env)

    def _failed(self, reason: Reason, text: str, env: Env) -> Look:
        self._failures += 1
        delay = _BACKOFF.delay(self._failures, env.rng)
        self._not_before = env.clock + delay
        told = [Record(reason, text, warning=True)] if self._failures == _FAILURES_TO_TELL else []
        return Look(delay, told)


def end_quarantined(
    record: FrameworkRecord,
    workloads: Iterable[WorkloadRecord],
    list_pods: Callable[[], Iterable[PodRecord]],
    env: Env,
) -> Generator[Request, Answer, float | None]:
    """End what runs of a Framework in quarantine, if it is to end. Return the seconds until the next look.

    ``workloads``: the cached ones with its name. ``list_pods``: likewise.
    """
    evicted = [one for one in workloads if one.identity.controller_uid == record.uid and one.evicted and one.reserves]
    ends = ends_in(orjson.loads(record.spec_json), Ends())
    if not evicted and not ends.is_asked_for and ends.active_deadline_seconds is None:
        return None
    try:
        live = read_live((yield Get(Kind.FRAMEWORK, record.name)), record.uid)
    except RequeueError:
        return LOOK_SEC
    ends = ends_in(orjson.loads(live.spec_json), Ends())
    if not evicted and not ends.is_asked_for:
        left = _active_seconds_left(ends.active_deadline_seconds, live.status, env.now)
        if left is None or left > 0:
            return left
    if not (yield from _nothing_runs(live, list_pods)):
        return LOOK_SEC
    for one in evicted:
        yield from carry_out(GiveBack(Target(Kind.WORKLOAD, one.name), one.uid, env.second))
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


def _nothing_runs(
    live: FrameworkRecord, list_pods: Callable[[], Iterable[PodRecord]]
) -> Generator[Request, Answer, bool]:
    """Delete what is left of the Framework. Return whether nothing is."""
    configmap = Target(Kind.CONFIGMAP, names.configmap_name(live.name))
    result = yield from carry_out(LookUp(configmap, live.uid))
    if isinstance(result, Exists) and result.found is not None and not result.found.deleting:
        yield from carry_out(Delete(configmap, result.found.uid))
    if not isinstance(result, Gone):
        return False
    # A deletion that orphans has taken its owner away. The recorded one is of the Framework in any case.
    if (recorded := _recorded_configmap(live.status)) and not isinstance(
        (yield from carry_out(Confirm(configmap, recorded))), Gone
    ):
        yield from carry_out(Delete(configmap, recorded))
        return False
    # Its garbage collection does not reach those of a ConfigMap that was deleted in another way.
    pods = [pod for pod in list_pods() if is_of_framework(live.uid, pod)]
    for pod in [pod for pod in pods if not pod.identity.deleting][:_PODS_AT_ONCE]:
        yield from carry_out(Delete(Target(Kind.POD, pod.name), pod.uid))
    return not pods


def _recorded_configmap(status: Any) -> str:
    """The UID of the ConfigMap of the attempt in a status, "" if there is none."""
    try:
        uid = status["attemptStatus"]["configMapUID"]
    except (KeyError, TypeError):
        return ""
    return uid if isinstance(uid, str) else ""


def _with_plain_roles(status: Any) -> Any:
    """Decompress the roles of a status, if they can be."""
    with suppress(KeyError, TypeError, ValueError):
        return {**status, "attemptStatus": with_plain_roles(status["attemptStatus"])}
    return status
