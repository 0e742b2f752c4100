"""Folding the outcomes of actions into the status.

Pods and ConfigMaps are created, adopted, replaced, deleted and confirmed to be gone by the same rules; two classes hold
the differences. Failures back off (``Holds.hold``), and stall the Framework if they continue (``Stall``).
"""

from __future__ import annotations

from typing import assert_never

from frameworkcontroller.api.names import FRAMEWORK_NAME
from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine import framework as framework_machine
from frameworkcontroller.machine import task as task_machine
from frameworkcontroller.machine.gates import STOPPED, why_end_at_once
from frameworkcontroller.machine.kernel.absence import Known
from frameworkcontroller.machine.kernel.actions import (
    Action,
    ChangeFinalizer,
    ConfirmGone,
    ConfirmNone,
    Create,
    Delete,
    LeaveNewer,
    LookUp,
    Outcome,
    PartAction,
    Patch,
    Relabel,
)
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.context import Context, action_on_unrecorded
from frameworkcontroller.machine.kernel.exchanges import (
    Accepted,
    Created,
    Exists,
    Gone,
    NotAttempted,
    NotForced,
    Remains,
    Result,
)
from frameworkcontroller.machine.kernel.failure import classify_creation_refusal, is_quota_refusal
from frameworkcontroller.machine.kernel.holds import CREATIONS, Spared, Stall
from frameworkcontroller.machine.kernel.model import InvariantError
from frameworkcontroller.machine.kernel.outcomes import (
    FAILURES_TO_STALL_WHILE_DELETED,
    back_off,
    back_off_quietly,
    conflict,
    describe_failure,
    hold,
    is_terminating,
    retry_after,
    stall_by_quota,
    task_of,
)
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import Kind, Refused, Target
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.terminating import forced_deletion

_NODE_LOOK_SEC = 30
"""Time until a Node that was not lost is looked at again."""


def take(ctx: Context, outcome: Outcome) -> None:
    """Fold the outcome for the Framework, its ConfigMap or one of its Pods into the tracked status."""
    target, result = outcome.action.target, outcome.result
    if target.kind is Kind.FRAMEWORK:
        if isinstance(result, NotAttempted):
            ctx.tracker.agenda.look()
        elif isinstance(result, Accepted | Gone):
            ctx.tracker.holds.release(None)
            ctx.record(LifeReason.FRAMEWORK_DELETED, "Deleted: its retention after completion is over")
        else:
            hold(ctx, target, result, "delete")
    elif target.kind is Kind.CONFIGMAP:
        if ctx.attempt.id == target.attempt_id:
            _take(_ConfigMap(ctx, target), outcome)
    elif (task := ctx.tracker.task((target.role, target.index))) is None:
        _take_taskless(ctx, outcome)
    elif task.instance_uid == target.instance and task.attempt.id == target.attempt_id:
        _take(_Pod(ctx, target, task), outcome)


def _take_taskless(ctx: Context, outcome: Outcome) -> None:
    """Fold the outcome for a Pod that no Task has."""
    if isinstance(outcome.result, Accepted | Gone):
        ctx.tracker.holds.release(outcome.action.target.key)
        if ctx.status.state in (State.CREATION_PENDING, *ENDED):
            # Each plan looks for leftovers, and a stale cache may still show this one.
            back_off_quietly(ctx, outcome.action.target, f"Pod {outcome.action.target.name} was deleted")
    elif isinstance(outcome.action, Delete):
        _take_failed_deletion(ctx, outcome.action, outcome.result)


# --- Pods and ConfigMaps ------------------------------------------------------------------------------------------


