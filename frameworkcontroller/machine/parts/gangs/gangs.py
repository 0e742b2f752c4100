"""Gangs: one PodGroup per attempt and group of roles, before the first Pod of the group.

Source: docs/lifecycle.md, "Gangs". A Pod is deleted when its Task has ended, so that a group of a fixed minimum could
never be complete again, once a Task is retried after another has completed. So the minimum follows the Tasks that are
still to run, as the stored status shows them, and of these as many as Kueue has admitted. It is 1 once the group was
placed. Within an attempt it is never raised.

Costs the number of groups, not of Tasks: the tracker counts these.
"""

from __future__ import annotations

from typing import Final

from frameworkcontroller.api.objects import Identity, PodRecord
from frameworkcontroller.api.podgroups import DROPPABLE, IMMUTABLE_VERSION, GangScheduler, PodGroupRecord
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.machine.kernel import companions
from frameworkcontroller.machine.kernel.actions import Create, Patch, Target
from frameworkcontroller.machine.kernel.companions import Presence
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import GANGS, Stall, Wait
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.parts.gangs.podgroupbodies import (
    GangPlans,
    Group,
    Member,
    dropped_fields,
    gangs_of,
    minimum_in_spec,
    minimum_patch,
    podgroup_body,
    refusal,
)
from frameworkcontroller.machine.parts.kueue import kueue

TELL_SEC: Final = 60.0
"""The scheduler's message changes with each of its attempts: it is shown this often at most."""


def known(ctx: Context) -> GangPlans:
    """What is known of the gangs of the attempt. The spec has ``scheduling``."""
    plans, generation = ctx.tracker.gangs, ctx.framework.generation
    if plans is not None and plans.generation == generation:
        return plans
    limits = ctx.env.limits
    gangs = gangs_of(ctx.framework, limits.gang_scheduler, limits.gang_scheduler_name)
    problem = refusal(ctx.framework, gangs)
    text = "" if problem is None else str(problem)
    if plans is None:
        plans = ctx.tracker.gangs = GangPlans(gangs, generation, text)
    else:
        plans.gangs, plans.generation, plans.refusal = gangs, generation, text
    return plans


# --- before the attempt -------------------------------------------------------------------------------------------


def begin_wait(ctx: Context) -> Wait | None:
    """Why the attempt does not begin: its gangs are refused, or PodGroups cannot be listed."""
    if ctx.framework.spec.scheduling is None:
        return None
    stall = _unsupported(ctx)
    if stall is not None:
        return Wait(Reason.POD_GROUP_PENDING, stall.message)
    plans = known(ctx)
    if isinstance(ctx.observed.find_companion(plans.gangs.kind, ctx.framework.name), NotListed):
        return Wait(Reason.WAITING, "PodGroups are not listed yet")
    return None


def tell_unsupported(ctx: Context) -> None:
    """Stall the Framework while its gangs are refused, or PodGroups cannot be listed."""
    stall, stalls = _unsupported(ctx), ctx.tracker.holds.stalls
    if stall is not None:
        stalls[GANGS] = stall
    else:
        stalls.pop(GANGS, None)


def _unsupported(ctx: Context) -> Stall | None:
    plans = known(ctx)
    if plans.refusal:
        return Stall(Reason.GANG_UNSUPPORTED, plans.refusal)
    kind = plans.gangs.kind
    found = ctx.observed.find_companion(kind, ctx.framework.name)
    if not isinstance(found, NotListed) or not found.problem:
        return None
    if found.not_served:
        return Stall(Reason.GANG_UNSUPPORTED, f"spec.scheduling: {found.problem}")
    return Stall(Reason.POD_GROUP_NOT_LISTED, f"Cannot list {kind}s, which spec.scheduling needs: {found.problem}")


# --- while the attempt runs ---------------------------------------------------------------------------------------


