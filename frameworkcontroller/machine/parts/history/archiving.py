"""Archive before forget: nothing that was persisted leaves the status before the history has acknowledged it.

A status forgets at four edges: the retry of a Framework, the retry of a Task, the removal or replacement of a Task by
ScaleDown, and the deletion of the Framework. With a sink that blocks, each of them waits here. What is asked for is
always the persisted status, and an acknowledgment counts for that status alone.

For the last edge the Framework has a finalizer, from before the first ConfigMap on. While it is there, a deletion ends
the attempt like a Stop (gates.py), and the finalizer goes when nothing runs and the history has all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from frameworkcontroller.api.codec import encode_status, encode_task
from frameworkcontroller.api.status import FrameworkStatus, State, TaskStatus
from frameworkcontroller.machine.kernel.actions import (
    ChangeFinalizer,
    FinalizersAre,
    Gone,
    NotAttempted,
    Outdated,
    Result,
    Target,
)
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import FINALIZER, HISTORY, Stall, Wait
from frameworkcontroller.machine.kernel.model import Record, Snapshot, SnapshotTrigger
from frameworkcontroller.machine.kernel.protocol import Archive
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Kind, Refused
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.history.archival import Archival

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


# --- the edges --------------------------------------------------------------------------------------------------


def may_forget_task(ctx: Context, task: TaskStatus, trigger: SnapshotTrigger) -> bool:
    """Whether the Task's attempt, which is over, may leave the status. If not, the history is asked to take it."""
    if not gates(ctx, trigger):
        return True
    archival = _ask_for_task(ctx, task, trigger)
    if task in archival.tasks:
        archival.gated.discard(task.key)
        return True
    archival.gated.add(task.key)
    return False


def may_forget_attempt(ctx: Context, trigger: SnapshotTrigger) -> bool:
    """Whether the attempt of the Framework, which is over, may leave the status. See ``may_forget_task``."""
    if not gates(ctx, trigger):
        return True
    archival = _archival(ctx)
    if trigger in archival.framework:
        archival.gated.discard(None)
        return True
    archival.gated.add(None)
    if not ctx.tracker.is_clean and trigger not in archival.asked_framework:
        ctx.persist_first()
    else:
        _ask_for_attempt(ctx, trigger)
    return False


def has_attempt(ctx: Context) -> bool:
    """Whether the history has the Framework's attempt, which so is persisted, apart from conditions."""
    archival = ctx.tracker.archival
    return archival is not None and SnapshotTrigger.FRAMEWORK_RETRY in archival.framework


def prepare_task(ctx: Context, task: TaskStatus) -> None:
    """Ask for the Task's attempt while its retry is delayed."""
    if gates(ctx, SnapshotTrigger.TASK_RETRY):
        _ask_for_task(ctx, task, SnapshotTrigger.TASK_RETRY)


def prepare_attempt(ctx: Context) -> None:
    """Ask for the Framework's attempt while its retry is delayed."""
    if not gates(ctx, SnapshotTrigger.FRAMEWORK_RETRY):
        return
    if ctx.tracker.is_clean:
        _ask_for_attempt(ctx, SnapshotTrigger.FRAMEWORK_RETRY)
    else:
        _archival(ctx).blocked = True


def _archival(ctx: Context) -> Archival:
    if ctx.tracker.archival is None:
        ctx.tracker.archival = Archival()
    return ctx.tracker.archival


def _ask_for_task(ctx: Context, task: TaskStatus, trigger: SnapshotTrigger) -> Archival:
    archival = _archival(ctx)
    if task in archival.tasks or task in archival.asked_tasks:
        return archival
    if not ctx.tracker.is_settled(task):
        ctx.tracker.block(task.key)
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
        ctx.requeue_at(until)
        return
    snapshot = ctx.framework_snapshot(trigger)
    archival.asked_framework[trigger] = snapshot
    archival.due.append((snapshot, None))


# --- one plan ---------------------------------------------------------------------------------------------------


