"""The status of a Framework, as mutable slotted records.

Source: docs/reference.md, "status". Times are whole seconds since the epoch; None is ``null``. The codec derives
fields that follow from others, such as podName and instanceUID of an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from frameworkcontroller.api.completion import CompletionStatus, Outcome
from frameworkcontroller.api.fields import Interned, Time, added


class State(StrEnum):
    """State of a Framework or a Task. Clients map unknown values to an error."""

    CREATION_PENDING = "AttemptCreationPending"
    CREATION_REQUESTED = "AttemptCreationRequested"
    PREPARING = "AttemptPreparing"
    RUNNING = "AttemptRunning"
    DELETION_PENDING = "AttemptDeletionPending"
    DELETION_REQUESTED = "AttemptDeletionRequested"
    DELETING = "AttemptDeleting"
    ATTEMPT_COMPLETED = "AttemptCompleted"
    COMPLETED = "Completed"


class Phase(StrEnum):
    """How a Framework is, in one word. The last three are final: no other follows."""

    PENDING = "Pending"
    """Nothing of the attempt has run yet, or the next attempt waits."""
    QUEUED = "Queued"
    """Its queue has not admitted it."""
    RUNNING = "Running"
    """Something of the attempt has run, and its end is not decided."""
    ENDING = "Ending"
    """The end of the attempt is decided, and something of it still exists."""
    SUSPENDED = "Suspended"
    """It is suspended, and nothing of it runs."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    """It ended by executionType Stop, or by its deletion."""

    @property
    def is_final(self) -> bool:
        """Whether the Framework is over permanently."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED)


WAITS: Final = " waits: "
"""Precedes the reason to wait in the message of the condition Running."""


@dataclass(slots=True)
class RetryPolicyStatus:
    """Counts of retries. ``retry_delay_sec``: the delay of the next retry, once decided.

    ``recent_retried_count``: for the back-off, the retries in a row.
    """

    total_retried_count: int = 0
    accountable_retried_count: int = 0
    retry_delay_sec: int | None = None
    recent_retried_count: int = added(
        "Number of retries in a row, which determines the next delay. Absent while 0.", default=0
    )


@dataclass(frozen=True, slots=True)
class AvoidedNode:
    """A node on which attempts of a Task failed. ``failures``: how many count."""

    name: Interned
    failures: int = 1


@dataclass(slots=True)
class TaskAttemptStatus:
    """An attempt of a Task: a Pod. ``pod_node_name`` and the IPs become "" once the Pod was seen without one."""

    id: int
    start_time: Time
    run_time: Time | None = None
    completion_time: Time | None = None
    pod_uid: str | None = None
    pod_node_name: Interned | None = None
    pod_ip: str | None = None
    pod_host_ip: Interned | None = None
    completion_status: CompletionStatus | None = None
    scheduled_time: Time | None = added("When the Pod got its node. Absent without a history.", default=None)
    template_hash: Interned = added(
        "Hash of the Pod template that the Pod was created from. Absent before the Pod was seen, and without "
        "`updateStrategy.type: RollingUpdate`.",
        default="",
    )


@dataclass(frozen=True, slots=True)
class AutoscalingStatus:
    """The number of Tasks of a role with autoscaling, which counts once it is stored.

    ``scaler_id``: of the FrameworkRoleScaler that sets it. "": autoscaling is off, and one is to be deleted.
    ``scaler_generation``: the object's, when it set the number. An older one is ignored.
    """

    task_number: int
    scaler_id: str = ""
    scaler_generation: int = 0


# Compared by identity, because members of the tracker's sets change.
@dataclass(slots=True, eq=False)
class TaskStatus:
    """A Task of ``role``. ``encoded`` caches its JSON until it changes."""

    index: int
    instance_uid: str
    start_time: Time
    transition_time: Time
    attempt: TaskAttemptStatus
    state: State = State.CREATION_PENDING
    run_time: Time | None = None
    completion_time: Time | None = None
    is_leaving: bool = False
    """``deletionPending``: it leaves by ScaleDown, and no longer counts."""
    retry: RetryPolicyStatus = field(default_factory=RetryPolicyStatus)
    avoided_nodes: tuple[AvoidedNode, ...] = added(
        "Nodes with failures of the Task that `retryPolicy.avoidNodes` counts, the last failure last. Its next Pods "
        "avoid those with at least `after` failures. Kept by the next attempt of the Framework. Absent while empty.",
        default=(),
    )
    encoded: bytes | None = field(default=None, init=False, repr=False)
    role: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """Role and index."""
        return self.role, self.index

    @property
    def attempt_key(self) -> tuple[str, int]:
        """Instance and attempt."""
        return self.instance_uid, self.attempt.id


