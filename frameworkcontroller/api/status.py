"""The status of a Framework, as mutable slotted records.

Source: docs/reference.md, "status". Times are whole seconds since the epoch (UTC); ``None`` is the wire's
``null``. Names and instance UIDs that follow from other fields (podName, instanceUID of an attempt) are not stored:
the codec derives them, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from frameworkcontroller.api.completion import CompletionStatus


class State(StrEnum):
    """State of a Framework or a Task; both go through the same nine. Clients map unknown values to an error."""

    CREATION_PENDING = "AttemptCreationPending"
    CREATION_REQUESTED = "AttemptCreationRequested"
    PREPARING = "AttemptPreparing"
    RUNNING = "AttemptRunning"
    DELETION_PENDING = "AttemptDeletionPending"
    DELETION_REQUESTED = "AttemptDeletionRequested"
    DELETING = "AttemptDeleting"
    ATTEMPT_COMPLETED = "AttemptCompleted"
    COMPLETED = "Completed"


@dataclass(slots=True)
class RetryPolicyStatus:
    """How often something was retried. ``retry_delay_sec``: the decided delay of the coming retry, once decided.

    ``recent_retried_count``: of a Task, the retries in a row that its back-off goes by.
    """

    total_retried_count: int = 0
    accountable_retried_count: int = 0
    retry_delay_sec: int | None = None
    recent_retried_count: int = 0


@dataclass(slots=True)
class TaskAttemptStatus:
    """One try of a Task: a Pod. ``pod_node_name`` and the IPs become "" once the Pod was seen without one."""

    id: int
    start_time: int
    run_time: int | None = None
    completion_time: int | None = None
    pod_uid: str | None = None
    pod_node_name: str | None = None
    pod_ip: str | None = None
    pod_host_ip: str | None = None
    completion_status: CompletionStatus | None = None


# Identity, not value, makes two TaskStatus the same: they are members of the tracker's sets while they change.
@dataclass(slots=True, eq=False)
class TaskStatus:
    """One Task of a role. ``encoded`` caches its JSON between changes; a change of the Task clears it."""

    index: int
    instance_uid: str
    start_time: int
    transition_time: int
    attempt: TaskAttemptStatus
    state: State = State.CREATION_PENDING
    run_time: int | None = None
    completion_time: int | None = None
    deletion_pending: bool = False
    retry: RetryPolicyStatus = field(default_factory=RetryPolicyStatus)
    encoded: bytes | None = field(default=None, repr=False)


@dataclass(slots=True, eq=False)
class TaskRoleStatus:
    """One role: its Tasks in order of index, without gaps.

    ``pod_graceful_deletion_timeout_sec`` is the effective copy of the spec's, kept when the role leaves the spec.
    """

    name: str
    instance_uid: str
    pod_graceful_deletion_timeout_sec: int | None = None
    tasks: list[TaskStatus] = field(default_factory=list)


@dataclass(slots=True)
class FrameworkAttemptStatus:
    """One try of the Framework: a ConfigMap that owns the attempt's Pods. ``id`` = total retried count."""

    id: int
    start_time: int
    run_time: int | None = None
    completion_time: int | None = None
    configmap_uid: str | None = None
    completion_status: CompletionStatus | None = None
    roles: list[TaskRoleStatus] = field(default_factory=list)


@dataclass(slots=True)
class TaskCounts:
    """How many Tasks of the current attempt are how; those that are deletionPending count for nothing.

    Kept beside the Tasks so that a reader (``kubectl get``, which sees no compressed Tasks) need not count them.
    ``failed``: completed and not succeeded, including those that were stopped.
    """

    total: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(slots=True)
class Condition:
    """A metav1.Condition. Computed from the other fields; never an input of a decision."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: int
    observed_generation: int


@dataclass(slots=True)
class FrameworkStatus:
    """The whole status of one Framework. ``task_counts``: None in one that another controller wrote."""

    start_time: int
    transition_time: int
    attempt: FrameworkAttemptStatus
    state: State = State.CREATION_PENDING
    run_time: int | None = None
    completion_time: int | None = None
    retry: RetryPolicyStatus = field(default_factory=RetryPolicyStatus)
    observed_generation: int | None = None
    task_counts: TaskCounts | None = None
    conditions: list[Condition] = field(default_factory=list)
