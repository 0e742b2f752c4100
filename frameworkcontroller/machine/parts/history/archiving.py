"""Archive before forget: nothing that was persisted leaves the status before the history has acknowledged it.

A status forgets at four edges: the retry of a Framework, the retry of a Task, the removal or replacement of a Task by
ScaleDown, and the deletion of the Framework. With a sink that blocks, each of them waits here. What is asked for is
always the persisted status, and an acknowledgment counts for that status alone.

For the last edge the Framework has a finalizer, from before the first ConfigMap on. While it is there, a deletion ends
the attempt like a Stop (gates.py), and the finalizer goes when nothing runs and the history has all.
"""

from __future__ import annotations

from typing import ClassVar, Final

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.names import HISTORY_FINALIZER
from frameworkcontroller.api.status import FrameworkStatus, State, TaskStatus
from frameworkcontroller.machine.kernel.absence import look_for_pods, nothing_runs
from frameworkcontroller.machine.kernel.actions import ChangeFinalizer, Outcome
from frameworkcontroller.machine.kernel.agenda import PERSISTED, Scope
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import FinalizersAre, Gone, NotAttempted, Outdated
from frameworkcontroller.machine.kernel.holds import ObjectKey, Stall, Wait
from frameworkcontroller.machine.kernel.model import Limits, Record, Snapshot, SnapshotTrigger
from frameworkcontroller.machine.kernel.outcomes import hold
from frameworkcontroller.machine.kernel.part import Part
from frameworkcontroller.machine.kernel.protocol import Archive
from frameworkcontroller.machine.kernel.reasons import Reason, event, stall, wait
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Kind, Refused, Target
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.parts.history.archival import Archival, ArchiveMemory


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
"""Key of those of its finalizer."""

RECORDS_PER_ARCHIVE: Final = 500
"""Most records that are asked for at once: 10,000 Tasks that retry at once are 20 requests."""

SHOW_SEC: Final = 2.0
"""Time without an acknowledgment until the wait is shown. Most waits are one round trip, and no status is written for
them."""

STALL_SEC: Final = 60.0
"""Time without an acknowledgment until the Framework is stalled."""


def gates(ctx: Context, trigger: SnapshotTrigger) -> bool:
    """Whether what the trigger stands for waits for the history."""
    limits = ctx.env.limits
    return limits.history_blocks and trigger in limits.history


# --- the part ---------------------------------------------------------------------------------------------------


