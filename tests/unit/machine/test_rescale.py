"""docs/lifecycle.md, "Rescale", and the whole walk-through of its example."""

import pytest

from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine.kernel.actions import Create, Delete
from frameworkcontroller.machine.kernel.exchanges import Accepted
from frameworkcontroller.machine.kernel.model import Plan, Urgency
from frameworkcontroller.machine.kernel.requests import Unanswered
from tests.support.bench import Bench, Body, accepted, role

SCALED_DOWN = "User has requested to delete the Task by Framework ScaleDown"


def actions(made: Plan) -> list[str]:
    """The plan's actions in short."""
    return sorted(f"{type(action).__name__} {action.target.name}" for action in made.actions)


def marks(bench: Bench, name: str = "a") -> list[str]:
    """The Tasks of a role: their state, with a ! if they leave."""
    tasks = next(item.tasks for item in bench.status.attempt.roles if item.name == name)
    return [f"{task.state.value.removeprefix('Attempt')}{'!' * task.is_leaving}" for task in tasks]


def instances(bench: Bench, name: str = "a") -> list[str]:
    """Instance UIDs of a role's Tasks."""
    return [task.instance_uid for task in bench.tracker.roles[name].tasks]


def roles(bench: Bench) -> list[str]:
    """Names of the roles of the status."""
    return [item.name for item in bench.status.attempt.roles]


def advance(bench: Bench) -> None:
    """Creations succeed and Pods run; deletions are accepted, and take their time."""
    for _ in range(20):
        made = bench.plan()
        for action in made.actions:
            if isinstance(action, Create):
                bench.created(action, show=False)
                bench.show(action.target.name, phase="Running")
            elif isinstance(action, Delete):
                bench.fold(action, Accepted())
                bench.show(action.target.name, deleting=bench.now + 30)
        if not made.actions and not bench.tracker.is_busy:
            return


def rescale(bench: Bench, *specs: Body) -> None:
    """The user edits the roles, and all goes its way."""
    bench.edit(*specs)
    advance(bench)


def gone(bench: Bench, *names: str) -> None:
    """Pods that were being deleted are gone."""
    for name in names:
        bench.hide(name)
    advance(bench)


def started(*specs: Body) -> Bench:
    """A Framework whose Pods all run."""
    bench = accepted(*specs)
    bench.created(bench.only(bench.plan()))
    advance(bench)
    return bench


def is_new(task: TaskStatus) -> bool:
    """Whether the Task is as a Task begins."""
    return (
        task.state is State.CREATION_PENDING
        and task.attempt.id == task.retry.total_retried_count == 0
        and not task.is_leaving
        and task.attempt.completion_status is None
        and task.attempt.pod_uid is None
    )


# --- up ---------------------------------------------------------------------------------------------------------


def test_up_is_added_persisted_and_only_then_started() -> None:
    bench = started(role(number=1))
    before = instances(bench)
    bench.edit(role(number=3))
    made = bench.plan(write=False)
    assert not made.actions
    assert made.urgency is Urgency.NOW
    assert marks(bench) == ["Running", "CreationPending", "CreationPending"]
    assert instances(bench)[:1] == before
    assert is_new(bench.task("a", 2))
    assert not bench.plan(write=False).actions
    bench.write()
    assert actions(bench.plan()) == ["Create f-a-1", "Create f-a-2"]


# --- down -------------------------------------------------------------------------------------------------------


def test_down_marks_the_highest_first_and_stops_them_once_that_is_persisted() -> None:
    bench = started(role(number=4))
    bench.edit(role(number=2))
    made = bench.plan(write=False)
    assert not made.actions
    assert made.urgency is Urgency.NOW
    assert marks(bench) == ["Running", "Running", "Running!", "Running!"]
    told = [item.index for item in made.records if item.reason == "TaskDeletionPending"]
    assert told == [3, 2]
    for index in (2, 3):
        completion = bench.task_completion("a", index)
        assert (completion.code, completion.phrase, completion.diagnostics) == (
            -230,
            "DeleteTaskRequested",
            SCALED_DOWN,
        )
    assert not bench.plan(write=False).actions
    bench.write()
    assert actions(bench.plan()) == ["Delete f-a-2", "Delete f-a-3"]


