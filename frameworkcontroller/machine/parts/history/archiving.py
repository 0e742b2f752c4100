"""Archive before forget: nothing that was persisted leaves the status before the history has acknowledged it.

A status forgets at four edges: the retry of a Framework, the retry of a Task, the removal or replacement of a Task by
ScaleDown, and the deletion of the Framework. With a sink that blocks, each of them waits here. Records are always of
the persisted status, and an acknowledgment counts for that status alone.

For the last edge the Framework has a finalizer, from before the first ConfigMap on. While it is there, a deletion ends
the attempt like a Stop (gates.py), and the finalizer goes when nothing runs and the history has all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from frameworkcontroller.api.codec import encode_status, encode_task
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.names import HISTORY_FINALIZER, pod_name
from frameworkcontroller.api.objects import Framework, PodRecord
from frameworkcontroller.api.status import FrameworkStatus, State, TaskStatus
from frameworkcontroller.machine.kernel.absence import look_for_pods, nothing_runs
from frameworkcontroller.machine.kernel.actions import ChangeFinalizer, Outcome
from frameworkcontroller.machine.kernel.agenda import PERSISTED, Scope, TaskKey
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import FinalizersAre, Gone, NotAttempted, Outdated
from frameworkcontroller.machine.kernel.holds import ObjectKey, Stall, Wait
from frameworkcontroller.machine.kernel.model import Limits, Record, Snapshot, SnapshotTrigger, Urgency
from frameworkcontroller.machine.kernel.outcomes import hold
from frameworkcontroller.machine.kernel.part import Part, PartState
from frameworkcontroller.machine.kernel.protocol import Archive
from frameworkcontroller.machine.kernel.reasons import Reason, event, stall, wait
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Kind, Refused, Target
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker


class HistoryReason(Reason):
    """The reasons of a history that must store before anything is forgotten."""

    COMPLETE = "HistoryComplete", "the history has all of a deleted Framework, whose finalizer is removed"
    GIVEN_UP = event(
        "HistoryGivenUp",
        "the finalizer of the history is removed, as the controller has no sink any longer, or does not wait for it",
    )
    PENDING = wait("HistoryPending", "the history must store the attempt first, and has not yet")
    UNAVAILABLE = stall(
        "HistoryUnavailable",
        "the history has stored nothing for a minute, and nothing is forgotten before, with the words of the sink",
    )


HISTORY: Final = "history"
"""Key of the back-off and the stall of records for the history."""

FINALIZER: Final = "finalizer"
"""Key of the back-off and the stall of its finalizer."""

RECORDS_PER_ARCHIVE: Final = 500
"""Most records in one request: 10,000 Tasks that retry at once are 20 requests."""

SHOW_SEC: Final = 2.0
"""Time without an acknowledgment until the wait is shown. Most waits are one round trip, and no status is written for
them."""

STALL_SEC: Final = 60.0
"""Time without an acknowledgment until the Framework is stalled."""


@dataclass(slots=True, eq=False)
class Archival(PartState):
    """The acknowledgments for one attempt of a Framework. A change of a status ends those for it (``on_change``)."""

    of_attempt: ClassVar[bool] = True
    listens: ClassVar[bool] = True

    framework_name: str = ""
    tasks: set[TaskStatus] = field(default_factory=set)
    """Tasks whose persisted attempt is acknowledged."""
    framework: set[SnapshotTrigger] = field(default_factory=set)
    """Triggers for which the persisted Framework is acknowledged."""
    asked_tasks: dict[TaskStatus, Snapshot] = field(default_factory=dict)
    asked_framework: dict[SnapshotTrigger, Snapshot] = field(default_factory=dict)
    due: list[tuple[Snapshot, TaskStatus | None]] = field(default_factory=list)
    """New records of the current plan. Task: None for the Framework."""
    gated: set[TaskKey | None] = field(default_factory=set)
    """Tasks, or the Framework (None), that wait for an acknowledgment and for nothing else."""
    retry: set[TaskKey] = field(default_factory=set)
    """Tasks whose records are sent again after the back-off."""
    since: float | None = None
    """Since when (monotonic seconds) no pending record was acknowledged; None: none is pending."""
    problem: str = ""
    """The last failure, in the words of the sink."""

    @property
    def is_open(self) -> bool:
        """Whether something is not acknowledged yet."""
        return bool(self.asked_tasks or self.asked_framework or self.retry or self.gated)

    def on_change(self, subject: FrameworkStatus | TaskStatus | None) -> None:
        if isinstance(subject, TaskStatus):
            self.tasks.discard(subject)
            self.asked_tasks.pop(subject, None)
            self.gated.discard(subject.key)
        self.framework.clear()
        self.asked_framework.clear()

    def on_index(self, tracker: Tracker) -> None:
        kept = set(tracker.tasks())
        self.tasks &= kept
        self.asked_tasks = {task: snapshot for task, snapshot in self.asked_tasks.items() if task in kept}
        keys = {task.key for task in kept}
        self.retry &= keys
        self.gated = {key for key in self.gated if key is None or key in keys}

    def on_tasks_over(self) -> None:
        """Only the record of the Framework counts from now on."""
        self.tasks.clear()
        self.asked_tasks.clear()
        self.retry.clear()
        self.gated &= {None}

    def successor(self, tracker: Tracker, before: Tracker) -> Archival | None:
        """The acknowledgments of statuses that another controller has not changed.

        Conditions do not count: no attempt is in them.
        """
        status, was, name = tracker.status, before.status, self.framework_name
        if status is None or was is None:
            return None
        if (status.attempt.id, status.attempt.configmap_uid) != (was.attempt.id, was.attempt.configmap_uid):
            return None
        kept = Archival(name)
        for task in self.tasks:
            now = tracker.task(task.key)
            if now is not None and encode_task(name, now.role, now) == encode_task(name, task.role, task):
                kept.tasks.add(now)
        if self.framework and _without_conditions(name, status) == _without_conditions(name, was):
            kept.framework = set(self.framework)
        return kept


def _without_conditions(name: str, status: FrameworkStatus) -> bytes:
    return encode_status(name, replace(status, conditions=[], observed_generation=None))


@dataclass(slots=True, eq=False)
class ArchiveMemory(PartState):
    """The state for all attempts of a Framework."""

    looked_back: bool = False
    """Whether the stall that the stored status may show is taken over."""
    finalizer_outdated: bool = False
    """True after a patch of the finalizer failed, apparently by its precondition."""
    unreported: bool = False
    """Whether the completion of the Framework is to be offered, once that is persisted."""

    def record_scheduling(self, tracker: Tracker, task: TaskStatus, seconds: int) -> None:
        """Record when the Task's Pod got its node. Mostly the node comes with it, which is written, too."""
        task.attempt.scheduled_time = seconds
        tracker.change(task, Urgency.LATER)


