"""Gangs: one PodGroup per attempt and group of roles, before the first Pod of the group.

Source: docs/lifecycle.md, "Gangs". The Pod of an ended Task is deleted, so a group with a fixed minimum could never be
complete again after the retry of a Task. So the minimum follows the number of Tasks that are still to run, by the
stored status, and may have Pods. It is 1 once the group was placed. Within an attempt it is never raised.

Costs the number of groups, not of Tasks: ``GangState`` counts these.
"""

from __future__ import annotations

from typing import ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objectkinds import PODGROUPS
from frameworkcontroller.api.objects import CompanionRecord, Framework, Identity, PodRecord
from frameworkcontroller.api.podgroups import DROPPABLE, IMMUTABLE_VERSION, GangScheduler, PodGroupRecord
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.machine.kernel.actions import Create, Outcome, Patch
from frameworkcontroller.machine.kernel.agenda import PERSISTED
from frameworkcontroller.machine.kernel.context import SHOW_CHECKPOINT_SEC, Context
from frameworkcontroller.machine.kernel.exchanges import Exists, Patched
from frameworkcontroller.machine.kernel.holds import ObjectKey, Stall, Wait
from frameworkcontroller.machine.kernel.model import Limits, NotListed
from frameworkcontroller.machine.kernel.outcomes import (
    FAILURES_TO_STALL_WHILE_DELETED,
    Presence,
    back_off,
    controls,
    presence_of,
    record_answer,
    report_listing,
    take_object,
    watch_end,
)
from frameworkcontroller.machine.kernel.part import Part
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason
from frameworkcontroller.machine.kernel.requests import Kind, Refusal, Refused, Target
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.gangs.gangstate import (
    GANGS,
    GangReason,
    GangState,
    GroupState,
    gang_state,
    group_of,
)
from frameworkcontroller.machine.parts.gangs.podgroupbodies import (
    Group,
    Member,
    dropped_fields,
    minimum_in_spec,
    minimum_patch,
    podgroup_body,
)

TELL_SEC: Final = 60.0
"""Least time between two messages of the scheduler in the status. It has another one for each of its attempts."""


# --- the part -----------------------------------------------------------------------------------------------------


