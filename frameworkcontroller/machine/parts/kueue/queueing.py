"""In-memory state of a queued Framework. Losing it costs a live read. The protocol is in kueue.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from frameworkcontroller.api.completion import FRAMEWORK_EVICTED, CompletionStatus
from frameworkcontroller.api.objects import QueueLabels
from frameworkcontroller.api.status import AdmissionStatus, State, TaskStatus
from frameworkcontroller.machine.kernel.absence import Known
from frameworkcontroller.machine.kernel.agenda import PERSISTED
from frameworkcontroller.machine.kernel.holds import Wait
from frameworkcontroller.machine.kernel.model import Urgency, require
from frameworkcontroller.machine.kernel.part import Shown
from frameworkcontroller.machine.kernel.partstate import PartState
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.kueue.workloadspec import WorkloadSpec

WORKLOAD_LOST: Final = "WorkloadLost"
"""Reason of an eviction: another client has deleted or finished the Workload, or Kueue took the admission back."""
OUT_OF_SYNC: Final = "WorkloadOutOfSync"
"""Reason of an eviction: the Framework asks for other Pods than Kueue has admitted."""

NOT_LOOKED_AT: Final = "Kueue has not looked at the Workload yet"
"""Message of the condition QuotaReserved until Kueue has written its own."""


@dataclass(slots=True, eq=False)
class Queueing(PartState):
    """The state of the queueing of one Framework."""

    listens: ClassVar[bool] = True

    wait: Wait | None = None
    """Why the attempt does not begin, by the last plan."""
    known: bool | None = None
    """Whether the cache shows, or showed, a Workload of the Framework. None: not looked for yet."""
    lost: CompletionStatus | None = None
    """The end of the attempt whose admission a live read has shown to be over."""
    lost_reason: str = ""
    """Kueue's reason for that, or WORKLOAD_LOST."""
    acted: dict[str, str] = field(default_factory=dict)
    """By name, actions that did not fail, and the resourceVersion of the Workload in the cache by then, "" for none.

    Until the cache shows another one, the action is not repeated.
    """
    dropped: bool = False
    """Whether the cache has dropped the Workload, which is gone or has lost its label."""
    disproved: str | None = None
    """The resourceVersion of the Workload in the cache, "" for none, that a live read has shown to be behind."""
    conflict: str = ""
    """Why the last admission could not be taken, "" if it was, or has not been tried again yet."""
    conflict_spec: WorkloadSpec | None = None
    """What was admitted then."""
    conflict_until: float = 0.0
    """Until when (monotonic seconds) it is not tried again, unless something else is asked for."""
    conflicts: int = 0
    """The number of such admissions in a row."""
    labels: QueueLabels | None = None
    """The labels that ``spec`` is for."""
    spec: WorkloadSpec | None = None
    """The spec of the Workload that the Framework is to have, of its generation and labels."""
    priority_kept: str | None = None
    """The label of the priority class that does not count for the admitted Workload, as was recorded. None: it does."""
    shown: tuple[Shown, Shown] | None = None
    """The conditions QuotaReserved and Admitted by the last plan."""
    stepped: bool = False
    """Whether a plan has found them."""
    message_until: float = 0.0
    """Until when (monotonic seconds) no status is written for the messages of these conditions alone."""
    priority_until: float = 0.0
    """Until when (monotonic seconds) the priority of the Workload is not changed."""
    reclaimed_until: float = 0.0
    """Until when (monotonic seconds) no more quota of completed Tasks is given back."""
    ready_until: float = 0.0
    """Until when (monotonic seconds) the condition PodsReady is not changed."""

    granted: dict[str, set[int]] = field(default_factory=dict)
    """By role with more Tasks than Kueue has admitted, the indexes of Tasks that have a Pod, or may have one."""

    def set_admission(self, tracker: Tracker, admission: AdmissionStatus | None) -> None:
        """Record the admission by Kueue, or its end."""
        require(tracker.status, "status").admission = admission
        self.lost, self.lost_reason = None, ""
        if admission is not None:
            # Another controller may have begun by the same admission: what it has created is not late.
            tracker.absence.configmap, tracker.absence.late = Known.UNKNOWN, set()
        # The bodies of Pods follow from it.
        tracker.life.templates.clear()
        tracker.change(None, Urgency.NOW)
        tracker.agenda.look()

    def reclaim(self, tracker: Tracker, admission: AdmissionStatus) -> None:
        """Record an admission of which less is needed. Once that is persisted, Kueue learns it."""
        require(tracker.status, "status").admission = admission
        tracker.change(None, Urgency.SOON, of_attempt=False)
        tracker.agenda.look(None, PERSISTED)

    def on_move(self, tracker: Tracker, task: TaskStatus) -> None:
        granted = self.granted.get(task.role) if self.granted else None
        if granted is None or task.state is State.CREATION_PENDING:
            return
        if task.state in ENDED:
            granted.discard(task.index)
            # Another Task may have its Pod now.
            tracker.agenda.look()
        else:
            granted.add(task.index)

    def on_completion(self, tracker: Tracker, completion: CompletionStatus) -> None:
        if completion.is_one_of({FRAMEWORK_EVICTED.code}):
            tracker.counters().evicted[self.lost_reason or OUT_OF_SYNC] += 1

    def on_tasks_over(self) -> None:
        self.granted.clear()

    def successor(self, tracker: Tracker, before: Tracker) -> Queueing:
        if _admission(tracker) != _admission(before):
            # Another controller may have begun by the new one.
            tracker.absence.late = set()
        return Queueing(known=self.known)

    def forget_looks(self) -> None:
        """The cache has dropped the Workload: what was done while it showed none before counts no longer."""
        self.acted.clear()
        self.disproved = None
        self.dropped = True


def _admission(tracker: Tracker) -> AdmissionStatus | None:
    return None if tracker.status is None else tracker.status.admission
