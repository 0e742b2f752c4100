"""Services and disruption budgets of roles: creation, change, removal, and the Tasks that a budget counts."""

from typing import Any, TypeVar

import orjson
import pytest

from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete, Patch, carry_out
from frameworkcontroller.machine.kernel.companionpart import RemoveCompanion
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone, NotAttempted, Outdated, Remains
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.requests import Answered, Get, Kind, Refusal, Refused, Remove, Target
from tests.support.bench import UID, Bench, accepted, foreign, refused, role

PORTS = [{"port": 80, "targetPort": 8080}]


def addressed(*ports: dict[str, Any], **network: Any) -> dict[str, Any]:
    """The network of a Framework without host names, whose role a has a Service."""
    services = [{"taskRole": "a", "ports": list(ports or PORTS)}]
    return {"enableDNSHostnames": False, "services": services, **network}


def budgeted(number: int, most: int, **task: Any) -> dict[str, Any]:
    """A role with a disruption budget."""
    return {**role(number=number, **task), "disruptionBudget": {"maxUnavailable": most}}


_A = TypeVar("_A")

SERVICE = (Kind.SERVICE, lambda: accepted(network=addressed()), {"network": addressed(services=[])})
BUDGET = (Kind.DISRUPTION_BUDGET, lambda: accepted(budgeted(1, 0)), {"taskRoles": [role()]})
each = pytest.mark.parametrize(("kind", "make", "without"), [SERVICE, BUDGET], ids=["Service", "budget"])


def run_all(bench: Bench) -> None:
    """All objects exist, and all Pods run and are ready."""
    bench.all_pods()
    for name in list(bench.pods):
        ready(bench, name)


def ready(bench: Bench, name: str, *, is_ready: bool = True) -> None:
    """The Pod runs, and is ready or not."""
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    bench.show_then_plan(name, phase="Running", podIP="10.0.0.1", nodeName="node-1", conditions=conditions)


def soon(bench: Bench, kind: type[_A]) -> _A:
    """The one action, of that kind, within some plans, as the new spec is persisted first."""
    for _ in range(3):
        if actions := bench.wait(60).actions:
            (action,) = actions
            assert isinstance(action, kind), action
            return action
    raise AssertionError("there is none")


# --- Services ---


