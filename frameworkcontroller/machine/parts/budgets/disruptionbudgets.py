"""Disruption budgets: a PodDisruptionBudget for each role that asks for one.

Source: docs/lifecycle.md, "Disruption budgets". Kubernetes needs the controller of the Pods to have a /scale for
maxUnavailable and percentages, and theirs is a ConfigMap. So the budget has an integer minAvailable: the Tasks that it
counts less maxUnavailable. The count is persisted before the budget is changed. It rises once Pods are ready, and falls
once the deletion of leaving Pods is requested: too many evictions are refused rather than permitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework, PodRecord, budget_content
from frameworkcontroller.api.status import FrameworkStatus, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.machine.kernel.agenda import PERSISTED
from frameworkcontroller.machine.kernel.companionpart import CompanionPart
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.kernel.readytasks import ReadyTasks
from frameworkcontroller.machine.kernel.reasons import Reason, stall, wait
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker

_STAYING: Final = frozenset({State.RUNNING, State.DELETION_PENDING})
"""States of a leaving Task whose Pod may be ready, as its deletion is not requested yet."""


class BudgetReason(Reason):
    """The reasons of disruption budgets."""

    CREATED = "DisruptionBudgetCreated", "the PodDisruptionBudget of a TaskRole was created"
    PENDING = wait("DisruptionBudgetPending", "a PodDisruptionBudget does not exist yet, so no attempt starts")
    NOT_GONE = stall(
        "DisruptionBudgetNotGone",
        "a PodDisruptionBudget was deleted, and still exists long after its deletion was due",
    )
    NOT_ANSWERED = stall("DisruptionBudgetNotAnswered", "requests for a PodDisruptionBudget failed several times")
    NOT_LISTED = stall("DisruptionBudgetNotListed", "PodDisruptionBudgets cannot be listed, which a TaskRole needs")


class BudgetState(ReadyTasks):
    """Ready Pods of the roles with a budget, and their Tasks that leave and whose Pods may be ready."""

    __slots__ = ("_leaving",)

    def __init__(self) -> None:
        super().__init__()
        self._leaving: dict[str, set[int]] = {}

    def watch(self, tracker: Tracker, roles: Iterable[str]) -> None:
        super().watch(tracker, roles)
        if self._leaving.keys() != self.ready.keys():
            self._leaving = {
                role: {task.index for task in tracker.roles[role].tasks if _is_leaving_ready(task)}
                for role in self.ready
            }

    def on_move(self, tracker: Tracker, task: TaskStatus) -> None:
        super().on_move(tracker, task)
        if (indexes := self._leaving.get(task.role)) is not None:
            (indexes.add if _is_leaving_ready(task) else indexes.discard)(task.index)

    def on_tasks_over(self) -> None:
        super().on_tasks_over()
        self._leaving.clear()

    def count(self, tracker: Tracker, status: FrameworkStatus, budgets: Mapping[str, int]) -> None:
        """Count the Tasks of each budget: the most that were ready at a time, without those that are over."""
        for role in status.attempt.roles:
            if role.name not in budgets or status.state in ENDED:
                self._set_count(tracker, role, 0)
            elif role.name in self.ready:
                counts = tracker.role_counts[role.name]
                most = counts.total - counts.completed + len(self._leaving[role.name])
                self._set_count(tracker, role, min(max(role.budgeted_task_count, len(self.ready[role.name])), most))

    def _set_count(self, tracker: Tracker, role: TaskRoleStatus, count: int) -> None:
        if count != role.budgeted_task_count:
            urgency = Urgency.SHOWN if count > role.budgeted_task_count else Urgency.SOON
            role.budgeted_task_count = count
            tracker.change(None, urgency, of_attempt=False)
            tracker.agenda.look(None, PERSISTED)


def _is_leaving_ready(task: TaskStatus) -> bool:
    return task.is_leaving and task.state in _STAYING


class BudgetPart(CompanionPart):
    """The PodDisruptionBudgets of a Framework."""

    kind: ClassVar[Kind] = Kind.DISRUPTION_BUDGET
    needed_by: ClassVar[str] = "disruptionBudget"
    reasons: ClassVar[type[Reason]] = BudgetReason
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.DISRUPTION_BUDGET})
    created: ClassVar[Reason] = BudgetReason.CREATED
    pending: ClassVar[Reason] = BudgetReason.PENDING
    not_gone: ClassVar[Reason] = BudgetReason.NOT_GONE
    not_answered: ClassVar[Reason] = BudgetReason.NOT_ANSWERED
    not_listed: ClassVar[Reason] = BudgetReason.NOT_LISTED
    rests_on_status: ClassVar[bool] = True

    def roles(self, framework: Framework) -> Collection[str]:
        return framework.spec.budgets

    def role_spec(self, ctx: Context, role: str) -> Mapping[str, Any]:
        """The spec of the budget of a role."""
        counted = ctx.tracker.roles[role].budgeted_task_count if role in ctx.tracker.roles else 0
        return {
            "minAvailable": max(0, counted - ctx.framework.spec.budgets[role]),
            "selector": {"matchLabels": {names.FRAMEWORK_NAME: ctx.framework.name, names.TASKROLE_NAME: role}},
        }

    def content(self, spec: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        return budget_content(spec), {"minAvailable": spec["minAvailable"]}

    def before_tasks(self, ctx: Context) -> None:
        """Count the ready Pods of the roles with a budget, and only of those."""
        if not ctx.framework.invalid:
            ctx.tracker.part(BudgetState).watch(ctx.tracker, ctx.framework.spec.budgets)

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        """Note whether the Pod is ready."""
        if (state := ctx.tracker.find_part(BudgetState)) is not None:
            state.observe(task, pod)

    def finish(self, ctx: Context) -> None:
        """Count the Tasks again. Once that is persisted, the budgets follow."""
        if ctx.tracker.status is not None and not ctx.framework.invalid:
            ctx.tracker.part(BudgetState).count(ctx.tracker, ctx.status, ctx.framework.spec.budgets)

    def is_watched(self, tracker: Tracker, role: str) -> bool:
        """Whether the budget of the role counts its ready Pods."""
        state = tracker.find_part(BudgetState)
        return state is not None and role in state.ready
