"""Inputs and outputs of the machine.

A plan takes the Framework, its tracked status, the observed ConfigMap and Pods, and an ``Env``. It returns a ``Plan``:
actions that the *persisted* status justifies, the time of the next plan, the urgency of the status write, and records
of changes. The results of actions come back as ``Outcome`` (actions.py).
"""

from __future__ import annotations

import math
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TypeVar

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.historyrecords import RecordId, Trigger
from frameworkcontroller.api.objects import ClaimRecord, CompanionRecord, ConfigMapRecord, ContainerRun, PodRecord
from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.machine.kernel.actions import Action
from frameworkcontroller.machine.kernel.failure import Classifier
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind


class InvariantError(Exception):
    """A violated invariant. The Framework is quarantined."""


_T = TypeVar("_T")


def require(value: _T | None, what: str) -> _T:
    """Return ``value``. Raises InvariantError if it is None."""
    if value is None:
        raise InvariantError(f"{what} is not known where it must be")
    return value


class KeepLogs(StrEnum):
    """The attempts of Tasks whose containers' logs are kept (docs/history-records.md)."""

    NONE = "None"
    FAILED = "Failed"
    ALL = "All"


SnapshotTrigger = Trigger
"""Events for which a snapshot is taken (docs/history-records.md)."""


@dataclass(frozen=True, slots=True)
class Reporting:
    """Where Pods report their progress. ``url``: of this controller's report server, without a slash at its end.

    ``ca_pem``: the CA of its certificate. ``audience``: of the tokens that it takes.
    """

    url: str
    ca_pem: str
    audience: str = names.PROGRESS_AUDIENCE

    def url_of(self, namespace: str, framework: str, attempt_id: int) -> str:
        """The URL to which the Pods of an attempt post."""
        return f"{self.url}/apis/progress/v1/namespaces/{namespace}/frameworks/{framework}/attempts/{attempt_id}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Configured limits (docs/configuration.md)."""

    object_local_cache_creation_timeout_sec: int
    framework_completed_retain_sec: int
    framework_min_retry_delay_sec_for_transient_conflict_failed: int
    framework_max_retry_delay_sec_for_transient_conflict_failed: int
    classifier: Classifier
    pod_stuck_deleting_sec: int = 120
    """Time after a Pod's grace period until it stalls the Framework."""
    task_min_retry_delay_sec: int = 10
    task_max_retry_delay_sec: int = 360
    kubelet_report_sec: int = 30
    """Time for a kubelet to report that the containers of an ended Pod have ended."""
    kueue: bool = False
    """Whether the queue labels of Frameworks count."""
    gang_scheduler: GangScheduler = GangScheduler.AUTO
    gang_scheduler_name: str | None = None
    """The schedulerName of Pods of a gang whose template has none; None: the gang scheduler's own."""
    history: frozenset[SnapshotTrigger] = frozenset()
    """Triggers that the history's sink takes; empty without a sink."""
    history_blocks: bool = False
    """Whether nothing is forgotten before the sink has acknowledged it (``onUnavailable: Block``)."""
    keep_logs: KeepLogs = KeepLogs.NONE
    log_capture_sec: float = 10.0
    """The longest time for which the deletion of a Pod waits for its logs."""
    reporting: Reporting | None = None
    """None: this controller has no report server."""


@dataclass(slots=True)
class Env:
    """Clocks, randomness and limits.

    ``now``: wall clock in seconds since the epoch, for times in statuses; it may be set. ``clock``: monotonic seconds,
    for waiting. ``answer_sec``: the time in which the API server answers status writes, smoothed over all Frameworks
    of the process (``pacing.AnswerTimes``). ``reports_since``: the time by ``clock`` since when no report of progress
    can have escaped this process, None while one can: it holds the lease, its cache of ConfigMaps is current, and its
    report server takes and writes reports.
    """

    now: float
    clock: float
    rng: random.Random
    limits: Limits
    answer_sec: float = 0.0
    reports_since: float | None = None

    @property
    def second(self) -> int:
        """The current time in statuses."""
        return int(self.now)

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))


@dataclass(frozen=True, slots=True)
class NotListed:
    """The objects of a kind are not listed yet. ``problem``: why that failed, "" if it did not.

    ``not_served``: the API server does not know the kind.
    """

    problem: str = ""
    not_served: bool = False