def test_the_service_of_a_role_precedes_the_first_attempt() -> None:
    bench = accepted(network=addressed({"port": 80}, {"name": "q", "port": 443, "protocol": "UDP"}))
    assert bench.stall() != ("", "")
    bench = accepted(network=addressed({"name": "p", "port": 80, "targetPort": "http", "appProtocol": "http"}))
    action = bench.expect(Create)
    assert action.target == Target(Kind.SERVICE, "f-a")
    body = orjson.loads(action.body)
    assert body["spec"] == {
        "ports": [{"name": "p", "port": 80, "targetPort": "http", "protocol": "TCP", "appProtocol": "http"}],
        "selector": {"FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "a"},
    }
    assert bench.status.role_objects == ["Service/f-a"]
    bench.created(action)
    assert [one.target.kind for one in bench.plan().actions] == [Kind.CONFIGMAP]


def test_it_is_created_with_the_headless_service() -> None:
    bench = accepted(network=addressed(enableDNSHostnames=True))
    assert [one.target.name for one in bench.plan().actions] == ["f", "f-a"]


def test_the_record_costs_no_write() -> None:
    with_service, without = accepted(network=addressed()), accepted()
    for bench in (with_service, without):
        run_all(bench)
    assert with_service.writes == without.writes


def test_ports_follow_the_spec() -> None:
    bench = accepted(network=addressed())
    run_all(bench)
    bench.idle()
    bench.edit(network=addressed({"port": 81}))
    action = bench.expect(Patch)
    assert (action.uid, action.resource_version) == (bench.services["f-a"].uid, "1")
    assert orjson.loads(action.change) == {"spec": {"ports": [{"port": 81, "protocol": "TCP"}]}}
    bench.patched(action)
    bench.idle()


def test_ports_that_another_client_has_changed_are_restored() -> None:
    bench = accepted(network=addressed())
    run_all(bench)
    bench.bodies["f-a"]["spec"]["ports"] = [{"port": 9, "protocol": "TCP", "targetPort": 9}]
    bench.show("f-a")
    bench.patched(bench.expect(Patch))
    bench.idle()


def test_fields_of_the_api_server_are_no_change() -> None:
    bench = accepted(network=addressed({"port": 80}))
    run_all(bench)
    bench.bodies["f-a"]["spec"] |= {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "clusterIP": "10.0.0.1",
        "sessionAffinity": "None",
    }
    bench.show("f-a")
    bench.idle()


def test_a_change_that_is_refused_stalls_the_framework_and_pods_continue() -> None:
    bench = accepted(network=addressed())
    run_all(bench)
    bench.edit(network=addressed({"port": 81}))
    action = bench.expect(Patch)
    bench.refuse(action, refused(403))
    bench.plan()
    assert bench.stall()[0] == "ServiceNotAnswered"
    assert bench.wait(60).actions == [action]
    bench.fold(action, Outdated())
    bench.plan()
    assert bench.stall() == ("", "")
    assert bench.status.state is State.RUNNING


# --- both kinds ---


@each
def test_a_foreign_object_is_neither_changed_nor_deleted(kind: Kind, make: Any, without: dict[str, Any]) -> None:
    bench: Bench = make()
    action = bench.expect(Create)
    assert action.target == Target(kind, "f-a")
    for _ in range(3):
        bench.fold(action, Exists(foreign("f-a")))
        assert bench.wait(60).actions == [action]
    assert bench.stall()[0] == "NamingConflict"
    assert bench.status.state is State.CREATION_PENDING
    bench.edit(**without)
    bench.plan()
    removal = next(one for one in bench.plan().actions if isinstance(one, RemoveCompanion))
    exchange = carry_out(removal)
    assert next(exchange) == Get(kind, "f-a")
    with pytest.raises(StopIteration) as end:
        exchange.send(Answered(orjson.dumps({"metadata": {"uid": "foreign"}})))
    assert end.value.value == Gone()
    bench.fold(removal, Gone())
    bench.plan()
    assert (bench.stall(), bench.status.role_objects) == (("", ""), [])


@each
def test_it_is_created_again_and_pods_continue(kind: Kind, make: Any, without: dict[str, Any]) -> None:
    bench: Bench = make()
    run_all(bench)
    settled(bench)
    bench.drop("f-a")
    bench.created(soon(bench, Create))
    settled(bench)
    assert bench.status.state is State.RUNNING


@each
@pytest.mark.parametrize("restarted", [False, True])
def test_it_goes_when_the_spec_no_longer_asks_for_it(
    kind: Kind, make: Any, without: dict[str, Any], restarted: bool
) -> None:
    bench: Bench = make()
    run_all(bench)
    settled(bench)
    bench.edit(**without)
    if restarted:
        # The process ends once the new spec is stored: only the status knows of the object.
        bench.restart()
        bench.services.clear()
        bench.budgets.clear()
    removal = soon(bench, RemoveCompanion)
    assert (removal.target, removal.controller_uid) == (Target(kind, "f-a"), UID)
    assert removal.needs_live
    bench.fold(removal, NotAttempted())
    bench.fold(soon(bench, RemoveCompanion), Remains("it is still being deleted"))
    soon(bench, RemoveCompanion)
    bench.fold(removal, Gone())
    bench.services.clear()
    bench.budgets.clear()
    bench.idle()
    assert (bench.status.role_objects, bench.stall(), bench.status.state) == ([], ("", ""), State.RUNNING)


@each
def test_a_removal_that_the_spec_takes_back_is_followed_by_a_creation(
    kind: Kind, make: Any, without: dict[str, Any]
) -> None:
    bench: Bench = make()
    before = dict(bench.spec)
    run_all(bench)
    settled(bench)
    bench.edit(**without)
    removal = soon(bench, RemoveCompanion)
    bench.edit(**before)
    bench.hide("f-a")
    bench.fold(removal, Gone())
    assert soon(bench, Create).target == Target(kind, "f-a")
    assert bench.status.role_objects == [f"{kind}/f-a"]


@each
def test_a_removal_waits_for_a_list(kind: Kind, make: Any, without: dict[str, Any]) -> None:
    """It shows which version of the API is served."""
    bench: Bench = make()
    run_all(bench)
    settled(bench)
    bench.edit(**without)
    bench.not_listed = NotListed("403: no")
    bench.idle()
    bench.idle()
    assert bench.stall()[0].endswith("NotListed")
    bench.not_listed = None
    bench.fold(soon(bench, RemoveCompanion), Gone())
    bench.plan()
    assert bench.stall() == ("", "")


@each
def test_an_object_that_a_finalizer_holds_is_reported(kind: Kind, make: Any, without: dict[str, Any]) -> None:
    bench: Bench = make()
    run_all(bench)
    bench.edit(**without)
    removal = soon(bench, RemoveCompanion)
    for _ in range(8):
        bench.fold(removal, Remains(f"{kind} f-a is still being deleted"))
        bench.wait(60)
    assert bench.stall()[0].endswith("NotGone")


@each
def test_an_invalid_spec_removes_nothing(kind: Kind, make: Any, without: dict[str, Any]) -> None:
    bench: Bench = make()
    run_all(bench)
    settled(bench)
    bench.spoil()
    assert not [one for one in bench.plan().actions if isinstance(one, RemoveCompanion | Patch)]


@each
def test_a_deleted_framework_leaves_its_objects_to_the_garbage_collector(
    kind: Kind, make: Any, without: dict[str, Any]
) -> None:
    bench: Bench = make()
    run_all(bench)
    bench.deleting = True
    bench.edit(**without)
    assert not [one for one in bench.plan().actions if isinstance(one, RemoveCompanion | Patch)]


def test_a_removal_deletes_the_object_that_it_has_read() -> None:
    removal = RemoveCompanion(Target(Kind.SERVICE, "f-a"), UID)
    owner = {"kind": "Framework", "name": "f", "uid": UID, "controller": True}
    body = orjson.dumps({"metadata": {"uid": "s", "ownerReferences": [owner]}})
    exchange = carry_out(removal)
    assert next(exchange) == Get(Kind.SERVICE, "f-a")
    assert exchange.send(Answered(body)) == Remove(Kind.SERVICE, "f-a", "s", False, None, "")
    assert exchange.send(Answered(body)) == Get(Kind.SERVICE, "f-a")
    with pytest.raises(StopIteration) as end:
        exchange.send(Refused(404, "gone", b"{}", kind=Refusal.OBJECT_NOT_FOUND))
    assert end.value.value == Gone()


# --- the Tasks that a budget counts ---


def minimum(bench: Bench) -> int:
    """The minAvailable of the budget of role a."""
    found: int = bench.bodies["f-a"]["spec"]["minAvailable"]
    return found


def settled(bench: Bench) -> list[Action]:
    """Patches succeed until nothing is left to do; the other actions."""
    others: list[Action] = []
    for _ in range(20):
        if not (actions := bench.wait(30).actions) and not bench.tracker.is_busy:
            break
        for action in actions:
            if isinstance(action, Patch):
                bench.patched(action)
            else:
                others.append(action)
        if others:
            break
    return others


def test_the_minimum_rises_as_pods_become_ready() -> None:
    bench = accepted(budgeted(3, 1))
    action = bench.expect(Create)
    assert orjson.loads(action.body)["spec"] == {
        "minAvailable": 0,
        "selector": {"matchLabels": {"FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "a"}},
    }
    bench.created(action)
    bench.all_pods()
    seen = []
    for index in range(3):
        ready(bench, f"f-a-{index}")
        settled(bench)
        seen.append((bench.status.attempt.roles[0].budgeted_task_count, minimum(bench)))
    assert seen == [(1, 0), (2, 1), (3, 2)]
    # The budget counts a Pod that is no longer ready.
    ready(bench, "f-a-1", is_ready=False)
    assert settled(bench) == []
    assert minimum(bench) == 2


def test_a_restart_keeps_the_minimum_while_pods_are_down() -> None:
    bench = accepted(budgeted(3, 1))
    run_all(bench)
    settled(bench)
    ready(bench, "f-a-0", is_ready=False)
    bench.restart()
    for name in bench.pods:
        bench.touch(name)
    assert settled(bench) == []
    assert (minimum(bench), bench.status.attempt.roles[0].budgeted_task_count) == (2, 3)


def test_the_minimum_changes_only_once_the_count_is_persisted() -> None:
    bench = accepted(budgeted(2, 0))
    bench.all_pods()
    conditions = [{"type": "Ready", "status": "True"}]
    bench.show("f-a-0", phase="Running", podIP="10.0.0.1", nodeName="node-1", conditions=conditions)
    bench.plan(write=False)
    assert not [one for one in bench.plan(write=False).actions if isinstance(one, Patch)]
    bench.write()
    assert [orjson.loads(one.change) for one in bench.plan().actions if isinstance(one, Patch)] == [
        {"spec": {"minAvailable": 1}}
    ]


def test_a_new_count_wakes_the_plan_that_changes_the_minimum() -> None:
    bench = accepted(budgeted(1, 0))
    bench.all_pods()
    ready(bench, "f-a-0")
    assert bench.tracker.is_busy
    assert isinstance(bench.only(bench.plan()), Patch)


def test_the_minimum_falls_once_the_deletion_of_leaving_pods_is_requested() -> None:
    bench = accepted(budgeted(3, 1))
    run_all(bench)
    settled(bench)
    bench.edit(budgeted(1, 1))
    bench.plan()
    bench.plan()
    (first, second) = settled(bench)
    assert {first.target.name, second.target.name} == {"f-a-1", "f-a-2"}
    # Both Pods are still ready: an eviction of the third one must not be permitted by them.
    assert minimum(bench) == 2
    assert isinstance(first, Delete)
    assert isinstance(second, Delete)
    bench.fold(first, Accepted())
    assert minimum_after(bench) == 1
    bench.fold(second, Accepted())
    assert minimum_after(bench) == 0


def minimum_after(bench: Bench) -> int:
    """The minimum once all that can be done is done."""
    for _ in range(5):
        for action in bench.wait(30).actions:
            if isinstance(action, Patch):
                bench.patched(action)
    return minimum(bench)


def test_tasks_that_have_completed_no_longer_count() -> None:
    bench = accepted(budgeted(3, 0))
    bench.edit({**budgeted(3, 0), "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": -1}})
    run_all(bench)
    settled(bench)
    assert minimum(bench) == 3
    bench.end("f-a-0", 1)
    assert minimum_after(bench) == 2


def test_the_next_attempt_counts_from_zero() -> None:
    bench = accepted(budgeted(2, 0, failed=1), retryPolicy={"maxRetryCount": 1})
    run_all(bench)
    settled(bench)
    assert minimum(bench) == 2
    bench.end("f-a-0", 1)
    assert (bench.status.attempt.id, minimum_after(bench)) == (1, 0)


def test_another_maximum_counts_at_once() -> None:
    bench = accepted(budgeted(3, 1))
    run_all(bench)
    settled(bench)
    bench.edit(budgeted(3, 3))
    assert minimum_after(bench) == 0
    bench.edit(budgeted(3, 0))
    assert minimum_after(bench) == 3


def test_added_tasks_count_once_they_are_ready() -> None:
    bench = accepted(budgeted(1, 0))
    run_all(bench)
    settled(bench)
    bench.edit(budgeted(2, 0))
    bench.all_pods()
    bench.run("f-a-1")
    assert minimum_after(bench) == 1
    ready(bench, "f-a-1")
    assert minimum_after(bench) == 2


def test_our_identity_decides() -> None:
    bench = accepted(network=addressed())
    action = bench.expect(Create)
    bench.fold(action, Exists(Identity("s", UID, (UID,), deleting=False)))
    assert [one.target.kind for one in bench.plan().actions] == [Kind.CONFIGMAP]