def test_tasks_that_have_left_vanish_from_the_tail() -> None:
    bench = started(role(number=4))
    rescale(bench, role(number=1))
    assert marks(bench) == ["Running", "Deleting!", "Deleting!", "Deleting!"]
    gone(bench, "f-a-2")
    # Not from the middle: indices have no gaps.
    assert marks(bench) == ["Running", "Deleting!", "Completed!", "Deleting!"]
    gone(bench, "f-a-3")
    assert marks(bench) == ["Running", "Deleting!"]
    gone(bench, "f-a-1")
    assert marks(bench) == ["Running"]


def test_a_role_that_left_the_spec_vanishes_with_its_last_task() -> None:
    bench = started(role("a", 2), role("b", 1))
    rescale(bench, role("b", 1))
    assert roles(bench) == ["a", "b"]
    assert marks(bench) == ["Deleting!", "Deleting!"]
    gone(bench, "f-a-1")
    assert roles(bench) == ["a", "b"]
    gone(bench, "f-a-0")
    assert roles(bench) == ["b"]


def test_a_role_of_no_tasks_vanishes_at_once_when_it_leaves_the_spec_but_not_before() -> None:
    bench = started(role("a", 0), role("b", 1))
    assert roles(bench) == ["a", "b"]
    bench.edit_then_plan(role("b", 1))
    assert roles(bench) == ["b"]


def test_a_role_that_is_scaled_to_none_stays() -> None:
    bench = started(role("a", 1), role("b", 1))
    rescale(bench, role("a", 0), role("b", 1))
    gone(bench, "f-a-0")
    assert roles(bench) == ["a", "b"]
    assert marks(bench) == []


def test_a_removal_holds_up_no_other_task() -> None:
    bench = started(role(number=3))
    bench.edit_then_plan(role(number=1))
    bench.plan()
    deletions = bench.plan().actions
    assert [action.target.name for action in deletions] == ["f-a-2", "f-a-1"]
    bench.fold(deletions[0], Accepted())
    bench.hide("f-a-2")
    # Its end is to be persisted, which is not urgent: the others continue.
    while len(instances(bench)) == 3:
        assert bench.plan(write=False).urgency is not Urgency.NOW
        if len(instances(bench)) == 3:
            bench.write()
    assert bench.tracker.urgency is Urgency.SOON
    bench.tracker.agenda.look(("a", 1))
    assert actions(bench.plan(write=False)) == ["Delete f-a-1"]


# --- down and up again --------------------------------------------------------------------------------------------


def test_a_task_that_leaves_is_never_used_again() -> None:
    bench = started(role(number=2))
    before = instances(bench)
    rescale(bench, role(number=1))
    rescale(bench, role(number=2))
    assert marks(bench) == ["Running", "Deleting!"]
    assert instances(bench) == before
    bench.hide_then_plan("f-a-1")
    bench.plan()
    bench.plan(write=False)
    # Replaced, by another instance; and started once that is persisted.
    task = bench.task("a", 1)
    assert task.instance_uid != before[1]
    assert is_new(task)
    assert not bench.plan(write=False).actions
    bench.write()
    assert actions(bench.plan()) == ["Create f-a-1"]


@pytest.mark.parametrize("late", [False, True])
def test_a_role_that_comes_back_before_it_is_gone_keeps_its_instance_and_not_its_tasks(late: bool) -> None:
    bench = started(role("a", 1), role("b", 1))
    before, uid = instances(bench), bench.tracker.roles["a"].instance_uid
    rescale(bench, role("b", 1))
    if late:
        gone(bench, "f-a-0")
    rescale(bench, role("a", 1), role("b", 1))
    assert (bench.tracker.roles["a"].instance_uid == uid) is not late
    if not late:
        assert marks(bench) == ["Deleting!"]
        gone(bench, "f-a-0")
    assert marks(bench) == ["Running"]
    assert instances(bench) != before


def test_nothing_is_rescaled_once_the_attempt_is_completing() -> None:
    bench = started(role(number=2, failed=1))
    bench.stop("f-a-1", 1)
    advance(bench)
    gone(bench, "f-a-1")
    assert bench.status.attempt.completion_status is not None
    rescale(bench, role(number=5, failed=1))
    assert len(marks(bench)) == 2


# --- Pods that no Task has ------------------------------------------------------------------------------------------


def late() -> Bench:
    """Task a-1 is gone by ScaleDown, and then a creation of its Pod that was given up is executed after all."""
    bench = started(role(number=2))
    body = bench.bodies["f-a-1"]
    rescale(bench, role(number=1))
    gone(bench, "f-a-1")
    assert marks(bench) == ["Running"]
    body["metadata"] = {key: value for key, value in body["metadata"].items() if not key.startswith("deletion")}
    body["metadata"]["uid"] = "late"
    return bench


