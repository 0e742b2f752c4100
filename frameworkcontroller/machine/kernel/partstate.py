"""The state that a part keeps of a Framework, and the events by which the tracker keeps it up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.status import FrameworkStatus, TaskStatus

if TYPE_CHECKING:
    from frameworkcontroller.machine.kernel.tracker import Tracker


class PartState:
    """The state that a part keeps beside the status, in memory only. Losing it is safe.

    The tracker tells all that exist of its changes: a part without a state pays nothing.
    """

    __slots__ = ()
    of_attempt: ClassVar[bool] = False
    """Whether it ends with the attempt of the Framework, else with the process."""
    listens: ClassVar[bool] = False
    """Whether it has methods for changes of the status (``on_change`` to ``on_index``)."""

    def on_change(self, subject: FrameworkStatus | TaskStatus | None) -> None:
        """Something that the history has to know has changed, of a Task or of the Framework (also None)."""

    def on_move(self, tracker: Tracker, task: TaskStatus) -> None:
        """A Task has moved to another state, or became deletionPending."""

    def on_count(self, task: TaskStatus, step: int) -> None:
        """A Task that is not deletionPending is counted in its state (1), or no longer (-1)."""

    def on_index(self, tracker: Tracker) -> None:
        """Roles or Tasks were added or removed. All Tasks are counted again afterwards."""

    def on_look_at_all(self) -> None:
        """The next plan looks at everything."""

    def on_persisted(self, tracker: Tracker) -> None:
        """The tracked status is stored."""

    def on_end(self, tracker: Tracker) -> None:
        """The attempt is over, and with it this state, which is of the attempt."""

    def on_tasks_over(self) -> None:
        """The attempt is over: forget its Tasks."""

    def on_completion(self, tracker: Tracker, completion: CompletionStatus) -> None:
        """The completion of an attempt was decided."""

    def successor(self, tracker: Tracker, before: Tracker) -> PartState | None:
        """The state for another tracker of the Framework, which continues from a stored status; None: a new one."""