def begin(ctx: Context) -> None:
    """Put the Tasks on the agenda for which the back-off is over."""
    archival = ctx.tracker.archival
    if archival is None or not archival.retry:
        return
    if (until := ctx.tracker.holds.until(HISTORY)) > ctx.env.clock:
        ctx.requeue_at(until)
    else:
        ctx.tracker.agenda.update(archival.retry)
        ctx.tracker.rescale_due = True
        archival.retry.clear()


def finish(ctx: Context) -> None:
    """Ask for what the plan has found, in few requests, and say what is not acknowledged."""
    archival = ctx.tracker.archival
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


def _tell(ctx: Context, archival: Archival) -> None:
    holds, since = ctx.tracker.holds, archival.since
    shown = None
    if since is not None and archival.gated:
        _keep_stall(ctx, archival)
        for after in (SHOW_SEC, STALL_SEC):
            if ctx.env.clock < since + after:
                ctx.requeue_at(since + after)
                break
        words = f": {archival.problem}" if archival.problem else ""
        if ctx.env.clock >= since + SHOW_SEC:
            shown = Wait(Reason.HISTORY_PENDING, f"the history has not yet stored what is to be forgotten{words}")
        if ctx.env.clock >= since + STALL_SEC and HISTORY not in holds.stalls:
            words = words or ": it does not answer"
            text = f"The history has stored nothing for {STALL_SEC:g} s, and nothing is forgotten before{words}"
            holds.stalls[HISTORY] = Stall(Reason.HISTORY_UNAVAILABLE, text)
    else:
        holds.end_stall(HISTORY, Reason.HISTORY_UNAVAILABLE)
    if shown is not None:
        # Its words change with each attempt; a status is written for the first ones.
        before = holds.waits().get(Reason.HISTORY_PENDING)
        holds.wait(None, shown if before is None else before)
    elif Reason.HISTORY_PENDING in holds.waits():
        holds.wait(None, None)


def _keep_stall(ctx: Context, archival: Archival) -> None:
    """Keep the stall that a predecessor has found, and which this process would find only after ``STALL_SEC``."""
    if archival.looked_back:
        return
    archival.looked_back = True
    told = next((one for one in ctx.status.conditions if one.type == "Stalled" and one.status == "True"), None)
    if told is not None and told.reason == Reason.HISTORY_UNAVAILABLE:
        ctx.tracker.holds.stalls.setdefault(HISTORY, Stall(Reason.HISTORY_UNAVAILABLE, told.message))


def take(ctx: Context, archive: Archive, answer: Answer) -> None:
    """Fold the answer of the history. What has changed since it was asked for does not count."""
    tracker, archival = ctx.tracker, ctx.tracker.archival
    if archival is None:
        return
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
                tracker.agenda.add(task.key)
            else:
                archival.retry.add(task.key)
    if stored:
        tracker.holds.release(HISTORY)
        archival.problem = ""
        left = archival.asked_tasks or archival.asked_framework or archival.retry
        archival.since = ctx.env.clock if left else None
        tracker.holds.end_stall(HISTORY, Reason.HISTORY_UNAVAILABLE)
        tracker.rescale_due |= any(one.trigger is SnapshotTrigger.TASK_DELETION for one in archive.snapshots)
    elif known:
        archival.problem = words
        retry_after = answer.retry_after_sec if isinstance(answer, Refused) else 0.0
        tracker.holds.hold(HISTORY, ctx.env, words, retry_after)
        ctx.requeue_at(tracker.holds.until(HISTORY))


def _take_attempt(ctx: Context, archival: Archival, snapshot: Snapshot, *, stored: bool) -> bool:
    if archival.asked_framework.get(snapshot.trigger) is not snapshot:
        return False
    ctx.tracker.again = True
    del archival.asked_framework[snapshot.trigger]
    if stored:
        archival.framework.add(snapshot.trigger)
    return True


