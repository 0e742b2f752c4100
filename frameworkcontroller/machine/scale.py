"""Rescale: add, mark and remove roles and Tasks of the status as the spec demands. A leaving Task is never reused.

Source: docs/lifecycle.md, "Rescale". Pods are created and deleted by later plans, once the changes are persisted.
"""

from __future__ import annotations

from typing import NamedTuple

from frameworkcontroller.api.completion import DELETE_TASK_REQUESTED, CompletionStatus
from frameworkcontroller.api.spec import PodForceDeletionPolicy, TaskRoleSpec, TaskSpec
from frameworkcontroller.api.status import AutoscalingStatus, State, TaskAttemptStatus, TaskRoleStatus, TaskStatus
from frameworkcontroller.machine.gates import save_attempt
from frameworkcontroller.machine.kernel.context import Context, count_tasks
from frameworkcontroller.machine.kernel.model import Env, SnapshotTrigger, Urgency
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.lifereasons import LifeReason

SCALED_DOWN = CompletionStatus.of(DELETE_TASK_REQUESTED, "User has requested to delete the Task by Framework ScaleDown")


def new_role(spec: TaskRoleSpec, env: Env) -> TaskRoleStatus:
    return TaskRoleStatus(
        name=spec.name,
        instance_uid=env.new_uid(),
        pod_graceful_deletion_timeout_sec=spec.task.pod_graceful_deletion_timeout_sec,
        pod_force_deletion_policy=_force_deletion_policy(spec.task),
        tasks=[new_task(spec.name, index, env) for index in range(spec.task_number)],
        autoscaling=None if spec.autoscaling is None else AutoscalingStatus(spec.task_number, env.new_uid()),
    )


def new_task(role: str, index: int, env: Env) -> TaskStatus:
    now = env.second
    return TaskStatus(
        role=role,
        index=index,
        instance_uid=env.new_uid(),
        start_time=now,
        transition_time=now,
        attempt=TaskAttemptStatus(id=0, start_time=now),
    )


def rescale(ctx: Context) -> bool:
    """Adapt roles and Tasks of the status to the spec. Return whether changes must be persisted first.

    Costs the number of Tasks, so it runs only if the spec changed or a leaving Task completed (``Agenda.roles_due``).
    """
    tracker = ctx.tracker
    if not tracker.agenda.roles_due or tracker.is_completing or ctx.status.state in ENDED:
        return False
    before = {role: role.tasks for role in ctx.attempt.roles}
    after = {role: list(tasks) for role, tasks in before.items()}
    waits = persist_first = False
    for role in before:
        spec = ctx.framework.spec.role(role.name)
        change = _rescale_role(ctx, role.name, after[role], spec)
        waits |= change.waits
        persist_first |= change.persist_first
        if spec is None and not after[role]:
            del after[role]
            persist_first = True
            ctx.record(LifeReason.TASK_ROLE_DELETED, f"TaskRole {role.name} and its last Task are gone")
    for spec in ctx.framework.spec.task_roles:
        if spec.name not in tracker.roles:
            role = new_role(spec, ctx.env)
            after[role] = role.tasks
            persist_first = True
            ctx.record(
                LifeReason.TASK_ROLE_SCALED, f"TaskRole {spec.name} was added with {count_tasks(spec.task_number)}"
            )
    tracker.agenda.roles_due = waits or persist_first
    if after != before:
        tracker.rescale(after)
    if persist_first:
        tracker.agenda.look()
        tracker.change(ctx.status, Urgency.NOW)
    return persist_first