def gates(ctx: Context, trigger: SnapshotTrigger) -> bool:
    """Whether the edge of that trigger waits for the history."""
    limits = ctx.env.limits
    return limits.history_blocks and trigger in limits.history


# --- the part ---------------------------------------------------------------------------------------------------


class HistoryPart(Part):
    """The history that waits: archive before forget, and the finalizer."""

    reasons: ClassVar[type[Reason]] = HistoryReason
    target_part: ClassVar[str] = FINALIZER
    finalizer: ClassVar[str] = HISTORY_FINALIZER

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return not (limits.history or limits.history_blocks or framework.held)

    def must_confirm(self, status: FrameworkStatus | None, limits: Limits) -> bool:
        """Whether a plan may give a snapshot to the history, where it counts at once."""
        return bool(limits.history) and status is not None and status.state is not State.COMPLETED

    def offered(self, limits: Limits) -> frozenset[SnapshotTrigger]:
        """All triggers of the sink, if nothing waits for it."""
        return frozenset() if limits.history_blocks else limits.history

    def begin(self, ctx: Context) -> None:
        """Put the Tasks on the agenda for which the back-off is over."""
        archival = ctx.tracker.find_part(Archival)
        if archival is None or not archival.retry:
            return
        if (until := ctx.tracker.holds.until(HISTORY)) > ctx.env.clock:
            ctx.tracker.agenda.look(None, until)
        else:
            ctx.tracker.agenda.wake(archival.retry)
            ctx.tracker.agenda.look(Scope.ROLES)
            archival.retry.clear()

    def before(self, ctx: Context) -> None:
        """Offer the completion. Add the finalizer to a Framework that has begun, and remove it where nothing waits."""
        memory = ctx.tracker.find_part(ArchiveMemory)
        if memory is not None and memory.unreported and ctx.tracker.is_clean:
            memory.unreported = False
            ctx.plan.offers.append(ctx.framework_snapshot(SnapshotTrigger.FRAMEWORK_COMPLETION))
        framework = ctx.framework
        if not (ctx.env.limits.history_blocks or framework.held):
            return
        wanted = self.blocks_deletion(ctx)
        if framework.held and not wanted:
            _change(ctx, add=False)
        elif wanted and not framework.held and not framework.deleting and _has_begun(ctx):
            _change(ctx, add=True)

    def ensure(self, ctx: Context) -> bool:
        """Add the finalizer before the ConfigMap of an attempt is created. Return whether it is there."""
        if not self.blocks_deletion(ctx) or ctx.framework.held:
            return True
        _change(ctx, add=True)
        return False

    def blocks_deletion(self, ctx: Context) -> bool:
        """Whether a deletion waits for the history."""
        return gates(ctx, SnapshotTrigger.FRAMEWORK_DELETION)

    def before_forget(self, ctx: Context, trigger: SnapshotTrigger, task: TaskStatus | None, *, due: bool) -> None:
        """Ask the history to take the attempt, which is over. ``due`` False: while its retry is delayed."""
        if not gates(ctx, trigger):
            return
        archival = ctx.tracker.part(Archival)
        archival.framework_name = ctx.framework.name
        if task is not None:
            _ask_for_task(ctx, archival, trigger, task)
        elif not due and not ctx.tracker.is_clean:
            ctx.tracker.agenda.look(None, PERSISTED)
        elif not due or trigger in archival.framework or trigger in archival.asked_framework or ctx.tracker.is_clean:
            _ask_for_attempt(ctx, archival, trigger)
        else:
            ctx.tracker.persist_first(None)
        key = None if task is None else task.key
        if self.may_forget(ctx, trigger, task):
            archival.gated.discard(key)
        elif due:
            archival.gated.add(key)

    def may_forget(self, ctx: Context, trigger: SnapshotTrigger, task: TaskStatus | None) -> bool:
        """Whether the history has taken the attempt."""
        if not gates(ctx, trigger):
            return True
        archival = ctx.tracker.part(Archival)
        return trigger in archival.framework if task is None else task in archival.tasks

    def knows_attempt(self, ctx: Context) -> bool:
        """Whether the history has the Framework's attempt, which is then persisted, apart from conditions."""
        archival = ctx.tracker.find_part(Archival)
        return archival is not None and SnapshotTrigger.FRAMEWORK_RETRY in archival.framework

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        """Record when the Pod got its node, for the cost of the attempt. No retry changes it, nor a restart."""
        attempt, scheduled = task.attempt, pod.scheduled_time
        if attempt.scheduled_time is None and scheduled is not None and ctx.env.limits.history:
            ctx.tracker.part(ArchiveMemory).record_scheduling(ctx.tracker, task, scheduled)

    def before_delete(self, ctx: Context, task: TaskStatus | None) -> None:
        """The same for a Pod that is first seen with a node when others delete it."""
        if task is not None and task.attempt.scheduled_time is None:
            pod = ctx.observed.find_pod(pod_name(ctx.framework.name, *task.key))
            if pod is not None and pod.uid == task.attempt.pod_uid:
                self.observe_pod(ctx, task, pod)

    def pod_gone(self, ctx: Context, task: TaskStatus) -> None:
        """The same for one that is gone before."""
        if (pod := ctx.tracker.life.dropped.get(task.key)) is not None and pod.uid == task.attempt.pod_uid:
            self.observe_pod(ctx, task, pod)

    def ended(self, ctx: Context, completion: CompletionStatus) -> None:
        """Have the completion of the Framework offered once it is persisted."""
        takes = SnapshotTrigger.FRAMEWORK_COMPLETION in ctx.env.limits.history
        if ctx.status.state is State.COMPLETED and takes:
            ctx.tracker.part(ArchiveMemory).unreported = True

    def at_end(self, ctx: Context) -> None:
        """Remove the finalizer of a deleted Framework once nothing of it runs and the history has it."""
        framework = ctx.framework
        if not (framework.deleting and framework.held and self.blocks_deletion(ctx)) or ctx.status.state not in ENDED:
            return
        look_for_pods(ctx)
        if not ctx.tracker.is_clean:
            ctx.tracker.persist_first(None)
            return
        self.before_forget(ctx, SnapshotTrigger.FRAMEWORK_DELETION, None, due=True)
        if self.may_forget(ctx, SnapshotTrigger.FRAMEWORK_DELETION, None) and _nothing_exists(ctx):
            _change(ctx, add=False)

    def finish(self, ctx: Context) -> None:
        """Batch the records of the plan into few requests, and report unacknowledged ones."""
        archival = ctx.tracker.find_part(Archival)
        if archival is None:
            return
        if archival.due:
            if archival.since is None:
                archival.since = ctx.env.clock
            for start in range(0, len(archival.due), RECORDS_PER_ARCHIVE):
                ctx.plan.archives.append(archival.due[start : start + RECORDS_PER_ARCHIVE])
            archival.due = []
        if not archival.is_open:
            archival.since = None
        _report(ctx, archival)

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        return key in (HISTORY, FINALIZER)

    def take(self, ctx: Context, outcome: Outcome) -> None:
        action, result, memory = outcome.action, outcome.result, ctx.tracker.part(ArchiveMemory)
        ctx.tracker.agenda.look()
        match action, result:
            case _, NotAttempted():
                pass
            case ChangeFinalizer(), FinalizersAre() | Gone():
                memory.finalizer_outdated = False
                ctx.tracker.holds.release(FINALIZER)
                if not action.add:
                    ctx.plan.records.append(finalizer_removed(complete=self.blocks_deletion(ctx)))
            case _, Outdated() if not memory.finalizer_outdated:
                # Mostly another client has changed the Framework: a live read precedes the next attempt. A failed
                # precondition looks like a refusal of the change, which the next attempt shows.
                memory.finalizer_outdated = True
            case _:
                hold(ctx, action.target, result, "change the finalizers of")

    def take_answer(self, ctx: Context, archive: Archive, answer: Answer) -> None:
        """Fold the answer of the history. A record of a status that has changed since does not count."""
        tracker, archival = ctx.tracker, ctx.tracker.find_part(Archival)
        if archival is None:
            return
        stored, known = isinstance(answer, Answered), False
        for task, snapshot in zip(archive.tasks, archive.snapshots, strict=True):
            if task is None and archival.asked_framework.get(snapshot.trigger) is snapshot:
                tracker.agenda.look()
                del archival.asked_framework[snapshot.trigger]
                if stored:
                    archival.framework.add(snapshot.trigger)
            elif task is not None and archival.asked_tasks.get(task) is snapshot:
                del archival.asked_tasks[task]
                if stored:
                    archival.tasks.add(task)
                    tracker.agenda.look(task.key)
                else:
                    archival.retry.add(task.key)
            else:
                continue
            known = True
        if not isinstance(answer, Answered):
            if known:
                archival.problem = answer.message
                retry_after = answer.retry_after_sec if isinstance(answer, Refused) else 0.0
                tracker.holds.hold(HISTORY, ctx.env, answer.message, retry_after)
                ctx.tracker.agenda.look(None, tracker.holds.until(HISTORY))
            return
        tracker.holds.release(HISTORY)
        archival.problem = ""
        left = archival.asked_tasks or archival.asked_framework or archival.retry
        archival.since = ctx.env.clock if left else None
        tracker.holds.end_stall(HISTORY, HistoryReason.UNAVAILABLE)
        if any(one.trigger is SnapshotTrigger.TASK_DELETION for one in archive.snapshots):
            tracker.agenda.look(Scope.ROLES)


