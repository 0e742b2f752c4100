"""docs/lifecycle.md, "Autoscaling": the number of Tasks that a FrameworkRoleScaler sets, and the object itself."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.objects import scaler_record
from frameworkcontroller.api.spec import SpecError, parse_spec
from frameworkcontroller.api.status import AutoscalingStatus, State
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete, Patch
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone, Result
from frameworkcontroller.machine.kernel.model import NotListed, Plan
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.bench import UID, Bench, Body, foreign, refused, role

SCALER = Kind.ROLE_SCALER


class Scaled(Bench):
    """A Framework of one role with autoscaling, whose Pods run by themselves."""

    def __init__(self, number: int = 2, least: int = 1, most: int = 5, **spec: Any) -> None:
        super().__init__(scaled(number, least, most), **spec)
        self.done: list[Action] = []
        self.result: Result | None = None
        """The result of creations of the object, None if they succeed."""

    def go_on(self) -> None:
        """All that follows within some minutes is done."""
        for _ in range(20):
            self.go()
            self.now += 15

    def go(self) -> None:
        """All that follows by itself is done, within some seconds."""
        for _ in range(60):
            made = self.plan()
            for action in made.actions:
                self.carry_out(action)
            if not made.actions and not self.tracker.is_busy:
                if made.requeue_after is None or made.requeue_after > 2:
                    return
                self.now += made.requeue_after
        raise AssertionError("it does not settle")

    def carry_out(self, action: Action) -> None:
        self.done.append(action)
        match action:
            case Create(target=target) if target.kind is SCALER and self.result is not None:
                self.fold(action, self.result)
            case Create():
                self.created(action, show=False)
                if action.target.kind is Kind.POD:
                    self.show(action.target.name, phase="Running")
                else:
                    self.show(action.target.name)
            case Delete(target=target):
                self.fold(action, Gone() if action.confirm else Accepted())
                if target.kind is SCALER:
                    self.drop(target.name)
                else:
                    self.hide(target.name)
            case Patch():
                self.patched(action)
            case _:
                self.fold(action, Gone())

    def ask(self, number: int) -> None:
        """An autoscaler writes the number, and the cache shows it."""
        body = self.bodies["f-a"]
        metadata = body["metadata"]
        metadata["generation"] = metadata.get("generation", 1) + 1
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        body["spec"]["replicas"] = number
        self.show("f-a")

    def ask_then_go(self, number: int) -> None:
        self.ask(number)
        self.go()

    @property
    def number(self) -> int:
        """The number in the status."""
        return self.autoscaling.task_number

    @property
    def autoscaling(self) -> AutoscalingStatus:
        """The autoscaling in the status."""
        found = self.tracker.roles["a"].autoscaling
        assert found is not None
        return found

    @property
    def tasks(self) -> int:
        """The number of Tasks that stay."""
        return sum(not task.is_leaving for task in self.tracker.roles["a"].tasks)

    @property
    def scaler(self) -> Body:
        """The object."""
        return self.bodies["f-a"]


def scaled(number: int = 2, least: int = 1, most: int = 5, **task: Any) -> Body:
    """A role with autoscaling."""
    return {**role("a", number, **task), "autoscaling": {"minTasks": least, "maxTasks": most}}


def started(number: int = 2, least: int = 1, most: int = 5, **spec: Any) -> Scaled:
    """A Framework whose Pods run, with its object."""
    bench = Scaled(number, least, most, **spec)
    bench.go()
    return bench


def of_scaler(made: Plan) -> list[Action]:
    """The actions of the plan on FrameworkRoleScalers."""
    return [action for action in made.actions if action.target.kind is SCALER]


# --- the object ---------------------------------------------------------------------------------------------------


def test_the_object_is_made_with_the_stored_number() -> None:
    bench = Scaled(3)
    first = bench.plan(write=False)
    assert not of_scaler(first)
    bench.write()
    (created,) = of_scaler(bench.plan())
    assert isinstance(created, Create)
    body = orjson.loads(created.body)
    assert body["spec"] == {"replicas": 3}
    assert body["metadata"]["name"] == "f-a"
    assert body["metadata"]["ownerReferences"][0]["uid"] == UID == created.controller_uid
    assert body["metadata"]["ownerReferences"][0]["controller"]


@pytest.mark.parametrize(("number", "seed"), [(0, 1), (1, 1), (5, 5), (9, 5)])
def test_the_seed_is_within_the_bounds(number: int, seed: int) -> None:
    bench = started(number)
    assert (bench.number, bench.tasks, bench.scaler["spec"]["replicas"]) == (seed, seed, seed)


def test_no_attempt_waits_for_the_object() -> None:
    bench = Scaled()
    bench.not_listed = NotListed("404: no", not_served=True)
    bench.go()
    assert [task.state for task in bench.tracker.tasks()] == [State.RUNNING] * 2
    reason, message = bench.stall()
    assert reason == "RoleScalerNotListed"
    assert message == "Cannot list FrameworkRoleScalers, which taskRoles[].autoscaling needs: 404: no"
    bench.not_listed = None
    bench.go()
    assert bench.stall() == ("", "")
    assert bench.scaler["spec"]["replicas"] == 2


def test_its_status_has_the_selector_and_the_pods() -> None:
    bench = started(3)
    selector = "FC_FRAMEWORK_NAME=f,FC_TASKROLE_NAME=a"
    assert bench.scaler["status"] == {"replicas": 3, "selector": selector}
    bench.ask_then_go(1)
    assert bench.scaler["status"] == {"replicas": 1, "selector": selector}


def test_its_status_changes_at_most_once_a_second() -> None:
    bench = started(1, most=50)
    bench.now += 10
    bench.done.clear()
    began = bench.now
    bench.ask_then_go(40)
    patches = [one for one in bench.done if isinstance(one, Patch)]
    assert bench.scaler["status"]["replicas"] == 40
    assert 1 <= len(patches) <= 2 + bench.now - began


def test_a_status_that_the_cache_does_not_show_yet_is_sent_once() -> None:
    bench = started()
    bench.stop("f-a-1", 1)
    for _ in range(20):
        made = bench.plan()
        for action in made.actions:
            if isinstance(action, Patch):
                bench.patched(action, show=False)
                assert not of_scaler(bench.pass_time(30))
                bench.show("f-a")
                assert not of_scaler(bench.pass_time(30))
                return
            bench.carry_out(action)
        bench.now += 1
    raise AssertionError("its status never changed")


def test_it_is_made_again_with_the_number_that_counts() -> None:
    bench = started()
    bench.ask_then_go(4)
    before = bench.autoscaling.scaler_id
    bench.drop("f-a")
    bench.go()
    assert bench.scaler["spec"] == {"replicas": 4}
    assert bench.number == bench.tasks == 4
    assert bench.autoscaling.scaler_id != before
    bench.ask_then_go(3)
    assert bench.number == bench.tasks == 3


def test_an_object_that_is_made_again_at_once_gets_its_status() -> None:
    bench = started()
    bench.ask_then_go(4)
    bench.drop("f-a")
    bench.go()
    assert bench.scaler["status"]["replicas"] == 4


def test_a_foreign_object_is_neither_used_nor_changed() -> None:
    bench = Scaled()
    bench.result = Exists(foreign("f-a"))
    bench.go_on()
    reason, message = bench.stall()
    assert reason == "NamingConflict"
    assert "FrameworkRoleScaler f-a (foreign) already exists, without a controller" in message
    body = orjson.loads(next(one.body for one in bench.done if isinstance(one, Create) and one.target.kind is SCALER))
    body["metadata"] |= {"uid": "foreign", "resourceVersion": "1", "ownerReferences": []}
    body["spec"]["replicas"] = 5
    bench.bodies["f-a"] = body
    bench.show("f-a")
    bench.go_on()
    assert all(isinstance(one, Create) for one in bench.done if one.target.kind is SCALER)
    assert bench.number == bench.tasks == 2
    bench.hide("f-a")
    bench.result = None
    bench.go_on()
    assert bench.stall() == ("", "")


def test_failed_requests_stall_the_framework() -> None:
    bench = Scaled()
    bench.result = refused(403, "no")
    bench.go_on()
    assert bench.stall() == ("RoleScalerNotAnswered", "Cannot create FrameworkRoleScaler f-a: 403: no")
    assert bench.tasks == 2


def test_it_goes_with_autoscaling() -> None:
    bench = started()
    bench.ask_then_go(4)
    bench.edit(role("a", 3))
    bench.go()
    assert "f-a" not in bench.scalers
    assert bench.tracker.roles["a"].autoscaling is None
    assert bench.tasks == 3


def test_it_goes_with_its_role() -> None:
    bench = started()
    bench.edit(role("b"))
    bench.go()
    assert "f-a" not in bench.scalers
    assert list(bench.tracker.roles) == ["b"]


def test_a_restart_finds_the_object_of_a_role_without_autoscaling() -> None:
    bench = started()
    bench.edit(role("a", 2))
    bench.plan()
    bench.restart()
    bench.go()
    assert "f-a" not in bench.scalers
    assert bench.tracker.roles["a"].autoscaling is None


def test_an_invalid_spec_changes_nothing() -> None:
    bench = started()
    bench.spoil()
    bench.ask(4)
    bench.restart()
    bench.go()
    assert bench.number == bench.tasks == 2
    assert "f-a" in bench.scalers


# --- the number ---------------------------------------------------------------------------------------------------


def test_the_number_is_persisted_before_tasks_are_added() -> None:
    bench = started()
    bench.ask(4)
    bench.plan(write=False)
    assert (bench.number, bench.tasks) == (4, 2)
    made = bench.plan(write=False)
    assert (bench.number, bench.tasks, made.actions) == (4, 2, [])
    bench.write()
    bench.plan(write=False)
    assert bench.tasks == 4
    bench.write()
    bench.go()
    assert len(bench.pods) == 4


@pytest.mark.parametrize(("asked", "number"), [(0, 1), (1, 1), (5, 5), (8, 5)])
def test_bounds_are_kept(asked: int, number: int) -> None:
    bench = started()
    bench.ask_then_go(asked)
    assert (bench.number, bench.tasks, len(bench.pods)) == (number, number, number)


def test_an_edit_of_the_bounds_counts_at_once() -> None:
    bench = started()
    bench.ask_then_go(8)
    assert bench.tasks == 5
    bench.edit(scaled(2, 1, 3))
    bench.go()
    assert bench.number == bench.tasks == 3
    bench.edit(scaled(2, 1, 7))
    bench.go()
    assert bench.number == bench.tasks == 7
    bench.edit(scaled(2, 9, 10))
    bench.go()
    assert bench.number == bench.tasks == 9


def test_an_edit_of_task_number_means_nothing() -> None:
    bench = started()
    bench.edit(scaled(4))
    bench.go()
    assert bench.number == bench.tasks == 2


def test_to_switch_it_on_does_not_scale() -> None:
    bench = Scaled()
    bench.spec["taskRoles"] = [role("a", 3)]
    bench.go()
    bench.edit(scaled(1))
    bench.go()
    assert bench.number == bench.tasks == 3
    assert bench.scaler["spec"]["replicas"] == 3


def test_an_object_from_before_does_not_scale() -> None:
    bench = started()
    bench.ask_then_go(5)
    bench.edit(role("a", 3))
    for _ in range(3):
        # The object is not deleted yet.
        made = bench.plan()
        for action in made.actions:
            if action.target.kind is not SCALER:
                bench.carry_out(action)
    assert bench.scaler["spec"]["replicas"] == 5
    assert "f-a" in bench.scalers
    bench.edit(scaled(2))
    bench.go()
    assert bench.number == bench.tasks == 3
    assert bench.scaler["spec"]["replicas"] == 3


def test_a_restart_keeps_the_number() -> None:
    bench = started()
    bench.ask_then_go(4)
    bench.restart()
    bench.not_listed = NotListed()
    bench.go()
    assert bench.number == bench.tasks == 4


def test_an_older_object_in_the_cache_is_ignored() -> None:
    bench = started()
    bench.ask_then_go(3)
    older = orjson.loads(orjson.dumps(bench.scaler))
    bench.ask_then_go(5)
    bench.restart()
    bench.scalers["f-a"] = scaler_record(older)
    bench.go()
    assert bench.number == bench.tasks == 5


def test_the_next_attempt_keeps_number_and_object() -> None:
    bench = started(retryPolicy={"maxRetryCount": 3})
    bench.ask_then_go(4)
    before, uid = bench.autoscaling.scaler_id, bench.scalers["f-a"].uid
    bench.edit({**scaled(2), "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1}})
    bench.go()
    bench.stop("f-a-0", 1)
    for _ in range(30):
        for action in bench.plan().actions:
            if action.target.kind is Kind.CONFIGMAP and isinstance(action, Delete):
                bench.fold(action, Accepted())
                bench.vanish()
            else:
                bench.carry_out(action)
        bench.now += 1
    assert bench.status.attempt.id == 1
    assert (bench.number, bench.tasks) == (4, 4)
    assert (bench.autoscaling.scaler_id, bench.scalers["f-a"].uid) == (before, uid)


def image(number: int, name: str) -> Body:
    """A role with autoscaling and rolling updates."""
    pod = {"spec": {"containers": [{"name": "main", "image": name}]}}
    made = scaled(number, pod=pod, retryPolicy={"maxRetryCount": -2})
    return {**made, "updateStrategy": {"type": "RollingUpdate"}}


def become_ready(bench: Scaled, *indexes: int) -> None:
    for index in indexes:
        bench.show(f"f-a-{index}", phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    bench.go()


def rolled_out(number: int) -> Scaled:
    """All Pods are ready."""
    bench = Scaled()
    bench.spec["taskRoles"] = [image(number, "v1")]
    bench.go()
    become_ready(bench, *range(number))
    return bench


def test_no_shrinking_during_a_rollout() -> None:
    bench = rolled_out(3)
    bench.edit(image(3, "v2"))
    bench.ask_then_go(1)
    assert bench.number == bench.tasks == 3
    bench.restart()
    bench.go()
    assert bench.number == bench.tasks == 3
    bench.ask_then_go(4)
    assert bench.number == bench.tasks == 4
    bench.ask_then_go(1)
    for index in (2, 3, 1):
        become_ready(bench, index)
        assert bench.number == bench.tasks == 4
    assert [bench.bodies[f"f-a-{index}"]["spec"]["containers"][0]["image"] for index in range(4)] == ["v2"] * 4
    # The last one has the template, and is not ready.
    assert bench.number == bench.tasks == 4
    become_ready(bench, 0)
    assert bench.number == bench.tasks == 1


@pytest.mark.parametrize("rolls", [False, True])
def test_a_task_that_is_not_ready_forbids_shrinking_during_a_rollout_only(rolls: bool) -> None:
    bench = rolled_out(2)
    if rolls:
        bench.edit(image(2, "v2"))
        bench.go()
        become_ready(bench, 1)
        become_ready(bench, 0)
        bench.go_on()
    bench.stop("f-a-0", 1)
    bench.go()
    assert bench.status.attempt.roles[0].ready_task_count == 1
    bench.ask_then_go(1)
    assert bench.number == bench.tasks == 1


def test_new_tasks_that_never_become_ready_do_not_forbid_shrinking() -> None:
    bench = rolled_out(2)
    bench.ask_then_go(5)
    assert bench.number == bench.tasks == 5
    bench.ask_then_go(2)
    assert bench.number == bench.tasks == 2


def test_completion_goes_by_the_number() -> None:
    bench = started(1)
    bench.ask_then_go(2)
    bench.end("f-a-0")
    assert bench.code() is None
    bench.end("f-a-1")
    assert bench.code() == 0


def test_events_name_both_numbers() -> None:
    bench = started()
    bench.ask(8)
    (record,) = (one for one in bench.plan().records if one.reason == "TaskRoleAutoscaled")
    assert record.message == "TaskRole a is scaled from 2 to 5 Tasks, as FrameworkRoleScaler f-a asks for 8"
    bench.go()
    bench.edit(scaled(2, 1, 4))
    records = bench.plan().records
    assert "TaskRole a is scaled from 5 to 4 Tasks, as FrameworkRoleScaler f-a asks for 8" in [
        one.message for one in records
    ]


def test_placeholders_have_the_number() -> None:
    bench = Scaled()
    pod = {"spec": {"containers": [{"name": "main", "image": "none", "args": ["{{FC_TASKROLE_TASK_NUMBER}}"]}]}}
    bench.spec |= {"network": {}, "taskRoles": [{**scaled(), "task": {"pod": pod}}]}
    bench.go()
    bench.ask_then_go(3)
    assert [bench.bodies[f"f-a-{at}"]["spec"]["containers"][0]["args"] for at in range(3)] == [["2"], ["2"], ["3"]]


# --- the spec -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        ([{"autoscaling": {}}], "maxTasks"),
        ([{"autoscaling": {"minTasks": 3, "maxTasks": 2}}], "must not be below minTasks (3)"),
        ([{"autoscaling": {"minTasks": -1, "maxTasks": 2}}], "minTasks"),
        ([{"autoscaling": {"maxTasks": 0}}], "maxTasks"),
        ([{"autoscaling": {"maxTasks": 10001}}], "10001"),
        ([{"autoscaling": {"maxTasks": 10000}}] * 6, "60000 Tasks in all"),
    ],
)
def test_wrong_bounds_are_refused(roles: list[Body], problem: str) -> None:
    named = [{"name": f"r{at}", **one} for at, one in enumerate(roles)]
    with pytest.raises(SpecError, match=re.escape(problem)):
        parse_spec({"taskRoles": named})


def test_the_coordinator_is_always_there() -> None:
    roles = [scaled(4, 2, 5)]
    parse_spec({"taskRoles": roles, "coordinator": {"taskRole": "a", "taskIndex": 1}})
    with pytest.raises(SpecError, match="TaskRole a has only 2 Tasks at minTasks"):
        parse_spec({"taskRoles": roles, "coordinator": {"taskRole": "a", "taskIndex": 2}})


def test_a_spec_with_other_numbers_counts_again() -> None:
    spec = parse_spec({"taskRoles": [scaled(2), role("b", 1)]})
    assert (spec.task_count, spec.first_ranks) == (3, {"a": 0, "b": 2})
    changed = spec.with_task_numbers({"a": 4})
    assert (changed.task_count, changed.first_ranks) == (5, {"a": 0, "b": 4})
    assert [one.task_number for one in changed.task_roles] == [4, 1]
    assert {name for name in type(spec).model_fields if getattr(spec, name) != getattr(changed, name)} == {"task_roles"}
