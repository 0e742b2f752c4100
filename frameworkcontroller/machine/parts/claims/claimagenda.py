"""The claims of a Framework to be looked at, and the reasons of their records. In memory only."""

from __future__ import annotations

from typing import Final

from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.deadlines import Deadlines
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.part import PartState
from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason, event, stall, wait
from frameworkcontroller.machine.kernel.tracker import Tracker

CLAIMS: Final = "PersistentVolumeClaims"
"""Key of back-offs and stalls of changes of existing claims."""


class ClaimReason(Reason):
    """The reasons of volume claims."""

    CREATED = "VolumeClaimCreated", "a PersistentVolumeClaim of a Task was created"
    KEPT = event(
        "VolumeClaimKept",
        "a PersistentVolumeClaim that exists was made the Framework's, or got a changed retention policy",
        event=EventPolicy.NEVER,
    )
    DELETED = (
        "VolumeClaimDeleted",
        "a PersistentVolumeClaim was deleted, as its Task had left and whenScaled is Delete",
    )
    PENDING = wait(
        "VolumeClaimPending", "a PersistentVolumeClaim of a Task is to be created again, or cannot be looked for"
    )
    NOT_GONE = stall(
        "VolumeClaimNotGone",
        "a PersistentVolumeClaim that a Task needs was deleted, and still exists long after its deletion was due",
    )
    NOT_ANSWERED = stall("VolumeClaimNotAnswered", "requests for a PersistentVolumeClaim failed several times in a row")
    NOT_LISTED = stall(
        "VolumeClaimNotListed", "PersistentVolumeClaims cannot be listed, which volumeClaimTemplates need"
    )


class ClaimAgenda(PartState):
    """The volume claims that the next plan looks at, by name."""

    __slots__ = ("_due", "_names", "paced", "policies", "scan", "unlisted")

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._due: dict[str, None] = {}
        self.scan = True
        """Whether to look at all claims of the Framework."""
        self.unlisted: set[TaskKey] = set()
        """Tasks that wait until the claims are listed."""
        self.paced: Deadlines[str] = Deadlines()
        """Claims to change after a pause, and its end (monotonic seconds)."""
        self.policies: dict[str, TaskRoleSpec] = {}
        """The last specs of roles by name, without their Pods: their policies count for claims."""

    def __bool__(self) -> bool:
        return bool(self._names or self._due)

    def add(self, name: str) -> None:
        """Look at the claim in the next plan."""
        self._names[name] = None

    def retry(self, name: str) -> None:
        """Look at the claim again after the back-off."""
        self._due[name] = None

    def take(self, *, again: bool) -> list[str]:
        """Take the claims. ``again``: also those that waited for the end of the back-off."""
        taken = {**self._due, **self._names} if again else self._names
        self._names = {}
        if again:
            self._due = {}
        return list(taken)

    def on_look_at_all(self) -> None:
        self.scan = True

    def on_tasks_over(self) -> None:
        self.unlisted.clear()

    def successor(self, tracker: Tracker, before: Tracker) -> ClaimAgenda:
        """The policies are in no status."""
        new = ClaimAgenda()
        new.policies = self.policies
        return new
