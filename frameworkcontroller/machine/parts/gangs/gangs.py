"""Gangs: one PodGroup per attempt and group of roles, before the first Pod of the group.

Source: docs/lifecycle.md, "Gangs". A Pod is deleted when its Task has ended, so that a group of a fixed minimum could
never be complete again, once a Task is retried after another has completed. So the minimum follows the Tasks that are
still to run, as the stored status shows them, and of these as many as may have Pods. It is 1 once the group was placed.
Within an attempt it is never raised.

Costs the number of groups, not of Tasks: ``GangState`` counts these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

import orjson

from frameworkcontroller.api.names import FRAMEWORK_NAME
from frameworkcontroller.api.objectkinds import PODGROUPS
from frameworkcontroller.api.objects import CompanionRecord, Identity, PodRecord
from frameworkcontroller.api.podgroups import DROPPABLE, IMMUTABLE_VERSION, GangScheduler, PodGroupRecord
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.machine.kernel.actions import Create, Outcome, Patch
from frameworkcontroller.machine.kernel.agenda import PERSISTED
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import Exists, Patched
from frameworkcontroller.machine.kernel.holds import ObjectKey, Stall, Wait
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.outcomes import (
    FAILURES_TO_STALL_WHILE_DELETED,
    Presence,
    answered,
    back_off,
    controls,
    presence_of,
    take_object,
    watch_end,
)
from frameworkcontroller.machine.kernel.part import Part
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason, stall, wait
from frameworkcontroller.machine.kernel.requests import Kind, Refusal, Refused, Target
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.gangs.gangstate import GangState, GroupState, known
from frameworkcontroller.machine.parts.gangs.podgroupbodies import (
    Group,
    Member,
    dropped_fields,
    minimum_in_spec,
    minimum_patch,
    podgroup_body,
)

GANGS: Final = "PodGroups"
"""Key of the stalls of all gangs."""

TELL_SEC: Final = 60.0
"""The scheduler's message changes with each of its attempts: it is shown this often at most."""


class GangReason(Reason):
    """The reasons of ``spec.scheduling``."""

    CREATED = "PodGroupCreated", "a PodGroup was created, by which a scheduler places Pods together"
    PENDING = wait(
        "PodGroupPending", "a PodGroup of spec.scheduling does not exist yet, or its scheduler does not place it"
    )
    UNSUPPORTED = stall(
        "GangUnsupported",
        "the scheduler or the API server does not support spec.scheduling; if Pods run, they are placed one by one",
    )
    NOT_GONE = stall("PodGroupNotGone", "a PodGroup of an earlier attempt, or one that was deleted, still exists")
    NOT_ANSWERED = stall("PodGroupNotAnswered", "requests for a PodGroup of spec.scheduling failed several times")
    NOT_LISTED = stall("PodGroupNotListed", "PodGroups cannot be listed, which spec.scheduling needs")


# --- the state ----------------------------------------------------------------------------------------------------


# --- the part -----------------------------------------------------------------------------------------------------


