"""The reasons of records, and which records become Events.

Reasons are an interface: log lines, Events and the Stalled condition have them. docs/events.md is generated from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """The reason of a record."""

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
    """Which records become Events. All records are logged."""

    NEVER = "no"
    ALWAYS = "yes"
    IF_WARNING = "if it is a warning"


@dataclass(frozen=True, slots=True)
class About:
    """The meaning of a reason, and whether its records become Events.

    ``many``: the verb of an Event about several Tasks, for reasons of Tasks.
    """

    meaning: str
    event: EventPolicy = EventPolicy.NEVER
    many: str = ""
    stall: bool = False
    """Whether it may be the reason of the Stalled condition."""


ABOUT: Final[Mapping[Reason, About]] = {
    Reason.FRAMEWORK_ACCEPTED: About("the controller starts to handle the Framework"),
    Reason.FRAMEWORK_ATTEMPT_STARTED: About("a FrameworkAttempt starts: its ConfigMap was created", EventPolicy.ALWAYS),
    Reason.FRAMEWORK_ATTEMPT_RUNNING: About("the first Task of the attempt runs", EventPolicy.ALWAYS),
    Reason.FRAMEWORK_ATTEMPT_COMPLETING: About(
        "a completion policy or the user ended the attempt, with the reason; running Tasks are stopped",
        EventPolicy.IF_WARNING,
    ),
    Reason.FRAMEWORK_ATTEMPT_COMPLETED: About("nothing of the attempt runs"),
    Reason.FRAMEWORK_RETRY_SCHEDULED: About("another attempt follows, with its time", EventPolicy.ALWAYS),
    Reason.FRAMEWORK_RETRIED: About("the next attempt replaces the last one"),
    Reason.FRAMEWORK_SUCCEEDED: About("the Framework succeeded", EventPolicy.ALWAYS),
    Reason.FRAMEWORK_FAILED: About(
        "the Framework failed, with the code and the reason why it is not retried", EventPolicy.ALWAYS
    ),
    Reason.FRAMEWORK_DELETED: About("the retention of the completed Framework is over, and it is deleted"),
    Reason.CONFIGMAP_DELETING: About(
        "another client deletes or deleted the attempt's ConfigMap, which ends the attempt", EventPolicy.ALWAYS
    ),
    Reason.TASK_ROLE_SCALED: About(
        "Tasks were added or will be deleted, after a change of the spec", EventPolicy.ALWAYS
    ),
    Reason.TASK_ROLE_DELETED: About("the last Task of a removed TaskRole is gone"),
    Reason.POD_CREATED: About("a Task's Pod was created"),
    Reason.TASK_RUNNING: About("a Task's Pod runs"),
    Reason.TASK_FAILED: About("a TaskAttempt failed, with the code and the cause", EventPolicy.ALWAYS, "failed with"),
    Reason.TASK_SUCCEEDED: About("a TaskAttempt succeeded"),
    Reason.TASK_STOPPED: About("a Task is stopped, on request or because its FrameworkAttempt is over"),
    Reason.TASK_ATTEMPT_COMPLETED: About("the Pod of a TaskAttempt is gone"),
    Reason.TASK_RETRY_SCHEDULED: About(
        "another TaskAttempt follows later, with its time", EventPolicy.ALWAYS, "wait for their next attempt after"
    ),
    Reason.TASK_RETRIED: About("another TaskAttempt starts", EventPolicy.ALWAYS, "are retried after"),
    Reason.TASK_COMPLETED: About(
        "a Task is completed, with the reason why it is not retried",
        EventPolicy.IF_WARNING,
        "are not retried after",
    ),
    Reason.TASK_DELETION_PENDING: About("ScaleDown will delete a Task"),
    Reason.TASK_DELETED: About("ScaleDown deleted a Task"),
    Reason.TASK_REPLACED: About("a new instance replaces a Task that ScaleDown deleted"),
    Reason.LABEL_RESTORED: About(
        "a Pod or the attempt's ConfigMap lost the label FC_FRAMEWORK_NAME, which was restored", EventPolicy.ALWAYS
    ),
    Reason.WAITING: About("a request for an object failed and will be retried"),
    Reason.INVALID_SPEC: About(
        "the spec is invalid; the controller waits for a change", EventPolicy.ALWAYS, stall=True
    ),
    Reason.NAMING_CONFLICT: About(
        "an object that the Framework does not control has a name that it needs", EventPolicy.ALWAYS, stall=True
    ),
    Reason.QUOTA_EXCEEDED: About("a quota of the namespace is exhausted", EventPolicy.ALWAYS, stall=True),
    Reason.POD_NOT_GONE: About("a Pod still exists long after its deletion was due", EventPolicy.ALWAYS, stall=True),
    Reason.CONFIGMAP_NOT_GONE: About(
        "an attempt's ConfigMap still exists long after its deletion was due, but none of its Pods",
        EventPolicy.ALWAYS,
        stall=True,
    ),
    Reason.POD_STILL_RUNS: About(
        "a Pod has ended but its containers still run; it is deleted after its grace period",
        EventPolicy.ALWAYS,
        stall=True,
    ),
    Reason.STATUS_OUTDATED: About(
        "a Pod or ConfigMap belongs to a later attempt than the stored status; it is not touched",
        EventPolicy.ALWAYS,
        stall=True,
    ),
    Reason.POD_NOT_ANSWERED: About("requests for a Pod failed several times in a row", EventPolicy.ALWAYS, stall=True),
    Reason.CONFIGMAP_NOT_ANSWERED: About(
        "requests for the attempt's ConfigMap failed several times in a row", EventPolicy.ALWAYS, stall=True
    ),
    Reason.FRAMEWORK_NOT_ANSWERED: About(
        "requests for the Framework itself failed several times in a row", EventPolicy.ALWAYS, stall=True
    ),
    Reason.STATUS_TOO_LARGE: About(
        "the API server rejects a status of that size, with the setting that helps", EventPolicy.ALWAYS, stall=True
    ),
    Reason.QUARANTINED: About(
        "the controller cannot handle the Framework, with the cause; other Frameworks are not affected",
        EventPolicy.ALWAYS,
        stall=True,
    ),
    Reason.STATUS_NOT_SERVED: About(
        "the CRD lost its status subresource, so no status can be written", EventPolicy.ALWAYS
    ),
    Reason.PROGRESSING: About("the Framework is no longer stalled", EventPolicy.ALWAYS),
}


def not_answered(kind: str) -> Reason:
    """The reason of a stall by failed requests for an object of that kind."""
    return Reason(f"{kind}NotAnswered")
