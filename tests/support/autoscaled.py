"""Autoscalers for histories of Frameworks whose roles have autoscaling, and the checks of that guarantee (S3).

An autoscaler here writes any number at any time. ``AutoscaledHistory`` is ``tests.support.history`` with them.
"""

from __future__ import annotations

from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import AutoscalingStatus, FrameworkStatus, TaskRoleStatus
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.guarantees import number_of
from tests.support.history import NAME, History
from tests.support.world import Body, controller_of, mark_of, name_of, uid_of

SCALER: Final = Kind.ROLE_SCALER
KINDS: Final = (Kind.FRAMEWORK, Kind.CONFIGMAP, Kind.POD, SCALER)
_ACTIVE: Final = ("AttemptCreationRequested", "AttemptPreparing", "AttemptRunning")


class AutoscaledHistory(History):
    """A history with autoscalers."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(seed, kinds=KINDS, **options)
        self._asked: dict[str, set[int]] = {}
        """By id of an object, the numbers that it has ever asked for."""
        self._known: dict[str, FrameworkStatus] = {}
        self._seen: set[str] = set()
        self.world.check_each(SCALER, self._check_scaler)
        self.world.check_each(Kind.FRAMEWORK, self._check_status)

    @property
    def spec(self) -> FrameworkSpec | None:
        """Its spec, with the numbers of Tasks that its objects ask for."""
        spec, status = super().spec, self.status
        if spec is None or status is None or self.framework is None:
            return spec
        numbers = {}
        for role in spec.autoscaled:
            numbers[role.name] = number_of(role, status)
            body = self.scaler(role.name)
            if body is not None and role.autoscaling is not None and self._is_current(body, role.name):
                numbers[role.name] = role.autoscaling.bounded(body["spec"]["replicas"])
        return spec.with_task_numbers(numbers)

    def scaler(self, role: str) -> Body | None:
        """The live object of a role, which may be another owner's."""
        return self.world.objects[SCALER].get(names.scaler_name(NAME, role))

    def _is_current(self, body: Body, role: str) -> bool:
        status = self.status
        found = None if status is None else next((one for one in status.attempt.roles if one.name == role), None)
        known = None if found is None else found.autoscaling
        return known is not None and mark_of(body, names.SCALER_ID) == known.scaler_id != ""

    # --- autoscalers and users ---

    def ask(self, role: str, number: int) -> None:
        """An autoscaler sets the number of a role."""
        if self.scaler(role) is not None:
            self.world.tell(f"autoscaler: {number} of {role}")
            name = names.scaler_name(NAME, role)
            self.world.edit(SCALER, name, lambda body: body.setdefault("spec", {}).update(replicas=number))

    def delete_scaler(self, role: str) -> None:
        """A user deletes the object of a role."""
        body = self.scaler(role)
        if body is not None and body["metadata"].get("labels"):
            self.world.tell(f"somebody deletes {name_of(body)}")
            self.world.delete(SCALER, name_of(body))

    def unlabel_scaler(self, role: str) -> None:
        """A user removes the label by which the object of a role is watched."""
        if self.scaler(role) is not None:
            self.world.tell(f"somebody unlabels the scaler of {role}")
            name = names.scaler_name(NAME, role)
            self.world.edit(SCALER, name, lambda body: body["metadata"].update(labels={}))

    def set_bounds(self, role: str, bounds: tuple[int, int] | None) -> None:
        """The user sets the bounds of a role, or (None) switches autoscaling off."""
        wanted = None if bounds is None else {"minTasks": bounds[0], "maxTasks": bounds[1]}
        self.edit_role(role, f"bounds of {role}: {bounds}", lambda found: found.update(autoscaling=wanted))

    def finish(self) -> None:
        self.world.tell("autoscalers rest")
        super().finish()

    def _is_running(self) -> bool:
        """Whether also each role has its object, which shows its Pods."""
        if not super()._is_running():
            return False
        status, spec = self.status, self.spec
        if status is None or spec is None or status.completion_time is not None or self.guarantees.loose:
            return True
        for role in spec.autoscaled:
            body = self.scaler(role.name)
            if body is None or controller_of(body) != uid_of(self.framework or {}):
                return False
            if not body["metadata"].get("labels"):
                continue
            found = next(one for one in status.attempt.roles if one.name == role.name)
            pods = sum(task.state.value in _ACTIVE and not task.is_leaving for task in found.tasks)
            selector = f"FC_FRAMEWORK_NAME={NAME},FC_TASKROLE_NAME={role.name}"
            if body.get("status") != {"replicas": pods, "selector": selector}:
                return False
        return True

    # --- checks ---

    def _check_scaler(self, body: Body) -> None:
        """A new object asks for the stored number."""
        scaler_id, asked = mark_of(body, names.SCALER_ID), (body.get("spec") or {}).get("replicas")
        if asked is not None:
            self._asked.setdefault(scaler_id, set()).add(asked)
        if uid_of(body) in self._seen:
            return
        self._seen.add(uid_of(body))
        known = self._known.get(mark_of(body, names.FRAMEWORK_UID))
        if known is None or self.guarantees.loose or controller_of(body) is None:
            return
        stored = [one.autoscaling for one in known.attempt.roles if one.name == mark_of(body, names.TASKROLE_NAME)]
        told = [(one.scaler_id, one.task_number) for one in stored if one is not None]
        self._require((scaler_id, asked) in told, f"{name_of(body)} begins with {asked}, and {told} is stored")

    def _check_status(self, body: Body) -> None:
        uid, after = uid_of(body), decode_status(body.get("status"))
        before = self._known.get(uid)
        if after is None:
            return
        self._known[uid] = after
        spec = self.guarantees.spec_of(uid, after.observed_generation)
        if spec is None or before is None:
            return
        olds = {role.name: role for role in before.attempt.roles}
        for role in after.attempt.roles:
            old, role_spec = olds.get(role.name), spec.role(role.name)
            if old is None or role_spec is None or role_spec.autoscaling is None:
                continue
            if before.attempt.id != after.attempt.id:
                self._check_next_attempt(old, role)
                continue
            now, was = _number(role), _number(old)
            stored = number_of(role_spec, before)
            if role.instance_uid == old.instance_uid and now != was:
                self._require(now == stored, f"{role.name} went from {was} to {now} Tasks, and {stored} is stored")
            self._check_number(role, old, role_spec.autoscaling.bounded, was)

    def _check_number(self, role: TaskRoleStatus, old: TaskRoleStatus, bounded: Any, count: int) -> None:
        known, before = _on(role), _on(old)
        if known is None or (before is not None and known.task_number == before.task_number):
            return
        number = known.task_number
        self._require(bounded(number) == number, f"the stored number {number} of {role.name} is out of bounds")
        allowed = {bounded(one) for one in self._asked.get(known.scaler_id, ())}
        allowed.add(bounded(count if before is None else before.task_number))
        if before is None:
            allowed = {bounded(count)}
        self._require(number in allowed, f"the number of {role.name} became {number}, and may be {allowed}")

    def _check_next_attempt(self, old: TaskRoleStatus, role: TaskRoleStatus) -> None:
        known, before = _on(role), _on(old)
        if known is not None and before is not None:
            self._require(known.scaler_id == before.scaler_id, f"{role.name} has another object in a new attempt")
            self._require(_number(role) == known.task_number, f"{role.name} has {_number(role)} Tasks at first")

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            raise self.world.violation(f"S3: {text}")


def _on(role: TaskRoleStatus) -> AutoscalingStatus | None:
    """The autoscaling of a role, None while it is off."""
    return role.autoscaling if role.autoscaling is not None and role.autoscaling.scaler_id else None


def _number(role: TaskRoleStatus) -> int:
    return sum(not task.is_leaving for task in role.tasks)
