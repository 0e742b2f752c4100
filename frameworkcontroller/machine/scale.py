"""Rescale: add, mark and remove roles and Tasks of the status as the spec demands. A leaving Task is never reused.

Source: docs/lifecycle.md, "Rescale". Pods are created and deleted by later plans, once the changes are persisted.
"""

from __future__ import annotations

from frameworkcontroller.api.completion import DELETE_TASK_REQUESTED, CompletionStatus
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import State, TaskAttemptStatus, TaskRoleStatus, TaskStatus
from frameworkcontroller.machine.context import Context, count_tasks
from frameworkcontroller.machine.model import Env, Trigger, Urgency
from frameworkcontroller.machine.reasons import Reason
from frameworkcontroller.machine.states import ENDED

SCALED_DOWN = CompletionStatus.of(DELETE_TASK_REQUESTED, "User has requested to delete the Task by Framework ScaleDown")


def new_role(spec: TaskRoleSpec, env: Env) -> TaskRoleStatus:
    """A new role with new Tasks."""
    return TaskRoleStatus(
        name=spec.name,
        instance_uid=env.new_uid(),
        pod_graceful_deletion_timeout_sec=spec.task.pod_graceful_deletion_timeout_sec,
        tasks=[new_task(spec.name, index, env) for index in range(spec.task_number)],
    )


def new_task(role: str, index: int, env: Env) -> TaskStatus:
    """A new Task."""
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

    Costs the number of Tasks, so it runs only if the spec changed or a leaving Task completed (``rescale_due``).
    """
    tracker = ctx.tracker
    if not tracker.rescale_due or ctx.completing or ctx.status.state in ENDED:
        return False
    changed = unsettled = False
    for role in list(tracker.roles.values()):
        spec = ctx.framework.spec.role(role.name)
        role_changed, role_unsettled = _rescale_role(ctx, role, 0 if spec is None else spec.task_number)
        changed |= role_changed
        unsettled |= role_unsettled
        if spec is None and not role.tasks:
            tracker.remove_role(role)
            ctx.record(Reason.TASK_ROLE_DELETED, f"TaskRole {role.name} and its last Task are gone")
            changed = True
    for spec in ctx.framework.spec.task_roles:
        if spec.name not in tracker.roles:
            tracker.add_role(new_role(spec, ctx.env))
            ctx.record(Reason.TASK_ROLE_SCALED, f"TaskRole {spec.name} was added with {count_tasks(spec.task_number)}")
            changed = True
    if changed:
        tracker.index()
    if changed or unsettled:
        # Tasks must be persisted before they are replaced or removed: plan again then.
        tracker.again = True
        tracker.change_head(Urgency.NOW)
        return True
    tracker.rescale_due = False
    return False


def copy_deletion_timeouts(ctx: Context) -> bool:
    """Copy podGracefulDeletionTimeoutSec into the roles. Return whether changes must be persisted first."""
    if ctx.status.state is State.COMPLETED:
        return False
    changed = False
    for spec in ctx.framework.spec.task_roles:
        role = ctx.tracker.roles.get(spec.name)
        timeout = spec.task.pod_graceful_deletion_timeout_sec
        if role is not None and role.pod_graceful_deletion_timeout_sec != timeout:
            ctx.tracker.set_deletion_timeout(role, timeout)
            changed = True
    if changed:
        ctx.tracker.touch_all()
    return changed


def _rescale_role(ctx: Context, role: TaskRoleStatus, wanted: int) -> tuple[bool, bool]:
    """Return whether anything changed, and whether unpersisted Tasks prevented a change."""
    tracker = ctx.tracker
    tasks = role.tasks
    changed = unsettled = False
    while len(tasks) > wanted and _has_left(tasks[-1]):
        if not tracker.is_settled(tasks[-1]):
            unsettled = True
            break
        task = tasks[-1]
        tracker.remove_last_task(role)
        text = f"Task instance {task.instance_uid} is gone by ScaleDown"
        ctx.keep_task(Trigger.TASK_DELETION, task)
        ctx.record(Reason.TASK_DELETED, text, task)
        changed = True
    for position, task in enumerate(tasks[:wanted]):
        if not _has_left(task):
            continue
        if not tracker.is_settled(task):
            unsettled = True
            continue
        ctx.keep_task(Trigger.TASK_DELETION, task)
        replacement = new_task(role.name, position, ctx.env)
        tracker.replace_task(role, replacement)
        ctx.record(
            Reason.TASK_REPLACED,
            f"Task instance {task.instance_uid}, gone by ScaleDown, is replaced by {replacement.instance_uid}",
            replacement,
        )
        changed = True
    leaving = [task for task in reversed(tasks[wanted:]) if not task.deletion_pending]
    for task in leaving:
        tracker.mark_leaving(task, SCALED_DOWN)
        tracker.agenda.add(task.key)
        ctx.record(Reason.TASK_DELETION_PENDING, SCALED_DOWN.diagnostics, task)
    if leaving:
        text = f"TaskRole {role.name} is scaled down by {len(leaving)} to {count_tasks(wanted)}"
        ctx.record(Reason.TASK_ROLE_SCALED, text)
        changed = True
    if len(tasks) < wanted:
        added = [new_task(role.name, index, ctx.env) for index in range(len(tasks), wanted)]
        tracker.add_tasks(role, added)
        text = f"TaskRole {role.name} is scaled up by {len(added)} to {count_tasks(wanted)}"
        ctx.record(Reason.TASK_ROLE_SCALED, text)
        changed = True
    return changed, unsettled


def _has_left(task: TaskStatus) -> bool:
    return task.deletion_pending and task.state is State.COMPLETED
