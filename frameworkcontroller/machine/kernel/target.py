"""The object of an action."""

from __future__ import annotations

from dataclasses import dataclass

from frameworkcontroller.machine.kernel.requests import COMPANIONS, Kind


@dataclass(frozen=True, slots=True)
class Target:
    """The object of an action, and its attempt.

    Of Pods also the Task's ``role``, ``index`` and ``instance`` (UID): an outcome is folded only into the Task instance
    and attempt that asked for the action. Volume claims outlive instances and have only ``role`` and ``index``.
    """

    kind: Kind
    name: str
    attempt_id: int = 0
    role: str = ""
    index: int = -1
    instance: str = ""
    part: str = ""
    """What of a Framework: "finalizer" for its finalizers, else the object."""

    @property
    def key(self) -> tuple[str, int] | str | None:
        """Role and index of the Task of a Pod or volume claim, kind and name of another companion, else ``part``."""
        if self.kind in (Kind.POD, Kind.VOLUME_CLAIM):
            return self.role, self.index
        if self.kind is Kind.FRAMEWORK:
            return self.part or None
        return self.object_key if self.kind in COMPANIONS else None

    @property
    def object_key(self) -> str:
        """Kind and name, the key of the pauses between changes of the object, which other clients may undo at once."""
        return f"{self.kind}/{self.name}"

    @property
    def claim(self) -> str:
        """The name of a volume claim, "" for other kinds."""
        return self.name if self.kind is Kind.VOLUME_CLAIM else ""