def copy_forced_deletion(ctx: Context) -> bool:
    """Copy podGracefulDeletionTimeoutSec and podForceDeletionPolicy into the roles.

    Return whether changes must be persisted first.
    """
    if ctx.status.state is State.COMPLETED:
        return False
    changed = False
    for spec in ctx.framework.spec.task_roles:
        role = ctx.tracker.roles.get(spec.name)
        seconds, policy = spec.task.pod_graceful_deletion_timeout_sec, spec.task.pod_force_deletion_policy
        if role is None or (
            seconds == role.pod_graceful_deletion_timeout_sec
            and policy == (role.pod_force_deletion_policy or PodForceDeletionPolicy.ALWAYS)
        ):
            continue
        ctx.tracker.set_forced_deletion(role, seconds, _force_deletion_policy(spec.task))
        changed = True
    if changed:
        ctx.tracker.look_at_all()
    return changed


def _force_deletion_policy(spec: TaskSpec) -> str | None:
    """The policy in the status, where None stands for the default."""
    policy = spec.pod_force_deletion_policy
    return None if policy is PodForceDeletionPolicy.ALWAYS else policy.value


class _Change(NamedTuple):
    """The change of a role: whether completed Tasks wait for their persistence, and whether it must be persisted first.

    The removal of Tasks that have left must not: they no longer count, and nothing of them runs.
    """

    waits: bool
    persist_first: bool


def _rescale_role(ctx: Context, role: str, tasks: list[TaskStatus], spec: TaskRoleSpec | None) -> _Change:
    """Adapt the Tasks of a role."""
    waits = persist_first = False
    wanted = 0 if spec is None else spec.task_number
    forgettable = {task for task in tasks if _has_left(task) and _forget(ctx, task)}
    while len(tasks) > wanted and _has_left(tasks[-1]):
        if not ctx.tracker.is_settled(tasks[-1]):
            waits = True
            ctx.tracker.persist_first(tasks[-1].key)
            break
        if tasks[-1] not in forgettable:
            break
        task = tasks.pop()
        persist_first |= True in [part.task_removed(ctx, task, spec) for part in ctx.parts.task_removed]
        ctx.snapshot_task(SnapshotTrigger.TASK_DELETION, task)
        ctx.record(LifeReason.TASK_DELETED, f"Task instance {task.instance_uid} is gone by ScaleDown", task)
    for position, task in enumerate(tasks[:wanted]):
        if not _has_left(task):
            continue
        if not ctx.tracker.is_settled(task):
            waits = True
            ctx.tracker.persist_first(task.key)
            continue
        if task not in forgettable:
            continue
        ctx.snapshot_task(SnapshotTrigger.TASK_DELETION, task)
        tasks[position] = new_task(role, position, ctx.env)
        persist_first = True
        text = f"gone by ScaleDown, is replaced by {tasks[position].instance_uid}"
        ctx.record(LifeReason.TASK_REPLACED, f"Task instance {task.instance_uid}, {text}", task)
    leaving = [task for task in reversed(tasks[wanted:]) if not task.is_leaving]
    for task in leaving:
        ctx.tracker.mark_leaving(task, SCALED_DOWN)
        ctx.tracker.agenda.look(task.key)
        ctx.record(LifeReason.TASK_DELETION_PENDING, SCALED_DOWN.diagnostics, task)
    if leaving:
        text = f"TaskRole {role} is scaled down by {len(leaving)} to {count_tasks(wanted)}"
        ctx.record(LifeReason.TASK_ROLE_SCALED, text)
    if (added := wanted - len(tasks)) > 0:
        tasks += [new_task(role, index, ctx.env) for index in range(len(tasks), wanted)]
        text = f"TaskRole {role} is scaled up by {added} to {count_tasks(wanted)}"
        ctx.record(LifeReason.TASK_ROLE_SCALED, text)
    return _Change(waits, persist_first or bool(leaving) or added > 0)


def _forget(ctx: Context, task: TaskStatus) -> bool:
    """Prepare the removal or replacement of a Task that has left. Return whether it may be removed."""
    return ctx.tracker.is_settled(task) and save_attempt(ctx, SnapshotTrigger.TASK_DELETION, task)


def _has_left(task: TaskStatus) -> bool:
    return task.is_leaving and task.state is State.COMPLETED
