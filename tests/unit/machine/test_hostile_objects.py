"""Objects of roles that a user of the namespace abuses: costs stay bounded, and other Frameworks do not notice."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.spec import MAX_AUTOSCALED, MAX_SERVICES, SpecError, parse_spec
from frameworkcontroller.machine.kernel import companionpart
from frameworkcontroller.machine.kernel.actions import Action, Create, Patch
from frameworkcontroller.machine.kernel.companionpart import MAX_OBJECTS, RemoveCompanion
from frameworkcontroller.machine.kernel.exchanges import Exists, Gone, Remains
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.parts.autoscaling.rolescalers import ScalerState
from tests.support.bench import UID, Bench, Body, accepted, role
from tests.unit.machine.test_autoscaling import Scaled, scaled, started

NUMBER = 3
"""Roles of a spec here, in place of MAX_SERVICES."""


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_OBJECTS == 2 * MAX_SERVICES
    monkeypatch.setattr(companionpart, "MAX_OBJECTS", 2 * NUMBER)


def roles(prefix: str, count: int = NUMBER) -> list[Body]:
    """Roles without Tasks."""
    return [role(f"{prefix}x{number}", 0) for number in range(count)]


def network(prefix: str, count: int = NUMBER) -> Body:
    """A Service for each of them."""
    services = [{"taskRole": one["name"], "ports": [{"port": 80}]} for one in roles(prefix, count)]
    return {"enableDNSHostnames": False, "services": services}


class Busy(Bench):
    """A Framework whose Services and roles a user renames, again and again."""

    def go(self, *, is_gone: bool) -> None:
        """All Services are created. A finalizer keeps the earlier ones, or (``is_gone``) none does."""
        for _ in range(12):
            for action in self.plan().actions:
                self.answer(action, is_gone=is_gone)
            self.now += 5

    def answer(self, action: Action, *, is_gone: bool) -> None:
        if isinstance(action, Create) and action.target.kind is Kind.SERVICE:
            self.created(action)
        elif isinstance(action, RemoveCompanion):
            self.fold(action, Gone() if is_gone else Remains("still there"))
            if is_gone:
                self.services.pop(action.target.name, None)

    @property
    def recorded(self) -> list[str]:
        return self.status.role_objects

    def edit_all(self, prefix: str) -> None:
        self.edit(*roles(prefix), network=network(prefix))


@pytest.mark.usefixtures("_small")
def test_services_that_finalizers_keep_are_bounded() -> None:
    bench = Busy(*roles("a"), network=network("a"))
    bench.plan()
    for number in range(6):
        bench.edit_all(f"b{number}")
        bench.go(is_gone=False)
    assert len(bench.recorded) == len(set(bench.recorded)) == 2 * NUMBER
    # Nothing is created that the status has no room for.
    assert {f"Service/{name}" for name in bench.services} <= set(bench.recorded)
    waits = " ".join(one.message for one in bench.tracker.holds.waits().values())
    assert "waits until earlier ones are gone" in waits
    bench.go(is_gone=True)
    assert sorted(bench.recorded) == sorted(f"Service/f-b5x{number}" for number in range(NUMBER))
    assert set(bench.recorded) <= {f"Service/{name}" for name in bench.services}


@pytest.mark.usefixtures("_small")
def test_two_specs_have_room() -> None:
    bench = Busy(*roles("a"), network=network("a"))
    bench.plan()
    bench.go(is_gone=False)
    bench.edit_all("b")
    bench.go(is_gone=False)
    assert len(bench.services) == len(bench.recorded) == 2 * NUMBER


def test_autoscaled_roles_are_bounded() -> None:
    """Their objects are created at once, and each plan looks at all of them."""
    many = [{"name": f"r{number}", "autoscaling": {"maxTasks": 1}} for number in range(MAX_AUTOSCALED + 1)]
    parse_spec({"taskRoles": many[:-1]})
    with pytest.raises(SpecError, match="taskRoles: 101 of them have autoscaling, where 100 are allowed"):
        parse_spec({"taskRoles": many})


def test_a_label_that_is_removed_again_and_again() -> None:
    """Each removal costs a creation and a change, so they are paced."""
    bench = started()
    body, sent = bench.scaler, 0
    own = Identity(body["metadata"]["uid"], UID, None, deleting=False)
    bench.done.clear()
    for _ in range(600):
        # Ten times a second, for a minute.
        if "f-a" in bench.scalers:
            bench.drop("f-a")
        for action in bench.plan().actions:
            if isinstance(action, Create):
                bench.fold(action, Exists(own))
            else:
                assert isinstance(action, Patch)
                bench.bodies["f-a"] = body
                bench.patched(action)
            sent += 1
        bench.now += 0.1
    assert 2 < sent < 30


class Kept(Scaled):
    """A Framework whose FrameworkRoleScalers stay, as a finalizer keeps them."""

    def drop(self, name: str, *, removed: bool = False) -> None:
        if name in self.scalers:
            self.show(name, deleting=self.now)
        else:
            super().drop(name, removed=removed)


def test_scalers_that_finalizers_keep_are_forgotten() -> None:
    bench = Kept()
    bench.go()
    for number in range(5):
        renamed: dict[str, Any] = {**scaled(), "name": f"b{number}"}
        bench.edit(renamed)
        bench.go()
    assert bench.tracker.part(ScalerState).scalers.keys() == {"b4"}
    assert [one.name for one in bench.tracker.roles.values()] == ["b4"]
    # They scale nothing, and a role of the name gets its object once the earlier one is gone.
    bench.edit(scaled(3))
    bench.go()
    assert bench.number == bench.tasks == 3
    assert bench.scalers["f-a"].identity.deleting
    Bench.drop(bench, "f-a")
    bench.go()
    assert not bench.scalers["f-a"].identity.deleting


def test_roles_of_two_kinds_of_objects() -> None:
    """The bound is each kind's own."""
    both = [{**one, "disruptionBudget": {"maxUnavailable": 0}} for one in roles("a", MAX_SERVICES)]
    bench = accepted(*both, network=network("a", MAX_SERVICES))
    assert len(bench.status.role_objects) == 2 * MAX_SERVICES
