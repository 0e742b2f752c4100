"""The queue of a Framework: when it enters Kueue's queue, begins, ends, and releases its quota.

Source: docs/lifecycle.md, "Queues": the table of all steps, and the conditions for a release. Kueue admits the Workload
of the Framework, evicts it, or leaves it waiting. As the cache may be behind, the Workload is read live before an
admission is taken, or believed to be over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import ALWAYS_RETRIED, CompletionStatus
from frameworkcontroller.api.objects import CompanionRecord, Framework, PodRecord
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import Condition, State, TaskStatus
from frameworkcontroller.machine.kernel.actions import Outcome
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Wait
from frameworkcontroller.machine.kernel.model import Limits
from frameworkcontroller.machine.kernel.part import EndPhase, Part, Shown
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.kernel.states import ENDED, LIVE
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.kueue import admittedattempt
from frameworkcontroller.machine.parts.kueue.enqueueing import between_attempts, completed
from frameworkcontroller.machine.parts.kueue.queueconditions import conditions_of, shown_conditions
from frameworkcontroller.machine.parts.kueue.queueing import (
    QueuedFramework,
    Queueing,
    QueueReason,
    granted_tasks,
    needed_pods,
)
from frameworkcontroller.machine.parts.kueue.workloadoutcomes import take
from frameworkcontroller.machine.parts.kueue.workloadspec import AdmittedPods


class KueuePart(Part):
    """The queue of a Framework with a queue label."""

    reasons: ClassVar[type[Reason]] = QueueReason
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.WORKLOAD})
    not_answered: ClassVar[Reason] = QueueReason.NOT_ANSWERED

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return not limits.kueue and (tracker.status is None or tracker.status.admission is None)

    def reads_labels(self, limits: Limits) -> bool:
        """Whether queue labels count."""
        return limits.kueue

    def observe_generation(self, ctx: Context) -> None:
        """Forget the Workload that the last spec needed. Record for a new Framework that its labels do not count."""
        if (queueing := ctx.tracker.find_part(Queueing)) is not None:
            queueing.spec = None
        if ctx.is_new and ctx.framework.ignored_queue and not ctx.framework.invalid:
            text = (
                f"The label {names.QUEUE_NAME}: {ctx.framework.ignored_queue} means nothing, as kueue.mode is disabled"
            )
            ctx.record(QueueReason.IGNORED, f"{text}: the Framework starts without quota", warning=True)

    def before(self, ctx: Context) -> None:
        """Take the next step in the queue. Sets ``Queueing.wait`` while the attempt must not begin."""
        ctx.tracker.holds.stalls.pop(admittedattempt.DEPENDENCIES, None)
        if ctx.env.limits.kueue or ctx.status.admission is not None:
            _step(ctx)

    def why_not_prepare(self, ctx: Context) -> Wait | None:
        queueing = ctx.tracker.find_part(Queueing)
        return None if queueing is None else queueing.wait

    def why_not_create_pod(self, ctx: Context, task: TaskStatus) -> Wait | None:
        """Why a Task that was added after the admission has no Pod yet: as many as were admitted may have one."""
        admission = ctx.status.admission
        if admission is None or needed_pods(ctx, task.role) <= (count := admission.available(task.role)):
            return None
        granted = granted_tasks(ctx, task.role)
        if task.index in granted or len(granted) < count:
            return None
        text = f"TaskRole {task.role} has quota for {count} of its Tasks at once: others wait for the next"
        return Wait(QueueReason.QUOTA_COUNT, f"{text} FrameworkAttempt, or for the end of a Task")

    def ensure_for(self, ctx: Context, task: TaskStatus) -> bool:
        """Reserve a place for the Pod of the Task."""
        admission = ctx.status.admission
        if admission is not None:
            if needed_pods(ctx, task.role) > admission.available(task.role):
                granted_tasks(ctx, task.role).add(task.index)
            elif (granted := ctx.tracker.part(Queueing).granted.get(task.role)) is not None:
                granted.add(task.index)
        return True

    def may_have_pods(self, ctx: Context, role: str, count: int) -> int:
        """How many of the ``count`` Tasks of a role may have a Pod now: others wait for ``why_not_create_pod``.

        A role with more Tasks than were admitted costs the number that was.
        """
        admission = ctx.status.admission
        if admission is None or needed_pods(ctx, role) <= (available := admission.available(role)):
            return count
        # Ending Tasks still have a Pod, for hours on a lost node.
        tasks = (ctx.tracker.task((role, index)) for index in granted_tasks(ctx, role))
        ending = sum(task is not None and (task.is_leaving or task.state not in LIVE) for task in tasks)
        return max(0, min(count, available - ending))

    def why_end(self, ctx: Context, phase: EndPhase) -> CompletionStatus | None:
        return admittedattempt.only_unadmitted(ctx) if phase is EndPhase.BY_TASKS else admittedattempt.must_evict(ctx)

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        """Stall the Framework while Kueue queues one of its Pods a second time, by itself."""
        if ctx.status.admission is not None:
            admittedattempt.watch_gate(ctx, task, pod)

    def after_tasks(self, ctx: Context) -> None:
        """Stall roles that wait for more Pods than are admitted, and keep the Workload up to date."""
        admission = ctx.status.admission
        if admission is None:
            return
        if ctx.framework.spec.dependents:
            admittedattempt.stall_dependents(ctx, admission)
        if ctx.env.limits.kueue and not ctx.framework.deleting:
            admittedattempt.follow(QueuedFramework(ctx), admission)

    def ended(self, ctx: Context, completion: CompletionStatus) -> None:
        """End the admission of a Framework that is completed, or whose attempt was ended by -241 or a suspension."""
        is_over = ctx.status.state is State.COMPLETED or completion.is_one_of(ALWAYS_RETRIED)
        if ctx.status.admission is not None and is_over:
            ctx.tracker.part(Queueing).set_admission(ctx.tracker, None)

    def shape(self, ctx: Context, role: TaskRoleSpec) -> AdmittedPods | None:
        admission = ctx.status.admission
        pod_set = None if admission is None else admission.pod_set(role.name)
        return None if pod_set is None else AdmittedPods(pod_set)

    def configmap_labels(self, ctx: Context) -> Mapping[str, str]:
        """The queue, which marks the Pods as a managed job's for Kueue."""
        admission = ctx.status.admission
        return {} if admission is None else {names.QUEUE_NAME: admission.queue_name}

    def take(self, ctx: Context, outcome: Outcome) -> None:
        take(ctx, outcome)

    def conditions(self, ctx: Context, before: Mapping[str, Condition]) -> Mapping[str, Shown]:
        return shown_conditions(ctx, before)

    def on_event(self, tracker: Tracker, record: CompanionRecord) -> None:
        tracker.part(Queueing).known = True

    def on_dropped(self, tracker: Tracker, target: Target) -> None:
        tracker.expectations.end_changes(self.kinds)
        tracker.part(Queueing).forget_looks()

    def on_resync(self, tracker: Tracker) -> None:
        """Act again though the cache does not show the effect of the last action."""
        tracker.expectations.end_changes(self.kinds)


def _step(ctx: Context) -> None:
    queued = QueuedFramework(ctx)
    tracker, state = ctx.tracker, queued.state
    state.wait = None
    if not ctx.env.limits.kueue:
        if ctx.status.state in (State.CREATION_PENDING, *ENDED):
            # The labels no longer count.
            state.set_admission(tracker, None)
        return
    if queued.labels is None and queued.admission is None and state.known is False:
        state.shown, state.stepped = None, True
        return
    if state.labels != queued.labels:
        state.labels, state.spec = queued.labels, None
        tracker.holds.release(queued.target.key)
    if queued.unlisted is None:
        state.known = queued.workload is not None or queued.target in tracker.expectations.confirmed
        if not queued.is_held_by_others:
            tracker.holds.end_stall(queued.target.key, QueueReason.NOT_GONE)
    if queued.workload is not None or queued.unlisted is not None:
        state.dropped = False
    if ctx.status.state is State.COMPLETED:
        completed(queued)
    elif ctx.status.state in (State.CREATION_PENDING, State.ATTEMPT_COMPLETED):
        between_attempts(queued)
    elif not tracker.is_completing and not ctx.framework.deleting:
        admittedattempt.running(queued)
    state.shown = conditions_of(queued)
    state.stepped = True
