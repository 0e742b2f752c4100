"""The results of actions."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from frameworkcontroller.api.objects import Identity
from frameworkcontroller.machine.kernel.requests import Answer, Refused, Request, Unanswered


@dataclass(frozen=True, slots=True)
class Created:
    """The object was created. ``kept``: whether the API server stored the field that it was asked for (``Create``)."""

    uid: str
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Exists:
    """The name is taken by ``found``, None if a live read does not find it. ``message``: of the API server."""

    found: Identity | None
    message: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The deletion was accepted; the object may still exist."""


@dataclass(frozen=True, slots=True)
class Gone:
    """No object of that UID exists (of a Cleanup or LookUp: none that is ours)."""


@dataclass(frozen=True, slots=True)
class Remains:
    """The object exists. ``unlabelled``: without the label by which it is watched."""

    message: str
    unlabelled: bool = False


@dataclass(frozen=True, slots=True)
class NotForced:
    """The Pod exists, and was not force-deleted: its Node is not known to be lost.

    ``unreadable``: Nodes may not be read, or are not served.
    """

    message: str
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Patched:
    """The object was changed. ``resource_version``: the new one."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Outdated:
    """The object of that UID exists, and another client has changed it: nothing was done."""

    message: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NotAttempted:
    """Nothing was sent; the next plan decides again."""


@dataclass(frozen=True, slots=True)
class FinalizersAre:
    """The finalizers are as wanted. ``resource_version``: of the Framework now, ``before``: right before."""

    finalizers: tuple[str, ...]
    before: str
    resource_version: str


class PartResult:
    """A result that only the part of its action knows."""

    __slots__ = ()


Result = (
    Created
    | Exists
    | Refused
    | Unanswered
    | Accepted
    | Gone
    | Remains
    | NotForced
    | Patched
    | FinalizersAre
    | Outdated
    | NotAttempted
    | PartResult
)


Exchange = Generator[Request, Answer, Result]


class NotDoneError(Exception):
    """Ends an exchange with a failed answer."""

    def __init__(self, answer: Refused | Unanswered) -> None:
        super().__init__(answer.message)
        self.answer = answer