# --- the records ------------------------------------------------------------------------------------------------


def _ask_for_task(ctx: Context, archival: Archival, trigger: SnapshotTrigger, task: TaskStatus) -> None:
    if task in archival.tasks or task in archival.asked_tasks:
        return
    if not ctx.tracker.is_settled(task):
        ctx.tracker.persist_first(task.key)
    elif ctx.tracker.holds.until(HISTORY) > ctx.env.clock:
        archival.retry.add(task.key)
    else:
        snapshot = ctx.task_snapshot(trigger, task)
        archival.asked_tasks[task] = snapshot
        archival.due.append((snapshot, task))


def _ask_for_attempt(ctx: Context, archival: Archival, trigger: SnapshotTrigger) -> None:
    if trigger in archival.framework or trigger in archival.asked_framework:
        return
    if (until := ctx.tracker.holds.until(HISTORY)) > ctx.env.clock:
        ctx.tracker.agenda.look(None, until)
        return
    snapshot = ctx.framework_snapshot(trigger)
    archival.asked_framework[trigger] = snapshot
    archival.due.append((snapshot, None))


def _report(ctx: Context, archival: Archival) -> None:
    """Show the wait for the history, and stall the Framework if it takes too long."""
    holds, since = ctx.tracker.holds, archival.since
    shown = None
    if since is None or not archival.gated:
        holds.end_stall(HISTORY, HistoryReason.UNAVAILABLE)
    else:
        _keep_stall(ctx)
        for after in (SHOW_SEC, STALL_SEC):
            if ctx.env.clock < since + after:
                ctx.tracker.agenda.look(None, since + after)
                break
        words = f": {archival.problem}" if archival.problem else ""
        if ctx.env.clock >= since + SHOW_SEC:
            shown = Wait(HistoryReason.PENDING, f"the history has not yet stored the attempts to be forgotten{words}")
        if ctx.env.clock >= since + STALL_SEC and HISTORY not in holds.stalls:
            words = words or ": it does not answer"
            text = f"The history has stored nothing for {STALL_SEC:g} s, and nothing is forgotten before{words}"
            holds.stalls[HISTORY] = Stall(HistoryReason.UNAVAILABLE, text)
    before = holds.waits().get(HistoryReason.PENDING)
    if shown is not None:
        # Its words change with each attempt; a status is written for the first ones.
        holds.wait(None, before or shown)
    elif before is not None:
        holds.wait(None, None)


