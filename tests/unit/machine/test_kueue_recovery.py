"""Problems that must not block a queued Framework permanently: conflicts, bad labels, others' changes."""

from typing import Any

import pytest

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Action, Patch
from frameworkcontroller.machine.kernel.exchanges import Gone, Outdated
from frameworkcontroller.machine.kernel.requests import Unanswered
from frameworkcontroller.machine.parts.kueue.queueing import QueueReason
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    Finish,
    ReadWorkload,
    ReleaseQuota,
    RemoveFinalizer,
    UpdateWorkload,
)
from tests.support.bench import refused, role
from tests.support.kueue import has_quota
from tests.support.kueue import is_true as of_workload
from tests.support.queuedbench import QueuedBench, admitted, begun, entered, live, queue_labels, running, told

# --- labels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", ["abc", "1h", "1.5"])
def test_a_bad_label_does_no_harm_to_an_attempt_that_runs(seconds: str) -> None:
    bench = running(role(failed=1), retryPolicy={"maxRetryCount": 3})
    bench.queue = queue_labels(seconds=seconds)
    bench.settle()
    assert (bench.code(), bench.status.state) == (None, State.RUNNING)
    bench.end(code=1)
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
    made = bench.idle()
    assert made.requeue_after is not None
    assert made.requeue_after < 60
    bench.see()
    bench.now += made.requeue_after
    bench.act()


def test_a_conflict_over_the_request_is_tried_again() -> None:
    bench = entered()
    bench.queue = queue_labels("team-b")
    conflict(bench, UpdateWorkload)
    assert live(bench)["spec"]["queueName"] == "team-b"


def test_a_conflict_over_the_end_is_tried_again() -> None:
    bench = entered()
    bench.edit(executionType="Stop")
    while bench.status.state is not State.COMPLETED:
        for action in bench.plan().actions:
            bench.fold(action, Gone())
    conflict(bench, Finish)
    assert live(bench)["metadata"]["finalizers"] == []


def test_a_conflict_over_the_finalizer_is_tried_again() -> None:
    bench = entered()
    bench.delete_workload()
    (look,) = bench.plan().actions
    bench.fold(look, Gone())
    conflict(bench, RemoveFinalizer)
    assert bench.live is None


def test_a_conflict_over_the_quota_is_tried_again() -> None:
    bench = admitted()
    bench.evict()
    (look,) = bench.plan().actions
    bench.fold(look, Gone())
    conflict(bench, ReleaseQuota)
    assert not has_quota(live(bench))


def test_actions_that_the_cache_does_not_show_yet_do_not_repeat_each_other() -> None:
    bench = running(role("a", 2), role("b"))
    bench.classes = {"low": 1}
    bench.queue = queue_labels(priority_class="low")
    live(bench)["spec"] |= {
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "x"}
    }
    bench.changed_and_seen()
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


# --- a Workload that others have changed ------------------------------------------------------------------------------


def lose_label(bench: QueuedBench) -> None:
    """Another client removes the label by which the Workload is watched."""
    del live(bench)["metadata"]["labels"]["FC_FRAMEWORK_NAME"]
    bench.changed_and_seen()


def restore(bench: QueuedBench) -> Patch:
    """Up to the patch that restores the label."""
    for _ in range(5):
        for action in bench.wait(60).actions:
            if isinstance(action, Patch):
                return action
            if not bench.do(action):
                bench.fold(action, Gone())
    raise AssertionError("no Patch")


def assert_evicted(bench: QueuedBench) -> None:
    """Kueue evicts the Framework, and a look at the Workload ends the attempt."""
    bench.evict()
    bench.do(bench.expect(ReadWorkload, 60))
    bench.plan()
    assert bench.code() == -241


@pytest.mark.parametrize("result", [refused(403), Unanswered("lost"), Gone()])
def test_a_label_that_is_not_restored_is_looked_at_again(result: Any) -> None:
    bench = running()
    lose_label(bench)
    bench.fold(restore(bench), result)
    assert_evicted(bench)


@pytest.mark.parametrize("times", [1, 4])
def test_a_label_that_is_lost_again_and_again_is_looked_at_again(times: int) -> None:
    bench = running()
    for number in range(times):
        lose_label(bench)
        if number + 1 < times:
            bench.do(restore(bench))
    assert_evicted(bench)


def test_an_owner_that_was_removed_is_restored() -> None:
    """Otherwise no event would show that Kueue evicts the Framework."""
    bench = running()
    owners = live(bench)["metadata"].pop("ownerReferences")
    bench.changed_and_seen()
    bench.do(restore(bench))
    assert live(bench)["metadata"]["ownerReferences"] == owners
    assert bench.code() is None
    assert_evicted(bench)


def test_a_waiting_workload_whose_label_is_not_restored_is_found_again() -> None:
    bench = entered()
    lose_label(bench)
    bench.fold(restore(bench), Unanswered("lost"))
    bench.do(restore(bench))
    bench.admit()
    (look,) = bench.wait(60).actions
    bench.do(look)
    assert bench.status.admission is not None