def inherit(name: str, tracker: Tracker, before: Tracker) -> None:
    """Keep the acknowledgments of statuses that another controller has left as they were. ``name``: the Framework's.

    Conditions do not count: no attempt is in them.
    """
    old, status, was = before.archival, tracker.status, before.status
    if old is None or status is None or was is None:
        return
    if (status.attempt.id, status.attempt.configmap_uid) != (was.attempt.id, was.attempt.configmap_uid):
        return
    kept = Archival()
    for task in old.tasks:
        now = tracker.task(task.key)
        if now is not None and encode_task(name, now.role, now) == encode_task(name, task.role, task):
            kept.tasks.add(now)
    if old.framework and _without_conditions(name, status) == _without_conditions(name, was):
        kept.framework = set(old.framework)
    tracker.archival = kept


def _without_conditions(name: str, status: FrameworkStatus) -> bytes:
    return encode_status(name, replace(status, conditions=[], observed_generation=None))


# --- the finalizer ----------------------------------------------------------------------------------------------


def wants_finalizer(ctx: Context) -> bool:
    """Whether a deletion waits for the history."""
    return gates(ctx, SnapshotTrigger.FRAMEWORK_DELETION)


def is_held(ctx: Context) -> bool:
    """Whether the ConfigMap of an attempt may be created: the finalizer is there. If not, it is added."""
    if not wants_finalizer(ctx) or ctx.framework.held:
        return True
    _change(ctx, add=True)
    return False


def maintain(ctx: Context) -> None:
    """Add the finalizer to a Framework that has begun, and remove it where nothing waits for the history."""
    framework = ctx.framework
    wanted = wants_finalizer(ctx)
    if framework.held and not wanted:
        _change(ctx, add=False)
    elif wanted and not framework.held and not framework.deleting and _has_begun(ctx):
        _change(ctx, add=True)


def _has_begun(ctx: Context) -> bool:
    """Whether the persisted status has an attempt that has begun."""
    return ctx.status.state is not State.CREATION_PENDING or ctx.attempt.id > 0


def let_go(ctx: Context) -> None:
    """Remove the finalizer of a deleted Framework of which nothing runs, once the history has it."""
    if not ctx.must_go or ctx.status.state not in ENDED:
        return
    ctx.look_for_pods()
    if not ctx.tracker.is_clean:
        ctx.persist_first()
    elif may_forget_attempt(ctx, SnapshotTrigger.FRAMEWORK_DELETION) and _nothing_runs(ctx):
        _change(ctx, add=False)


def _nothing_runs(ctx: Context) -> bool:
    configmap = ctx.observed.configmap
    if configmap is not None and configmap.identity.controller_uid == ctx.framework.uid:
        return False
    return ctx.tracker.nothing_runs and not ctx.observed.creating


def _change(ctx: Context, *, add: bool) -> None:
    ctx.act(ChangeFinalizer(Target(Kind.FRAMEWORK, ctx.framework.name, part=FINALIZER), ctx.framework.uid, add))


def finalizer_removed(*, complete: bool) -> Record:
    """The record of the end of the finalizer. ``complete``: the history has all of the Framework."""
    if complete:
        return Record(Reason.HISTORY_COMPLETE, "The history has all of the Framework, which is deleted now")
    text = "The finalizer is removed, as nothing waits for the history any longer"
    return Record(Reason.HISTORY_GIVEN_UP, f"{text}: what the sink does not have may be lost")


def take_finalizer(ctx: Context, action: ChangeFinalizer, result: Result) -> bool:
    """Fold the outcome of a change of the finalizer. Return whether it is no failure."""
    tracker = ctx.tracker
    tracker.again = True
    match result:
        case NotAttempted():
            return True
        case FinalizersAre() | Gone():
            tracker.finalizer_outdated = False
            tracker.holds.release(FINALIZER)
            if not action.add:
                ctx.plan.records.append(finalizer_removed(complete=wants_finalizer(ctx)))
            return True
        case Outdated() if not tracker.finalizer_outdated:
            # Mostly another client has changed the Framework: a live read precedes the next attempt. A failed
            # precondition looks like a refusal of the change, which the next attempt shows.
            tracker.finalizer_outdated = True
            return True
    return False