@dataclass(slots=True, eq=False)
class TaskRoleStatus:
    """A role: its Tasks in the order of their indexes, without gaps.

    ``pod_graceful_deletion_timeout_sec`` and ``pod_force_deletion_policy`` (None: Always) are the spec's, kept when
    it drops the role.
    ``started``: whether the dependencies of a role that has some held once in this attempt.
    ``budgeted_task_count``: the Tasks that its disruption budget counts.
    ``ready_task_count``, ``updated_task_count``: Tasks that are available, and Tasks with the template of the spec.
    None if the role does not have them counted. No decision reads them, and an older CRD may drop them.
    """

    name: str
    instance_uid: str
    pod_graceful_deletion_timeout_sec: int | None = None
    tasks: list[TaskStatus] = field(default_factory=list)
    pod_force_deletion_policy: str | None = added("", default=None)
    started: bool = added("", default=False)
    budgeted_task_count: int = added("", default=0)
    ready_task_count: int | None = None
    updated_task_count: int | None = None
    autoscaling: AutoscalingStatus | None = added("", default=None)


@dataclass(slots=True)
class FrameworkAttemptStatus:
    """An attempt of the Framework: a ConfigMap that owns its Pods. ``id`` is the total retried count.

    ``execution_start_time``: creation of the ConfigMap, recorded if there is a deadline. ``scheduled_pod_groups``: the
    names of the PodGroups that a scheduler has placed.
    """

    id: int
    start_time: Time
    run_time: Time | None = None
    completion_time: Time | None = None
    configmap_uid: str | None = None
    completion_status: CompletionStatus | None = None
    roles: list[TaskRoleStatus] = field(default_factory=list)
    execution_start_time: Time | None = added("", default=None)
    scheduled_pod_groups: list[str] = added("", default_factory=list)


@dataclass(slots=True)
class TaskCounts:
    """Tasks of the current attempt by state, without those that are deletionPending.

    For readers such as ``kubectl get``, which cannot count compressed Tasks. ``stopped``: ended on request, or with
    their attempt.
    """

    total: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    stopped: int = 0

    def count(self, task: TaskStatus, step: int) -> None:
        """Count a Task in its state (1), or no longer (-1)."""
        self.total += step
        if task.state is State.RUNNING:
            self.running += step
        elif task.state is State.COMPLETED:
            completion = task.attempt.completion_status
            outcome = Outcome.FAILED if completion is None else completion.outcome
            self.succeeded += step * (outcome is Outcome.SUCCEEDED)
            self.stopped += step * (outcome is Outcome.STOPPED)
            self.failed += step * (outcome is Outcome.FAILED)

    @property
    def unsuccessful(self) -> int:
        """Completed and not succeeded, which the contract calls failed."""
        return self.failed + self.stopped

    @property
    def completed(self) -> int:
        """In state Completed."""
        return self.succeeded + self.failed + self.stopped


@dataclass(slots=True, frozen=True)
class AdmittedPodSet:
    """Kueue's admission of one role's Pods, and its additions to them.

    ``count``: number of admitted Pods. ``digest``: of the role's template, as it was admitted. ``reclaimed``: number of
    Pods whose quota goes back to Kueue while the attempt runs, as no Task needs it again.
    """

    name: str
    count: int
    digest: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    scheduling_gates: list[str] = field(default_factory=list)
    reclaimed: int = 0

    @property
    def available(self) -> int:
        """Number of Pods that may exist at once."""
        return self.count - self.reclaimed