class HistoryPart(Part):
    """The history that waits: archive before forget, and the finalizer."""

    reasons: ClassVar[type[Reason]] = HistoryReason
    target_part: ClassVar[str] = FINALIZER
    finalizer: ClassVar[str] = HISTORY_FINALIZER

    def must_confirm(self, status: FrameworkStatus | None, limits: Limits) -> bool:
        """Whether a plan may give a snapshot to the history, where it counts at once."""
        return bool(limits.history) and status is not None and status.state is not State.COMPLETED

    def offered(self, limits: Limits) -> frozenset[SnapshotTrigger]:
        """All that the sink takes, if nothing waits for it."""
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
        wanted = self.keeps_deleted(ctx)
        if framework.held and not wanted:
            _change(ctx, add=False)
        elif wanted and not framework.held and not framework.deleting and _has_begun(ctx):
            _change(ctx, add=True)

    def ensure(self, ctx: Context) -> bool:
        """Add the finalizer before the ConfigMap of an attempt is created. Return whether it is there."""
        if not self.keeps_deleted(ctx) or ctx.framework.held:
            return True
        _change(ctx, add=True)
        return False

    def keeps_deleted(self, ctx: Context) -> bool:
        """Whether a deletion waits for the history."""
        return gates(ctx, SnapshotTrigger.FRAMEWORK_DELETION)

    def before_forget(self, ctx: Context, trigger: SnapshotTrigger, task: TaskStatus | None, *, due: bool) -> None:
        """Ask the history to take the attempt, which is over. ``due`` False: while its retry is delayed."""
        if not gates(ctx, trigger):
            return
        archival = _archival(ctx)
        if task is not None:
            _ask_for_task(ctx, task, trigger)
        elif not due and not ctx.tracker.is_clean:
            ctx.tracker.agenda.look(None, PERSISTED)
        elif not due or trigger in archival.framework or trigger in archival.asked_framework or ctx.tracker.is_clean:
            _ask_for_attempt(ctx, trigger)
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
        archival = _archival(ctx)
        return trigger in archival.framework if task is None else task in archival.tasks

    def knows_attempt(self, ctx: Context) -> bool:
        """Whether the history has the Framework's attempt, which so is persisted, apart from conditions."""
        archival = ctx.tracker.find_part(Archival)
        return archival is not None and SnapshotTrigger.FRAMEWORK_RETRY in archival.framework

    def ended(self, ctx: Context, completion: CompletionStatus) -> None:
        """Have the completion of the Framework offered once it is persisted."""
        takes = SnapshotTrigger.FRAMEWORK_COMPLETION in ctx.env.limits.history
        if ctx.status.state is State.COMPLETED and takes:
            ctx.tracker.part(ArchiveMemory).unreported = True

    def at_end(self, ctx: Context) -> None:
        """Remove the finalizer of a deleted Framework of which nothing runs, once the history has it."""
        framework = ctx.framework
        if not (framework.deleting and framework.held and self.keeps_deleted(ctx)) or ctx.status.state not in ENDED:
            return
        look_for_pods(ctx)
        if not ctx.tracker.is_clean:
            ctx.tracker.persist_first(None)
            return
        self.before_forget(ctx, SnapshotTrigger.FRAMEWORK_DELETION, None, due=True)
        if self.may_forget(ctx, SnapshotTrigger.FRAMEWORK_DELETION, None) and _nothing_exists(ctx):
            _change(ctx, add=False)

    def finish(self, ctx: Context) -> None:
        """Ask for what the plan has found, in few requests, and report what is not acknowledged."""
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
        _tell(ctx, archival)

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        """Whether it is a key of the history."""
        return key in (HISTORY, FINALIZER)

    def take(self, ctx: Context, outcome: Outcome) -> None:
        """Fold the outcome of a change of the finalizer."""
        action, result, memory = outcome.action, outcome.result, ctx.tracker.part(ArchiveMemory)
        ctx.tracker.agenda.look()
        match action, result:
            case _, NotAttempted():
                pass
            case ChangeFinalizer(), FinalizersAre() | Gone():
                memory.finalizer_outdated = False
                ctx.tracker.holds.release(FINALIZER)
                if not action.add:
                    ctx.plan.records.append(finalizer_removed(complete=self.keeps_deleted(ctx)))
            case _, Outdated() if not memory.finalizer_outdated:
                # Mostly another client has changed the Framework: a live read precedes the next attempt. A failed
                # precondition looks like a refusal of the change, which the next attempt shows.
                memory.finalizer_outdated = True
            case _:
                hold(ctx, action.target, result, "change the finalizers of")

    def take_answer(self, ctx: Context, archive: Archive, answer: Answer) -> None:
        """Fold the answer of the history. What has changed since it was asked for does not count."""
        archival = ctx.tracker.find_part(Archival)
        if archival is not None:
            _take(ctx, archival, archive, answer)


# --- the edges --------------------------------------------------------------------------------------------------


def _archival(ctx: Context) -> Archival:
    archival = ctx.tracker.part(Archival)
    archival.framework_name = ctx.framework.name
    return archival


def _ask_for_task(ctx: Context, task: TaskStatus, trigger: SnapshotTrigger) -> Archival:
    archival = _archival(ctx)
    if task in archival.tasks or task in archival.asked_tasks:
        return archival
    if not ctx.tracker.is_settled(task):
        ctx.tracker.persist_first(task.key)
    elif ctx.tracker.holds.until(HISTORY) > ctx.env.clock:
        archival.retry.add(task.key)
    else:
        snapshot = ctx.task_snapshot(trigger, task)
        archival.asked_tasks[task] = snapshot
        archival.due.append((snapshot, task))
    return archival


