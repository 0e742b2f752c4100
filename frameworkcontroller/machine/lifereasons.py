"""The reasons of the life of a Framework."""

from __future__ import annotations

from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason, event, stall, wait


class LifeReason(Reason):
    """The reasons of the Framework, its roles and its Tasks."""

    FRAMEWORK_ACCEPTED = "FrameworkAccepted", "the controller starts to handle the Framework"
    LIKELY_MISTAKE = event("LikelyMistake", "the spec is valid, and something in it probably has no effect")
    FRAMEWORK_ATTEMPT_STARTED = event("FrameworkAttemptStarted", "a FrameworkAttempt starts: its ConfigMap was created")
    FRAMEWORK_ATTEMPT_RUNNING = event("FrameworkAttemptRunning", "the first Task of the attempt runs")
    FRAMEWORK_ATTEMPT_COMPLETING = event(
        "FrameworkAttemptCompleting",
        "a completion policy, a failure rule or the user ended the attempt, with the reason; running Tasks are stopped",
        event=EventPolicy.IF_WARNING,
    )
    FRAMEWORK_ATTEMPT_COMPLETED = "FrameworkAttemptCompleted", "nothing of the attempt runs"
    FRAMEWORK_RETRY_SCHEDULED = event(
        "FrameworkRetryScheduled", "another attempt follows, with its time", event=EventPolicy.RETRY
    )
    FRAMEWORK_RETRIED = "FrameworkRetried", "the next attempt replaces the last one"
    FRAMEWORK_SUCCEEDED = event("FrameworkSucceeded", "the Framework succeeded")
    FRAMEWORK_FAILED = event(
        "FrameworkFailed", "the Framework failed, with the code and the reason why it is not retried"
    )
    FRAMEWORK_STOPPED = event("FrameworkStopped", "the Framework was stopped, by executionType Stop or its deletion")
    FRAMEWORK_DELETED = "FrameworkDeleted", "the retention of the completed Framework is over, and it is deleted"
    CONFIGMAP_DELETING = event(
        "ConfigMapDeleting", "another client deletes or deleted the attempt's ConfigMap, which ends the attempt"
    )
    TASK_ROLE_SCALED = event("TaskRoleScaled", "Tasks were added or will be deleted, after a change of the spec")
    TASK_ROLE_DELETED = "TaskRoleDeleted", "the last Task of a removed TaskRole is gone"
    POD_CREATED = "PodCreated", "a Task's Pod was created"
    TASK_RUNNING = "TaskRunning", "a Task's Pod runs"
    CONTAINERS_RESTARTED = event(
        "ContainersRestarted", "containers of a Task restart inside of its Pod, by its restartPolicy", "have restarted:"
    )
    TASK_FAILED = event("TaskFailed", "a TaskAttempt failed, with the code and the cause", "failed with")
    TASK_SUCCEEDED = "TaskSucceeded", "a TaskAttempt succeeded"
    TASK_STOPPED = "TaskStopped", "a Task is stopped, on request or because its FrameworkAttempt is over"
    TASK_ATTEMPT_COMPLETED = "TaskAttemptCompleted", "the Pod of a TaskAttempt is gone"
    TASK_RETRY_SCHEDULED = event(
        "TaskRetryScheduled",
        "another TaskAttempt follows later, with its time",
        "wait for their next attempt after",
        event=EventPolicy.RETRY,
    )
    TASK_RETRIED = event("TaskRetried", "another TaskAttempt starts", "are retried after")
    TASK_COMPLETED = event(
        "TaskCompleted",
        "a Task is completed, with the reason why it is not retried",
        "are not retried after",
        event=EventPolicy.IF_WARNING,
    )
    TASK_DELETION_PENDING = "TaskDeletionPending", "ScaleDown will delete a Task"
    TASK_DELETED = "TaskDeleted", "ScaleDown deleted a Task"
    TASK_REPLACED = "TaskReplaced", "a new instance replaces a Task that ScaleDown deleted"
    LABEL_RESTORED = event(
        "LabelRestored", "a Pod or the attempt's ConfigMap lost the label FC_FRAMEWORK_NAME, which was restored"
    )
    DELETING = "Deleting", "the Framework is being deleted, so no attempt starts"
    NOT_STARTED = wait("NotStarted", "executionType is Create, so no attempt starts")
    SUSPENDED = wait("Suspended", "spec.suspend is true, so no attempt starts")
    RELISTING = (
        "Relisting",
        "the ConfigMaps are listed again before Pods are created, as a Pod was deleted before it ran",
    )
    ATTEMPT_ENDS = "AttemptEnds", "the FrameworkAttempt ends, so no Pod is created"
    INVALID_SPEC = stall(
        "InvalidSpec", "the spec is invalid; until it changes, nothing begins, and only ends are decided"
    )
    POD_NOT_GONE = stall("PodNotGone", "a Pod still exists long after its deletion was due")
    CONFIGMAP_NOT_GONE = stall(
        "ConfigMapNotGone", "an attempt's ConfigMap still exists long after its deletion was due, but none of its Pods"
    )
    PODS_NOT_DELETED = stall(
        "PodsNotDeleted",
        "an attempt's ConfigMap was deleted long ago, and none of its Pods is being deleted, as the garbage collector "
        "has to do",
    )
    POD_STILL_RUNS = stall(
        "PodStillRuns", "a Pod has ended but its containers still run; it is deleted after its grace period"
    )
    STATUS_OUTDATED = stall(
        "StatusOutdated", "a Pod or ConfigMap belongs to a later attempt than the stored status; it is not touched"
    )
    STATUS_TOO_LARGE = stall(
        "StatusTooLarge", "the API server rejects a status of that size, with the setting that helps"
    )
    FIELDS_DROPPED = stall(
        "FieldsDropped",
        "the CRD on the API server is older than the controller, and drops fields of this Framework's status or spec",
    )
    QUARANTINED = stall(
        "Quarantined", "the controller cannot handle the Framework, with the cause; other Frameworks are not affected"
    )
    STATUS_NOT_SERVED = event("StatusNotServed", "the CRD lost its status subresource, so no status can be written")
    PROGRESSING = event("Progressing", "the Framework is no longer stalled")