class GangPart(Part):
    """The PodGroups of ``spec.scheduling``."""

    reasons: ClassVar[type[Reason]] = GangReason
    kinds: ClassVar[frozenset[Kind]] = PODGROUPS
    not_answered: ClassVar[Reason] = GangReason.NOT_ANSWERED

    def ensure(self, ctx: Context) -> bool:
        """Stall the Framework while its gangs are refused, or PodGroups cannot be listed."""
        if ctx.framework.spec.scheduling is not None:
            stall, stalls = _unsupported(ctx), ctx.tracker.holds.stalls
            if stall is not None:
                stalls[GANGS] = stall
            else:
                stalls.pop(GANGS, None)
        return True

    def may_begin(self, ctx: Context) -> Wait | None:
        """Why the attempt does not begin: its gangs are refused, or PodGroups cannot be listed."""
        if ctx.framework.spec.scheduling is None:
            return None
        stall = _unsupported(ctx)
        if stall is not None:
            return Wait(GangReason.PENDING, stall.message)
        if isinstance(ctx.observed.find_companion(known(ctx).gangs.kind, ctx.framework.name), NotListed):
            return Wait(RequestReason.WAITING, "PodGroups are not listed yet")
        return None

    def before_tasks(self, ctx: Context) -> None:
        """Create the PodGroups that Pods wait for, and lower minimums to the Tasks that are still to run."""
        if ctx.framework.spec.scheduling is None or ctx.framework.deleting or ctx.tracker.is_completing or ctx.ends:
            return
        state = known(ctx)
        live = state.count_live(ctx.tracker)
        if live is None:
            return
        messages: dict[str, None] = {}
        for group in state.gangs.groups:
            if group.waits and not ctx.has_started(group.roles[0].name):
                continue
            count = sum(ctx.may_have_pods(role.name, live.get(role.name, 0)) for role in group.roles)
            message = _keep_group(ctx, state, group, count)
            if message:
                messages[message] = None
        _leave_out(ctx, state)
        _tell(ctx, state, "; ".join(messages))

    def may_create(self, ctx: Context, task: TaskStatus) -> Wait | None:
        """Why the Pod of a Task waits for its PodGroup."""
        spec = ctx.framework.spec
        if spec.scheduling is None or (role := spec.role(task.role)) is None:
            return None
        name = spec.group_of(ctx.framework.name, role)
        group = known(ctx).group(name)
        if group.left_out:
            return None
        if group.lowering:
            return Wait(RequestReason.WAITING, f"The minimum of PodGroup {name} is lowered first")
        if group.exists:
            return None
        # Usually, it takes a moment.
        reason = GangReason.PENDING if group.failing else RequestReason.WAITING
        return Wait(reason, f"PodGroup {name} does not exist yet")

    def shape(self, ctx: Context, role: TaskRoleSpec) -> Member | None:
        """The fields that put Pods of the role into their group; None without spec.scheduling."""
        spec = ctx.framework.spec
        if spec.scheduling is None:
            return None
        state, name = known(ctx), spec.group_of(ctx.framework.name, role)
        joined = "" if state.group(name).left_out else name
        return Member(state.gangs.scheduler, joined, state.gangs.filled_in)

    def creating_pod(self, ctx: Context, task: TaskStatus) -> tuple[str, ...]:
        """Ask for the field that puts the Pod into its group: once for each group."""
        role = ctx.framework.spec.role(task.role)
        joins = None if role is None else self.shape(ctx, role)
        if joins is None or not (path := joins.field):
            return ()
        group = known(ctx).group(joins.group)
        if group.checked:
            return ()
        group.checked = True
        return tuple(path)

    def pod_answered(self, ctx: Context, task: TaskStatus, pod: str, *, kept: bool | None) -> None:
        """Stall the Framework if the API server does not keep the group of a Pod."""
        spec = ctx.framework.spec
        if spec.scheduling is None or (role := spec.role(task.role)) is None:
            return
        if kept is None:
            known(ctx).group(spec.group_of(ctx.framework.name, role)).checked = False
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
        spec = ctx.framework.spec
        if spec.scheduling is None or not pod.node_name or task.deletion_pending:
            return
        if (role := spec.role(task.role)) is not None:
            known(ctx).record_placed(ctx.tracker, spec.group_of(ctx.framework.name, role))

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        """Whether it is the key of a PodGroup, or of all, and the spec has some."""
        is_of_gang = isinstance(key, str) and (key == GANGS or key.partition("/")[0] in PODGROUPS)
        return is_of_gang and ctx.framework.spec.scheduling is not None

    def target_of(self, tracker: Tracker, record: CompanionRecord) -> Target | None:
        """The target of a PodGroup, which is of the current attempt."""
        target = Target(Kind(record.kind), record.name)
        return target if tracker.status is None else replace(target, attempt_id=tracker.status.attempt.id)

    def take(self, ctx: Context, outcome: Outcome) -> None:
        """Fold the outcome of the creation or the change of a PodGroup."""
        tracker, action, result, target = ctx.tracker, outcome.action, outcome.result, outcome.action.target
        if ctx.attempt.id != target.attempt_id:
            return
        state = tracker.find_part(GangState)
        group = GroupState() if state is None else state.group(target.name)
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
                answered(tracker, target, None)
                return
            case Create(), Exists(found=Identity() as found) if controls(action, found) and not found.deleting:
                # It may have lost the label by which it is watched: then its minimum would never be lowered.
                labels = orjson.dumps({"metadata": {"labels": {FRAMEWORK_NAME: ctx.framework.name}}})
                tracker.follow_ups.append(Patch(target, found.uid, labels))
        take_object(ctx, action, result, GangReason.CREATED)