def _ask_for_attempt(ctx: Context, trigger: SnapshotTrigger) -> None:
    archival = _archival(ctx)
    until = ctx.tracker.holds.until(HISTORY)
    if trigger in archival.framework or trigger in archival.asked_framework:
        return
    if until > ctx.env.clock:
        ctx.tracker.agenda.look(None, until)
        return
    snapshot = ctx.framework_snapshot(trigger)
    archival.asked_framework[trigger] = snapshot
    archival.due.append((snapshot, None))


# --- one plan ---------------------------------------------------------------------------------------------------


def _tell(ctx: Context, archival: Archival) -> None:
    holds, since = ctx.tracker.holds, archival.since
    shown = None
    if since is not None and archival.gated:
        _keep_stall(ctx)
        for after in (SHOW_SEC, STALL_SEC):
            if ctx.env.clock < since + after:
                ctx.tracker.agenda.look(None, since + after)
                break
        words = f": {archival.problem}" if archival.problem else ""
        if ctx.env.clock >= since + SHOW_SEC:
            shown = Wait(HistoryReason.PENDING, f"the history has not yet stored what is to be forgotten{words}")
        if ctx.env.clock >= since + STALL_SEC and HISTORY not in holds.stalls:
            words = words or ": it does not answer"
            text = f"The history has stored nothing for {STALL_SEC:g} s, and nothing is forgotten before{words}"
            holds.stalls[HISTORY] = Stall(HistoryReason.UNAVAILABLE, text)
    else:
        holds.end_stall(HISTORY, HistoryReason.UNAVAILABLE)
    if shown is not None:
        # Its words change with each attempt; a status is written for the first ones.
        before = holds.waits().get(HistoryReason.PENDING)
        holds.wait(None, shown if before is None else before)
    elif HistoryReason.PENDING in holds.waits():
        holds.wait(None, None)


def _keep_stall(ctx: Context) -> None:
    """Keep the stall that a predecessor has found, and which this process would find only after ``STALL_SEC``."""
    memory = ctx.tracker.part(ArchiveMemory)
    if memory.looked_back:
        return
    memory.looked_back = True
    told = next((one for one in ctx.status.conditions if one.type == "Stalled" and one.status == "True"), None)
    if told is not None and told.reason == HistoryReason.UNAVAILABLE:
        ctx.tracker.holds.stalls.setdefault(HISTORY, Stall(HistoryReason.UNAVAILABLE, told.message))


def _take(ctx: Context, archival: Archival, archive: Archive, answer: Answer) -> None:
    tracker = ctx.tracker
    stored, words = isinstance(answer, Answered), "" if isinstance(answer, Answered) else answer.message
    known = False
    for task, snapshot in zip(archive.tasks, archive.snapshots, strict=True):
        if task is None:
            known |= _take_attempt(ctx, archival, snapshot, stored=stored)
        elif archival.asked_tasks.get(task) is snapshot:
            known = True
            del archival.asked_tasks[task]
            if stored:
                archival.tasks.add(task)
                tracker.agenda.look(task.key)
            else:
                archival.retry.add(task.key)
    if stored:
        tracker.holds.release(HISTORY)
        archival.problem = ""
        left = archival.asked_tasks or archival.asked_framework or archival.retry
        archival.since = ctx.env.clock if left else None
        tracker.holds.end_stall(HISTORY, HistoryReason.UNAVAILABLE)
        if any(one.trigger is SnapshotTrigger.TASK_DELETION for one in archive.snapshots):
            tracker.agenda.look(Scope.ROLES)
    elif known:
        archival.problem = words
        retry_after = answer.retry_after_sec if isinstance(answer, Refused) else 0.0
        tracker.holds.hold(HISTORY, ctx.env, words, retry_after)
        ctx.tracker.agenda.look(None, tracker.holds.until(HISTORY))


def _take_attempt(ctx: Context, archival: Archival, snapshot: Snapshot, *, stored: bool) -> bool:
    if archival.asked_framework.get(snapshot.trigger) is not snapshot:
        return False
    ctx.tracker.agenda.look()
    del archival.asked_framework[snapshot.trigger]
    if stored:
        archival.framework.add(snapshot.trigger)
    return True


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
    return Record(HistoryReason.GIVEN_UP, f"{text}: what the sink does not have may be lost")