@dataclass(slots=True)
class Observed:
    """The cached objects of the Framework."""

    configmap: ConfigMapRecord | None
    find_pod: Callable[[str], PodRecord | None]
    """The cached Pod of a name in the Framework's namespace, which may be of another owner."""
    list_pods: Callable[[], Iterable[PodRecord]] = tuple
    """The cached Pods with the Framework's label. Costs their number, so called only if all are needed."""
    configmaps_listed: float = -math.inf
    """Request time (monotonic seconds) of the last list that was compared with the cache of ConfigMaps."""
    pods_listed: float = -math.inf
    find_companion: Callable[[Kind, str], CompanionRecord | NotListed | None] = lambda _kind, _name: None
    """The cached companion of a kind and name in the Framework's namespace, which may be of another owner. The first
    call for a kind starts its watch."""
    list_claims: Callable[[bool], Iterable[ClaimRecord] | NotListed] = lambda _needed: ()
    """The cached volume claims of the Framework's name. ``needed``: start their watch. Costs their number."""
    served_version: Callable[[Kind], str] = lambda _kind: ""
    """The version of the API of a kind that is listed; "" for the usual one."""
    creating: bool = False
    """Whether creations of the Framework's Pods are in flight: their Pods are not recorded yet."""


# --- plan -------------------------------------------------------------------------------------------------------


class Level(StrEnum):
    FRAMEWORK = "framework"
    TASK = "task"


@dataclass(slots=True)
class AttemptCounters:
    """Numbers of completed attempts by completion code, and of retried ones by category.

    ``rerun``: Tasks that had completed when a suspension ended their attempt. ``waited_sec``: for each admission by
    Kueue, the time in its queue. ``evicted``: evictions by reason. ``log_waits_sec``: for each deletion of a Pod or
    ConfigMap, the time that it waited for logs.
    """

    completed: Counter[tuple[Level, int]] = field(default_factory=Counter)
    retried: Counter[tuple[Level, str]] = field(default_factory=Counter)
    rerun: int = 0
    waited_sec: list[int] = field(default_factory=list)
    evicted: Counter[str] = field(default_factory=Counter)
    log_waits_sec: list[float] = field(default_factory=list)


class Urgency(IntEnum):
    """How soon the status is to be written."""

    NONE = 0
    """Nothing changed."""
    LATER = 1
    """The next change is expected at once (creation requested, being deleted), and is written with this one."""
    SHOWN = 2
    """Clients want to see it, and no Task waits for it."""
    SOON = 3
    """One Task waits for it; it may be written together with other Tasks' changes."""
    NOW = 4
    """The whole Framework waits for it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """JSON of a persisted status, of the Framework (``role`` None) or one Task, for the history.

    It is logged before the request that overwrites or deletes the status, so at least once. ``annotations``: the
    ones of the Task's Pods that name neither Pod nor attempt. ``deleted_at``: of a deleted Task, in seconds since the
    epoch.
    """

    trigger: SnapshotTrigger
    status_json: bytes
    role: str | None = None
    index: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    deleted_at: int | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """Logs of a Pod to be kept: of its ``runs``. ``id``: of their records.

    ``follow``: until the containers end, as they still run. ``until``: when (monotonic seconds) its deletion waits no
    longer. ``rank``: the lower ones come first. ``why``: the reason for which nothing is read, "" to read.
    """

    id: RecordId
    index: int
    pod_name: str
    node: str
    runs: tuple[ContainerRun, ...]
    follow: bool = False
    until: float = 0.0
    rank: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A change of the Framework (``role`` None) or of one Task, for logs, Events and metrics.

    Emitted when the status that shows it is accepted. ``completion``: of the attempt.
    """

    reason: Reason
    message: str
    role: str | None = None
    index: int | None = None
    warning: bool = False
    completion: CompletionStatus | None = None


@dataclass(slots=True)
class Plan:
    """The decisions of one step. ``requeue_after``: seconds until the next plan is due, None for never.

    ``relist``: kinds whose caches may be wrong, and are to be compared with a list.
    """

    actions: list[Action] = field(default_factory=list)
    requeue_after: float | None = None
    urgency: Urgency = Urgency.NONE
    records: list[Record] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    archives: list[list[tuple[Snapshot, TaskStatus | None]]] = field(default_factory=list)
    """Snapshots for the history, each list in one request. Task: None for the Framework."""
    offers: list[Snapshot] = field(default_factory=list)
    """Snapshots that the history may store. Nothing waits for that."""
    captures: list[Capture] = field(default_factory=list)
    relist: set[Kind] = field(default_factory=set)
