"""What a record tells of, as one CamelCase word each, and which of them become Kubernetes Events of the Framework.

The words are an interface: log lines, Events and the Stalled condition bear them. docs/events.md is made from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Everything that a record may tell of."""

    FRAMEWORK_ACCEPTED = "FrameworkAccepted"
    FRAMEWORK_ATTEMPT_STARTED = "FrameworkAttemptStarted"
    FRAMEWORK_ATTEMPT_RUNNING = "FrameworkAttemptRunning"
    FRAMEWORK_ATTEMPT_COMPLETING = "FrameworkAttemptCompleting"
    FRAMEWORK_ATTEMPT_COMPLETED = "FrameworkAttemptCompleted"
    FRAMEWORK_RETRY_SCHEDULED = "FrameworkRetryScheduled"
    FRAMEWORK_RETRIED = "FrameworkRetried"
    FRAMEWORK_SUCCEEDED = "FrameworkSucceeded"
    FRAMEWORK_FAILED = "FrameworkFailed"
    FRAMEWORK_DELETED = "FrameworkDeleted"
    CONFIGMAP_DELETING = "ConfigMapDeleting"
    TASK_ROLE_SCALED = "TaskRoleScaled"
    TASK_ROLE_DELETED = "TaskRoleDeleted"
    POD_CREATED = "PodCreated"
    TASK_RUNNING = "TaskRunning"
    TASK_FAILED = "TaskFailed"
    TASK_SUCCEEDED = "TaskSucceeded"
    TASK_STOPPED = "TaskStopped"
    TASK_ATTEMPT_COMPLETED = "TaskAttemptCompleted"
    TASK_RETRY_SCHEDULED = "TaskRetryScheduled"
    TASK_RETRIED = "TaskRetried"
    TASK_COMPLETED = "TaskCompleted"
    TASK_DELETION_PENDING = "TaskDeletionPending"
    TASK_DELETED = "TaskDeleted"
    TASK_REPLACED = "TaskReplaced"
    LABEL_RESTORED = "LabelRestored"
    WAITING = "Waiting"
    INVALID_SPEC = "InvalidSpec"
    NAMING_CONFLICT = "NamingConflict"
    QUOTA_EXCEEDED = "QuotaExceeded"
    POD_NOT_GONE = "PodNotGone"
    CONFIGMAP_NOT_GONE = "ConfigMapNotGone"
    POD_STILL_RUNS = "PodStillRuns"
    STATUS_OUTDATED = "StatusOutdated"
    POD_NOT_ANSWERED = "PodNotAnswered"
    CONFIGMAP_NOT_ANSWERED = "ConfigMapNotAnswered"
    FRAMEWORK_NOT_ANSWERED = "FrameworkNotAnswered"
    STATUS_TOO_LARGE = "StatusTooLarge"
    QUARANTINED = "Quarantined"
    STATUS_NOT_SERVED = "StatusNotServed"
    PROGRESSING = "Progressing"


class EventPolicy(StrEnum):
    """How far a record goes: everything is logged, and some of it becomes an Event."""

    NEVER = "no"
    ALWAYS = "yes"
    IF_WARNING = "if it is a warning"


@dataclass(frozen=True, slots=True)
class About:
    """What a reason means, and whether it becomes an Event.

    ``many``: what several Tasks did, for reasons of single Tasks, which are told of together.
    """

    meaning: str
    event: EventPolicy = EventPolicy.NEVER
    many: str = ""
    stall: bool = False
    """Whether it may be the reason of the Stalled condition."""


