"""What must not hold up a Framework in Kueue's queue for good: lost conflicts, bad labels, others' changes."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.actions import Action, Gone, Outdated
from frameworkcontroller.machine.workloads import ChangeRequest, Finish, GiveBack, LetGo
from tests.support.bench import Body, role
from tests.support.kueue import has_quota
from tests.support.queuedbench import QueuedBench, queue_labels


def code(bench: QueuedBench) -> int | None:
    """The completion code of the current attempt."""
    completion = bench.status.attempt.completion_status
    return None if completion is None else completion.code


def told(bench: QueuedBench, kind: str) -> tuple[str, str, str] | None:
    """Status, reason and message of a condition."""
    found = next((one for one in bench.status.conditions if one.type == kind), None)
    return None if found is None else (found.status, found.reason, found.message)


def live(bench: QueuedBench) -> Body:
    """The Workload, which exists."""
    assert bench.live is not None
    return bench.live


def running(*roles: Body, **spec: Any) -> QueuedBench:
    """A Framework whose Pods run, which Kueue knows."""
    bench = QueuedBench(*roles, **spec)
    bench.begin()
    bench.all_pods_run()
    return bench


# --- labels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", ["abc", "1h", "1.5"])
def test_a_bad_label_does_no_harm_to_an_attempt_that_runs(seconds: str) -> None:
    bench = running(role(failed=1), retryPolicy={"maxRetryCount": 3})
    bench.queue = queue_labels(seconds=seconds)
    bench.settle()
    assert (code(bench), bench.status.state) == (None, State.RUNNING)
    bench.end(code=1)
    bench.settle()
    assert bench.status.attempt.id == 1


def test_a_priority_class_of_pods_is_not_replaced_by_another_kind_while_there_is_quota() -> None:
    """The schema of Workloads refuses it."""
    pod = {"spec": {"containers": [{"name": "main"}], "priorityClassName": "high"}}
    bench = QueuedBench(role(pod=pod))
    bench.classes["high"] = 9
    bench.begin()
    bench.all_pods_run()
    bench.queue = queue_labels(priority_class="low")
    bench.classes["low"] = 1
    for _ in range(5):
        assert bench.act() == []
    assert told(bench, "Stalled") is None


def test_a_priority_class_of_the_same_name_and_another_kind_is_another_one() -> None:
    pod = {"spec": {"containers": [{"name": "main"}], "priorityClassName": "high"}}
    bench = QueuedBench(role(pod=pod))
    bench.classes["high"] = 9
    bench.enter()
    bench.settle()
    bench.queue = queue_labels(priority_class="high")
    bench.settle()
    assert live(bench)["spec"]["priorityClassRef"]["kind"] == "WorkloadPriorityClass"


# --- conflicts ------------------------------------------------------------------------------------------------------


def conflict(bench: QueuedBench, kind: type[Action]) -> None:
    """The next action, of that kind, meets a change of the Workload that causes no event, and is done later."""
    action = next(one for one in bench.plan().actions if isinstance(one, kind))
    bench.changed()
    bench.fold(action, Outdated("changed"))
    made = bench.plan()
    assert made.actions == []
    assert made.requeue_after is not None
    assert made.requeue_after < 60
    bench.see()
    bench.now += made.requeue_after
    bench.act()


def test_a_conflict_over_the_request_is_tried_again() -> None:
    bench = QueuedBench()
    bench.enter()
    bench.queue = queue_labels("team-b")
    conflict(bench, ChangeRequest)
    assert live(bench)["spec"]["queueName"] == "team-b"


def test_a_conflict_over_the_end_is_tried_again() -> None:
    bench = QueuedBench()
    bench.enter()
    bench.edit(executionType="Stop")
    while bench.status.state is not State.COMPLETED:
        for action in bench.plan().actions:
            bench.fold(action, Gone())
    conflict(bench, Finish)
    assert live(bench)["metadata"]["finalizers"] == []


def test_a_conflict_over_the_finalizer_is_tried_again() -> None:
    bench = QueuedBench()
    bench.enter()
    bench.delete_workload()
    (look,) = bench.plan().actions
    bench.fold(look, Gone())
    conflict(bench, LetGo)
    assert bench.live is None


def test_a_conflict_over_the_quota_is_tried_again() -> None:
    bench = QueuedBench()
    bench.enter()
    bench.admit()
    bench.evict()
    (look,) = bench.plan().actions
    bench.fold(look, Gone())
    conflict(bench, GiveBack)
    assert not has_quota(live(bench))


def test_actions_that_the_cache_does_not_show_yet_do_not_repeat_each_other() -> None:
    bench = running(role("a", 2), role("b"))
    bench.classes = {"low": 1}
    bench.queue = queue_labels(priority_class="low")
    live(bench)["spec"] |= {
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "x"}
    }
    bench.changed()
    bench.see()
    bench.edit(role("a"), role("b"))
    sent = 0
    for _ in range(30):
        for action in bench.plan().actions:
            if action.target.name == live(bench)["metadata"]["name"]:
                sent += 1
                bench.perform(action)
            elif hasattr(action, "uid"):
                bench.fold(action, Gone())
                bench.hide("f-a-1")
    assert sent <= 3
