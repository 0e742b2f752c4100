"""Roles that depend on others (docs/lifecycle.md, "Dependencies")."""

from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Create
from frameworkcontroller.machine.kernel.exchanges import Created
from frameworkcontroller.machine.kernel.model import Plan, Urgency
from frameworkcontroller.machine.parts.dependencies.dependencies import DependencyReason, RoleOrder
from tests.support.bench import Bench, Body, begun, prepared, role

READY = {"type": "Ready", "status": "True"}
UNREADY = {"type": "Ready", "status": "False"}


def after(status: str, *roles: str) -> list[Body]:
    """The dependencies of a role on these others, with that status."""
    return [{"name": name, "status": status} for name in roles]


def with_dependencies(item: Body, *dependencies: Body) -> Body:
    """The role, which depends on others."""
    return {**item, "dependsOn": list(dependencies)}


def two(status: str, *, number: int = 1, workers: int = 2, **init: Any) -> Bench:
    """A role ``w`` that depends on ``a``, whose Pods are created."""
    worker = with_dependencies(role("w", workers), *after(status, "a"))
    return prepared(role("a", number, **init), worker)


def created(made: Plan) -> list[str]:
    """The Pods that a plan creates."""
    return [action.target.name for action in made.actions if isinstance(action, Create)]


def ready(bench: Bench, name: str, condition: Body = READY) -> None:
    """The Pod runs, and is ready or not; nothing is planned."""
    bench.show(name, phase="Running", podIP="10.0.0.1", nodeName="node-1", conditions=[condition])


def ready_then_plan(bench: Bench, name: str, condition: Body = READY) -> None:
    """The Pod runs, and is ready or not, and a plan follows."""
    ready(bench, name, condition)
    bench.plan()


def is_started(bench: Bench, name: str = "w") -> bool:
    """Whether the role has started, as the status says."""
    return next(item.started for item in bench.status.attempt.roles if item.name == name)


def message(bench: Bench, kind: str = "Running") -> str:
    """The message of a condition."""
    return next(item.message for item in bench.status.conditions if item.type == kind)


# --- when a dependency holds --------------------------------------------------------------------------------------


def test_pods_of_a_waiting_role_are_not_created() -> None:
    bench = two("Complete")
    assert bench.states("a") == ["Preparing"]
    assert bench.states("w") == ["CreationPending", "CreationPending"]
    bench.run()
    assert message(bench) == "FrameworkAttempt 0: TaskRole w waits until TaskRole a is Complete"
    assert not is_started(bench)


def test_complete_is_all_tasks_succeeded() -> None:
    bench = two("Complete", number=2)
    bench.end("f-a-0")
    assert not is_started(bench)
    bench.end("f-a-1")
    assert is_started(bench)
    assert bench.states("w") == ["Preparing", "Preparing"]
    assert message(bench) == "FrameworkAttempt 0"


def test_a_task_that_is_retried_has_not_completed() -> None:
    bench = two("Complete", retryPolicy={"maxRetryCount": 1})
    bench.end("f-a-0", 1)
    assert bench.states("a") == ["Preparing"]
    assert not is_started(bench)
    bench.end("f-a-0")
    assert is_started(bench)


def test_ready_is_all_pods_ready() -> None:
    bench = two("Ready", number=2)
    ready_then_plan(bench, "f-a-0")
    ready_then_plan(bench, "f-a-1", UNREADY)
    assert bench.states("a") == ["Running", "Running"]
    assert not is_started(bench)
    ready_then_plan(bench, "f-a-1")
    assert is_started(bench)


@pytest.mark.parametrize("code", [0, 1])
def test_a_completed_task_counts_as_ready(code: int) -> None:
    bench = two("Ready", number=2)
    bench.end("f-a-0", code)
    assert not is_started(bench)
    ready_then_plan(bench, "f-a-1")
    assert is_started(bench)


@pytest.mark.parametrize("then", ["unready", "deleted"])
def test_a_pod_that_is_no_longer_ready_or_is_deleted_does_not_count(then: str) -> None:
    bench = two("Ready", number=2, retryPolicy={"maxRetryCount": -1})
    ready_then_plan(bench, "f-a-0")
    if then == "unready":
        ready_then_plan(bench, "f-a-0", UNREADY)
    else:
        bench.show("f-a-0", deleting=bench.now + 30)
    ready_then_plan(bench, "f-a-1")
    assert bench.states("a") == ["Running" if then == "unready" else "Deleting", "Running"]
    assert not is_started(bench)


def test_all_dependencies_hold_at_the_same_time() -> None:
    worker = with_dependencies(role("w"), *after("Ready", "a"), *after("Complete", "b"))
    bench = prepared(role("a"), role("b"), worker)
    ready_then_plan(bench, "f-a-0")
    assert not is_started(bench)
    ready_then_plan(bench, "f-a-0", UNREADY)
    bench.end("f-b-0")
    assert not is_started(bench)
    ready_then_plan(bench, "f-a-0")
    assert is_started(bench)


@pytest.mark.parametrize("status", ["Ready", "Complete"])
def test_a_role_without_tasks_holds(status: str) -> None:
    bench = two(status, number=0)
    assert is_started(bench)
    assert bench.states("w") == ["Preparing", "Preparing"]


