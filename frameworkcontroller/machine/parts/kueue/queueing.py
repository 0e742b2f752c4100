"""What one process knows of a Framework in Kueue's queue, beside what is persisted and what the cache shows.

The protocol is in kueue.py. Losing this state, as in a crash, costs a live read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from frameworkcontroller.machine.kernel.holds import Wait

if TYPE_CHECKING:
    from frameworkcontroller.api.completion import CompletionStatus
    from frameworkcontroller.api.objects import QueueLabels
    from frameworkcontroller.machine.parts.kueue.workloadactions import WorkloadSpec

WORKLOAD_LOST: Final = "WorkloadLost"
"""Reason of an eviction: another client has deleted or finished the Workload, or Kueue took the admission back."""
OUT_OF_SYNC: Final = "WorkloadOutOfSync"
"""Reason of an eviction: the Framework asks for other Pods than Kueue has admitted."""

NOT_LOOKED_AT: Final = "Kueue has not looked at the Workload yet"
"""Message of the condition QuotaReserved until Kueue has written its own."""

ShownCondition = tuple[bool, str, str]
"""Whether it is True, its reason and its message."""


@dataclass(slots=True)
class Queueing:
    """The state of the queueing of one Framework."""

    wait: Wait | None = None
    """Why the attempt does not begin, by the last plan."""
    look_up: bool = False
    """Whether the last plan needs to know that nothing of the Framework runs."""
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
    blocked: bool = False
    """Whether quota is given back once the status is persisted."""
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
    shown: tuple[ShownCondition, ShownCondition] | None = None
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

    def forget_looks(self) -> None:
        """The cache has dropped the Workload: what was done while it showed none before counts no longer."""
        self.acted.clear()
        self.disproved = None
        self.dropped = True