class GangPart(Part):
    """The PodGroups of ``spec.scheduling``."""

    reasons: ClassVar[type[Reason]] = GangReason
    kinds: ClassVar[frozenset[Kind]] = PODGROUPS
    not_answered: ClassVar[Reason] = GangReason.NOT_ANSWERED

    def ensure(self, ctx: Context) -> bool:
        """Stall the Framework while its gangs are refused, or PodGroups cannot be listed."""
        if ctx.framework.spec.scheduling is not None:
            ctx.tracker.holds.set_stall(GANGS, _unsupported(ctx))
        return True

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return framework.spec.scheduling is None

    def why_not_create_configmap(self, ctx: Context) -> Wait | None:
        """Why the attempt does not begin: its gangs are refused, or PodGroups cannot be listed."""
        if ctx.framework.spec.scheduling is None:
            return None
        if (stall := _unsupported(ctx)) is not None:
            return Wait(GangReason.PENDING, stall.message)
        if isinstance(ctx.observed.find_companion(gang_state(ctx).gangs.kind, ctx.framework.name), NotListed):
            return Wait(RequestReason.WAITING, "PodGroups are not listed yet")
        return None

    def before_tasks(self, ctx: Context) -> None:
        """Create the PodGroups that Pods wait for, and lower minimums to the Tasks that are still to run."""
        if ctx.framework.spec.scheduling is None or ctx.framework.deleting or ctx.tracker.is_completing or ctx.ends:
            return
        state = gang_state(ctx)
        if (live := state.count_live(ctx.tracker)) is None:
            return
        messages: dict[str, None] = {}
        for group in state.gangs.groups:
            if group.waits and not ctx.has_started(group.roles[0].name):
                continue
            count = sum(ctx.may_have_pods(role.name, live.get(role.name, 0)) for role in group.roles)
            if message := _PodGroup(ctx, state, group, count).ensure():
                messages[message] = None
        _leave_out(ctx, state)
        _show(ctx, state, "; ".join(messages))

    def why_not_create_pod(self, ctx: Context, task: TaskStatus) -> Wait | None:
        """Why the Pod of a Task waits for its PodGroup."""
        if (group := group_of(ctx, task.role)) is None or group.left_out:
            return None
        if group.lowering:
            return Wait(RequestReason.WAITING, f"The minimum of PodGroup {group.name} is lowered first")
        if group.exists:
            return None
        # Usually, it takes a moment.
        reason = GangReason.PENDING if group.failing else RequestReason.WAITING
        return Wait(reason, f"PodGroup {group.name} does not exist yet")

    def shape(self, ctx: Context, role: TaskRoleSpec) -> Member | None:
        """The fields that put Pods of the role into their group; None without spec.scheduling."""
        if (group := group_of(ctx, role.name)) is None:
            return None
        gangs = gang_state(ctx).gangs
        return Member(gangs.scheduler, "" if group.left_out else group.name, gangs.filled_in)

    def creating_pod(self, ctx: Context, task: TaskStatus) -> tuple[str, ...]:
        """Ask for the field that puts the Pod into its group: once for each group."""
        role, group = ctx.framework.spec.role(task.role), group_of(ctx, task.role)
        member = None if role is None else self.shape(ctx, role)
        if group is None or member is None or group.checked or not member.field:
            return ()
        group.checked = True
        return tuple(member.field)

    def pod_answered(self, ctx: Context, task: TaskStatus, pod: str, *, kept: bool | None) -> None:
        """Stall the Framework if the API server does not keep the group of a Pod."""
        if (group := group_of(ctx, task.role)) is None:
            return
        if kept is None:
            group.checked = False
        elif kept:
            ctx.tracker.holds.end_stall(GANGS, GangReason.UNSUPPORTED)
        else:
            text = (
                f"The API server dropped spec.schedulingGroup of Pod {pod}: its feature GenericWorkload is off. "
                "The Pods of the Framework run, and are placed one by one"
            )
            ctx.tracker.holds.stalls[GANGS] = Stall(GangReason.UNSUPPORTED, text)

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        """Record that the group of a Task was placed, as its Pod is on a node."""
        if pod.node_name and not task.is_leaving and (group := group_of(ctx, task.role)) is not None:
            gang_state(ctx).record_placed(ctx.tracker, group.name)

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        is_of_gang = isinstance(key, str) and (key == GANGS or key.partition("/")[0] in PODGROUPS)
        return is_of_gang and ctx.framework.spec.scheduling is not None

    def target_of(self, tracker: Tracker, record: CompanionRecord) -> Target | None:
        """The target of a PodGroup, which is of the current attempt."""
        return Target(Kind(record.kind), record.name, 0 if tracker.status is None else tracker.status.attempt.id)

    def take(self, ctx: Context, outcome: Outcome) -> None:
        tracker, action, result, target = ctx.tracker, outcome.action, outcome.result, outcome.action.target
        if ctx.attempt.id != target.attempt_id:
            return
        state = tracker.find_part(GangState)
        group = GroupState(target.name) if state is None else state.group(target.name)
        match action, result:
            case Patch(resource_version=version), Patched() if version:
                # The cache may not show it yet.
                group.sent = group.asked or group.sent
            case Patch(resource_version=version), Refused(kind=Refusal.INVALID) if version:
                group.fixed = True
                tracker.agenda.look()
                return
            case Create(), Exists(found=Identity() as found) if not controls(action, found) and _is_older(ctx, found):
                # Its own garbage collection, or a finalizer, takes that long. It is never used.
                text = f"{target.kind} {target.name} ({found.uid}) of an earlier attempt still exists"
                back_off(ctx, target, text, GangReason.NOT_GONE, patience=FAILURES_TO_STALL_WHILE_DELETED)
                tracker.agenda.look()
                record_answer(tracker, target, None)
                return
            case Create(), Exists(found=Identity() as found) if controls(action, found) and not found.deleting:
                # It may have lost the label by which it is watched: then its minimum would never be lowered.
                labels = orjson.dumps({"metadata": {"labels": {names.FRAMEWORK_NAME: ctx.framework.name}}})
                tracker.follow_ups.append(Patch(target, found.uid, labels))
        take_object(ctx, action, result, GangReason.CREATED)


def _is_older(ctx: Context, found: Identity) -> bool:
    """Whether a PodGroup of the name is of another attempt of the Framework."""
    is_of_framework = found.annotations is not None and found.annotations[0] == ctx.framework.uid
    return is_of_framework and found.controller_uid is not None


