"""The part of ``taskRoles[].autoscaling``: a FrameworkRoleScaler per role, by which others set its number of Tasks.

Source: docs/lifecycle.md, "Autoscaling". The number that an object asks for, within the bounds of the spec, goes into
the status of its role. The machine goes by it once that is persisted (``specreading.adapted``), as by an edit of
``taskNumber``. No attempt waits for an object.

An object is used only if it has the id in the status of its role. Autoscaling that is switched off and on again, or a
role that is removed and added again, has another id: an object from before cannot scale it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework, Identity, ScalerRecord
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import (
    AutoscalingStatus,
    FrameworkAttemptStatus,
    State,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.machine.kernel.actions import Create, Delete, Outcome, Patch
from frameworkcontroller.machine.kernel.agenda import PERSISTED
from frameworkcontroller.machine.kernel.context import Context, count_tasks
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone, NotAttempted, Outdated, Patched, Result
from frameworkcontroller.machine.kernel.holds import ObjectKey
from frameworkcontroller.machine.kernel.manifests import framework_reference
from frameworkcontroller.machine.kernel.model import Limits, NotListed, Urgency
from frameworkcontroller.machine.kernel.outcomes import (
    Presence,
    controls,
    drop,
    hold,
    presence_of,
    report_listing,
    take_object,
    watch_end,
)
from frameworkcontroller.machine.kernel.part import Part, PartState
from frameworkcontroller.machine.kernel.reasons import Reason, event, stall
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker

SHOW_SEC: Final = 1.0
"""Least time between two changes of an object's status."""

_NEEDED_BY: Final = "taskRoles[].autoscaling"
_WITH_POD: Final = frozenset({State.CREATION_REQUESTED, State.PREPARING, State.RUNNING})
_OFF: Final = AutoscalingStatus(0)


class AutoscalingReason(Reason):
    """The reasons of ``taskRoles[].autoscaling``."""

    CREATED = "RoleScalerCreated", "a FrameworkRoleScaler was created, by which an autoscaler sets a number of Tasks"
    SCALED = event("TaskRoleAutoscaled", "the number of Tasks of a role changes, by its FrameworkRoleScaler or bounds")
    NOT_GONE = stall(
        "RoleScalerNotGone", "a FrameworkRoleScaler was deleted, and still exists long after its deletion was due"
    )
    NOT_ANSWERED = stall("RoleScalerNotAnswered", "requests for a FrameworkRoleScaler failed several times")
    NOT_LISTED = stall(
        "RoleScalerNotListed", "FrameworkRoleScalers cannot be listed, which taskRoles[].autoscaling needs"
    )


@dataclass(slots=True)
class _Scaler:
    """In-memory state of one object."""

    present: bool = False
    """Whether it was present in the last plan."""
    shown: int | None = None
    """The number of Tasks in its status, None if it is not known."""
    sent: str = ""
    """The resourceVersion in the cache when ``shown`` was sent, "" if the cache has shown it."""
    due: float = 0.0
    """When (monotonic seconds) its status may change again."""


class ScalerState(PartState):
    """In-memory state of the objects of a Framework, and the number of its Tasks with a Pod by role."""

    __slots__ = ("_active", "scalers", "to_shrink")
    listens: ClassVar[bool] = True

    def __init__(self) -> None:
        self.to_shrink: set[str] = set()
        """The roles that may not shrink yet."""
        self.scalers: dict[str, _Scaler] = {}
        """The objects that exist or may exist, by role."""
        self._active: dict[str, int] | None = None

    @staticmethod
    def set(tracker: Tracker, role: TaskRoleStatus, value: AutoscalingStatus | None, urgency: Urgency) -> None:
        """Set the autoscaling of a role. The plan after it is persisted goes by it."""
        role.autoscaling = value
        tracker.change(None, urgency)
        tracker.agenda.look(None, PERSISTED)

    def count(self, tracker: Tracker, role: str) -> int:
        """The number of Tasks of the role with a Pod. The first call costs the number of all Tasks."""
        if self._active is None:
            self._active = {}
            for task in tracker.tasks():
                if not task.is_leaving:
                    self.on_count(task, 1)
        return self._active.get(role, 0)

    def on_count(self, task: TaskStatus, step: int) -> None:
        if self._active is not None and task.state in _WITH_POD:
            self._active[task.role] = self._active.get(task.role, 0) + step

    def on_index(self, tracker: Tracker) -> None:
        self._active = {}


