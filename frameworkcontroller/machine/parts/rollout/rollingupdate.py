"""Rolling updates, and the numbers of ready and updated Tasks: ``updateStrategy`` and ``minReadySeconds`` of a role.

Source: docs/lifecycle.md, "Rolling updates". The hash of the template is a label of each Pod, and is recorded in the
attempt of its Task: a Task is old if it differs from the hash of the spec. The attempt of an old Task ends with -242, a
decision that is persisted before its Pod is deleted. The next attempt has the template of the spec, as any other has.
So nothing else has to be remembered: the status says how far a rollout is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import TASK_TEMPLATE_UPDATED, CompletionStatus
from frameworkcontroller.api.objects import Framework, PodRecord
from frameworkcontroller.api.phases import AVAILABLE_CONDITION, UPDATED_CONDITION
from frameworkcontroller.api.servingspec import RollingUpdate
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import Condition, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.manifests import with_entries
from frameworkcontroller.machine.kernel.model import Limits
from frameworkcontroller.machine.kernel.part import Part, Shown
from frameworkcontroller.machine.kernel.reasons import Reason, event
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.rollout.availability import Availability, RoleTasks, Watched

_MAX_SHOWN: Final = 3
"""Roles in the message of a condition."""

_NOT_BEGUN: Final = frozenset({State.CREATION_PENDING, State.CREATION_REQUESTED})


class RolloutReason(Reason):
    """The reasons of rolling updates."""

    REPLACED = event(
        "TaskTemplateUpdated",
        "the attempt of a Task ends, as the Pod template of its role has changed (RollingUpdate)",
        "get the changed Pod template, after",
    )


@dataclass(frozen=True, slots=True)
class TemplateLabel:
    """The label with the hash of the template."""

    template: str

    def apply(self, metadata: dict[str, Any], spec: dict[str, Any], pod_name: str) -> None:
        metadata["labels"] = with_entries(metadata.get("labels"), {names.TEMPLATE_HASH: self.template})


class RolloutPart(Part):
    """Rolling updates of roles, and the numbers of their ready Tasks."""

    reasons: ClassVar[type[Reason]] = RolloutReason

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        # An invalid spec has no roles, and the conditions stay.
        return not (framework.spec.ready_roles or framework.invalid or tracker.find_part(Availability) is not None)

    def observe_generation(self, ctx: Context) -> None:
        """Note the template of the Tasks whose role gets RollingUpdate, and remove counts that no role needs."""
        spec, before, tracker = ctx.framework.spec, ctx.tracker.process.spec, ctx.tracker
        if ctx.framework.invalid:
            return
        for role in tracker.roles.values():
            found = spec.role(role.name)
            if role.ready_task_count is not None and (found is None or not found.counts_ready):
                Availability.show(tracker, role, None, None)
        for found in spec.ready_roles:
            was = None if before is None else before.role(found.name)
            if found.rolling_update is None or was is None or was.rolling_update is not None:
                continue
            known = tracker.part(Availability).before
            for task in tracker.roles[found.name].tasks if found.name in tracker.roles else ():
                known[task.attempt_key] = was.task.template_hash

    def before_tasks(self, ctx: Context) -> None:
        """Watch the Pods of the roles whose ready Tasks are counted, and only of those."""
        roles = ctx.framework.spec.ready_roles
        if ctx.framework.invalid or not (roles or ctx.tracker.find_part(Availability)):
            return
        wanted = {role.name: _watched(role) for role in roles if role.name in ctx.tracker.roles}
        ctx.tracker.part(Availability).watch(ctx.tracker, wanted)

    def is_watched(self, tracker: Tracker, role: str) -> bool:
        known = tracker.find_part(Availability)
        return known is not None and role in known.roles

    def may_shrink(self, ctx: Context, role: str) -> bool:
        """Not while a rollout of the role runs, nor before it is known whether one does."""
        spec, known = ctx.framework.spec.role(role), ctx.tracker.find_part(Availability)
        if spec is None or spec.rolling_update is None or ctx.status.state in _NOT_BEGUN | ENDED:
            return True
        if known is None or role not in known.roles or known.roles[role].watched != _watched(spec):
            return False
        rolling = _Rolling(spec.rolling_update, spec, ctx.tracker.roles[role], known.roles[role])
        if rolling.is_outgoing:
            return False
        # A new Task may never find a node. A lower number of Tasks is then the remedy.
        is_over = any(one.type == UPDATED_CONDITION and one.status == "True" for one in ctx.status.conditions)
        return is_over or not rolling.waits()

    def shape(self, ctx: Context, role: TaskRoleSpec) -> TemplateLabel | None:
        return None if role.rolling_update is None else TemplateLabel(role.task.template_hash)

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        if (known := ctx.tracker.find_part(Availability)) is not None:
            known.observe(ctx.tracker, task, pod, ctx.env)

    def after_tasks(self, ctx: Context) -> None:
        """End the attempts of old Tasks, as many as may be unavailable."""
        if ctx.ends or ctx.framework.deleting or ctx.framework.invalid:
            return
        for role in _rolling(ctx):
            if role.due(ctx):
                role.confirm(ctx)
                for index in role.due(ctx):
                    _replace(ctx, role.status.tasks[index])

    def finish(self, ctx: Context) -> None:
        """Count the available and the updated Tasks."""
        known, state = ctx.tracker.find_part(Availability), ctx.status.state
        for spec in () if ctx.framework.invalid else ctx.framework.spec.ready_roles:
            role = ctx.tracker.roles.get(spec.name)
            tasks = None if known is None else known.roles.get(spec.name)
            if role is None or (tasks is None and state not in _NOT_BEGUN | ENDED):
                # Not known yet: the stored numbers stay.
                continue
            ready, updated = (0, 0) if tasks is None else (len(tasks.available), len(tasks.updated))
            Availability.show(ctx.tracker, role, ready, None if spec.rolling_update is None else updated)

    def conditions(self, ctx: Context, before: Mapping[str, Condition]) -> Mapping[str, Shown]:
        if ctx.framework.invalid:
            kept = (before.get(kind) for kind in (AVAILABLE_CONDITION, UPDATED_CONDITION))
            return {one.type: Shown(one.status == "True", one.reason, one.message) for one in kept if one is not None}
        if not ctx.framework.spec.ready_roles:
            return {}
        shown = {AVAILABLE_CONDITION: _available(ctx)}
        if any(role.rolling_update is not None for role in ctx.framework.spec.ready_roles):
            shown[UPDATED_CONDITION] = _updated(ctx, before.get(UPDATED_CONDITION))
        return shown


def _watched(role: TaskRoleSpec) -> Watched:
    return Watched("" if role.rolling_update is None else role.task.template_hash, role.min_ready_seconds)


@dataclass(frozen=True, slots=True)
class _Rolling:
    """A role with RollingUpdate in a plan."""

    rolling_update: RollingUpdate
    spec: TaskRoleSpec
    status: TaskRoleStatus
    tasks: RoleTasks

    def due(self, ctx: Context) -> list[int]:
        """The Tasks to replace now."""
        limit = self.rolling_update.limit(self.spec.task_number)
        return self.tasks.due(self.unavailable(ctx), limit, self.rolling_update.partition)

    def confirm(self, ctx: Context) -> None:
        """Forget the Pods that the cache does not show now: a Pod may have lost the label by which it is watched.

        Costs the number of Tasks, each time that one is to be replaced.
        """
        for task in self.status.tasks:
            pod = ctx.observed.find_pod(names.pod_name(ctx.framework.name, *task.key))
            if pod is None or pod.uid != task.attempt.pod_uid or pod.identity.deleting:
                self.tasks.forget(task.index)

    def unavailable(self, ctx: Context) -> int:
        """The number of Tasks that are not available. One that has succeeded is not missed, one that has failed is."""
        counts = ctx.tracker.role_counts[self.spec.name]
        return counts.total - counts.succeeded - len(self.tasks.available)

    @property
    def is_outgoing(self) -> bool:
        """Whether an attempt has another template, from ``partition`` on."""
        return any(index >= self.rolling_update.partition for index in self.tasks.outgoing)

    def waits(self) -> bool:
        """Whether a Task with a later attempt than its first is not available. A new Task is none that was replaced."""
        tasks = (task for task in self.status.tasks if not task.is_leaving and task.state is not State.COMPLETED)
        return any(task.attempt.id > 0 and task.index not in self.tasks.available for task in tasks)


def _rolling(ctx: Context) -> Iterator[_Rolling]:
    if (known := ctx.tracker.find_part(Availability)) is None:
        return
    for spec in ctx.framework.spec.ready_roles:
        tasks, status = known.roles.get(spec.name), ctx.tracker.roles.get(spec.name)
        if spec.rolling_update is not None and tasks is not None and status is not None:
            yield _Rolling(spec.rolling_update, spec, status, tasks)


def _replace(ctx: Context, task: TaskStatus) -> None:
    """End the attempt of a Task. Once that is persisted, its Pod is deleted."""
    text = f"The Pod template of TaskRole {task.role} has changed, and updateStrategy.type is RollingUpdate"
    completion = CompletionStatus.of(TASK_TEMPLATE_UPDATED, text)
    ctx.tracker.decide_completion(task, completion)
    ctx.tracker.move(task, State.DELETION_PENDING, ctx.env.second)
    ctx.tracker.persist_first(task.key)
    ctx.record(RolloutReason.REPLACED, f"TaskAttempt {task.attempt.id} ends: {text}", task, completion=completion)


# --- conditions -------------------------------------------------------------------------------------------------


def _available(ctx: Context) -> Shown:
    """Whether each role has as many available Tasks as a rolling update leaves it, and at least one."""
    short, texts = [], []
    for spec in ctx.framework.spec.ready_roles:
        role = ctx.tracker.roles.get(spec.name)
        ready, number = (0 if role is None else role.ready_task_count) or 0, spec.task_number
        spared = 0 if spec.rolling_update is None else spec.rolling_update.limit(number)
        needed = min(number, max(1, number - spared))
        text = f"TaskRole {spec.name}: {ready} of {number} Tasks are ready"
        texts.append(text)
        if ready < needed:
            short.append(f"{text}, {needed} are needed")
    if short:
        return Shown(False, "TasksUnavailable", _joined(short), quiet=True)
    return Shown(True, "TasksAvailable", _joined(texts), quiet=True)


def _updated(ctx: Context, before: Condition | None) -> Shown:
    """Whether all Tasks have the template of the spec. Not before they were ready with it, all at once.

    Then until an attempt has another template: a Task that fails, or a new one, gets this one.
    """
    rolling, state = {role.spec.name: role for role in _rolling(ctx)}, ctx.status.state
    texts, is_over = [], before is not None and before.status == "True"
    for spec in ctx.framework.spec.ready_roles:
        if spec.rolling_update is None:
            continue
        if (role := rolling.get(spec.name)) is None:
            if before is not None and (state is State.COMPLETED or state not in _NOT_BEGUN | ENDED):
                # Not known any longer, or not yet.
                return Shown(before.status == "True", before.reason, before.message, quiet=True)
            texts.append(f"TaskRole {spec.name}: 0 of {spec.task_number} Tasks are updated")
            continue
        waits_for = _first_unavailable(role) if role.unavailable(ctx) else None
        outdated = role.tasks.outdated(spec.task_number, role.rolling_update.partition)
        if role.is_outgoing if is_over else outdated or waits_for is not None:
            text = f"TaskRole {spec.name}: {len(role.tasks.updated)} of {spec.task_number} Tasks are updated"
            texts.append(text if waits_for is None else f"{text}; {waits_for}")
    if texts:
        return Shown(False, "RollingUpdate", _joined(texts), quiet=True)
    return Shown(True, "TasksUpdated", "", quiet=True)


def _first_unavailable(role: _Rolling) -> str | None:
    """The Task, with the highest index, that is not available: the rollout waits for it."""
    tasks = role.tasks
    for task in reversed(role.status.tasks):
        if task.is_leaving or task.index in tasks.available:
            continue
        completion = task.attempt.completion_status
        if task.state is not State.COMPLETED:
            return f"{task.role}[{task.index}] is not ready"
        if completion is None or completion.failed:
            return f"{task.role}[{task.index}] has failed, and is not retried"
    return None


def _joined(texts: list[str]) -> str:
    more = len(texts) - _MAX_SHOWN
    return "; ".join(texts[:_MAX_SHOWN]) + (f"; and {more} more TaskRoles" if more > 0 else "")