def _take(owned: _Owned, outcome: Outcome) -> None:
    ctx, target, result = owned.ctx, owned.target, outcome.result
    if isinstance(result, NotAttempted):
        if isinstance(outcome.action, Create):
            owned.report_field(outcome.action, kept=None)
        owned.look_again()
        return
    match outcome.action:
        case Create() as action:
            if owned.state is State.CREATION_PENDING and owned.awaits(action):
                _take_creation(owned, action, result)
        case Delete() as action:
            if not isinstance(result, Accepted | Gone):
                _take_failed_deletion(ctx, action, result)
            elif action.uid != owned.uid or not owned.take_deletion(action, result):
                # No state waits for the deletion, but a stale cache may still show the object.
                back_off_quietly(ctx, target, f"{target.kind} {target.name} was deleted")
        case ConfirmNone() as action:
            is_awaited = owned.state is State.CREATION_PENDING and owned.awaits_none(action)
            if isinstance(result, Exists) and result.found is not None:
                if is_awaited:
                    _replace(owned, result.found, "clean up")
            elif not isinstance(result, Gone):
                hold(ctx, target, result, "clean up")
            elif is_awaited:
                owned.end_without_object()
        case LookUp():
            if owned.state is State.CREATION_PENDING:
                if framework_machine.may_adopt(ctx) or not isinstance(result, Exists):
                    _take_look_up(owned, result)
                else:
                    # The garbage collector deletes it with the Framework.
                    back_off_quietly(ctx, target, f"{target.kind} {target.name} is deleted first")
        case ConfirmGone() | Relabel() as action:
            if not isinstance(result, Gone):
                _not_in_cache(ctx, action, result)
            elif action.uid == owned.uid and owned.state not in ENDED:
                ctx.tracker.holds.release(target.key)
                if owned.state is State.CREATION_REQUESTED and not ctx.tracker.expectations.has_lost(action.uid):
                    owned.handle_unseen()
                else:
                    ctx.tracker.expectations.trust_absence(action.uid)
                    owned.look_again()
        case LeaveNewer():
            _leave_newer(ctx, target)
        case Patch() | PartAction() | ChangeFinalizer():
            raise InvariantError(f"{target.kind} {target.name} is the object of no part")
        case other:
            assert_never(other)


def _take_creation(owned: _Owned, action: Create, result: Result) -> None:
    holds, key = owned.ctx.tracker.holds, owned.target.key
    if not is_terminating(result):
        holds.end_stall(key, owned.not_gone)
    match result:
        case Created(uid=uid, kept=kept):
            holds.release(key)
            if key is not None:
                holds.release(CREATIONS)
            owned.record_creation(uid)
            owned.report_field(action, kept=kept)
        case Exists(found=Identity() as found) if found.controller_uid == action.controller_uid or owned.has_lost(
            found
        ):
            if not found.deleting and owned.is_current(found) and found.controller_uid is not None:
                holds.release(key)
                owned.record_creation(found.uid)
            else:
                _replace(owned, found, "create")
        case Exists(found=Identity() as found):
            conflict(owned.ctx, owned.target, found)
        case _:
            owned.take_refusal(result)
    if not isinstance(result, Created):
        owned.report_field(action, kept=None)


def _take_look_up(owned: _Owned, result: Result) -> None:
    match result:
        case Gone():
            owned.ctx.tracker.holds.release(owned.target.key)
            owned.record_absence()
        case Exists(found=Identity() as found) if not found.deleting and owned.is_current(found):
            owned.ctx.tracker.holds.release(owned.target.key)
            owned.record_creation(found.uid)
        case Exists(found=Identity() as found):
            owned.ctx.tracker.absence.configmap = Known.FOUND
            _replace(owned, found, "look up")
        case _:
            hold(owned.ctx, owned.target, result, "look up")


def _replace(owned: _Owned, found: Identity, verb: str) -> None:
    if found.deleting:
        text = f"Cannot {verb} {owned.target.kind} {owned.target.name}: {describe_failure(Exists(found))}"
        back_off(owned.ctx, owned.target, text, owned.not_gone, patience=FAILURES_TO_STALL_WHILE_DELETED, keep=True)
        owned.force_deletion(found)
    else:
        owned.ctx.tracker.follow_ups.append(owned.replace(found))
        back_off_quietly(owned.ctx, owned.target, f"Another {owned.target.kind} {owned.target.name} is deleted first")


# --- objects that are not in the cache ---------------------------------------------------------------------------


def _not_in_cache(ctx: Context, action: ConfirmGone | Relabel, result: Result) -> None:
    """A recorded object may exist, but the cache does not show it."""
    target, tracker = action.target, ctx.tracker
    match result:
        case Remains(unlabelled=True):
            # At most once per back-off: another client may remove the label again.
            tracker.follow_ups.append(Relabel(target, action.uid, ctx.framework.name))
            back_off_quietly(ctx, target, f"The label of {target.kind} {target.name} is restored")
        case Accepted():
            text = f"Restored the label {FRAMEWORK_NAME} of {target.kind} {target.name}, by which it is watched"
            ctx.record(LifeReason.LABEL_RESTORED, text, task_of(ctx, target), warning=True)
            back_off_quietly(ctx, target, text)
        case Remains():
            if tracker.expectations.hide(action.uid, ctx.env):
                ctx.plan.relist.add(target.kind)
            hold(ctx, target, result, "see in the cache")
        case _:
            hold(ctx, target, result, "label" if isinstance(action, Relabel) else "see in the cache")


