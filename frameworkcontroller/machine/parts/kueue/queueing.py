"""In-memory state of a queued Framework, its Workload in the cache, and the reasons of its records.

Losing the state costs a live read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import FRAMEWORK_EVICTED, CompletionStatus
from frameworkcontroller.api.objects import QueueLabels
from frameworkcontroller.api.status import AdmissionStatus, State, TaskStatus
from frameworkcontroller.api.workloads import WorkloadRecord, workload_name
from frameworkcontroller.machine.kernel.absence import Known, look_for_pods, nothing_runs
from frameworkcontroller.machine.kernel.actions import Action
from frameworkcontroller.machine.kernel.agenda import PERSISTED
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Wait
from frameworkcontroller.machine.kernel.model import NotListed, Urgency, require
from frameworkcontroller.machine.kernel.part import PartState, Shown
from frameworkcontroller.machine.kernel.reasons import Reason, event, stall, wait
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.kueue.workloadspec import WorkloadSpec, workload_spec

WORKLOAD_LOST: Final = "WorkloadLost"
"""Reason of an eviction: another client has deleted or finished the Workload, or Kueue took the admission back."""
OUT_OF_SYNC: Final = "WorkloadOutOfSync"
"""Reason of an eviction: the Framework asks for other Pods than Kueue has admitted."""

NOT_LOOKED_AT: Final = "Kueue has not looked at the Workload yet"
"""Message of the condition QuotaReserved until Kueue has written its own."""


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


@dataclass(slots=True, eq=False)
class Queueing(PartState):
    """The state of the queueing of one Framework."""

    listens: ClassVar[bool] = True

    wait: Wait | None = None
    """Why the attempt does not begin, by the last plan."""
    known: bool | None = None
    """Whether the cache shows, or showed, a Workload of the Framework. None: not looked for yet."""
    lost: CompletionStatus | None = None
    """The end of the attempt whose admission a live read has shown to be over."""
    lost_reason: str = ""
    """Kueue's reason for that, or WORKLOAD_LOST."""
    dropped: bool = False
    """Whether the cache has dropped the Workload, which is gone or has lost its label."""
    disproved: str | None = None
    """The resourceVersion of the Workload in the cache, "" for none, that a live read has shown to be behind."""
    conflict: str = ""
    """Why the last admission could not be taken, "" if it was, or has not been tried again yet."""
    conflict_spec: WorkloadSpec | None = None
    """The spec of that admission."""
    conflict_until: float = 0.0
    """Until when (monotonic seconds) the same spec is not queued again."""
    conflicts: int = 0
    """The number of such admissions in a row."""
    labels: QueueLabels | None = None
    """The labels that ``spec`` is for."""
    spec: WorkloadSpec | None = None
    """The spec of the Workload that the Framework is to have, of its generation and labels."""
    priority_kept: str | None = None
    """The label of the priority class that does not count for the admitted Workload, as was recorded. None: it does."""
    shown: tuple[Shown, Shown] | None = None
    """The conditions QuotaReserved and Admitted by the last plan."""
    stepped: bool = False
    """Whether a plan has found them."""
    paced: dict[str, float] = field(default_factory=dict)
    """By kind of periodic write, the time (monotonic seconds) of the next one."""
    granted: dict[str, set[int]] = field(default_factory=dict)
    """By role with more Tasks than Kueue has admitted, the indexes of Tasks that have a Pod, or may have one."""

    def set_admission(self, tracker: Tracker, admission: AdmissionStatus | None) -> None:
        """Record the admission by Kueue, or its end."""
        require(tracker.status, "status").admission = admission
        self.lost, self.lost_reason = None, ""
        if admission is not None:
            # Another controller may have begun by the same admission: its objects are not late.
            tracker.absence.configmap, tracker.absence.late = Known.UNKNOWN, set()
        # The bodies of Pods follow from it.
        tracker.life.templates.clear()
        tracker.change(None, Urgency.NOW)
        tracker.agenda.look()

    def reclaim(self, tracker: Tracker, admission: AdmissionStatus) -> None:
        """Record a smaller admission. Once it is persisted, the Workload is changed."""
        require(tracker.status, "status").admission = admission
        tracker.change(None, Urgency.SOON, of_attempt=False)
        tracker.agenda.look(None, PERSISTED)

    def on_move(self, tracker: Tracker, task: TaskStatus) -> None:
        granted = self.granted.get(task.role) if self.granted else None
        if granted is None or task.state is State.CREATION_PENDING:
            return
        if task.state in ENDED:
            granted.discard(task.index)
            # Another Task may have its Pod now.
            tracker.agenda.look()
        else:
            granted.add(task.index)

    def on_completion(self, tracker: Tracker, completion: CompletionStatus) -> None:
        if completion.is_one_of({FRAMEWORK_EVICTED.code}):
            tracker.counters().evicted[self.lost_reason or OUT_OF_SYNC] += 1

    def on_tasks_over(self) -> None:
        self.granted.clear()

    def successor(self, tracker: Tracker, before: Tracker) -> Queueing:
        if _admission(tracker) != _admission(before):
            # Another controller may have begun by the new one.
            tracker.absence.late = set()
        return Queueing(known=self.known)

    def forget_looks(self) -> None:
        """The cache has dropped the Workload: actions on an absent one may be repeated."""
        self.disproved = None
        self.dropped = True


def _admission(tracker: Tracker) -> AdmissionStatus | None:
    return None if tracker.status is None else tracker.status.admission


