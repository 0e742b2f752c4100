"""The reasons of queued Frameworks."""

from __future__ import annotations

from frameworkcontroller.machine.kernel.reasons import Reason, event, stall, wait


class QueueReason(Reason):
    """The reasons of a Framework with a queue label."""

    IGNORED = event(
        "QueueIgnored", "the Framework has the label of a queue, which means nothing, as kueue.mode is disabled"
    )
    ENTERED = event("QueueEntered", "the Workload was created that stands for the Framework in Kueue's queue")
    LEFT = event("QueueLeft", "the Workload is finished or being deleted, and the Framework has left Kueue's queue")
    QUOTA_GRANTED = event("QuotaGranted", "Kueue has admitted the Framework, and its attempt may start")
    PRIORITY_KEPT = event(
        "PriorityKept",
        "a priority class was added to an admitted Framework or removed from it, which counts from its next admission",
    )
    QUOTA_GIVEN_BACK = event("QuotaGivenBack", "nothing of an evicted Framework runs, and Kueue got its quota back")
    QUOTA_PENDING = wait("QuotaPending", "Kueue has not admitted the Framework, so no attempt starts")
    QUOTA_COUNT = wait("QuotaCount", "a Task waits, as more Tasks were added than Kueue has admitted")
    UNAVAILABLE = stall("QueueUnavailable", "the Framework has a queue, and Kueue's Workloads cannot be used")
    INVALID = stall(
        "QueueInvalid",
        "a queue label of the Framework is invalid, its priority class does not exist, it has no TaskRole, or a "
        "placeholder where Kueue needs a value",
    )
    TOO_MANY_ROLES = stall("TooManyRolesForQueue", "the Framework has a queue, and more than 18 TaskRoles")
    ADMISSION_CONFLICT = stall(
        "AdmissionConflict", "Kueue's additions to the Pods contradict their template, or cannot be read"
    )
    POD_QUEUED_TWICE = stall(
        "PodQueuedTwice",
        "Kueue queues a Pod by itself, though it has admitted its Framework, so the Pod never starts",
    )
    DEPENDENCY_NOT_ADMITTED = stall(
        "DependencyNotAdmitted",
        "a TaskRole waits for one to be Ready that has more Tasks than Kueue has admitted for the attempt",
    )
    NOT_GONE = stall(
        "WorkloadNotGone", "the Workload in Kueue's queue was deleted, and still exists long after its deletion was due"
    )
    NOT_ANSWERED = stall("WorkloadNotAnswered", "requests for the Workload in Kueue's queue failed several times")