def _is_older(ctx: Context, found: Identity) -> bool:
    """Whether a PodGroup of the name is of another attempt of the Framework."""
    if found.controller_uid is None or found.annotations is None:
        return False
    return found.annotations[0] == ctx.framework.uid


def _unsupported(ctx: Context) -> Stall | None:
    state = known(ctx)
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


def _keep_group(ctx: Context, state: GangState, group: Group, live: int) -> str:
    """Create the group or lower its minimum. Return the scheduler's reason not to place it, "" if there is none."""
    tracker, target = ctx.tracker, _target(ctx, state, group)
    holds, name, known_of = tracker.holds, group.name, state.group(group.name)
    configmap_uid = ctx.attempt.configmap_uid
    presence, problem = presence_of(ctx, target, lambda found: found.controller_uid == configmap_uid)
    found = ctx.observed.find_companion(target.kind, name)
    is_lost = presence is Presence.ENDING or (isinstance(found, NotListed) and found.not_served)
    known_of.ending = is_lost
    if presence in (Presence.PRESENT, Presence.ENDING):
        known_of.has_existed = True
    # Until a group of Kubernetes was placed, its Pods hold it, and it can still be placed: others may join it.
    is_held = presence is Presence.ENDING and name not in state.placed
    if presence is not Presence.PRESENT and not is_held:
        known_of.exists = False
        _create(ctx, state, group, live, presence, problem)
        failing = holds.has_failed(target.key) or target.key in holds.stalls
        _note(ctx, known_of.failing != failing)
        known_of.failing = failing
        return ""
    if not known_of.exists:
        holds.release(target.key)
        known_of.failing, known_of.exists = False, True
        _note(ctx, True)
    if is_held:
        watch_end(ctx, target, GangReason.NOT_GONE)
    if not isinstance(found, PodGroupRecord) or found.identity.controller_uid != configmap_uid:
        return ""
    if found.placed:
        state.record_placed(tracker, name)
    _tell_dropped(ctx, state, target, found)
    _lower(ctx, state, group, target, found, live)
    return f"PodGroup {name} is not placed: {found.message}" if found.message and name not in state.placed else ""


def _tell_dropped(ctx: Context, state: GangState, target: Target, found: PodGroupRecord) -> None:
    """Stall the Framework if the API server has dropped a field of the group. The group is placed without it."""
    scheduling, stalls = ctx.framework.spec.scheduling, ctx.tracker.holds.stalls
    if scheduling is None or state.gangs.scheduler is not GangScheduler.KUBERNETES:
        return
    key = f"{target.key}/spec"
    if not (dropped := dropped_fields(scheduling, found.kept)):
        stalls.pop(key, None)
        return
    gates = ", ".join(DROPPABLE[name] for name in dropped)
    text = (
        f"The API server dropped {', '.join(dropped)} of PodGroup {target.name}: its feature {gates} is off. "
        "The Pods of the group are placed without"
    )
    stalls[key] = Stall(GangReason.UNSUPPORTED, text)


def _note(ctx: Context, changed: bool) -> None:
    """Plan the Tasks again that wait for a group, if what they wait for has changed."""
    if changed:
        for reason in (RequestReason.WAITING, GangReason.PENDING):
            ctx.tracker.agenda.wake(ctx.tracker.holds.waiters(reason))


def _create(ctx: Context, state: GangState, group: Group, live: int, presence: Presence, problem: str) -> None:
    tracker, target, holds = ctx.tracker, _target(ctx, state, group), ctx.tracker.holds
    if not live:
        return
    if problem:
        text = f"Cannot list {target.kind}s, which spec.scheduling needs: {problem}"
        holds.stalls[target.key] = Stall(GangReason.NOT_LISTED, text)
    else:
        holds.end_stall(target.key, GangReason.NOT_LISTED)
    if presence is Presence.ENDING:
        holds.end_stall(target.key, GangReason.NOT_GONE)
    elif presence is Presence.ABSENT and _has_other_pods(ctx, state, group):
        # They will never be members, so that the gang could not be complete.
        state.record_placed(tracker, group.name)
        tracker.agenda.look(None, PERSISTED)
    elif presence is Presence.ABSENT and not tracker.is_head_settled:
        tracker.agenda.look(None, PERSISTED)
        tracker.hasten()
    elif presence is Presence.ABSENT:
        configmap_uid = ctx.attempt.configmap_uid or ""
        body = podgroup_body(
            ctx.framework,
            state.gangs,
            group,
            _wanted(ctx, state, group, live),
            attempt=(ctx.attempt.id, configmap_uid),
            version=ctx.observed.served_version(target.kind),
        )
        tracker.expectations.send(target, ctx.env.clock)
        ctx.act(Create(target, body, configmap_uid))