def _leave_newer(ctx: Context, target: Target) -> None:
    """An object belongs to a later attempt than the stored status, as a live read confirms."""
    text = (
        f"{target.kind} {target.name} belongs to a later attempt than the stored status, which was reset: "
        "refusing to delete it; delete it if it is not needed"
    )
    back_off(ctx, target, text, LifeReason.STATUS_OUTDATED)


# --- failures ---------------------------------------------------------------------------------------------------


def _take_failed_deletion(ctx: Context, action: Delete, result: Result) -> None:
    key = action.target.key
    if not isinstance(result, NotForced) or not isinstance(key, tuple):
        hold(ctx, action.target, result, "delete")
        return
    holds, text = ctx.tracker.holds, result.message
    if holds.spare(key, Spared(action.uid, ctx.env.clock + _NODE_LOOK_SEC, text)):
        ctx.record(RequestReason.WAITING, text, task_of(ctx, action.target), warning=True)
    if result.unreadable or key in holds.stalls:
        holds.stalls[key] = Stall(LifeReason.POD_NOT_GONE, text)
    # The next plan sets the alarm, and completes the message of the stall.
    ctx.tracker.agenda.look(key)


# --- differences between Pods and ConfigMaps ---------------------------------------------------------------------


class _Pod:
    """The Pod of a Task's current attempt."""

    not_gone = LifeReason.POD_NOT_GONE

    def __init__(self, ctx: Context, target: Target, task: TaskStatus) -> None:
        self.ctx = ctx
        self.target = target
        self.key: TaskKey = task.key
        self.task = task

    @property
    def state(self) -> State:
        return self.task.state

    @property
    def uid(self) -> str | None:
        return self.task.attempt.pod_uid

    def look_again(self) -> None:
        self.ctx.tracker.agenda.look(self.key)

    def awaits(self, action: Create) -> bool:
        """Whether the Pod belongs to the recorded ConfigMap, or to one that is recorded now."""
        ctx = self.ctx
        if ctx.attempt.configmap_uid == action.controller_uid:
            return True
        if ctx.status.state is not State.CREATION_PENDING:
            # The attempt has another ConfigMap by now.
            self.look_again()
            return False
        # The ConfigMap was adopted, and the status that recorded it was not accepted.
        framework_machine.record_creation(ctx, action.controller_uid)
        return True

    def awaits_none(self, action: ConfirmNone) -> bool:
        """Whether the action's ConfigMap is recorded: a status that is taken over may not have it."""
        return action.controller_uid == self.ctx.attempt.configmap_uid

    def is_current(self, found: Identity) -> bool:
        return found.annotations == self.ctx.pod_identity(self.task)

    def has_lost(self, found: Identity) -> bool:
        """Whether it is a Pod of the Framework that has lost its owner."""
        is_marked = found.annotations is not None and found.annotations[0] == self.ctx.framework.uid
        return found.controller_uid is None and is_marked and not self.ctx.is_later(found)

    def record_creation(self, uid: str) -> None:
        task_machine.record_creation(self.ctx, self.task, uid)

    def take_refusal(self, result: Result) -> None:
        """Complete the attempt if the refusal is final; else back off all creations, which would probably fail, too."""
        ctx = self.ctx
        if isinstance(result, Refused):
            completion = classify_creation_refusal(result)
            if completion is not None:
                task_machine.end_attempt(ctx, self.task, completion, refused=True)
                return
            if is_quota_refusal(result):
                stall_by_quota(ctx, self.target, result)
        why = f"Cannot create {self.target.kind} {self.target.name}: {describe_failure(result)}"
        ctx.tracker.holds.hold(CREATIONS, ctx.env, why, retry_after(result))
        hold(ctx, self.target, result, "create")

    def report_field(self, action: Create, *, kept: bool | None) -> None:
        """Report whether the API server has kept the field that it was asked for. None: it is not known."""
        for part in self.ctx.parts.pod_answered if action.field else ():
            part.pod_answered(self.ctx, self.task, self.target.name, kept=kept)

    def replace(self, found: Identity) -> Action:
        return action_on_unrecorded(self.target, found, self.ctx.pod_identity(self.task))

    def force_deletion(self, found: Identity) -> None:
        if (deletion := forced_deletion(self.ctx, self.key, found, None, unrecorded=True)) is not None:
            self.ctx.tracker.follow_ups.append(deletion)

    def take_deletion(self, action: Delete, result: Result) -> bool:
        ctx, task = self.ctx, self.task
        ctx.tracker.holds.release(self.key)
        if task.state is State.DELETION_PENDING:
            ctx.tracker.move(task, State.DELETION_REQUESTED, ctx.env.second)
            self.look_again()
        elif isinstance(result, Gone) and action.confirm:
            if task.state is State.CREATION_REQUESTED:
                self.handle_unseen()
            elif task.state is State.DELETING:
                task_machine.end_attempt(ctx, task, None)
        return True

    def record_absence(self) -> None:
        """Do nothing: only ConfigMaps are looked up."""

    def end_without_object(self) -> None:
        """Complete the attempt of a Task that is deletionPending and has no Pod."""
        if self.task.is_leaving:
            self.ctx.tracker.holds.release(self.key)
            task_machine.end_attempt(self.ctx, self.task, None)

    def handle_unseen(self) -> None:
        task_machine.handle_unseen_pod(self.ctx, self.task)