def test_roles_start_in_a_chain() -> None:
    second = with_dependencies(role("b"), *after("Complete", "a"))
    third = with_dependencies(role("c"), *after("Complete", "b"))
    # In no order of the list.
    bench = prepared(third, second, role("a"))
    assert sorted(bench.pods) == ["f-a-0"]
    bench.end("f-a-0")
    assert bench.states("b") == ["Preparing"]
    assert bench.states("c") == ["CreationPending"]
    bench.end("f-b-0")
    assert bench.states("c") == ["Preparing"]


# --- the start is stored ------------------------------------------------------------------------------------------


def test_the_start_is_stored_before_the_first_pod() -> None:
    bench = two("Ready")
    ready(bench, "f-a-0")
    made = bench.plan(write=False)
    assert is_started(bench)
    assert made.urgency is Urgency.NOW
    assert [item.message for item in made.records if item.reason is DependencyReason.STARTED] == [
        "TaskRole w starts, as TaskRole a is Ready"
    ]
    for _ in range(3):
        assert not created(bench.plan(write=False))
    bench.tracker.look_at_all()
    assert not created(bench.plan(write=False))
    bench.write()
    assert created(bench.plan()) == ["f-w-0", "f-w-1"]


def test_a_started_role_stays_started() -> None:
    bench = two("Ready")
    ready(bench, "f-a-0")
    bench.all_pods()
    ready_then_plan(bench, "f-a-0", UNREADY)
    assert is_started(bench)
    bench.edit(role("a", 3), with_dependencies(role("w", 3), *after("Ready", "a")))
    bench.all_pods()
    assert bench.states("w") == ["Preparing"] * 3


def test_the_status_has_no_key_for_it_before() -> None:
    def encoded() -> list[Body]:
        status = orjson.loads(encode_status("f", bench.status))
        roles: list[Body] = status["attemptStatus"]["taskRoleStatuses"]
        return roles

    bench = two("Complete")
    assert all("started" not in item for item in encoded())
    bench.end("f-a-0")
    assert [item.get("started") for item in encoded()] == [None, True]
    assert (bench.status.state is State.COMPLETED, bench.code()) == (False, None)


# --- the user edits -----------------------------------------------------------------------------------------------


def test_a_role_with_pods_starts_when_it_gets_a_dependency() -> None:
    bench = prepared(role("a"), role("w", 2))
    bench.edit(role("a"), with_dependencies(role("w", 3), *after("Complete", "a")))
    bench.all_pods()
    assert is_started(bench)
    assert bench.states("w") == ["Preparing"] * 3


def test_a_creation_in_flight_starts_a_role_that_gets_a_dependency() -> None:
    bench = begun(role("a"), role("w", 2))
    (_, action, _) = bench.plan().actions
    bench.edit_then_plan(role("a"), with_dependencies(role("w", 2), *after("Complete", "a")))
    assert not is_started(bench)
    bench.fold(action, Created("late"))
    bench.plan()
    assert is_started(bench)


def test_a_role_that_loses_its_dependency_starts() -> None:
    bench = two("Complete")
    bench.edit(role("a"), role("w", 2))
    bench.all_pods()
    assert bench.states("w") == ["Preparing", "Preparing"]
    assert not is_started(bench)


def test_a_dependency_that_shrinks_holds_by_the_tasks_that_are_left() -> None:
    bench = two("Ready", number=2)
    ready_then_plan(bench, "f-a-0")
    bench.edit_then_plan(role("a", 1), with_dependencies(role("w", 2), *after("Ready", "a")))
    bench.plan()
    assert is_started(bench)


# --- permanently unmet -----------------------------------------------------------------------------------------------


def test_a_dependency_that_can_no_longer_hold_ends_the_attempt() -> None:
    bench = two("Complete", number=2)
    bench.stop("f-a-1", 5)
    for _ in range(3):
        for action in bench.plan().actions:
            if action.target.name == "f-a-1":
                bench.hide("f-a-1")
    bench.settle()
    completion = bench.completion()
    assert completion.trigger is not None
    assert (completion.code, completion.trigger.task_role_name, completion.trigger.task_index) == (5, "a", 1)
    assert completion.trigger.message == ("TaskRole w depends on TaskRole a being Complete, which it can no longer be")
    assert not is_started(bench)


def test_a_completion_policy_comes_first() -> None:
    worker = with_dependencies(role("w"), *after("Complete", "a"))
    bench = prepared(role("a", 1, failed=1), worker)
    bench.end("f-a-0", 5)
    trigger = bench.completion().trigger
    assert trigger is not None
    assert trigger.message.startswith("FailedTaskCount 1")


def test_a_failure_does_not_matter_to_a_role_that_has_started_or_has_no_tasks() -> None:
    bench = two("Complete", workers=0)
    bench.end("f-a-0", 5)
    assert bench.code() == 0


# --- the cost -----------------------------------------------------------------------------------------------------


def test_readiness_is_counted_only_where_it_is_awaited() -> None:
    bench = prepared(
        role("a", 2), role("b"), with_dependencies(role("w"), *after("Ready", "a"), *after("Complete", "b"))
    )
    assert set(bench.tracker.part(RoleOrder).ready) == {"a"}
    for name in ("f-a-0", "f-a-1"):
        ready(bench, name)
    bench.end("f-b-0")
    bench.plan()
    assert is_started(bench)
    assert not bench.tracker.part(RoleOrder).ready