class QueuedFramework:
    """The queueing of a Framework and its Workload in the cache, in one plan."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.state = ctx.tracker.part(Queueing)
        self.holds = ctx.tracker.holds
        self.labels: QueueLabels | None = ctx.framework.queue

    @property
    def admission(self) -> AdmissionStatus | None:
        """The persisted or tracked admission."""
        return self.ctx.status.admission

    @cached_property
    def target(self) -> Target:
        """The Workload of the Framework."""
        return Target(Kind.WORKLOAD, workload_name(self.ctx.framework.name, self.ctx.framework.uid))

    @cached_property
    def _found(self) -> WorkloadRecord | NotListed | None:
        found = self.ctx.observed.find_companion(self.target.kind, self.target.name)
        if isinstance(found, WorkloadRecord) and found.identity.controller_uid == self.ctx.framework.uid:
            return found
        return found if isinstance(found, NotListed) else None

    @property
    def unlisted(self) -> NotListed | None:
        """Why no Workload is known, None if Workloads are listed."""
        return self._found if isinstance(self._found, NotListed) else None

    @property
    def workload(self) -> WorkloadRecord | None:
        """The Workload in the cache, None if it is absent, or another owner's."""
        return self._found if isinstance(self._found, WorkloadRecord) else None

    @property
    def version(self) -> str:
        """The resourceVersion of the Workload in the cache, "" if it is absent."""
        return "" if self.workload is None else self.workload.resource_version

    @property
    def spec(self) -> WorkloadSpec:
        """The spec that the Workload is to have, computed once for each generation and labels."""
        if self.state.spec is None:
            queue_name = "" if self.admission is None else self.admission.queue_name
            self.state.spec = workload_spec(self.ctx.framework, self.labels or QueueLabels(queue_name))
        return self.state.spec

    @property
    def is_held_by_others(self) -> bool:
        """Whether the Workload is being deleted, and only finalizers of other clients hold it."""
        return self.workload is not None and self.workload.identity.deleting and not self.workload.in_use

    @property
    def is_disproved(self) -> bool:
        """Whether a live read has shown the cache to be behind."""
        return self.state.disproved == self.version

    def wait(self, text: str) -> None:
        """Delay the attempt. ``text``: the reason."""
        self.state.wait = Wait(QueueReason.QUOTA_PENDING, text)

    def act_once(self, action: Action) -> bool:
        """Add the action, unless another one is planned, or the cache does not show the effect of the same one yet.

        Return whether it was added.
        """
        ctx, expectations, verb = self.ctx, self.ctx.tracker.expectations, type(action).__name__
        if (until := self.holds.until(action.target.key)) > ctx.env.clock:
            ctx.tracker.agenda.look(None, until)
        elif expectations.awaits_change(action.target, verb, self.version):
            return False
        elif all(one.target != action.target for one in ctx.plan.actions):
            expectations.change(action.target, verb, self.version)
            ctx.plan.actions.append(action)
            return True
        return False

    def may_repeat(self, action: Action) -> None:
        """Let the action be added again, as it did nothing."""
        self.ctx.tracker.expectations.end_change(action.target, type(action).__name__)

    def is_paced(self, kind: str) -> bool:
        """Whether the next periodic write of that kind is due later. If so, plan again at its time."""
        if (until := self.state.paced.get(kind, 0.0)) <= self.ctx.env.clock:
            return False
        self.ctx.tracker.agenda.look(None, until)
        return True

    def pace(self, kind: str, seconds: float) -> None:
        """Delay the next periodic write of that kind."""
        self.state.paced[kind] = self.ctx.env.clock + seconds

    def confirm_nothing_runs(self) -> bool:
        """Persist all, and find out whether something of the Framework runs. Return whether quota may be released."""
        ctx = self.ctx
        ctx.tracker.absence.wanted = True
        look_for_pods(ctx)
        if not ctx.tracker.is_clean:
            ctx.tracker.persist_first(None)
            return False
        return nothing_runs(ctx.tracker)


def problem_with(workload: WorkloadRecord | None, admission: AdmissionStatus) -> str | None:
    """Why the admission is over by the Workload; None if it holds."""
    if workload is None or workload.uid != admission.workload_uid:
        return f"Workload {admission.workload_name} is gone"
    if workload.evicted:
        return eviction_text(workload)
    if workload.identity.deleting:
        return f"Workload {workload.name} is being deleted"
    if workload.finished:
        return f"Workload {workload.name} was set to Finished ({workload.finished.reason}): {workload.finished.message}"
    if not workload.admitted:
        said = workload.admitted
        return f"Workload {workload.name} is no longer admitted ({said.reason}): {said.message}"
    return None


def eviction_text(workload: WorkloadRecord) -> str:
    """Why Kueue has evicted the Framework."""
    return f"Kueue has evicted the Framework ({workload.evicted.reason}): {workload.evicted.message}"


def evicted(text: str) -> CompletionStatus:
    """The end of an attempt whose admission is over."""
    return CompletionStatus.of(FRAMEWORK_EVICTED, text)


def needed_pods(ctx: Context, role: str) -> int:
    """Number of Tasks of the role that are not completed: they have a Pod, or need one in this attempt."""
    known, counts = ctx.tracker.roles.get(role), ctx.tracker.role_counts.get(role)
    return 0 if known is None or counts is None else len(known.tasks) - counts.completed


def granted_tasks(ctx: Context, role: str) -> set[int]:
    """The Tasks of the role that have a Pod, or may have one. Costs their number once."""
    known = ctx.tracker.part(Queueing).granted
    if (granted := known.get(role)) is None:
        granted = known[role] = set()
        for task in ctx.tracker.roles[role].tasks:
            holds_pod = task.state not in (State.CREATION_PENDING, *ENDED)
            if holds_pod or ctx.observed.find_pod(names.pod_name(ctx.framework.name, role, task.index)) is not None:
                granted.add(task.index)
    return granted