class AutoscalingPart(Part):
    """The FrameworkRoleScalers of a Framework, and the numbers of Tasks that they set."""

    reasons: ClassVar[type[Reason]] = AutoscalingReason
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.ROLE_SCALER})
    not_answered: ClassVar[Reason] = AutoscalingReason.NOT_ANSWERED

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return not framework.spec.autoscaled and tracker.find_part(ScalerState) is None

    def observe_generation(self, ctx: Context) -> None:
        """Find the objects of earlier specs."""
        if not ctx.framework.invalid:
            found = [role.name for role in ctx.attempt.roles if role.autoscaling is not None]
            if found or ctx.framework.spec.autoscaled:
                ctx.tracker.part(ScalerState)

    # --- numbers ---

    def begin(self, ctx: Context) -> None:
        """Take the numbers of the objects into the status. Between two attempts, the next one takes them."""
        if ctx.framework.invalid or ctx.framework.deleting:
            return
        paused = ctx.tracker.is_completing or ctx.status.state in ENDED
        for role in ctx.attempt.roles:
            spec = ctx.framework.spec.role(role.name)
            if spec is None or spec.autoscaling is None:
                if role.autoscaling is not None and role.autoscaling.scaler_id:
                    ScalerState.set(ctx.tracker, role, _OFF, Urgency.SOON)
            elif not paused:
                self._take_number(ctx, role, spec)

    def _take_number(self, ctx: Context, role: TaskRoleStatus, spec: TaskRoleSpec) -> None:
        known, number = role.autoscaling, spec.task_number
        if known is None or not known.scaler_id:
            ScalerState.set(ctx.tracker, role, AutoscalingStatus(number, ctx.env.new_uid()), Urgency.NOW)
            return
        found, asked, generation = self._found(ctx, role.name), None, known.scaler_generation
        # A cache may be older than the status.
        if found is not None and _is_current(ctx, found.identity, known) and found.generation >= generation:
            asked, generation = found.replicas, found.generation
        wanted = known.task_number if asked is None else asked
        if spec.autoscaling is not None:
            wanted = spec.autoscaling.bounded(wanted)
        to_shrink = ctx.tracker.part(ScalerState).to_shrink
        to_shrink.discard(role.name)
        if wanted < number and not ctx.may_shrink(role.name):
            to_shrink.add(role.name)
            wanted = number
        if wanted == known.task_number:
            return
        ScalerState.set(ctx.tracker, role, AutoscalingStatus(wanted, known.scaler_id, generation), Urgency.NOW)
        name = self._name(ctx, role.name)
        why = "by its bounds" if asked is None else f"as FrameworkRoleScaler {name} asks for {asked}"
        text = f"TaskRole {role.name} is scaled from {known.task_number} to {count_tasks(wanted)}, {why}"
        ctx.record(AutoscalingReason.SCALED, text)

    def begin_attempt(self, ctx: Context, attempt: FrameworkAttemptStatus) -> None:
        """Let roles keep their objects. Their numbers are kept by the spec that the machine goes by."""
        before = {role.name: role.autoscaling for role in ctx.attempt.roles if role.autoscaling is not None}
        for role in attempt.roles:
            known = before.get(role.name)
            if known is not None and known.scaler_id and role.autoscaling is not None:
                kept = replace(known, task_number=role.autoscaling.task_number)
                ScalerState.set(ctx.tracker, role, kept, Urgency.NOW)

    # --- objects ---

    def before(self, ctx: Context) -> None:
        """Create the objects of roles with autoscaling, show their Tasks, and delete the objects of other roles."""
        if ctx.framework.invalid or ctx.framework.deleting:
            return
        state = ctx.tracker.part(ScalerState)
        kept = {}
        for role in ctx.attempt.roles:
            if (known := role.autoscaling) is not None:
                state.scalers.setdefault(role.name, _Scaler())
                if known.scaler_id:
                    kept[role.name] = known
        for name in list(state.scalers):
            if name in kept:
                self._keep(ctx, name, kept[name])
            elif self._remove(ctx, name):
                del state.scalers[name]
                role_status = ctx.tracker.roles.get(name)
                if role_status is not None and role_status.autoscaling is not None:
                    ScalerState.set(ctx.tracker, role_status, None, Urgency.LATER)

    def _keep(self, ctx: Context, role: str, known: AutoscalingStatus) -> None:
        target, scaler, holds = self._target(ctx, role), ctx.tracker.part(ScalerState).scalers[role], ctx.tracker.holds
        presence, problem = self._presence(ctx, target)
        report_listing(ctx, target, problem, AutoscalingReason.NOT_LISTED, _NEEDED_BY)
        if presence is Presence.ENDING:
            watch_end(ctx, target, AutoscalingReason.NOT_GONE)
        else:
            holds.end_stall(target.key, AutoscalingReason.NOT_GONE)
        if presence is not Presence.PRESENT:
            scaler.present, scaler.shown = False, None
            if presence is Presence.ABSENT and ctx.status.state is not State.COMPLETED:
                self._create(ctx, target, role, known)
            return
        if not scaler.present:
            scaler.present = True
            holds.release(target.key)
        if (found := self._found(ctx, role)) is None or found.identity.controller_uid != ctx.framework.uid:
            return
        if not _is_current(ctx, found.identity, known):
            ctx.act(Delete(target, found.uid, unrecorded=True))
        else:
            self._show(ctx, target, role, found)

    def _create(self, ctx: Context, target: Target, role: str, known: AutoscalingStatus) -> None:
        """Create the object with the number of the status, once that is persisted. Its generations begin again."""
        if known.scaler_generation:
            fresh = AutoscalingStatus(known.task_number, ctx.env.new_uid())
            ScalerState.set(ctx.tracker, ctx.tracker.roles[role], fresh, Urgency.SOON)
        if ctx.persist_head_first():
            ctx.tracker.expectations.send(target, ctx.env.clock)
            ctx.act(Create(target, scaler_body(ctx.framework, role, known), ctx.framework.uid))

    def _show(self, ctx: Context, target: Target, role: str, found: ScalerRecord) -> None:
        """Set the status of the object: the number of Tasks with a Pod, and the selector of the Pods."""
        state, clock, selector = ctx.tracker.part(ScalerState), ctx.env.clock, selector_of(ctx.framework.name, role)
        scaler = state.scalers[role]
        if scaler.sent != found.resource_version:
            # The cache may show a version from before the change. It is sent again then.
            scaler.shown, scaler.sent = (found.shown if found.selector == selector else None), ""
        number = state.count(ctx.tracker, role)
        if scaler.shown == number:
            return
        if (due := max(scaler.due, ctx.tracker.holds.until(target.key))) > clock:
            ctx.tracker.agenda.look(target.key, due)
            return
        scaler.shown, scaler.sent, scaler.due = number, found.resource_version, clock + SHOW_SEC
        change = orjson.dumps({"status": {"replicas": number, "selector": selector}})
        ctx.act(Patch(target, found.uid, change, subresource="status"))

    def _remove(self, ctx: Context, role: str) -> bool:
        """Delete the object of a role without autoscaling. Return whether there is none, or it is being deleted.

        A finalizer may keep that indefinitely. It is never used.
        """
        target = self._target(ctx, role)
        presence, _ = self._presence(ctx, target)
        found = ctx.observed.find_companion(target.kind, target.name)
        if isinstance(found, NotListed):
            return found.not_served
        known = ctx.tracker.expectations.confirmed.get(target)
        # That autoscaling is off is persisted first.
        if presence is Presence.PRESENT and ctx.persist_head_first():
            uid = known.uid if known is not None else "" if found is None else found.uid
            ctx.act(Delete(target, uid, unrecorded=True))
        is_over = presence in {Presence.ABSENT, Presence.ENDING}
        if is_over:
            ctx.tracker.holds.release(target.key)
        return is_over

    def finish(self, ctx: Context) -> None:
        """Plan again when a status is to change, and when a role may shrink now."""
        if (state := ctx.tracker.find_part(ScalerState)) is None:
            return
        if any(ctx.may_shrink(role) for role in state.to_shrink):
            state.to_shrink.clear()
            ctx.tracker.agenda.look(None)
        for role, scaler in state.scalers.items():
            if scaler.present and scaler.shown is not None and scaler.shown != state.count(ctx.tracker, role):
                key = self._target(ctx, role).key
                ctx.tracker.agenda.look(key, max(scaler.due, ctx.tracker.holds.until(key), ctx.env.clock))

    # --- outcomes ---

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        return any(self._target(ctx, role.name).key == key for role in ctx.framework.spec.autoscaled)

    def take(self, ctx: Context, outcome: Outcome) -> None:
        action, result = outcome.action, outcome.result
        if isinstance(action, Create):
            if isinstance(result, Exists) and result.found is not None and controls(action, result.found):
                # It may have lost the label by which it is watched.
                labels = orjson.dumps({"metadata": {"labels": {names.FRAMEWORK_NAME: ctx.framework.name}}})
                ctx.tracker.follow_ups.append(Patch(action.target, result.found.uid, labels))
                # Another client may remove it again at once.
                ctx.tracker.holds.hold_repetition(action.target.key, ctx.env)
            take_object(ctx, action, result, AutoscalingReason.CREATED)
        elif isinstance(action, Patch):
            self._take_change(ctx, action.target, action.uid, result, "change")
        elif isinstance(action, Delete):
            self._take_change(ctx, action.target, action.uid, result, "delete")

    def _take_change(self, ctx: Context, target: Target, uid: str, result: Result, verb: str) -> None:
        tracker, state = ctx.tracker, ctx.tracker.part(ScalerState)
        tracker.agenda.look(target.key)
        if isinstance(result, Patched):
            tracker.holds.release(target.key)
            return
        for role, scaler in state.scalers.items():
            if verb == "change" and self._target(ctx, role) == target:
                scaler.shown, scaler.sent = None, ""
        match result:
            case NotAttempted() | Outdated():
                pass
            case Accepted():
                # The cache may still show it.
                tracker.holds.hold_repetition(target.key, ctx.env)
            case Gone():
                drop(ctx.parts, tracker, target, uid)
                tracker.holds.hold_repetition(target.key, ctx.env)
            case _:
                hold(ctx, target, result, verb)

    # --- helpers ---

    def _name(self, ctx: Context, role: str) -> str:
        return names.scaler_name(ctx.framework.name, role)

    def _target(self, ctx: Context, role: str) -> Target:
        return Target(Kind.ROLE_SCALER, self._name(ctx, role))

    def _presence(self, ctx: Context, target: Target) -> tuple[Presence, str]:
        return presence_of(ctx, target, lambda found: found.controller_uid == ctx.framework.uid)

    def _found(self, ctx: Context, role: str) -> ScalerRecord | None:
        """The object in the cache, which may be another owner's."""
        found = ctx.observed.find_companion(Kind.ROLE_SCALER, self._name(ctx, role))
        return found if isinstance(found, ScalerRecord) else None