def _keep_stall(ctx: Context) -> None:
    """Keep the stall that a predecessor has found, and which this process would find only after ``STALL_SEC``."""
    memory = ctx.tracker.part(ArchiveMemory)
    if memory.looked_back:
        return
    memory.looked_back = True
    for one in ctx.status.conditions:
        if (one.type, one.status, one.reason) == ("Stalled", "True", HistoryReason.UNAVAILABLE):
            ctx.tracker.holds.stalls.setdefault(HISTORY, Stall(HistoryReason.UNAVAILABLE, one.message))


# --- the finalizer ----------------------------------------------------------------------------------------------


def _has_begun(ctx: Context) -> bool:
    """Whether the persisted status has an attempt that has begun."""
    return ctx.status.state is not State.CREATION_PENDING or ctx.attempt.id > 0


def _nothing_exists(ctx: Context) -> bool:
    configmap = ctx.observed.configmap
    if configmap is not None and configmap.identity.controller_uid == ctx.framework.uid:
        return False
    return nothing_runs(ctx.tracker) and not ctx.observed.creating


def _change(ctx: Context, *, add: bool) -> None:
    target = Target(Kind.FRAMEWORK, ctx.framework.name, part=FINALIZER)
    ctx.act(ChangeFinalizer(target, ctx.framework.uid, HISTORY_FINALIZER, add))


def finalizer_removed(*, complete: bool) -> Record:
    """The record of the end of the finalizer. ``complete``: the history has all of the Framework."""
    if complete:
        return Record(HistoryReason.COMPLETE, "The history has all of the Framework, which is deleted now")
    text = "The finalizer is removed, as nothing waits for the history any longer"
    return Record(HistoryReason.GIVEN_UP, f"{text}: records that the sink does not have may be lost")
