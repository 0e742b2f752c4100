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
    WAIT = auto()
    """All, and the condition Running has the message while nothing runs."""
    RETRY = auto()
    """As WAIT, but the record has the decision to retry, not the wait."""


def _event(
    name: str, meaning: str, many: str = "", event: EventPolicy = EventPolicy.ALWAYS
) -> tuple[str, str, EventPolicy, str]:
    return name, meaning, event, many


def _stall(name: str, meaning: str) -> tuple[str, str, EventPolicy]:
    return name, meaning, EventPolicy.STALL


def _wait(name: str, meaning: str) -> tuple[str, str, EventPolicy]:
    return name, meaning, EventPolicy.WAIT


class Reason(StrEnum):
    """The reason of a record, with its meaning.

    ``many``: the verb of an Event about several Tasks, for reasons of Tasks.
    """

    meaning: str
    event: EventPolicy
    many: str

    def __new__(cls, name: str, meaning: str, event: EventPolicy = EventPolicy.NEVER, many: str = "") -> Self:
        """Make the member of that name."""
        reason = str.__new__(cls, name)
        reason._value_ = name
        reason.meaning, reason.event, reason.many = meaning, event, many
        return reason

    FRAMEWORK_ACCEPTED = "FrameworkAccepted", "the controller starts to handle the Framework"
    FRAMEWORK_ATTEMPT_STARTED = _event(
        "FrameworkAttemptStarted", "a FrameworkAttempt starts: its ConfigMap was created"
    )
    FRAMEWORK_ATTEMPT_RUNNING = _event("FrameworkAttemptRunning", "the first Task of the attempt runs")
    FRAMEWORK_ATTEMPT_COMPLETING = _event(
        "FrameworkAttemptCompleting",
        "a completion policy, a failure rule or the user ended the attempt, with the reason; running Tasks are stopped",
        event=EventPolicy.IF_WARNING,
    )
    FRAMEWORK_ATTEMPT_COMPLETED = "FrameworkAttemptCompleted", "nothing of the attempt runs"
    FRAMEWORK_RETRY_SCHEDULED = _event(
        "FrameworkRetryScheduled", "another attempt follows, with its time", event=EventPolicy.RETRY
    )
    FRAMEWORK_RETRIED = "FrameworkRetried", "the next attempt replaces the last one"
    FRAMEWORK_SUCCEEDED = _event("FrameworkSucceeded", "the Framework succeeded")
    FRAMEWORK_FAILED = _event(
        "FrameworkFailed", "the Framework failed, with the code and the reason why it is not retried"
    )
    FRAMEWORK_DELETED = "FrameworkDeleted", "the retention of the completed Framework is over, and it is deleted"
    HISTORY_COMPLETE = "HistoryComplete", "the history has all of a deleted Framework, whose finalizer is removed"
    HISTORY_GIVEN_UP = _event(
        "HistoryGivenUp",
        "the finalizer of the history is removed, as the controller has no sink any longer, or does not wait for it",
    )
    CONFIGMAP_DELETING = _event(
        "ConfigMapDeleting", "another client deletes or deleted the attempt's ConfigMap, which ends the attempt"
    )
    TASK_ROLE_SCALED = _event("TaskRoleScaled", "Tasks were added or will be deleted, after a change of the spec")
    TASK_ROLE_STARTED = _event("TaskRoleStarted", "the dependencies of a TaskRole hold, and its Pods are created")
    TASK_ROLE_DELETED = "TaskRoleDeleted", "the last Task of a removed TaskRole is gone"
    SERVICE_CREATED = "ServiceCreated", "the Service was created by which Pods have host names"
    QUEUE_IGNORED = _event(
        "QueueIgnored", "the Framework has the label of a queue, which means nothing, as kueue.mode is disabled"
    )
    QUEUE_ENTERED = _event("QueueEntered", "the Workload was created that stands for the Framework in Kueue's queue")
    QUEUE_LEFT = _event(
        "QueueLeft", "the Workload is finished or being deleted, and the Framework has left Kueue's queue"
    )
    QUOTA_GRANTED = _event("QuotaGranted", "Kueue has admitted the Framework, and its attempt may start")
    PRIORITY_KEPT = _event(
        "PriorityKept",
        "a priority class was added to an admitted Framework or removed from it, which counts from its next admission",
    )
    QUOTA_GIVEN_BACK = _event("QuotaGivenBack", "nothing of an evicted Framework runs, and Kueue got its quota back")
    POD_GROUP_CREATED = "PodGroupCreated", "a PodGroup was created, by which a scheduler places Pods together"
    VOLUME_CLAIM_CREATED = "VolumeClaimCreated", "a PersistentVolumeClaim of a Task was created"
    VOLUME_CLAIM_KEPT = _event(
        "VolumeClaimKept",
        "a PersistentVolumeClaim that exists was made the Framework's, or got a changed retention policy",
        event=EventPolicy.NEVER,
    )
    VOLUME_CLAIM_DELETED = (
        "VolumeClaimDeleted",
        "a PersistentVolumeClaim was deleted, as its Task had left and whenScaled is Delete",
    )
    POD_CREATED = "PodCreated", "a Task's Pod was created"
    TASK_RUNNING = "TaskRunning", "a Task's Pod runs"
    TASK_FAILED = _event("TaskFailed", "a TaskAttempt failed, with the code and the cause", "failed with")
    TASK_SUCCEEDED = "TaskSucceeded", "a TaskAttempt succeeded"
    TASK_STOPPED = "TaskStopped", "a Task is stopped, on request or because its FrameworkAttempt is over"
    TASK_ATTEMPT_COMPLETED = "TaskAttemptCompleted", "the Pod of a TaskAttempt is gone"
    TASK_RETRY_SCHEDULED = _event(
        "TaskRetryScheduled",
        "another TaskAttempt follows later, with its time",
        "wait for their next attempt after",
        event=EventPolicy.RETRY,
    )
    TASK_RETRIED = _event("TaskRetried", "another TaskAttempt starts", "are retried after")
    TASK_COMPLETED = _event(
        "TaskCompleted",
        "a Task is completed, with the reason why it is not retried",
        "are not retried after",
        event=EventPolicy.IF_WARNING,
    )
    TASK_DELETION_PENDING = "TaskDeletionPending", "ScaleDown will delete a Task"
    TASK_DELETED = "TaskDeleted", "ScaleDown deleted a Task"
    TASK_REPLACED = "TaskReplaced", "a new instance replaces a Task that ScaleDown deleted"
    LABEL_RESTORED = _event(
        "LabelRestored", "a Pod or the attempt's ConfigMap lost the label FC_FRAMEWORK_NAME, which was restored"
    )
    WAITING = "Waiting", "a request for an object failed and will be retried"
    DELETING = "Deleting", "the Framework is being deleted, so no attempt starts"
    NOT_STARTED = _wait("NotStarted", "executionType is Create, so no attempt starts")
    SUSPENDED = _wait("Suspended", "spec.suspend is true, so no attempt starts")
    RELISTING = (
        "Relisting",
        "the ConfigMaps are listed again before Pods are created, as a Pod was deleted before it ran",
    )
    ATTEMPT_ENDS = "AttemptEnds", "the FrameworkAttempt ends, so no Pod is created"
    SERVICE_PENDING = _wait("ServicePending", "the Service of spec.network does not exist yet, so no attempt starts")
    POD_GROUP_PENDING = _wait(
        "PodGroupPending", "a PodGroup of spec.scheduling does not exist yet, or its scheduler does not place it"
    )
    VOLUME_CLAIM_PENDING = _wait(
        "VolumeClaimPending", "a PersistentVolumeClaim of a Task is to be created again, or cannot be looked for"
    )
    QUOTA_PENDING = _wait("QuotaPending", "Kueue has not admitted the Framework, so no attempt starts")
    QUOTA_COUNT = _wait("QuotaCount", "a Task waits, as more Tasks were added than Kueue has admitted")
    DEPENDENCY_PENDING = _wait("DependencyPending", "a TaskRole waits for others, as its dependsOn says")
    HISTORY_PENDING = _wait("HistoryPending", "the history must store the attempt first, and has not yet")
    INVALID_SPEC = _stall(
        "InvalidSpec", "the spec is invalid; until it changes, nothing begins, and only ends are decided"
    )
    NAMING_CONFLICT = _stall("NamingConflict", "an object that the Framework does not control has a name that it needs")
    GANG_UNSUPPORTED = _stall(
        "GangUnsupported",
        "the scheduler or the API server does not support spec.scheduling; if Pods run, they are placed one by one",
    )
    QUOTA_EXCEEDED = _stall("QuotaExceeded", "a quota of the namespace is exhausted")
    POD_NOT_GONE = _stall("PodNotGone", "a Pod still exists long after its deletion was due")
    CONFIGMAP_NOT_GONE = _stall(
        "ConfigMapNotGone", "an attempt's ConfigMap still exists long after its deletion was due, but none of its Pods"
    )
    PODS_NOT_DELETED = _stall(
        "PodsNotDeleted",
        "an attempt's ConfigMap was deleted long ago, and none of its Pods is being deleted, as the garbage collector "
        "has to do",
    )
    SERVICE_NOT_GONE = _stall(
        "ServiceNotGone", "the Service of spec.network was deleted, and still exists long after its deletion was due"
    )
    POD_GROUP_NOT_GONE = _stall(
        "PodGroupNotGone", "a PodGroup of an earlier attempt, or one that was deleted, still exists"
    )
    VOLUME_CLAIM_NOT_GONE = _stall(
        "VolumeClaimNotGone",
        "a PersistentVolumeClaim that a Task needs was deleted, and still exists long after its deletion was due",
    )
    POD_STILL_RUNS = _stall(
        "PodStillRuns", "a Pod has ended but its containers still run; it is deleted after its grace period"
    )
    STATUS_OUTDATED = _stall(
        "StatusOutdated", "a Pod or ConfigMap belongs to a later attempt than the stored status; it is not touched"
    )
    POD_NOT_ANSWERED = _stall("PodNotAnswered", "requests for a Pod failed several times in a row")
    CONFIGMAP_NOT_ANSWERED = _stall(
        "ConfigMapNotAnswered", "requests for the attempt's ConfigMap failed several times in a row"
    )
    SERVICE_NOT_ANSWERED = _stall("ServiceNotAnswered", "requests for the Service of spec.network failed several times")
    SERVICE_NOT_LISTED = _stall("ServiceNotListed", "Services cannot be listed, which spec.network needs")
    POD_GROUP_NOT_ANSWERED = _stall(
        "PodGroupNotAnswered", "requests for a PodGroup of spec.scheduling failed several times"
    )
    POD_GROUP_NOT_LISTED = _stall("PodGroupNotListed", "PodGroups cannot be listed, which spec.scheduling needs")
    VOLUME_CLAIM_NOT_ANSWERED = _stall(
        "VolumeClaimNotAnswered", "requests for a PersistentVolumeClaim failed several times in a row"
    )
    VOLUME_CLAIM_NOT_LISTED = _stall(
        "VolumeClaimNotListed", "PersistentVolumeClaims cannot be listed, which volumeClaimTemplates need"
    )
    QUEUE_UNAVAILABLE = _stall("QueueUnavailable", "the Framework has a queue, and Kueue's Workloads cannot be used")
    QUEUE_INVALID = _stall(
        "QueueInvalid",
        "a queue label of the Framework is invalid, its priority class does not exist, it has no TaskRole, or a "
        "placeholder where Kueue needs a value",
    )
    TOO_MANY_ROLES_FOR_QUEUE = _stall("TooManyRolesForQueue", "the Framework has a queue, and more than 18 TaskRoles")
    ADMISSION_CONFLICT = _stall(
        "AdmissionConflict", "Kueue's additions to the Pods contradict their template, or cannot be read"
    )
    POD_QUEUED_TWICE = _stall(
        "PodQueuedTwice",
        "Kueue queues a Pod by itself, though it has admitted its Framework, so the Pod never starts",
    )
    DEPENDENCY_NOT_ADMITTED = _stall(
        "DependencyNotAdmitted",
        "a TaskRole waits for one to be Ready that has more Tasks than Kueue has admitted for the attempt",
    )
    WORKLOAD_NOT_GONE = _stall(
        "WorkloadNotGone", "the Workload in Kueue's queue was deleted, and still exists long after its deletion was due"
    )
    WORKLOAD_NOT_ANSWERED = _stall(
        "WorkloadNotAnswered", "requests for the Workload in Kueue's queue failed several times"
    )
    FRAMEWORK_NOT_ANSWERED = _stall(
        "FrameworkNotAnswered", "requests for the Framework itself failed several times in a row"
    )
    HISTORY_UNAVAILABLE = _stall(
        "HistoryUnavailable",
        "the history has stored nothing for a minute, and nothing is forgotten before, with the words of the sink",
    )
    STATUS_TOO_LARGE = _stall(
        "StatusTooLarge", "the API server rejects a status of that size, with the setting that helps"
    )
    FIELDS_DROPPED = _stall(
        "FieldsDropped",
        "the CRD on the API server is older than the controller, and drops fields of this Framework's status or spec",
    )
    QUARANTINED = _stall(
        "Quarantined", "the controller cannot handle the Framework, with the cause; other Frameworks are not affected"
    )
    STATUS_NOT_SERVED = _event("StatusNotServed", "the CRD lost its status subresource, so no status can be written")
    PROGRESSING = _event("Progressing", "the Framework is no longer stalled")