class _ConfigMap:
    """The ConfigMap of the Framework's current attempt."""

    not_gone = LifeReason.CONFIGMAP_NOT_GONE

    def __init__(self, ctx: Context, target: Target) -> None:
        self.ctx = ctx
        self.target = target

    @property
    def state(self) -> State:
        return self.ctx.status.state

    @property
    def uid(self) -> str | None:
        return self.ctx.attempt.configmap_uid

    def look_again(self) -> None:
        self.ctx.tracker.agenda.look()

    def awaits(self, action: Create) -> bool:  # noqa: ARG002 - as of Pods
        """Return True: only this attempt asks for it."""
        return True

    def awaits_none(self, action: ConfirmNone) -> bool:  # noqa: ARG002 - as of Pods
        """Return True: only this Framework asks for it."""
        return True

    def is_current(self, found: Identity) -> bool:
        return found.annotations == self.ctx.configmap_identity() and found.uid not in self.ctx.tracker.absence.late

    def has_lost(self, found: Identity) -> bool:  # noqa: ARG002 - as of Pods
        """Return False: only Pods are untied from their attempt."""
        return False

    def record_creation(self, uid: str) -> None:
        framework_machine.record_creation(self.ctx, uid)

    def take_refusal(self, result: Result) -> None:
        if isinstance(result, Refused) and is_quota_refusal(result):
            stall_by_quota(self.ctx, self.target, result)
        hold(self.ctx, self.target, result, "create")

    def report_field(self, action: Create, *, kept: bool | None) -> None:
        """Do nothing: only of Pods a field is asked for."""

    def replace(self, found: Identity) -> Action:
        return action_on_unrecorded(self.target, found, self.ctx.configmap_identity())

    def take_deletion(self, action: Delete, result: Result) -> bool:
        tracker = self.ctx.tracker
        if self.state is State.DELETION_PENDING:
            tracker.holds.release(None)
            tracker.move_framework(State.DELETION_REQUESTED, self.ctx.env.second)
        elif self.state is State.CREATION_REQUESTED and action.confirm and isinstance(result, Gone):
            tracker.holds.release(None)
            self.handle_unseen()
        else:
            return False
        return True

    def record_absence(self) -> None:
        known = self.ctx.tracker.absence
        known.configmap = Known.ABSENT
        if known.wanted:
            self.ctx.tracker.agenda.look()

    def end_without_object(self) -> None:
        """End an attempt that the user stopped before it had a ConfigMap, once it has no Pods."""
        if self.ctx.tracker.absence.pods_remain:
            back_off_quietly(self.ctx, self.target, "Pods of the FrameworkAttempt may still run")
            return
        self.ctx.tracker.holds.release(None)
        framework_machine.end_attempt(self.ctx, why_end_at_once(self.ctx) or STOPPED)

    def handle_unseen(self) -> None:
        framework_machine.handle_unseen_configmap(self.ctx)

    def force_deletion(self, found: Identity) -> None:
        """Do nothing: only Pods are deleted by force."""


_Owned = _Pod | _ConfigMap