def _is_current(ctx: Context, found: Identity, known: AutoscalingStatus) -> bool:
    """Whether the object is the one that sets the number of its role."""
    is_ours = found.controller_uid == ctx.framework.uid and not found.deleting
    return is_ours and found.annotations == (ctx.framework.uid, known.scaler_id)


def selector_of(framework: str, role: str) -> str:
    """The selector of the Pods of a role, as text."""
    return f"{names.FRAMEWORK_NAME}={framework},{names.TASKROLE_NAME}={role}"


def scaler_body(framework: Framework, role: str, known: AutoscalingStatus) -> bytes:
    """The FrameworkRoleScaler of a role as JSON. It asks for the number in the status."""
    resource = Kind.ROLE_SCALER.resource
    return orjson.dumps(
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": names.scaler_name(framework.name, role),
                "namespace": framework.namespace,
                "labels": {names.FRAMEWORK_NAME: framework.name, names.TASKROLE_NAME: role},
                "annotations": {
                    names.FRAMEWORK_NAMESPACE: framework.namespace,
                    names.FRAMEWORK_NAME: framework.name,
                    names.TASKROLE_NAME: role,
                    names.FRAMEWORK_UID: framework.uid,
                    names.SCALER_ID: known.scaler_id,
                },
                "ownerReferences": [framework_reference(framework)],
            },
            "spec": {"replicas": known.task_number},
        }
    )
