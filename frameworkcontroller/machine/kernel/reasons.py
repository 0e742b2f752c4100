"""The reasons of records, and which records become Events.

Reasons are an interface: log lines, Events and the condition Stalled have them. The life and each part define theirs;
``parts.REASONS`` has all of them, for docs/reference.md.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Self


class EventPolicy(Enum):
    """Which records become Events. All records are logged."""

    NEVER = auto()
    ALWAYS = auto()
    IF_WARNING = auto()
    STALL = auto()
    """All, and the condition Stalled may have the reason."""
    WAIT = auto()
    """All, and the condition Running has the message while nothing runs."""
    WAIT_OF_ROLE = auto()
    """As WAIT, and the condition Running has the message while Tasks run, too."""
    RETRY = auto()
    """As WAIT, but the record has the decision to retry, not the wait."""


def event(
    name: str, meaning: str, many: str = "", event: EventPolicy = EventPolicy.ALWAYS
) -> tuple[str, str, EventPolicy, str]:
    return name, meaning, event, many


def stall(name: str, meaning: str) -> tuple[str, str, EventPolicy]:
    return name, meaning, EventPolicy.STALL


def wait(name: str, meaning: str) -> tuple[str, str, EventPolicy]:
    return name, meaning, EventPolicy.WAIT


class Reason(StrEnum):
    """The reason of a record, with its meaning. Subclasses have the members.

    ``many``: the verb of an Event about several Tasks, for reasons of Tasks.
    """

    meaning: str
    event: EventPolicy
    many: str

    def __new__(cls, name: str, meaning: str, event: EventPolicy = EventPolicy.NEVER, many: str = "") -> Self:
        reason = str.__new__(cls, name)
        reason._value_ = name
        reason.meaning, reason.event, reason.many = meaning, event, many
        return reason


class RequestReason(Reason):
    """Reasons of failed requests, for the life and all parts."""

    WAITING = "Waiting", "a request for an object failed and will be retried"
    NAMING_CONFLICT = stall("NamingConflict", "an object that the Framework does not control has a name that it needs")
    QUOTA_EXCEEDED = stall("QuotaExceeded", "a quota of the namespace is exhausted")
    POD_NOT_ANSWERED = stall("PodNotAnswered", "requests for a Pod failed several times in a row")
    CONFIGMAP_NOT_ANSWERED = stall(
        "ConfigMapNotAnswered", "requests for the attempt's ConfigMap failed several times in a row"
    )
    FRAMEWORK_NOT_ANSWERED = stall(
        "FrameworkNotAnswered", "requests for the Framework itself failed several times in a row"
    )