def _has_other_pods(ctx: Context, state: GangState, group: Group) -> bool:
    """Whether Pods of the group's roles were created when it did not exist: the spec or the configuration has changed.

    After a restart also if others have deleted it.
    """
    if state.group(group.name).has_existed or group.name in state.placed:
        return False
    return any(role.name in ctx.tracker.life.begun for role in group.roles)


def _lower(ctx: Context, state: GangState, group: Group, target: Target, found: PodGroupRecord, live: int) -> None:
    """Lower the minimum of a group to the Tasks that are still to run."""
    holds, name, version = ctx.tracker.holds, group.name, found.resource_version
    minimum, wanted, known_of = found.minimum, _wanted(ctx, state, group, live), state.group(name)
    if known_of.sent is not None and known_of.sent[0] == version:
        # The cache does not show the change yet.
        minimum = min(minimum, known_of.sent[1])
    else:
        known_of.sent = None
    is_due = minimum > wanted and (not found.identity.deleting or known_of.ending)
    is_fixed, is_placed = _is_fixed(ctx, state, known_of), name in state.placed
    if is_due and not is_fixed:
        known_of.asked = (version, wanted)
        ctx.act(Patch(target, found.uid, minimum_patch(state.gangs, group, wanted), version))
    known_of.stuck = is_due and is_placed and is_fixed
    # New Pods join the group, or none if the patch is refused.
    lowering = is_due and is_placed and not is_fixed
    _note(ctx, known_of.lowering != lowering)
    known_of.lowering = lowering
    if is_due and is_fixed and not is_placed:
        why = f"only {live} Tasks are still to run" if live < minimum else f"minCount is {wanted} by now"
        text = (
            f"PodGroup {name} waits for {minimum} Pods, and {why}: this version of Kubernetes cannot lower its "
            "minimum. Restart the Framework, for example by spec.suspend"
        )
        holds.stalls[target.key] = Stall(GangReason.UNSUPPORTED, text)
    else:
        holds.end_stall(target.key, GangReason.UNSUPPORTED)


def _wanted(ctx: Context, state: GangState, group: Group, live: int) -> int:
    """The minimum of a group of which ``live`` Tasks are still to run."""
    if group.name in state.placed:
        return 1
    most = minimum_in_spec(ctx.framework.spec)
    return max(1, live if most is None else min(most, live))


def _is_fixed(ctx: Context, state: GangState, group: GroupState) -> bool:
    """Whether the minimum of the group cannot be changed."""
    native = state.gangs.scheduler is GangScheduler.KUBERNETES
    return group.fixed or (native and ctx.observed.served_version(state.gangs.kind) == IMMUTABLE_VERSION)


def _leave_out(ctx: Context, state: GangState) -> None:
    """Let new Pods of groups that were placed, and whose minimum stays too high or that are lost, join none.

    A native PodGroup that others delete stays until no Pod refers to it.
    """
    changed = False
    for name, group in state.groups.items():
        left_out = name in state.placed and (group.ending or group.stuck)
        changed |= left_out != group.left_out
        group.left_out = left_out
    if changed:
        ctx.tracker.life.templates.clear()
        _note(ctx, True)


def _tell(ctx: Context, state: GangState, message: str) -> None:
    """Show why groups are not placed, in the scheduler's words."""
    shown, since = state.told
    if message == shown:
        return
    if message and shown and ctx.env.clock < since + TELL_SEC:
        ctx.tracker.agenda.look(None, since + TELL_SEC)
        return
    state.told = (message, ctx.env.clock)
    ctx.tracker.holds.wait(None, Wait(GangReason.PENDING, message) if message else None)


def _target(ctx: Context, state: GangState, group: Group) -> Target:
    return Target(state.gangs.kind, group.name, ctx.attempt.id)
