"""What the driver and the event handlers ask of the history. The sinks are in modules that only they import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol, get_args

from frameworkcontroller.api.historyrecords import Trigger
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.machine.kernel.model import Snapshot
from frameworkcontroller.machine.kernel.requests import Answer, Unanswered

Result = Literal["stored", "failed", "refused", "dropped"]
"""The outcome of a record. ``failed``: the sink was unavailable. ``refused``: it does not take this one.
``dropped``: the record is given up, sent or not."""

RESULTS: Final[tuple[Result, ...]] = get_args(Result)


class History(Protocol):
    """Where the records of what is forgotten go."""

    async def store(self, framework: FrameworkRecord, resource_version: str, snapshots: Sequence[Snapshot]) -> Answer:
        """Store snapshots of a Framework. Answered: all are stored durably. Never raises, and answers some time.

        ``resource_version``: of the Framework that contains them.
        """

    def offer(self, framework: FrameworkRecord, resource_version: str, snapshots: Sequence[Snapshot]) -> None:
        """Store snapshots if that is possible. Nothing waits for it."""


class DeletionHistory(History, Protocol):
    """A history that also takes the objects whose deletion a watch shows."""

    def wants(self, trigger: Trigger) -> bool:
        """Whether records of this trigger are taken."""

    def offer_deleted_framework(self, framework: FrameworkRecord, *, status_json: bytes | None = None) -> None:
        """Store a deleted Framework if that is possible. ``status_json`` replaces its status."""

    def offer_deleted_pod(self, pod: Mapping[str, Any]) -> None:
        """Store a deleted Pod if that is possible."""


class NoHistory:
    """No sink. The machine asks for nothing then (``Limits.history``)."""

    def wants(self, _trigger: Trigger) -> bool:
        """No record is taken."""
        return False

    async def store(self, *_: object) -> Answer:
        """Refuse: nothing may count as stored."""
        return Unanswered("the history has no sink")

    def offer(self, *_: object) -> None:
        """Do nothing."""

    def offer_deleted_framework(self, _framework: FrameworkRecord, *, status_json: bytes | None = None) -> None:
        """Do nothing."""

    def offer_deleted_pod(self, _pod: Mapping[str, Any]) -> None:
        """Do nothing."""
