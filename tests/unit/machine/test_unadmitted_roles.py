"""A TaskRole that is added after Kueue's admission has no place in it: its Tasks wait, with a limit."""

from frameworkcontroller.api.completion import FRAMEWORK_EVICTED
from tests.support.bench import role
from tests.support.queuedbench import QueuedBench, begun, told


def with_an_added_role() -> QueuedBench:
    """One Task of role a runs, and two of role b are added."""
    bench = begun(role("a", 1))
    bench.all_pods_run()
    bench.edit_then_settle(role("a", 1), role("b", 2))
    return bench


def test_an_added_role_waits_while_others_run() -> None:
    bench = with_an_added_role()
    assert list(bench.pods) == ["f-a-0"]
    assert bench.status.attempt.completion_status is None


def test_an_attempt_with_nothing_left_but_an_added_role_ends_uncounted() -> None:
    bench = with_an_added_role()
    bench.stop("f-a-0")
    while bench.status.attempt.completion_status is None:
        made = bench.plan()
        assert made.actions or bench.tracker.is_busy, "it waits for ever"
        for action in made.actions:
            bench.hide(action.target.name)
    completion = bench.status.attempt.completion_status
    assert completion.code == FRAMEWORK_EVICTED.code
    assert "WorkloadOutOfSync" in completion.diagnostics
    assert "TaskRole b" in completion.diagnostics


def test_a_framework_whose_other_roles_wait_for_the_added_one_does_not_wait_without_end() -> None:
    waiting = {**role("c", 1), "dependsOn": [{"name": "b", "status": "Complete"}]}
    last = {**role("d", 1), "dependsOn": [{"name": "c", "status": "Ready"}]}
    bench = begun(role("a", 1), {**role("d", 1), "dependsOn": [{"name": "a", "status": "Ready"}]})
    bench.settle()
    bench.edit_then_settle(role("a", 1), role("b", 1), waiting, last)
    assert list(bench.pods) == ["f-a-0"]
    bench.end("f-a-0")
    assert bench.status.retry.total_retried_count == 1
    assert bench.status.retry.accountable_retried_count == 0


def test_an_added_role_of_a_gang_does_not_wait_without_end() -> None:
    """It waits for its PodGroup before it waits for quota."""
    bench = begun(role("a", 0), scheduling={"schedulingPolicy": {"gang": {}}})
    bench.settle()
    bench.edit_then_settle(role("a", 0), role("b", 1))
    assert bench.status.retry.total_retried_count == 1


# --- a role that waits for one that was scaled up ---------------------------------------------------------------------

READY = [{"type": "Ready", "status": "True"}]


def scaled_up() -> QueuedBench:
    """Role b waits for a. One Task of a is ready, and another one waits for quota."""
    waiting = {**role("b", 1), "dependsOn": [{"name": "a", "status": "Ready"}]}
    bench = begun(role("a", 1), waiting)
    bench.settle()
    bench.edit_then_settle(role("a", 2), waiting)
    bench.show("f-a-0", phase="Running", podIP="10.0.0.1", nodeName="node-1", conditions=READY)
    bench.settle()
    assert list(bench.pods) == ["f-a-0"]
    return bench


def test_a_role_that_waits_for_more_than_was_admitted_stalls_the_framework() -> None:
    bench = scaled_up()
    found = told(bench, "Stalled")
    assert found is not None
    assert found[:2] == ("True", "DependencyNotAdmitted")
    for words in ("TaskRole b waits until TaskRole a is Ready", "1 of its 2 Tasks", "spec.suspend"):
        assert words in found[2]


def test_that_stall_ends_when_the_role_is_scaled_back() -> None:
    bench = scaled_up()
    waiting = bench.spec["taskRoles"][1]
    bench.edit_then_settle(role("a", 1), waiting)
    assert told(bench, "Stalled") == ("False", "Progressing", "")
    assert list(bench.pods) == ["f-a-0", "f-b-0"]


def test_that_stall_ends_when_a_task_ends() -> None:
    bench = scaled_up()
    bench.end("f-a-0")
    bench.show("f-a-1", phase="Running", podIP="10.0.0.1", nodeName="node-1", conditions=READY)
    bench.settle()
    assert told(bench, "Stalled") == ("False", "Progressing", "")
    assert "f-b-0" in bench.pods


def test_its_advice_helps() -> None:
    bench = scaled_up()
    bench.edit_then_settle(suspend=True)
    assert told(bench, "Stalled") == ("False", "Progressing", "")
    bench.edit(suspend=False)
    bench.begin()
    bench.settle()
    assert list(bench.pods) == ["f-a-0", "f-a-1"]