@dataclass(slots=True, frozen=True)
class AdmissionStatus:
    """The admission of a queued Framework by Kueue. Persisted before its attempt begins, and until its quota is free.

    ``workload_uid``: of the Workload that has the quota.
    """

    queue_name: str
    workload_name: str
    workload_uid: str
    cluster_queue: str = ""
    pod_sets: list[AdmittedPodSet] = field(default_factory=list)
    _by_name: dict[str, AdmittedPodSet] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the pod sets."""
        object.__setattr__(self, "_by_name", {one.name: one for one in reversed(self.pod_sets)})

    def pod_set(self, role: str) -> AdmittedPodSet | None:
        """The admission of the role, None if there is none."""
        return self._by_name.get(role)

    def available(self, role: str) -> int:
        """Number of Pods of the role that may exist at once."""
        found = self.pod_set(role)
        return 0 if found is None else found.available


@dataclass(slots=True)
class Condition:
    """A metav1.Condition. Computed from the other fields, and not an input of decisions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time = 0
    """0: none. The CRD does not require one, and other tools may write none."""
    observed_generation: int = 0


@dataclass(slots=True, frozen=True)
class ProgressMetric:
    """A figure that a program reports."""

    name: str
    value: float


@dataclass(slots=True, frozen=True)
class ProgressStatus:
    """The last reported progress of an attempt. None: never reported.

    ``first_report_time``: of the first report of the attempt that the controller has seen.
    ``last_change_time``: of the last report whose step, percentage or checkpoint differed from the one before.
    ``last_checkpoint_step``: the step of the last checkpoint, None if it is not known.
    ``framework_attempt_id``: the attempt, until the first report of the next one.
    """

    framework_attempt_id: int = 0
    percentage: int | None = None
    remaining_seconds: int | None = None
    step: int | None = None
    metrics: list[ProgressMetric] = field(default_factory=list)
    first_report_time: Time | None = None
    last_report_time: Time | None = None
    last_change_time: Time | None = None
    last_checkpoint_time: Time | None = None
    last_checkpoint_step: int | None = None


@dataclass(slots=True, frozen=True)
class NoticeStatus:
    """The notice of an attempt's end, until the next attempt. ``time``: a checkpoint from then on ends the wait."""

    framework_attempt_id: int
    reason: str
    time: Time
    deadline: Time


@dataclass(slots=True, frozen=True)
class FirstFailure:
    """The end of a container, or of a Task without one, that failed. ``time``: by the clock of its node.

    ``certain``: no other failure may have been earlier; in ``earliest_failures``, the end of the container was seen.
    ``cascade``: it looks like a consequence of another failure.
    """

    framework_attempt_id: int
    task_role_name: str
    task_index: int
    task_attempt_id: int
    time: Time
    code: int
    phrase: str = ""
    node_name: str = ""
    container_name: str = ""
    message: str = ""
    certain: bool = False
    cascade: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Role and index of its Task."""
        return self.task_role_name, self.task_index


@dataclass(slots=True)
class FrameworkStatus:
    """The whole status. ``task_counts`` is None and ``phase`` "" if another controller wrote it.

    ``reason`` and ``message``: why the Framework has its phase, "" if there is nothing to explain.
    ``accumulated_past_execution_time_seconds``: of the attempts that are over and have an ``execution_start_time``.
    ``role_objects``: the objects of roles that may exist, as ``Kind/name``. Recorded before they are created.
    ``earliest_failures``: of the current attempt, the first one first. ``first_failure``: of the last attempt that
    failed by a Task. No decision reads them, and an older CRD may drop them.
    """

    start_time: Time
    transition_time: Time
    attempt: FrameworkAttemptStatus
    state: State = State.CREATION_PENDING
    run_time: Time | None = None
    completion_time: Time | None = None
    retry: RetryPolicyStatus = field(default_factory=RetryPolicyStatus)
    observed_generation: int | None = None
    task_counts: TaskCounts | None = None
    conditions: list[Condition] = field(default_factory=list)
    accumulated_past_execution_time_seconds: int = added("", default=0)
    admission: AdmissionStatus | None = added("", default=None)
    progress: ProgressStatus | None = added("", default=None)
    notice: NoticeStatus | None = added("", default=None)
    role_objects: list[str] = added("", default_factory=list)
    phase: str = ""
    reason: str = ""
    message: str = ""
    earliest_failures: list[FirstFailure] = field(default_factory=list)
    first_failure: FirstFailure | None = None
