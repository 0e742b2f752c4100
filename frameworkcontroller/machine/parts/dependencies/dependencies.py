"""The order of roles: a role with dependsOn waits in each attempt until all of its dependencies hold at the same time.

Source: docs/lifecycle.md, "Dependencies". The start of a role is persisted before its first Pod is created, and stays
for the attempt. Costs the number of roles with dependencies, not of Tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from frameworkcontroller.api.completion import CompletionStatus, Trigger
from frameworkcontroller.api.spec import Dependency, DependencyStatus, TaskRoleSpec
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Wait
from frameworkcontroller.machine.kernel.policy import completed_tasks
from frameworkcontroller.machine.kernel.reasons import Reason


def watch_readiness(ctx: Context) -> None:
    """Count the ready Pods of the roles that others wait for, and only of those."""
    awaited = {
        dependency.name
        for role in _waiting(ctx)
        for dependency in role.depends_on
        if dependency.status is DependencyStatus.READY
    }
    ctx.tracker.watch_readiness(awaited)


def start_roles(ctx: Context) -> None:
    """Start the roles whose dependencies hold, and those that had Pods before they had dependencies."""
    tracker = ctx.tracker
    for role in _waiting(ctx):
        if role.name not in tracker.begun:
            if not all(_holds(ctx, dependency) for dependency in role.depends_on):
                continue
            held = " and ".join(f"TaskRole {one.name} is {one.status}" for one in role.depends_on)
            ctx.record(Reason.TASK_ROLE_STARTED, f"TaskRole {role.name} starts, as {held}")
        tracker.start_role(tracker.roles[role.name])


def dependency_wait(ctx: Context, task: TaskStatus) -> Wait | None:
    """Why the Pods of the Task's role are not created yet; None once its start is persisted."""
    role = ctx.framework.spec.role(task.role)
    if role is None or not role.depends_on or ctx.tracker.has_started(role.name):
        return None
    return _wait_for(role.name, role.depends_on)


@lru_cache(maxsize=1024)
def _wait_for(role: str, dependencies: tuple[Dependency, ...]) -> Wait:
    awaited = " and ".join(f"TaskRole {one.name} is {one.status}" for one in dependencies)
    return Wait(Reason.DEPENDENCY_PENDING, f"TaskRole {role} waits until {awaited}")


def unmet_dependency(ctx: Context) -> CompletionStatus | None:
    """The completion of an attempt in which a role waits for a dependency that can no longer hold."""
    if not ctx.framework.spec.dependents:
        return None
    for role in _waiting(ctx):
        if role.task_number == 0 or role.name in ctx.tracker.begun:
            continue
        for dependency in role.depends_on:
            counts = ctx.tracker.role_counts.get(dependency.name)
            if dependency.status is not DependencyStatus.COMPLETE or counts is None or not counts.failed:
                continue
            for task in completed_tasks(ctx.tracker, dependency.name, "Failed"):
                what = f"TaskRole {role.name} depends on TaskRole {dependency.name} being Complete"
                trigger = Trigger(f"{what}, which it can no longer be", task.role, task.index)
                if (completion := task.attempt.completion_status) is not None:
                    return replace(completion, trigger=trigger, pod=None, policy=None)
    return None


def awaited(ctx: Context, status: DependencyStatus) -> Iterator[tuple[str, str]]:
    """Yield the roles that have not started, and one with Tasks that has not the status each waits for."""
    for role in _waiting(ctx):
        if role.task_number and role.name not in ctx.tracker.begun:
            for dependency in role.depends_on:
                known = dependency.name in ctx.tracker.role_counts
                if dependency.status is status and known and not _holds(ctx, dependency):
                    yield role.name, dependency.name


def waiting_for(ctx: Context, roles: Iterable[str]) -> set[str]:
    """The roles that wait for these, or for a role that does. Costs the number of dependencies."""
    waiters: dict[str, list[str]] = {}
    for status in DependencyStatus:
        for role, other in awaited(ctx, status):
            waiters.setdefault(other, []).append(role)
    found: set[str] = set()
    left = list(roles)
    while left:
        for role in waiters.pop(left.pop(), ()):
            if role not in found:
                found.add(role)
                left.append(role)
    return found


def _waiting(ctx: Context) -> list[TaskRoleSpec]:
    """The roles with dependencies that have not started."""
    roles = ctx.tracker.roles
    return [spec for spec in ctx.framework.spec.dependents if spec.name in roles and not roles[spec.name].started]


def _holds(ctx: Context, dependency: Dependency) -> bool:
    counts, role = ctx.tracker.role_counts.get(dependency.name), ctx.framework.spec.role(dependency.name)
    if counts is None or role is None:
        return False
    if dependency.status is DependencyStatus.COMPLETE:
        return counts.succeeded == role.task_number
    ready = len(ctx.tracker.readiness.get(dependency.name, ()))
    return ready + counts.succeeded + counts.failed == role.task_number