def _unsupported(ctx: Context) -> Stall | None:
    """Why the gangs are refused, or PodGroups cannot be listed."""
    state = gang_state(ctx)
    if state.refusal:
        return Stall(GangReason.UNSUPPORTED, state.refusal)
    kind = state.gangs.kind
    found = ctx.observed.find_companion(kind, ctx.framework.name)
    if not isinstance(found, NotListed) or not found.problem:
        return None
    if found.not_served:
        return Stall(GangReason.UNSUPPORTED, f"spec.scheduling: {found.problem}")
    return Stall(GangReason.NOT_LISTED, f"Cannot list {kind}s, which spec.scheduling needs: {found.problem}")


# --- while the attempt runs ---------------------------------------------------------------------------------------


class _PodGroup:
    """The PodGroup of one group of roles in a plan. ``live``: the number of its Tasks that are still to run."""

    def __init__(self, ctx: Context, gang: GangState, group: Group, live: int) -> None:
        self.ctx = ctx
        self.gang = gang
        self.group = group
        self.live = live
        self.state = gang.group(group.name)
        self.target = Target(gang.gangs.kind, group.name, ctx.attempt.id)
        self.holds = ctx.tracker.holds
        self.is_placed = group.name in gang.placed
        most = minimum_in_spec(ctx.framework.spec)
        self.wanted = 1 if self.is_placed else max(1, live if most is None else min(most, live))

    def ensure(self) -> str:
        """Create the group or lower its minimum. Return the scheduler's reason not to place it, "" if there is none."""
        ctx, state, configmap_uid = self.ctx, self.state, self.ctx.attempt.configmap_uid
        presence, problem = presence_of(ctx, self.target, lambda found: found.controller_uid == configmap_uid)
        found = ctx.observed.find_companion(self.target.kind, self.target.name)
        state.ending = presence is Presence.ENDING or (isinstance(found, NotListed) and found.not_served)
        state.has_existed |= presence in (Presence.PRESENT, Presence.ENDING)
        # Until a group of Kubernetes was placed, its Pods hold it, and it can still be placed: others may join it.
        is_held = presence is Presence.ENDING and not self.is_placed
        if presence is not Presence.PRESENT and not is_held:
            state.exists = False
            if self.live:
                self._create(presence, problem)
            failing = self.holds.has_failed(self.target.key) or self.target.key in self.holds.stalls
            _wake(ctx, state.failing != failing)
            state.failing = failing
            return ""
        if not state.exists:
            self.holds.release(self.target.key)
            state.failing, state.exists = False, True
            _wake(ctx, True)
        if is_held:
            watch_end(ctx, self.target, GangReason.NOT_GONE)
        if not isinstance(found, PodGroupRecord) or found.identity.controller_uid != configmap_uid:
            return ""
        if found.placed:
            self.gang.record_placed(ctx.tracker, self.group.name)
        self._watch_dropped(found)
        self._lower(found)
        self._show_checkpoint(found)
        return (
            f"PodGroup {self.group.name} is not placed: {found.message}" if found.message and not self.is_placed else ""
        )

    def _create(self, presence: Presence, problem: str) -> None:
        ctx, target, tracker = self.ctx, self.target, self.ctx.tracker
        report_listing(ctx, target, problem, GangReason.NOT_LISTED, "spec.scheduling")
        if presence is Presence.ENDING:
            self.holds.end_stall(target.key, GangReason.NOT_GONE)
        if presence is not Presence.ABSENT:
            return
        if self._has_other_pods():
            # They will never be members, so that the gang could not be complete.
            self.gang.record_placed(tracker, self.group.name)
            tracker.agenda.look(None, PERSISTED)
        elif ctx.persist_head_first():
            attempt = ctx.attempt.id, ctx.attempt.configmap_uid or ""
            version = ctx.observed.served_version(target.kind)
            gangs = self.gang.gangs
            body = podgroup_body(ctx.framework, gangs, self.group, self.wanted, attempt=attempt, version=version)
            tracker.expectations.send(target, ctx.env.clock)
            ctx.act(Create(target, body, attempt[1]))

    def _has_other_pods(self) -> bool:
        """Whether Pods of the group's roles were created before it: the spec or the configuration has changed.

        After a restart also if another client has deleted the group.
        """
        begun = self.ctx.tracker.life.begun
        return not (self.state.has_existed or self.is_placed) and any(role.name in begun for role in self.group.roles)

    def _watch_dropped(self, found: PodGroupRecord) -> None:
        """Stall the Framework if the API server has dropped a field of the group. The group is placed without it."""
        scheduling = self.ctx.framework.spec.scheduling
        if scheduling is None or self.gang.gangs.scheduler is not GangScheduler.KUBERNETES:
            return
        text, dropped = "", dropped_fields(scheduling, found.kept)
        if dropped:
            gates = ", ".join(DROPPABLE[name] for name in dropped)
            text = (
                f"The API server dropped {', '.join(dropped)} of PodGroup {self.target.name}: its feature {gates} is "
                "off. The Pods of the group are placed without"
            )
        self.holds.set_stall(f"{self.target.key}/spec", Stall(GangReason.UNSUPPORTED, text) if text else None)

    def _lower(self, found: PodGroupRecord) -> None:
        """Lower the minimum of a group to the Tasks that are still to run."""
        ctx, state, wanted = self.ctx, self.state, self.wanted
        minimum, version = found.minimum, found.resource_version
        if state.sent is not None and state.sent[0] == version:
            # The cache does not show the change yet.
            minimum = min(minimum, state.sent[1])
        else:
            state.sent = None
        is_due = minimum > wanted and (not found.identity.deleting or state.ending)
        native = self.gang.gangs.scheduler is GangScheduler.KUBERNETES
        is_fixed = state.fixed or (native and ctx.observed.served_version(self.target.kind) == IMMUTABLE_VERSION)
        if is_due and not is_fixed:
            state.asked = (version, wanted)
            ctx.act(Patch(self.target, found.uid, minimum_patch(self.gang.gangs, self.group, wanted), version))
        state.stuck = is_due and self.is_placed and is_fixed
        # New Pods join the group, or none if the patch is refused.
        lowering = is_due and self.is_placed and not is_fixed
        _wake(ctx, state.lowering != lowering)
        state.lowering = lowering
        if not is_due or not is_fixed or self.is_placed:
            self.holds.end_stall(self.target.key, GangReason.UNSUPPORTED)
            return
        why = f"only {self.live} Tasks are still to run" if self.live < minimum else f"minCount is {wanted} by now"
        text = (
            f"PodGroup {self.group.name} waits for {minimum} Pods, and {why}: this version of Kubernetes cannot lower "
            "its minimum. Restart the Framework, for example by spec.suspend"
        )
        self.holds.stalls[self.target.key] = Stall(GangReason.UNSUPPORTED, text)

    def _show_checkpoint(self, found: PodGroupRecord) -> None:
        """Show the attempt's last checkpoint on the group, for schedulers that choose whom to preempt."""
        ctx, state, time = self.ctx, self.state, self.ctx.checkpoint_time
        if not time or found.last_checkpoint == time or any(one.target == self.target for one in ctx.plan.actions):
            return
        if (due := max(state.checkpoint_due, self.holds.until(self.target.key))) > ctx.env.clock:
            ctx.tracker.agenda.look(None, due)
        else:
            state.checkpoint_due = ctx.env.clock + SHOW_CHECKPOINT_SEC
            change = {"metadata": {"annotations": {names.LAST_CHECKPOINT: time}}}
            ctx.act(Patch(self.target, found.uid, orjson.dumps(change)))


def _wake(ctx: Context, changed: bool) -> None:
    """Plan the Tasks again that wait for a group, if its state has changed."""
    for reason in (RequestReason.WAITING, GangReason.PENDING) if changed else ():
        ctx.tracker.agenda.wake(ctx.tracker.holds.waiters(reason))


def _leave_out(ctx: Context, state: GangState) -> None:
    """Let new Pods of groups that were placed, and whose minimum stays too high or that are lost, join none.

    A native PodGroup that another client deletes stays until no Pod refers to it.
    """
    changed = False
    for name, group in state.groups.items():
        left_out = name in state.placed and (group.ending or group.stuck)
        changed |= left_out != group.left_out
        group.left_out = left_out
    if changed:
        ctx.tracker.life.templates.clear()
        _wake(ctx, True)


def _show(ctx: Context, state: GangState, message: str) -> None:
    """Show why groups are not placed, in the scheduler's words."""
    shown, since = state.shown
    if message == shown:
        return
    if message and shown and ctx.env.clock < since + TELL_SEC:
        ctx.tracker.agenda.look(None, since + TELL_SEC)
        return
    state.shown = (message, ctx.env.clock)
    ctx.tracker.holds.wait(None, Wait(GangReason.PENDING, message) if message else None)
