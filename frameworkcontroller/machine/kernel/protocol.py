"""The protocol between a machine of one Framework and its driver: instructions, effects, and the view of the world.

`Reconciler` and `Aside` speak it; `controller/driver.py` and the tests' drivers answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from frameworkcontroller import depths
from frameworkcontroller.api.objects import FrameworkRecord, ObjectError, framework_record
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.machine.kernel.actions import Action
from frameworkcontroller.machine.kernel.model import (
    AttemptCounters,
    Capture,
    Env,
    Observed,
    Plan,
    Record,
    Snapshot,
    SnapshotTrigger,
)
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Kind, Refusal, Refused

# --- instructions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    action: Action


@dataclass(frozen=True, slots=True, eq=False)
class WriteStatus:
    """Write the tracked status. ``catch_up``: first plan the events since this instruction."""

    catch_up: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ReadLive:
    """Read the Framework live. ``actions``: those that wait for it."""

    actions: Sequence[Action] = ()


Call = Act | WriteStatus | ReadLive


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for an answer, at most ``seconds`` if not None."""

    seconds: float | None = None


class RequeueError(Exception):
    """A transient failure, given in the text. The key is retried after a back-off.

    ``retry_after_sec``: the least wait that the API server asked for.
    """

    def __init__(self, message: str, retry_after_sec: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_sec = retry_after_sec


@dataclass(frozen=True, slots=True)
class Done:
    """The pass is over. ``requeue_after``: seconds until the next one, None for never. ``error``: back off instead."""

    requeue_after: float | None = None
    error: RequeueError | None = None


Instruction = Call | Wait | Done


# --- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emit:
    """Log records and send their Events. ``log`` False: Events only. ``trace``: an exception to log with them."""

    records: list[Record]
    log: bool = True
    trace: Exception | None = None


@dataclass(frozen=True, slots=True)
class LogSnapshots:
    """Log snapshots for the history. ``resource_version``: of the Framework that contains them."""

    snapshots: list[Snapshot]
    resource_version: str


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """Store the snapshots in the history, and tell the machine the answer (``on_archived``). No request waits for it.

    ``resource_version``: of the Framework that contains them. ``tasks``: of the snapshots, None for the Framework.
    ``framework``: if not the cached one.
    """

    snapshots: list[Snapshot]
    resource_version: str
    tasks: Sequence[TaskStatus | None] = ()
    framework: FrameworkRecord | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """Give the snapshots to the history, without an answer. ``resource_version``: as of ``Archive``."""

    snapshots: list[Snapshot]
    resource_version: str


@dataclass(frozen=True, slots=True)
class CaptureLogs:
    """Keep the logs of a Pod, and tell the machine when its deletion need not wait any longer (``on_captured``)."""

    capture: Capture


@dataclass(frozen=True, slots=True)
class Relist:
    kind: Kind


WriteResult = Literal["accepted", "landed", "conflict", "not_found", "too_large", "pruned", "error"]
"""Result of a status write. ``landed``: a live read showed that it was accepted, after its answer was lost.
``pruned``: without some of its fields."""


@dataclass(frozen=True, slots=True)
class StatusWritten:
    """The result of a status write. ``size``: of the status, in bytes."""

    result: WriteResult
    size: int


@dataclass(frozen=True, slots=True)
class Persisted:
    """The counts of attempts that the accepted status shows as ended and retried."""

    attempt_counters: AttemptCounters


@dataclass(frozen=True, slots=True)
class OrphanReleased:
    """An object was released whose Framework is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class Warn:
    text: str


Effect = (
    Emit | LogSnapshots | Archive | Offer | CaptureLogs | Relist | StatusWritten | Persisted | OrphanReleased | Warn
)


class Outbox:
    """The effects of a machine, until its driver takes them."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        """To be emitted when the status that shows them is accepted."""
        self.snapshots: list[Snapshot] = []
        """To be logged before the next request, which may delete or overwrite their objects."""
        self._effects: list[Effect] = []

    def add(self, *effects: Effect) -> None:
        """Add effects that are due before the next request."""
        self._effects.extend(effects)

    def add_plan(self, plan: Plan, version: str) -> None:
        """Add the effects of a plan. ``version``: the resourceVersion of the stored Framework."""
        self.records.extend(plan.records)
        self.snapshots.extend(plan.snapshots)
        for records in plan.archives:
            self.add(Archive([one for one, _ in records], version, [task for _, task in records]))
        if plan.offers:
            self.add(Offer(plan.offers, version))
        self.add(*(CaptureLogs(capture) for capture in plan.captures))
        self.add(*map(Relist, plan.relist))

    def emit_records(self) -> None:
        """Emit the records: the status that shows them is stored, or none will be written."""
        if self.records:
            records, self.records = self.records, []
            self.add(Emit(records))

    def take_snapshots(self) -> list[Snapshot]:
        """Take the snapshots that are not logged yet."""
        snapshots, self.snapshots = self.snapshots, []
        return snapshots

    def log_snapshots(self, version: str, offered: Collection[SnapshotTrigger]) -> None:
        """Log the snapshots. ``version``: as of ``add_plan``. ``offered``: triggers of those to offer, too."""
        if snapshots := self.take_snapshots():
            self.add(LogSnapshots(snapshots, version))
            if offers := [one for one in snapshots if one.trigger in offered]:
                self.add(Offer(offers, version))

    def drop_unpersisted(self) -> None:
        """Drop records and snapshots of decisions that will not be persisted."""
        self.records.clear()
        self.snapshots.clear()

    def take(self) -> list[Effect]:
        """Take the effects that are due before the next request."""
        effects, self._effects = self._effects, []
        return effects


class View(Protocol):
    """The current caches and clocks."""

    @property
    def record(self) -> FrameworkRecord | None:
        """The cached object of the Framework's key, possibly a later Framework of the same name."""

    @property
    def env(self) -> Env:
        """Clocks, randomness and limits."""

    def observe(self, *, creating: bool) -> Observed:
        """The cached objects of the Framework. ``creating``: creations of its Pods are in flight."""


# --- live reads and failures ----------------------------------------------------------------------------------------

NOT_FOUND: Final = "the API server does not find the Framework, which the cache still shows"
"""A 404 does not end a Framework, as a proxy or a starting API server may answer it: only the cache does."""


def read_live(answer: Answer, uid: str) -> FrameworkRecord:
    """The Framework of that UID in the answer to a live read.

    Raises:
        RequeueError: the request failed, the answer is invalid, or the Framework is gone.
    """
    match answer:
        case Answered(body=body):
            try:
                live = framework_record(depths.loads(body))
            except (ValueError, ObjectError) as error:
                raise RequeueError(f"cannot read the Framework: {error}") from error
            if live.uid != uid:
                raise RequeueError("the Framework was deleted, and another one with its name was created")
            return live
        case Refused(kind=Refusal.NOT_FOUND | Refusal.OBJECT_NOT_FOUND):
            raise failure(NOT_FOUND, answer)
    raise failure(answer.message, answer)


def failure(message: str, answer: Answer) -> RequeueError:
    """The failure of a request, with the Retry-After of its answer."""
    return RequeueError(message, answer.retry_after_sec if isinstance(answer, Refused) else 0.0)
