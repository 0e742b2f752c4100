"""The guarantee of Services and disruption budgets of roles (O), checked as by ``tests.support.guarantees``.

An object is recorded before it is created, and deleted only once no spec asks for it. A minimum follows a stored count
of the Tasks that were ready and are not over.
"""

from __future__ import annotations

from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.status import FrameworkStatus, State, TaskRoleStatus
from frameworkcontroller.machine.kernel.requests import Kind, Target
from tests.support.frameworks import is_ready
from tests.support.world import Body, World, controller_of, mark_of

ROLE_OBJECTS: Final = (Kind.SERVICE, Kind.DISRUPTION_BUDGET)
"""Kinds of which a role may have an object."""


def role_objects(spec: Body) -> set[str]:
    """The objects that the roles of a Framework ``f`` need by a spec, as in ``status.roleObjects``."""
    services = (spec.get("network") or {}).get("services") or ()
    budgets = (role["name"] for role in spec.get("taskRoles") or () if role.get("disruptionBudget"))
    return {f"Service/f-{one['taskRole']}" for one in services} | {f"PodDisruptionBudget/f-{one}" for one in budgets}


class RoleObjectGuarantees:
    """Part of ``Guarantees``."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._most_ready: dict[str, int] = {}
        """By the UID of a role."""

    def count_ready(self) -> None:
        """Note how many Tasks of each role are ready."""
        found: dict[str, int] = {}
        for pod in self.world.objects[Kind.POD].values():
            if (role := mark_of(pod, names.TASKROLE_UID)) and is_ready(pod):
                found[role] = found.get(role, 0) + 1
        for role, count in found.items():
            self._most_ready[role] = max(count, self._most_ready.get(role, 0))

    def creating(self, framework_uid: str, target: Target, body: Body, status: FrameworkStatus) -> None:
        """A creation has reached the API server: the stored status must record the object."""
        recorded = target.object_key in status.role_objects
        self._require(recorded, f"creation of {target.name}: the status does not record it")
        self.check_minimum(framework_uid, target.name, body, status)

    def deleting(self, framework_uid: str, target: Target, body: Body, status: FrameworkStatus | None) -> None:
        """A deletion has reached the API server: the object is ours, and a spec does not ask for it."""
        self._require(controller_of(body) == framework_uid, f"deletion of {target.name}: it is not ours")
        first = 0 if status is None else status.observed_generation or 0
        specs = [spec for (uid, number), spec in self.world.specs.items() if uid == framework_uid and number >= first]
        asked = all(target.object_key in role_objects(spec) for spec in specs)
        self._require(not asked, f"deletion of {target.name}: every spec asks for it")

    def check_minimum(self, framework_uid: str, name: str, body: Body, status: FrameworkStatus) -> None:
        """The minimum of a budget rests on the stored count of its role, and on a spec."""
        minimum = (body.get("spec") or {}).get("minAvailable")
        if minimum is None:
            return
        counted = [role.budgeted_task_count for role in status.attempt.roles if name.endswith(f"-{role.name}")]
        budgets = [
            role["disruptionBudget"]["maxUnavailable"]
            for (uid, _), spec in self.world.specs.items()
            for role in spec.get("taskRoles") or ()
            if uid == framework_uid and name.endswith(f"-{role['name']}") and role.get("disruptionBudget")
        ]
        allowed = {max(0, count - most) for count in counted or [0] for most in budgets}
        self._require(minimum in allowed, f"{name} has the minimum {minimum}, of {counted} less {budgets}")

    def check_count(self, before: TaskRoleStatus, after: TaskRoleStatus) -> None:
        """A count rises to Tasks that are ready, and falls to those that are not over, or to 0 without a budget."""
        old, new = before.budgeted_task_count, after.budgeted_task_count
        if new > old:
            ready = self._most_ready.get(after.instance_uid, 0)
            self._require(new <= ready, f"{after.name}: {new} Tasks count, and at most {ready} were ready")
        staying = sum(
            task.state in (State.RUNNING, State.DELETION_PENDING)
            if task.is_leaving
            else task.state is not State.COMPLETED
            for task in after.tasks
        )
        self._require(new <= staying, f"{after.name}: {new} Tasks count, and {staying} are not over")
        if 0 < new < old:
            self._require(new == staying, f"{after.name}: {new} Tasks count, and {staying} of {old} are not over")

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            raise self.world.violation(f"O: {text}")
