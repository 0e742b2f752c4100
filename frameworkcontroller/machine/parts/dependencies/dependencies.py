"""The order of roles: a role with dependsOn waits in each attempt until all of its dependencies hold at the same time.

Source: docs/lifecycle.md, "Dependencies". The start of a role is persisted before its first Pod is created, and stays
for the attempt. Costs the number of roles with dependencies, not of Tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from frameworkcontroller.api.completion import CompletionStatus, Trigger
from frameworkcontroller.api.objects import Framework, PodRecord
from frameworkcontroller.api.spec import Dependency, DependencyStatus, TaskRoleSpec
from frameworkcontroller.api.status import TaskRoleStatus, TaskStatus
from frameworkcontroller.machine.kernel.agenda import PERSISTED
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Wait
from frameworkcontroller.machine.kernel.model import Limits, Urgency
from frameworkcontroller.machine.kernel.part import EndPhase, Part, RoleWait
from frameworkcontroller.machine.kernel.policy import completed_tasks
from frameworkcontroller.machine.kernel.readytasks import ReadyTasks
from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason, event
from frameworkcontroller.machine.kernel.tracker import Tracker


class DependencyReason(Reason):
    """The reasons of roles with ``dependsOn``."""

    STARTED = event("TaskRoleStarted", "the dependencies of a TaskRole hold, and its Pods are created")
    PENDING = "DependencyPending", "a TaskRole waits for others, as its dependsOn says", EventPolicy.WAIT_OF_ROLE


class RoleOrder(ReadyTasks):
    """Ready Pods of the roles that others wait for, and the starts of roles that are not persisted."""

    __slots__ = ("_starting",)

    def __init__(self) -> None:
        super().__init__()
        self._starting: set[str] = set()

    def start(self, tracker: Tracker, role: TaskRoleStatus) -> None:
        """Record that the role's dependencies held, and plan its Tasks once that is persisted."""
        role.started = True
        self._starting.add(role.name)
        for task in role.tasks:
            tracker.agenda.look(task.key, PERSISTED)
        tracker.change(None, Urgency.NOW)

    def has_started(self, tracker: Tracker, role: str) -> bool:
        """Whether the start of the role is persisted."""
        return tracker.roles[role].started and role not in self._starting

    def on_persisted(self, tracker: Tracker) -> None:
        self._starting.clear()

    def on_tasks_over(self) -> None:
        super().on_tasks_over()
        self._starting.clear()


class DependencyPart(Part):
    """The order of roles by dependsOn."""

    reasons: ClassVar[type[Reason]] = DependencyReason

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return not framework.spec.dependents and tracker.find_part(RoleOrder) is None

    def before_tasks(self, ctx: Context) -> None:
        """Count the ready Pods of the roles that others wait for, and only of those."""
        known = ctx.tracker.find_part(RoleOrder)
        if not ctx.framework.spec.dependents and (known is None or not known.ready):
            return
        awaited = {
            dependency.name
            for role in _waiting(ctx)
            for dependency in role.depends_on
            if dependency.status is DependencyStatus.READY
        }
        ctx.tracker.part(RoleOrder).watch(ctx.tracker, awaited)

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        """Note whether the Pod is ready."""
        if (known := ctx.tracker.find_part(RoleOrder)) is not None:
            known.observe(task, pod)

    def after_tasks(self, ctx: Context) -> None:
        """Start the roles whose dependencies hold, and those that had Pods before they had dependencies."""
        tracker = ctx.tracker
        for role in _waiting(ctx):
            if role.name not in tracker.life.begun:
                if not all(_holds(ctx, dependency) for dependency in role.depends_on):
                    continue
                held = " and ".join(f"TaskRole {one.name} is {one.status}" for one in role.depends_on)
                ctx.record(DependencyReason.STARTED, f"TaskRole {role.name} starts, as {held}")
            tracker.part(RoleOrder).start(tracker, tracker.roles[role.name])

    def why_not_create_pod(self, ctx: Context, task: TaskStatus) -> Wait | None:
        """Why the Pods of the Task's role are not created yet; None once its start is persisted."""
        role = ctx.framework.spec.role(task.role)
        if role is None or not role.depends_on or self.has_started(ctx, role.name):
            return None
        return _wait_for(role.name, role.depends_on)

    def has_started(self, ctx: Context, role: str) -> bool:
        """Whether the start of the role is persisted, or nothing has to start it."""
        spec = ctx.framework.spec.role(role)
        if spec is None or not spec.depends_on:
            return True
        return role in ctx.tracker.roles and ctx.tracker.part(RoleOrder).has_started(ctx.tracker, role)

    def why_end(self, ctx: Context, phase: EndPhase) -> CompletionStatus | None:
        """The completion of an attempt in which a role waits for a dependency that can no longer hold."""
        if phase is EndPhase.BY_TASKS and ctx.framework.spec.dependents:
            return _unmet(ctx)
        return None

    def role_waits(self, ctx: Context) -> Iterator[RoleWait]:
        """The roles that have not started, and one with Tasks that has not the status each waits for."""
        for role in _waiting(ctx):
            if role.task_number and role.name not in ctx.tracker.life.begun:
                for dependency in role.depends_on:
                    known = dependency.name in ctx.tracker.role_counts
                    if known and not _holds(ctx, dependency):
                        yield RoleWait(role.name, dependency.name, dependency.status is DependencyStatus.READY)

    def is_watched(self, tracker: Tracker, role: str) -> bool:
        """Whether a role waits for the Pods of this one to be ready."""
        known = tracker.find_part(RoleOrder)
        return known is not None and role in known.ready


@lru_cache(maxsize=1024)
def _wait_for(role: str, dependencies: tuple[Dependency, ...]) -> Wait:
    awaited = " and ".join(f"TaskRole {one.name} is {one.status}" for one in dependencies)
    return Wait(DependencyReason.PENDING, f"TaskRole {role} waits until {awaited}")


def _unmet(ctx: Context) -> CompletionStatus | None:
    for role in _waiting(ctx):
        if role.task_number == 0 or role.name in ctx.tracker.life.begun:
            continue
        for dependency in role.depends_on:
            counts = ctx.tracker.role_counts.get(dependency.name)
            if dependency.status is not DependencyStatus.COMPLETE or counts is None or not counts.unsuccessful:
                continue
            for task in completed_tasks(ctx.tracker, dependency.name, "Failed"):
                what = f"TaskRole {role.name} depends on TaskRole {dependency.name} being Complete"
                trigger = Trigger(f"{what}, which it can no longer be", task.role, task.index)
                if (completion := task.attempt.completion_status) is not None:
                    return replace(completion, trigger=trigger, pod=None, policy=None)
    return None


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
    known = ctx.tracker.find_part(RoleOrder)
    ready = 0 if known is None else len(known.ready.get(dependency.name, ()))
    return ready + counts.completed == role.task_number
