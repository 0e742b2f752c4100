"""Histories of one Framework in a queue, by the rules of tests/support/queueguarantees.py and tests/support/kueue.py.

Denser than the general ones: a hostile Kueue, a user who changes labels and spec, and a controller that dies between
any two steps.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frameworkcontroller.api import names
from frameworkcontroller.api.status import State
from tests.support.kueue import DEACTIVATIONS, EVICTIONS, Kueue, condition, has_quota, is_active
from tests.support.queuedhistory import HAPPENINGS, MODEST, QueuedHistory, Step
from tests.support.world import Body, Fate, uid_of

OPERATIONS: Final = [
    *(Step("play", (what, 0)) for what in dict.fromkeys([*EVICTIONS, *DEACTIVATIONS, *HAPPENINGS])),
    *(Step("suspend", (), {"wanted": wanted}) for wanted in (True, False)),
    *(Step("rescale", ("a", number)) for number in (3, 1)),
    *(Step("label", (names.QUEUE_NAME, queue)) for queue in (None, "team-a", "team-b")),
    Step("select", ("a", "x")),
    Step("execute", ("Stop",)),
    Step("delete", (), {"foreground": True}),
    Step("crash", (0,)),
    Step("crash", (0,)),
    Step("kubelet", (0, "end", 1)),
    Step("kubelet", (0, "Running")),
    Step("collect", (3,)),
    Step("step_kueue", (99,)),
    *(
        Step("fail", (verb, fate))
        for verb in ("create", "write", "delete", "get", "patch")
        for fate in (Fate.LOST, Fate.ANSWER_LOST, Fate.LATE)
    ),
]
OPERATION: Final = st.sampled_from(OPERATIONS)
PREEMPT: Final = Step("play", ("Preempted", 0))


def begin(*, seed: int = 0, **options: Any) -> QueuedHistory:
    """A Framework of two Tasks in a queue with quota for four."""
    history = QueuedHistory(seed, quota={"gold": 4}, **options)
    task = {"pod": {"spec": MODEST}}
    history.create_in("team-a", {"taskRoles": [{"name": "a", "taskNumber": 2, "task": task}]})
    return history


def follow(history: QueuedHistory, which: int, steps: int) -> None:
    """A controller and Kueue see everything, and work."""
    for _ in range(steps):
        history.step_kueue(99)
        history.follow(which, 1)


def all_run(history: QueuedHistory) -> None:
    """All Pods run."""
    history.settle()
    history.all_pods_run()
    history.settle()


def kueue(history: QueuedHistory) -> Kueue:
    """The stand-in for Kueue."""
    assert history.kueue is not None
    return history.kueue


def workload(history: QueuedHistory) -> Body:
    """The Workload of the Framework."""
    (found,) = kueue(history).of_frameworks()
    return found


def check(history: QueuedHistory, attempt: int) -> None:
    """Its two Tasks run in that attempt, and no retry counts."""
    status = history.status
    assert status is not None
    assert (status.state, len(history.pods())) == (State.RUNNING, 2)
    assert (status.attempt.id, status.retry.accountable_retried_count) == (attempt, 0)


@given(
    first=st.integers(0, 15),
    operations=st.lists(st.tuples(OPERATION, st.integers(0, 12)), max_size=12),
    checks=st.booleans(),
    topology=st.booleans(),
)
@example(
    first=6,
    operations=[
        (PREEMPT, 6),
        (Step("suspend", (), {"wanted": False}), 3),
        (Step("suspend", (), {"wanted": True}), 12),
    ],
    checks=False,
    topology=False,
)
def test_quota_is_kept_and_released_in_any_history(
    first: int, operations: list[tuple[Step, int]], checks: bool, topology: bool
) -> None:
    history = begin(checks=checks, topology=topology)
    follow(history, 0, first)
    for operation, steps in operations:
        operation.take(history)
        follow(history, 0, steps)
    history.finish()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("steps", range(25))
def test_an_eviction_between_any_two_steps_of_a_start_costs_no_retry(steps: int, crash: bool) -> None:
    history = begin()
    follow(history, 0, steps)
    history.play("Preempted", 0)
    if crash:
        history.crash(0)
    all_run(history)
    assert history.admission is not None
    assert history.admission["workloadUID"] == uid_of(workload(history))
    assert history.status is not None
    check(history, history.status.attempt.id)
    history.finish()


@pytest.mark.parametrize("steps", range(25))
def test_the_steps_after_an_eviction_survive_a_crash(steps: int) -> None:
    history = begin()
    all_run(history)
    history.play("Preempted", 0)
    follow(history, 0, steps)
    history.crash(0)
    all_run(history)
    check(history, 1)
    history.finish()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("what", ["deactivate", *DEACTIVATIONS])
def test_a_framework_that_was_deactivated_runs_again_once_it_is_activated(what: str, crash: bool) -> None:
    history = begin()
    all_run(history)
    history.play(what, 0)
    history.settle()
    if crash:
        history.crash(0)
        history.settle()
    assert (is_active(workload(history)), has_quota(workload(history))) == (False, False)
    history.tick(1000)
    history.settle()
    assert history.pods() == []
    history.play("activate", 0)
    all_run(history)
    check(history, 1)
    history.finish()


def test_more_time_and_an_activation_are_the_way_out_after_the_longest_execution_time() -> None:
    history = begin()
    history.label(names.MAX_EXEC_TIME_SECONDS, "60")
    all_run(history)
    history.tick(61)
    history.settle()
    assert not has_quota(workload(history))
    assert condition(workload(history), "Evicted")["reason"] == "DeactivatedDueToMaximumExecutionTimeExceeded"  # type: ignore[index]
    # Without more time, it is deactivated again.
    history.play("activate", 0)
    history.settle()
    assert not is_active(workload(history))
    history.label(names.MAX_EXEC_TIME_SECONDS, "600")
    history.settle()
    history.play("activate", 0)
    all_run(history)
    assert history.status is not None
    check(history, history.status.attempt.id)
    history.finish()


def until_told(history: QueuedHistory, reason: str) -> None:
    """Let time pass until the Workload says this about its Pods: changes of that are paced."""
    for _ in range(3):
        history.settle()
        if (condition(workload(history), "PodsReady") or {}).get("reason") == reason:
            return
        history.tick(10)
    raise AssertionError(condition(workload(history), "PodsReady"))


def test_pods_of_a_retry_have_their_time_though_the_admission_is_old() -> None:
    """Kueue counts the time of Pods that wait for their start from the admission."""
    history = begin(pods_ready_sec=100.0)
    history.set_retry(None, fancy=False, limit=5)
    history.set_completion("a", 1, -1)
    all_run(history)
    until_told(history, "Started")
    history.tick(1000)
    history.kubelet(0, "end", 1)
    until_told(history, "WaitForRecovery")
    assert history.status is not None
    assert history.status.attempt.id == 1
    history.tick(50)
    history.settle()
    assert kueue(history).evictions == {}
    all_run(history)
    until_told(history, "Recovered")
    history.finish()


def test_pods_of_the_next_admission_have_their_time_though_those_before_were_lost() -> None:
    history = begin(pods_ready_sec=100.0)
    history.set_retry("a", fancy=False, limit=5)
    all_run(history)
    until_told(history, "Started")
    history.kubelet(0, "end", 1)
    until_told(history, "WaitForRecovery")
    history.play("Preempted", 0)
    history.rival(4, "low")
    history.settle()
    assert (condition(workload(history), "PodsReady") or {})["reason"] == "WaitForStart"


@given(operations=st.lists(st.tuples(OPERATION, st.integers(0, 6), st.integers(0, 6)), max_size=10))
@example(operations=[(PREEMPT, 6, 2), (Step("crash", (0,)), 3, 3), (PREEMPT, 0, 6)])
def test_two_controllers_keep_the_order_of_writes(operations: list[tuple[Step, int, int]]) -> None:
    """Without the checks of K2 and of quota by existing Pods: the other one may have created some meanwhile."""
    history = begin()
    follow(history, 0, 4)
    history.start_second()
    for operation, first, second in operations:
        operation.take(history)
        follow(history, 0, first)
        follow(history, 1, second)
    # Each has a back-off of its own after an admission with a missing flavor, and the other one's Workload ends it.
    history.play("serve", 0)
    history.finish()
