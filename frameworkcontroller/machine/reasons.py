"""The reasons of records, and which records become Events.

Reasons are an interface: log lines, Events and the Stalled condition have them. docs/events.md is generated from them.
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
    """All, and the reason may be that of the Stalled condition."""


_NEVER, _ALWAYS, _IF_WARNING, _STALL = EventPolicy


class Reason(StrEnum):
    """The reason of a record, with its meaning.

    ``many``: the verb of an Event about several Tasks, for reasons of Tasks.
    """

    meaning: str
    event: EventPolicy
    many: str

    def __new__(cls, name: str, meaning: str, event: EventPolicy = _NEVER, many: str = "") -> Self:
        """Make the member of that name."""
        reason = str.__new__(cls, name)
        reason._value_ = name
        reason.meaning, reason.event, reason.many = meaning, event, many
        return reason

    FRAMEWORK_ACCEPTED = "FrameworkAccepted", "the controller starts to handle the Framework"
    FRAMEWORK_ATTEMPT_STARTED = (
        "FrameworkAttemptStarted",
        "a FrameworkAttempt starts: its ConfigMap was created",
        _ALWAYS,
    )
    FRAMEWORK_ATTEMPT_RUNNING = "FrameworkAttemptRunning", "the first Task of the attempt runs", _ALWAYS
    FRAMEWORK_ATTEMPT_COMPLETING = (
        "FrameworkAttemptCompleting",
        "a completion policy or the user ended the attempt, with the reason; running Tasks are stopped",
        _IF_WARNING,
    )
    FRAMEWORK_ATTEMPT_COMPLETED = "FrameworkAttemptCompleted", "nothing of the attempt runs"
    FRAMEWORK_RETRY_SCHEDULED = "FrameworkRetryScheduled", "another attempt follows, with its time", _ALWAYS
    FRAMEWORK_RETRIED = "FrameworkRetried", "the next attempt replaces the last one"
    FRAMEWORK_SUCCEEDED = "FrameworkSucceeded", "the Framework succeeded", _ALWAYS
    FRAMEWORK_FAILED = (
        "FrameworkFailed",
        "the Framework failed, with the code and the reason why it is not retried",
        _ALWAYS,
    )
    FRAMEWORK_DELETED = "FrameworkDeleted", "the retention of the completed Framework is over, and it is deleted"
    CONFIGMAP_DELETING = (
        "ConfigMapDeleting",
        "another client deletes or deleted the attempt's ConfigMap, which ends the attempt",
        _ALWAYS,
    )
    TASK_ROLE_SCALED = "TaskRoleScaled", "Tasks were added or will be deleted, after a change of the spec", _ALWAYS
    TASK_ROLE_DELETED = "TaskRoleDeleted", "the last Task of a removed TaskRole is gone"
    POD_CREATED = "PodCreated", "a Task's Pod was created"
    TASK_RUNNING = "TaskRunning", "a Task's Pod runs"
    TASK_FAILED = "TaskFailed", "a TaskAttempt failed, with the code and the cause", _ALWAYS, "failed with"
    TASK_SUCCEEDED = "TaskSucceeded", "a TaskAttempt succeeded"
    TASK_STOPPED = "TaskStopped", "a Task is stopped, on request or because its FrameworkAttempt is over"
    TASK_ATTEMPT_COMPLETED = "TaskAttemptCompleted", "the Pod of a TaskAttempt is gone"
    TASK_RETRY_SCHEDULED = (
        "TaskRetryScheduled",
        "another TaskAttempt follows later, with its time",
        _ALWAYS,
        "wait for their next attempt after",
    )
    TASK_RETRIED = "TaskRetried", "another TaskAttempt starts", _ALWAYS, "are retried after"
    TASK_COMPLETED = (
        "TaskCompleted",
        "a Task is completed, with the reason why it is not retried",
        _IF_WARNING,
        "are not retried after",
    )
    TASK_DELETION_PENDING = "TaskDeletionPending", "ScaleDown will delete a Task"
    TASK_DELETED = "TaskDeleted", "ScaleDown deleted a Task"
    TASK_REPLACED = "TaskReplaced", "a new instance replaces a Task that ScaleDown deleted"
    LABEL_RESTORED = (
        "LabelRestored",
        "a Pod or the attempt's ConfigMap lost the label FC_FRAMEWORK_NAME, which was restored",
        _ALWAYS,
    )
    WAITING = "Waiting", "a request for an object failed and will be retried"
    INVALID_SPEC = "InvalidSpec", "the spec is invalid; the controller waits for a change", _STALL
    NAMING_CONFLICT = "NamingConflict", "an object that the Framework does not control has a name that it needs", _STALL
    QUOTA_EXCEEDED = "QuotaExceeded", "a quota of the namespace is exhausted", _STALL
    POD_NOT_GONE = "PodNotGone", "a Pod still exists long after its deletion was due", _STALL
    CONFIGMAP_NOT_GONE = (
        "ConfigMapNotGone",
        "an attempt's ConfigMap still exists long after its deletion was due, but none of its Pods",
        _STALL,
    )
    POD_STILL_RUNS = (
        "PodStillRuns",
        "a Pod has ended but its containers still run; it is deleted after its grace period",
        _STALL,
    )
    STATUS_OUTDATED = (
        "StatusOutdated",
        "a Pod or ConfigMap belongs to a later attempt than the stored status; it is not touched",
        _STALL,
    )
    POD_NOT_ANSWERED = "PodNotAnswered", "requests for a Pod failed several times in a row", _STALL
    CONFIGMAP_NOT_ANSWERED = (
        "ConfigMapNotAnswered",
        "requests for the attempt's ConfigMap failed several times in a row",
        _STALL,
    )
    FRAMEWORK_NOT_ANSWERED = (
        "FrameworkNotAnswered",
        "requests for the Framework itself failed several times in a row",
        _STALL,
    )
    STATUS_TOO_LARGE = (
        "StatusTooLarge",
        "the API server rejects a status of that size, with the setting that helps",
        _STALL,
    )
    QUARANTINED = (
        "Quarantined",
        "the controller cannot handle the Framework, with the cause; other Frameworks are not affected",
        _STALL,
    )
    STATUS_NOT_SERVED = "StatusNotServed", "the CRD lost its status subresource, so no status can be written", _ALWAYS
    PROGRESSING = "Progressing", "the Framework is no longer stalled", _ALWAYS