def keep(ctx: Context) -> None:
    """Create the PodGroups that Pods wait for, and lower minimums to the Tasks that are still to run."""
    tracker, plans = ctx.tracker, known(ctx)
    live = tracker.count_live()
    if live is None:
        return
    messages: dict[str, None] = {}
    for group in plans.gangs.groups:
        if group.waits and not _has_started(ctx, group):
            continue
        count = sum(kueue.count_admitted(ctx, role.name, live.get(role.name, 0)) for role in group.roles)
        message = _keep_group(ctx, plans, group, count)
        if message:
            messages[message] = None
    _choose_singles(ctx, plans)
    _tell(ctx, plans, "; ".join(messages))


def _has_started(ctx: Context, group: Group) -> bool:
    name = group.roles[0].name
    return name in ctx.tracker.roles and ctx.tracker.has_started(name)


def _keep_group(ctx: Context, plans: GangPlans, group: Group, live: int) -> str:
    """Create the group or lower its minimum. Return the scheduler's reason not to place it, "" if there is none."""
    tracker, target = ctx.tracker, _target(ctx, plans, group)
    holds, name = tracker.holds, group.name
    configmap_uid = ctx.attempt.configmap_uid
    presence, problem = companions.look(ctx, target, lambda found: found.controller_uid == configmap_uid)
    found = ctx.observed.find_companion(target.kind, name)
    is_lost = presence is Presence.ENDING or (isinstance(found, NotListed) and found.not_served)
    if is_lost != (name in plans.ending):
        plans.ending.symmetric_difference_update({name})
    if presence in (Presence.PRESENT, Presence.ENDING):
        plans.seen.add(name)
    # Until a group of Kubernetes was placed, its Pods hold it, and it can still be placed: others may join it.
    is_held = presence is Presence.ENDING and not _is_placed(ctx, name)
    if presence is not Presence.PRESENT and not is_held:
        plans.exists.discard(name)
        _create(ctx, plans, group, live, presence, problem)
        _note(ctx, plans.failing, name, isin=holds.has_failed(target.key) or target.key in holds.stalls)
        return ""
    if name not in plans.exists:
        holds.release(target.key)
        _note(ctx, plans.failing, name, isin=False)
        _note(ctx, plans.exists, name, isin=True)
    if is_held:
        companions.watch_end(ctx, target, Reason.POD_GROUP_NOT_GONE)
    if not isinstance(found, PodGroupRecord) or found.identity.controller_uid != configmap_uid:
        return ""
    if found.placed:
        tracker.record_placed(name)
    _tell_dropped(ctx, plans, target, found)
    _lower(ctx, plans, group, target, found, live)
    return f"PodGroup {name} is not placed: {found.message}" if found.message and not _is_placed(ctx, name) else ""


def _tell_dropped(ctx: Context, plans: GangPlans, target: Target, found: PodGroupRecord) -> None:
    """Stall the Framework if the API server has dropped a field of the group. The group is placed without it."""
    scheduling, stalls = ctx.framework.spec.scheduling, ctx.tracker.holds.stalls
    if scheduling is None or plans.gangs.scheduler is not GangScheduler.KUBERNETES:
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
    stalls[key] = Stall(Reason.GANG_UNSUPPORTED, text)


def _note(ctx: Context, groups: set[str], name: str, *, isin: bool) -> None:
    """Add the group to the set, or take it out, and plan the Tasks again that wait for one."""
    if (name in groups) != isin:
        groups.symmetric_difference_update({name})
        _wake(ctx)


def _wake(ctx: Context) -> None:
    for reason in (Reason.WAITING, Reason.POD_GROUP_PENDING):
        ctx.tracker.wake(reason)


def _create(ctx: Context, plans: GangPlans, group: Group, live: int, presence: Presence, problem: str) -> None:
    tracker, target, holds = ctx.tracker, _target(ctx, plans, group), ctx.tracker.holds
    if not live:
        return
    if problem:
        text = f"Cannot list {target.kind}s, which spec.scheduling needs: {problem}"
        holds.stalls[target.key] = Stall(Reason.POD_GROUP_NOT_LISTED, text)
    else:
        holds.end_stall(target.key, Reason.POD_GROUP_NOT_LISTED)
    if presence is Presence.ENDING:
        holds.end_stall(target.key, Reason.POD_GROUP_NOT_GONE)
    elif presence is Presence.ABSENT and _has_other_pods(ctx, plans, group):
        # They will never be members, so that the gang could not be complete.
        tracker.record_placed(group.name)
        plans.blocked = True
    elif presence is Presence.ABSENT and not tracker.is_head_settled:
        plans.blocked = True
        tracker.hasten()
    elif presence is Presence.ABSENT:
        configmap_uid = ctx.attempt.configmap_uid or ""
        body = podgroup_body(
            ctx.framework,
            plans.gangs,
            group,
            _wanted(ctx, group, live),
            attempt=(ctx.attempt.id, configmap_uid),
            version=ctx.observed.served_version(target.kind),
        )
        tracker.companion_wanted(target, ctx.env.clock)
        ctx.act(Create(target, body, configmap_uid))