def test_a_pod_that_no_task_has_is_deleted() -> None:
    bench = late()
    bench.show("f-a-1")
    deletion = bench.expect(Delete)
    assert (deletion.target.name, deletion.uid, deletion.force) == ("f-a-1", "late", False)
    bench.fold(deletion, Unanswered("reset"))
    bench.idle()
    assert bench.only(bench.wait(60)) == deletion
    bench.fold(deletion, Accepted())
    assert not bench.tracker.is_busy
    bench.show("f-a-1", deleting=bench.now + 30)
    bench.idle()
    bench.hide("f-a-1")
    bench.idle()


@pytest.mark.parametrize("restart", [False, True])
def test_a_pod_that_no_task_has_is_deleted_once_that_is_persisted_and_without_an_event(restart: bool) -> None:
    bench = late()
    if restart:
        bench.show("f-a-1")
        bench.restart()
    else:
        bench.edit(role(number=1, podGracefulDeletionTimeoutSec=7))
        bench.plan(write=False)
        bench.show("f-a-1")
        assert not bench.plan(write=False).actions
        bench.write()
    assert actions(bench.plan()) == ["Delete f-a-1"]


# --- the walk-through ------------------------------------------------------------------------------------------------


def test_the_walk_through() -> None:
    """Four Tasks that never end, no retry; minFailed 4, minSucceeded 1 (examples, rescalebasic)."""

    def spec(number: int, *, failed: int) -> Body:
        return role("a", number, failed=failed, succeeded=1)

    bench = started(spec(4, failed=4))
    assert marks(bench) == ["Running"] * 4
    first = instances(bench)
    # Delete Pods a-2 and a-3: both Tasks are completed, failed.
    for name in ("f-a-2", "f-a-3"):
        bench.show(name, deleting=bench.now + 30)
    advance(bench)
    gone(bench, "f-a-2", "f-a-3")
    assert marks(bench) == ["Running", "Running", "Completed", "Completed"]
    # 4 to 2 together with minFailed 4 to 2: they vanish at once, and the attempt runs on.
    rescale(bench, spec(2, failed=2))
    assert marks(bench) == ["Running", "Running"]
    assert bench.status.state is State.RUNNING
    # 2 to 4: new instances run.
    rescale(bench, spec(4, failed=2))
    assert marks(bench) == ["Running"] * 4
    second = instances(bench)
    assert second[:2] == first[:2]
    assert not set(second[2:]) & set(first)
    # Delete Pod a-2: completed. 4 to 2, and while a-3 is on its way out, 2 to 3: a-2 is replaced at once, a-3 goes.
    bench.show("f-a-2", deleting=bench.now + 30)
    advance(bench)
    gone(bench, "f-a-2")
    assert marks(bench) == ["Running", "Running", "Completed", "Running"]
    bench.edit_then_plan(spec(2, failed=2))
    assert marks(bench) == ["Running", "Running", "Completed!", "Running!"]
    rescale(bench, spec(3, failed=2))
    assert marks(bench) == ["Running", "Running", "Running", "Deleting!"]
    third = instances(bench)
    assert third[2] not in second
    assert third[3] == second[3]
    gone(bench, "f-a-3")
    assert marks(bench) == ["Running"] * 3
    # 3 to 4; delete Pod a-2; 4 to 2, then 2 to 5 at once: a-2 is replaced at once, a-3 once its old Pod is gone, a-4
    # added.
    rescale(bench, spec(4, failed=2))
    fourth = instances(bench)
    bench.show("f-a-2", deleting=bench.now + 30)
    advance(bench)
    gone(bench, "f-a-2")
    assert marks(bench) == ["Running", "Running", "Completed", "Running"]
    bench.edit_then_plan(spec(2, failed=2))
    rescale(bench, spec(5, failed=2))
    assert marks(bench) == ["Running", "Running", "Running", "Deleting!", "Running"]
    fifth = instances(bench)
    assert fifth[2] not in fourth
    assert fifth[3] == fourth[3]
    gone(bench, "f-a-3")
    assert marks(bench) == ["Running"] * 5
    assert instances(bench)[3] not in fourth
    # The attempt ran on throughout.
    assert bench.status.state is State.RUNNING
    assert bench.status.attempt.id == 0
    assert bench.status.attempt.completion_status is None
    assert instances(bench)[:2] == first[:2]