ABOUT: Final[Mapping[Reason, About]] = {
    Reason.FRAMEWORK_ACCEPTED: About("the controller has taken it up"),
    Reason.FRAMEWORK_ATTEMPT_STARTED: About("an attempt begins: its ConfigMap was created", EventPolicy.ALWAYS),
    Reason.FRAMEWORK_ATTEMPT_RUNNING: About("the first Task of the attempt runs", EventPolicy.ALWAYS),
    Reason.FRAMEWORK_ATTEMPT_COMPLETING: About(
        "a completion policy, or its user, has ended the attempt, and why; what still runs is stopped",
        EventPolicy.IF_WARNING,
    ),
    Reason.FRAMEWORK_ATTEMPT_COMPLETED: About("nothing of the attempt runs any more"),
    Reason.FRAMEWORK_RETRY_SCHEDULED: About("there will be another attempt, and when", EventPolicy.ALWAYS),
    Reason.FRAMEWORK_RETRIED: About("that attempt takes the place of the last one"),
    Reason.FRAMEWORK_SUCCEEDED: About("it is completed, and did what it was for", EventPolicy.ALWAYS),
    Reason.FRAMEWORK_FAILED: About(
        "it is completed otherwise, with which code, and why it is not retried", EventPolicy.ALWAYS
    ),
    Reason.FRAMEWORK_DELETED: About("it was kept for as long as a completed one is, and is deleted now"),
    Reason.CONFIGMAP_DELETING: About(
        "somebody deletes the attempt's ConfigMap, or has deleted it, which ends the attempt", EventPolicy.ALWAYS
    ),
    Reason.TASK_ROLE_SCALED: About("Tasks were added, or are to be deleted, as the spec now says", EventPolicy.ALWAYS),
    Reason.TASK_ROLE_DELETED: About("the last Task of a TaskRole that left the spec is gone"),
    Reason.POD_CREATED: About("a Task's Pod was created"),
    Reason.TASK_RUNNING: About("a Task's Pod runs"),
    Reason.TASK_FAILED: About(
        "an attempt of a Task failed, with which code and why", EventPolicy.ALWAYS, "failed with"
    ),
    Reason.TASK_SUCCEEDED: About("an attempt of a Task succeeded"),
    Reason.TASK_STOPPED: About("a Task is stopped, because somebody asked for it or its FrameworkAttempt is over"),
    Reason.TASK_ATTEMPT_COMPLETED: About("the Pod of a Task's attempt is gone"),
    Reason.TASK_RETRY_SCHEDULED: About(
        "another attempt of a Task begins later, and when", EventPolicy.ALWAYS, "wait for their next attempt after"
    ),
    Reason.TASK_RETRIED: About("another attempt of a Task begins", EventPolicy.ALWAYS, "are retried after"),
    Reason.TASK_COMPLETED: About(
        "a Task is not retried any more, and why", EventPolicy.IF_WARNING, "are not retried any more after"
    ),
    Reason.TASK_DELETION_PENDING: About("a Task is to be deleted by ScaleDown"),
    Reason.TASK_DELETED: About("a Task that was to be deleted by ScaleDown is gone"),
    Reason.TASK_REPLACED: About("a new instance takes the place of a Task that went by ScaleDown"),
    Reason.LABEL_RESTORED: About(
        "a Pod or the attempt's ConfigMap had lost the label FC_FRAMEWORK_NAME, which was put back", EventPolicy.ALWAYS
    ),
    Reason.WAITING: About("a request for an object failed; it is tried again"),
    Reason.INVALID_SPEC: About(
        "the spec cannot be run; nothing is done until it changes", EventPolicy.ALWAYS, stall=True
    ),
    Reason.NAMING_CONFLICT: About(
        "an object that the Framework does not control bears a name that it needs", EventPolicy.ALWAYS, stall=True
    ),
    Reason.QUOTA_EXCEEDED: About("a quota of the namespace leaves no room", EventPolicy.ALWAYS, stall=True),
    Reason.POD_NOT_GONE: About("a Pod is still there long after it was to be gone", EventPolicy.ALWAYS, stall=True),
    Reason.CONFIGMAP_NOT_GONE: About(
        "the ConfigMap of an attempt is still there long after it was to be gone, and none of its Pods is",
        EventPolicy.ALWAYS,
        stall=True,
    ),
    Reason.POD_STILL_RUNS: About(
        "a Pod has ended while its containers run; it is deleted after its grace period", EventPolicy.ALWAYS, stall=True
    ),
    Reason.STATUS_OUTDATED: About(
        "a Pod or ConfigMap belongs to a later attempt than the stored status; it is left alone",
        EventPolicy.ALWAYS,
        stall=True,
    ),
    Reason.POD_NOT_ANSWERED: About(
        "a request for a Pod has failed several times in a row", EventPolicy.ALWAYS, stall=True
    ),
    Reason.CONFIGMAP_NOT_ANSWERED: About("so has one for the attempt's ConfigMap", EventPolicy.ALWAYS, stall=True),
    Reason.FRAMEWORK_NOT_ANSWERED: About("so has one for the Framework itself", EventPolicy.ALWAYS, stall=True),
    Reason.STATUS_TOO_LARGE: About(
        "the API server does not take a status of that size, and what to switch on", EventPolicy.ALWAYS, stall=True
    ),
    Reason.QUARANTINED: About(
        "the controller cannot go on with it, and why; others are not touched by that", EventPolicy.ALWAYS, stall=True
    ),
    Reason.STATUS_NOT_SERVED: About(
        "the CRD has lost its status subresource, so no status can be written", EventPolicy.ALWAYS
    ),
    Reason.PROGRESSING: About("what stalled it is over", EventPolicy.ALWAYS),
}


def not_answered(kind: str) -> Reason:
    """The reason of a Framework that waits for the answer to a request for an object of that kind."""
    return Reason(f"{kind}NotAnswered")