def _has_other_pods(ctx: Context, plans: GangPlans, group: Group) -> bool:
    """Whether Pods of the group's roles were created when it did not exist: the spec or the configuration has changed.

    After a restart also if others have deleted it.
    """
    if group.name in plans.seen or _is_placed(ctx, group.name):
        return False
    return any(role.name in ctx.tracker.begun for role in group.roles)


def _lower(ctx: Context, plans: GangPlans, group: Group, target: Target, found: PodGroupRecord, live: int) -> None:
    """Lower the minimum of a group to the Tasks that are still to run."""
    holds, name, version = ctx.tracker.holds, group.name, found.resource_version
    minimum, wanted = found.minimum, _wanted(ctx, group, live)
    before, sent = plans.sent.get(name, ("", 0))
    if before == version:
        # The cache does not show the change yet.
        minimum = min(minimum, sent)
    else:
        plans.sent.pop(name, None)
    is_due = minimum > wanted and (not found.identity.deleting or name in plans.ending)
    is_fixed, is_placed = _is_fixed(ctx, plans, name), _is_placed(ctx, name)
    if is_due and not is_fixed:
        plans.asked[name] = (version, wanted)
        ctx.act(Patch(target, found.uid, minimum_patch(plans.gangs, group, wanted), version))
    if (is_due and is_placed and is_fixed) != (name in plans.stuck):
        plans.stuck.symmetric_difference_update({name})
    # New Pods join the group, or none if the patch is refused.
    _note(ctx, plans.lowering, name, isin=is_due and is_placed and not is_fixed)
    if is_due and is_fixed and not is_placed:
        why = f"only {live} Tasks are still to run" if live < minimum else f"minCount is {wanted} by now"
        text = (
            f"PodGroup {name} waits for {minimum} Pods, and {why}: this version of Kubernetes cannot lower its "
            "minimum. Restart the Framework, for example by spec.suspend"
        )
        holds.stalls[target.key] = Stall(Reason.GANG_UNSUPPORTED, text)
    else:
        holds.end_stall(target.key, Reason.GANG_UNSUPPORTED)


def _wanted(ctx: Context, group: Group, live: int) -> int:
    """The minimum of a group of which ``live`` Tasks are still to run."""
    if _is_placed(ctx, group.name):
        return 1
    most = minimum_in_spec(ctx.framework.spec)
    return max(1, live if most is None else min(most, live))


def _is_placed(ctx: Context, group: str) -> bool:
    """Whether the group was placed in this attempt, which is persisted."""
    return group in ctx.tracker.placed_groups


def _is_fixed(ctx: Context, plans: GangPlans, group: str) -> bool:
    """Whether the minimum of the group cannot be changed."""
    if group in plans.fixed:
        return True
    native = plans.gangs.scheduler is GangScheduler.KUBERNETES
    return native and ctx.observed.served_version(plans.gangs.kind) == IMMUTABLE_VERSION


def _choose_singles(ctx: Context, plans: GangPlans) -> None:
    """Let new Pods of groups that were placed, and whose minimum stays too high or that are lost, join none.

    A native PodGroup that others delete stays until no Pod refers to it.
    """
    singles = ctx.tracker.placed_groups & (plans.ending | plans.stuck)
    if singles != plans.singles:
        plans.singles = singles
        ctx.tracker.templates.clear()
        _wake(ctx)