@pytest.mark.parametrize("how", ["stopped", "suspended", "deleted"])
def test_a_workload_without_its_label_leaves_the_queue(how: str) -> None:
    """Else it keeps its quota, and the deletion of the Framework waits for its finalizer."""
    bench = entered()
    lose_label(bench)
    match how:
        case "stopped":
            bench.edit(executionType="Stop")
        case "suspended":
            bench.edit(suspend=True)
        case "deleted":
            bench.deleting, bench.generation = True, 2
            bench.delete_workload()
    bench.do(restore(bench))
    bench.settle()
    assert bench.live is None or of_workload(bench.live, "Finished")


def test_a_workload_without_the_finalizer_is_finished() -> None:
    """Another client has removed it. Kueue counts its quota until it is Finished."""
    bench = admitted()
    live(bench)["metadata"]["finalizers"] = []
    bench.changed_and_seen()
    bench.edit_then_settle(executionType="Stop")
    assert bench.status.state is State.COMPLETED
    assert of_workload(live(bench), "Finished")
    bench.idle()


def test_changed_counts_are_not_taken_for_the_request() -> None:
    bench = entered(role("a", 3))
    live(bench)["spec"]["podSets"][0]["count"] = 1
    bench.changed_and_seen()
    bench.act()
    assert live(bench)["spec"]["podSets"][0]["count"] == 3


def test_changed_counts_that_were_admitted_are_given_up() -> None:
    bench = entered(role("a", 3))
    live(bench)["spec"]["podSets"][0]["count"] = 1
    bench.admit_then_settle()
    assert live(bench)["metadata"]["uid"] != "workload-1"
    assert live(bench)["spec"]["podSets"][0]["count"] == 3
    bench.admit()
    (look,) = bench.wait(60).actions
    bench.do(look)
    assert bench.status.admission is not None


def test_a_partial_admission_stalls() -> None:
    bench = entered(role("a", 3))
    bench.admit(count=1)
    for _ in range(5):
        bench.act()
    assert bench.status.admission is None
    found = told(bench, "Stalled")
    assert found is not None
    assert found[:2] == ("True", QueueReason.ADMISSION_CONFLICT)
    assert "1 of the 3 Tasks of TaskRole a" in found[2]


def test_a_contradiction_is_over_with_its_admission() -> None:
    bench = QueuedBench()
    bench.flavors = {}
    bench.enter()
    bench.admit()
    bench.act()
    bench.plan()
    assert (told(bench, "Stalled") or ())[:2] == ("True", QueueReason.ADMISSION_CONFLICT)
    bench.say(("QuotaReserved", False, "Pending", "the flavor is gone"), ("Admitted", False, "NoReservation", ""))
    live(bench)["status"].pop("admission")
    bench.changed_and_seen()
    bench.plan()
    assert (told(bench, "Stalled") or ())[:1] == ("False",)


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_framework_that_is_deleted_as_its_attempt_ends_unbegun_lets_its_workload_go() -> None:
    bench = entered(activeDeadlineSeconds=10)
    bench.status.accumulated_past_execution_time_seconds = 10
    bench.plan()
    assert bench.code() == -250
    bench.deleting, bench.generation = True, 2
    bench.delete_workload()
    for _ in range(5):
        for action in bench.plan().actions:
            if not bench.do(action):
                bench.fold(action, Gone())
    assert bench.live is None


# --- messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason_of_eviction", "by_kueue"),
    [
        ("DeactivatedDueToMaximumExecutionTimeExceeded", True),
        ("DeactivatedDueToRequeuingLimitExceeded", True),
        ("Deactivated", False),
        ("Preempted", False),
    ],
)
def test_the_condition_shows_why_a_workload_is_not_active(reason_of_eviction: str, by_kueue: bool) -> None:
    """Kueue says its cause. Otherwise a person has set ``spec.active``, perhaps long after another eviction."""
    bench = running()
    bench.evict(reason_of_eviction)
    live(bench)["spec"]["active"] = False
    bench.changed_and_seen()
    for _ in range(9):
        for action in bench.plan().actions:
            if not bench.do(action):
                bench.fold(action, Gone())
                bench.vanish()
    assert not has_quota(live(bench))
    _, reason, message = told(bench, "QuotaReserved") or ("", "", "")
    assert reason == "Inactive"
    assert (f"by Kueue ({reason_of_eviction})" in message) is by_kueue
    assert ("Kueue" in message) is by_kueue
    assert "spec.active" in message
    assert "spec.active" in (told(bench, "Running") or ("", "", ""))[2]


def test_a_framework_that_has_left_its_queue_says_so_while_it_waits() -> None:
    bench = begun()
    bench.queue = None
    bench.plan()
    assert "no queue" in (told(bench, "Running") or ("", "", ""))[2]