def _tell(ctx: Context, plans: GangPlans, message: str) -> None:
    """Show why groups are not placed, in the scheduler's words."""
    shown, since = plans.told
    if message == shown:
        return
    if message and shown and ctx.env.clock < since + TELL_SEC:
        ctx.requeue_at(since + TELL_SEC)
        return
    plans.told = (message, ctx.env.clock)
    ctx.tracker.holds.wait(None, Wait(Reason.POD_GROUP_PENDING, message) if message else None)


# --- Pods ---------------------------------------------------------------------------------------------------------


def group_wait(ctx: Context, task: TaskStatus) -> Wait | None:
    """Why the Pod of a Task waits for its PodGroup."""
    spec = ctx.framework.spec
    if spec.scheduling is None or (role := spec.role(task.role)) is None:
        return None
    plans, name = known(ctx), spec.group_of(ctx.framework.name, role)
    if name in plans.singles:
        return None
    if name in plans.lowering:
        return Wait(Reason.WAITING, f"The minimum of PodGroup {name} is lowered first")
    if name in plans.exists:
        return None
    # Usually, it takes a moment.
    reason = Reason.POD_GROUP_PENDING if name in plans.failing else Reason.WAITING
    return Wait(reason, f"PodGroup {name} does not exist yet")


def member(ctx: Context, role: TaskRoleSpec) -> Member | None:
    """What puts Pods of the role into their group; None without spec.scheduling."""
    spec = ctx.framework.spec
    if spec.scheduling is None:
        return None
    plans, name = known(ctx), spec.group_of(ctx.framework.name, role)
    return Member(plans.gangs.scheduler, "" if name in plans.singles else name, plans.gangs.filled_in)


def look_at(ctx: Context, task: TaskStatus) -> tuple[str, ...]:
    """The path of the field that the answer to the creation of a Task's Pod is to show: once for each group."""
    role = ctx.framework.spec.role(task.role)
    joins = None if role is None else member(ctx, role)
    if joins is None or not (path := joins.field):
        return ()
    plans = known(ctx)
    if joins.group in plans.looked_at:
        return ()
    plans.looked_at.add(joins.group)
    return tuple(path)


def looked(ctx: Context, task: TaskStatus, pod: str, *, kept: bool | None) -> None:
    """The answer to the creation of a Pod shows whether the API server keeps its group. ``kept`` None: no answer."""
    spec = ctx.framework.spec
    if spec.scheduling is None or (role := spec.role(task.role)) is None:
        return
    if kept is None:
        known(ctx).looked_at.discard(spec.group_of(ctx.framework.name, role))
    elif kept:
        ctx.tracker.holds.end_stall(GANGS, Reason.GANG_UNSUPPORTED)
    else:
        text = (
            f"The API server dropped spec.schedulingGroup of Pod {pod}: its feature GenericWorkload is off. "
            "The Pods of the Framework run, and are placed one by one"
        )
        ctx.tracker.holds.stalls[GANGS] = Stall(Reason.GANG_UNSUPPORTED, text)


def observe(ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
    """Record that the group of a Task was placed, as its Pod is on a node."""
    role = ctx.framework.spec.role(task.role)
    if pod.node_name and role is not None and not task.deletion_pending:
        ctx.tracker.record_placed(ctx.framework.spec.group_of(ctx.framework.name, role))


# --- outcomes -----------------------------------------------------------------------------------------------------


def is_older(ctx: Context, found: Identity) -> bool:
    """Whether a PodGroup of the name is of another attempt of the Framework."""
    return (
        found.controller_uid is not None
        and found.annotations is not None
        and (found.annotations[0] == ctx.framework.uid)
    )


def lowered(ctx: Context, target: Target) -> None:
    """The minimum was lowered, which the cache may not show yet."""
    plans = ctx.tracker.gangs
    if plans is not None and target.name in plans.asked:
        plans.sent[target.name] = plans.asked[target.name]


def fixed(ctx: Context, target: Target) -> None:
    """The API server does not let the minimum of the group change."""
    if (plans := ctx.tracker.gangs) is not None:
        plans.fixed.add(target.name)


def _target(ctx: Context, plans: GangPlans, group: Group) -> Target:
    return Target(plans.gangs.kind, group.name, ctx.attempt.id)
