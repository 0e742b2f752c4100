"""Deadlines and retention of one Framework (docs/manual.md, "Deadlines")."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import Cleanup, Create, Delete
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import NOW, Bench, foreign, role

CONFIGMAP = "f-attempt"
POD = "f-a-0"
ALWAYS = {"maxRetryCount": -2}


def code(bench: Bench) -> int | None:
    """The completion code of the current attempt of the Framework."""
    completion = bench.status.attempt.completion_status
    return None if completion is None else completion.code


def task_code(bench: Bench) -> int | None:
    """The completion code of the first Task's current attempt."""
    completion = bench.task().attempt.completion_status
    return None if completion is None else completion.code


def stored(bench: Bench) -> dict[str, Any]:
    """The status as JSON."""
    value: dict[str, Any] = orjson.loads(encode_status("f", bench.status))
    return value


# --- activeDeadlineSeconds -----------------------------------------------------------------------------------------


def test_a_framework_that_is_active_for_too_long_fails_for_good() -> None:
    bench = Bench(role(), activeDeadlineSeconds=100, retryPolicy=ALWAYS)
    bench.all_pods()
    bench.run()
    bench.now += 99
    made = bench.plan()
    assert (bench.status.state, made.requeue_after) == (State.RUNNING, 1)
    bench.now += 1
    made = bench.plan(write=False)
    assert made.actions == []
    assert (bench.status.state, code(bench)) == (State.DELETION_PENDING, -250)
    assert [record.warning for record in made.records if record.reason is LifeReason.FRAMEWORK_ATTEMPT_COMPLETING] == [
        True
    ]
    bench.write()
    bench.settle()
    assert bench.status.state is State.COMPLETED
    assert bench.status.retry.total_retried_count == 0


def test_the_deadline_counts_from_the_creation_of_the_configmap() -> None:
    bench = Bench(role(), activeDeadlineSeconds=100)
    bench.plan()
    action = bench.only(bench.plan())
    bench.created(action, show=False)
    bench.now += 70
    bench.show(CONFIGMAP)
    bench.plan()
    assert bench.status.attempt.execution_start_time == NOW
    assert stored(bench)["attemptStatus"]["executionStartTime"] == format_time(NOW)
    bench.now += 30
    bench.plan()
    assert code(bench) == -250


def test_no_plan_creates_a_pod_and_exceeds_the_deadline() -> None:
    bench = Bench(role(number=2), activeDeadlineSeconds=5)
    bench.attempt()
    bench.now += 5
    assert not [action for action in bench.plan().actions if isinstance(action, Create)]
    assert code(bench) == -250


def test_a_completion_policy_that_is_met_at_the_same_moment_counts() -> None:
    bench = Bench(role(), activeDeadlineSeconds=100)
    bench.all_pods()
    bench.run()
    bench.stop()
    bench.now += 99
    for action in bench.plan().actions:
        bench.fold(action, Accepted())
    for action in bench.plan().actions:
        bench.fold(action, Accepted())
    bench.now += 1
    bench.hide(POD)
    bench.settle()
    assert (bench.status.state, code(bench)) == (State.COMPLETED, 0)


def test_stop_counts_before_the_deadline() -> None:
    bench = Bench(role(), activeDeadlineSeconds=100)
    bench.all_pods()
    bench.edit(executionType="Stop")
    bench.now += 100
    bench.plan()
    assert code(bench) == -210


@pytest.mark.parametrize(("seconds", "ends"), [(50, True), (150, False), (None, False)])
def test_a_changed_deadline_counts_at_once(seconds: int | None, ends: bool) -> None:
    bench = Bench(role(), activeDeadlineSeconds=100)
    bench.all_pods()
    bench.run()
    bench.now += 60
    bench.plan()
    bench.edit(activeDeadlineSeconds=seconds)
    bench.plan()
    assert (code(bench) == -250) is ends
    bench.now += 50
    bench.plan()
    assert (code(bench) == -250) is ends


def test_a_deadline_that_is_set_later_counts_from_the_creation_of_the_configmap() -> None:
    bench = Bench(role())
    bench.all_pods()
    bench.run()
    bench.now += 60
    bench.edit(activeDeadlineSeconds=100)
    bench.plan()
    assert bench.status.attempt.execution_start_time == NOW
    bench.now += 40
    bench.plan()
    assert code(bench) == -250


def test_a_restart_does_not_start_the_time_again() -> None:
    bench = Bench(role(), activeDeadlineSeconds=100)
    bench.all_pods()
    bench.run()
    bench.now += 60
    bench.restart()
    bench.plan()
    bench.now += 40
    bench.plan()
    assert code(bench) == -250


def test_the_time_of_all_attempts_is_summed_without_the_delay_between_them() -> None:
    bench = Bench(role(failed=1), activeDeadlineSeconds=100, retryPolicy={"fancyRetryPolicy": True})
    bench.all_pods()
    bench.run()
    bench.now += 60
    bench.end(code=201)
    assert bench.status.state is State.ATTEMPT_COMPLETED
    assert stored(bench)["accumulatedPastExecutionTimeSeconds"] == 60
    bench.restart()
    bench.now += require(bench.status.retry.retry_delay_sec)
    bench.all_pods()
    assert bench.status.attempt.id == 1
    assert bench.status.attempt.execution_start_time == bench.now
    bench.now += 39
    bench.plan()
    assert code(bench) is None
    bench.now += 1
    bench.plan()
    assert code(bench) == -250


def require(value: int | None) -> int:
    """The value, which is known."""
    assert value is not None
    return value


def exhausted() -> Bench:
    """A Framework whose second attempt has no time left."""
    bench = Bench(role(failed=1), activeDeadlineSeconds=100, retryPolicy={"fancyRetryPolicy": True})
    bench.all_pods()
    bench.run()
    bench.now += 60
    bench.end(code=201)
    bench.edit(activeDeadlineSeconds=60)
    bench.plan()
    bench.now += require(bench.status.retry.retry_delay_sec)
    return bench


def test_an_attempt_without_time_left_ends_without_a_configmap() -> None:
    bench = exhausted()
    made = bench.plan(write=False)
    assert (bench.status.attempt.id, code(bench)) == (1, -250)
    assert made.actions == [], "persisted before anything is asked for"
    bench.write()
    action = bench.only(bench.plan())
    assert isinstance(action, Cleanup)
    bench.fold(action, Gone())
    bench.settle()
    assert (bench.status.state, code(bench), bench.status.attempt.id) == (State.COMPLETED, -250, 1)


def test_a_persisted_end_is_not_taken_back_by_a_later_deadline() -> None:
    bench = exhausted()
    bench.plan()
    bench.plan()
    assert code(bench) == -250
    bench.edit(activeDeadlineSeconds=1000)
    bench.restart()
    # Its caches show what the process before has created.
    bench.listed = bench.now
    bench.settle()
    assert (bench.status.state, code(bench)) == (State.COMPLETED, -250)


def test_a_configmap_of_an_attempt_without_time_left_is_deleted_and_not_adopted() -> None:
    bench = exhausted()
    bench.plan()
    bench.plan()
    action = bench.only(bench.plan())
    assert isinstance(action, Cleanup)
    bench.fold(action, Exists(foreign(CONFIGMAP, "late", controller="framework-uid")))
    deletion = next(action for action in bench.wait(5).actions if isinstance(action, Delete))
    assert (deletion.target.kind, deletion.uid, deletion.orphan) == (Kind.CONFIGMAP, "late", True)
    assert bench.status.state is State.CREATION_PENDING


def test_a_creation_that_is_answered_after_the_end_was_decided_is_ended() -> None:
    bench = Bench(role(failed=1), activeDeadlineSeconds=100, retryPolicy={"fancyRetryPolicy": True})
    bench.all_pods()
    bench.now += 60
    bench.run()
    bench.end(code=201)
    bench.now += require(bench.status.retry.retry_delay_sec)
    bench.plan()
    action = bench.only(bench.plan())
    assert isinstance(action, Create)
    bench.edit(activeDeadlineSeconds=60)
    bench.plan()
    assert code(bench) == -250
    bench.created(action)
    bench.settle()
    assert (bench.status.state, code(bench)) == (State.COMPLETED, -250)


def test_a_framework_without_a_deadline_stores_nothing_of_one() -> None:
    bench = Bench(role(), retryPolicy={"maxRetryCount": 1})
    bench.all_pods()
    bench.run()
    bench.now += 60
    bench.end(code=1)
    text = encode_status("f", bench.status)
    assert b"xecutionTime" not in text
    assert b"executionStartTime" not in text


def test_a_stored_status_is_read_again() -> None:
    bench = exhausted()
    bench.plan()
    read = decode_status(stored(bench))
    assert read is not None
    assert read.accumulated_past_execution_time_seconds == 60
    assert encode_status("f", read) == encode_status("f", bench.status)


def test_the_clock_set_back_does_not_prolong_the_time() -> None:
    bench = Bench(role(), activeDeadlineSeconds=100)
    bench.all_pods()
    bench.run()
    bench.plan()
    bench.put_clock_back(1000)
    bench.now += 100
    bench.plan()
    assert code(bench) == -250


# --- preRunningDeadlineSeconds -----------------------------------------------------------------------------------


def test_a_pod_that_does_not_run_is_given_back_and_tried_again() -> None:
    bench = Bench(role(preRunningDeadlineSeconds=30, retryPolicy={"fancyRetryPolicy": True}))
    bench.all_pods()
    bench.now += 29
    made = bench.plan()
    assert (bench.state(), made.requeue_after) == (State.PREPARING, 1)
    bench.now += 1
    made = bench.plan(write=False)
    assert (bench.state(), task_code(bench), made.actions) == (State.DELETION_PENDING, -260, [])
    completion = bench.task().attempt.completion_status
    assert completion is not None
    assert "had no node" in completion.diagnostics
    bench.write()
    bench.settle()
    assert (bench.task().attempt.id, bench.task().retry.accountable_retried_count) == (1, 0)


def test_a_pod_that_runs_in_time_has_no_deadline() -> None:
    bench = Bench(role(preRunningDeadlineSeconds=30))
    bench.all_pods()
    bench.now += 29
    bench.run()
    bench.now += 100
    bench.show(POD, phase="Pending")
    bench.plan()
    assert bench.state() is State.RUNNING


def test_a_pod_that_is_seen_to_run_after_its_deadline_runs() -> None:
    bench = Bench(role(preRunningDeadlineSeconds=30))
    bench.all_pods()
    bench.now += 30
    bench.show(POD, phase="Running")
    bench.plan()
    assert bench.state() is State.RUNNING


def test_a_lowered_deadline_counts_at_once() -> None:
    bench = Bench(role(preRunningDeadlineSeconds=300))
    bench.all_pods()
    bench.now += 60
    bench.edit(role(preRunningDeadlineSeconds=30))
    bench.plan()
    assert task_code(bench) == -260


def test_the_gang_gives_back_what_it_holds() -> None:
    """The recipe of docs/manual.md, Gangs."""
    bench = Bench(
        role(number=2, failed=1, preRunningDeadlineSeconds=30),
        retryPolicy={"fancyRetryPolicy": True},
    )
    bench.all_pods()
    bench.run()
    bench.now += 30
    bench.settle()
    assert (bench.status.state, code(bench)) == (State.ATTEMPT_COMPLETED, -260)
    assert 60 <= require(bench.status.retry.retry_delay_sec) <= 900
    assert bench.pods == {}


# --- ttlSecondsAfterFinished ---------------------------------------------------------------------------------------


def completed(**spec: Any) -> Bench:
    """A Framework that has succeeded."""
    bench = Bench(role(), **spec)
    bench.all_pods()
    bench.run()
    bench.stop()
    for _ in range(20):
        for action in bench.plan().actions:
            assert action.target.kind is not Kind.FRAMEWORK
            bench.fold(action, Gone() if isinstance(action, Cleanup) else Accepted())
            bench.hide(action.target.name)
        if bench.status.state is State.COMPLETED:
            return bench
    raise AssertionError("it does not complete")


def test_a_completed_framework_is_deleted_after_its_own_time() -> None:
    bench = completed(ttlSecondsAfterFinished=10)
    assert bench.plan().requeue_after == 10
    bench.now += 10
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert action.target.kind is Kind.FRAMEWORK


def test_a_time_of_zero_deletes_once_the_end_is_persisted() -> None:
    bench = completed(ttlSecondsAfterFinished=0)
    action = bench.only(bench.plan())
    assert action.target.kind is Kind.FRAMEWORK


def test_a_changed_time_counts_at_once() -> None:
    bench = completed()
    bench.now += 60
    assert bench.plan().actions == []
    bench.edit(ttlSecondsAfterFinished=60)
    bench.plan()
    assert bench.only(bench.plan()).target.kind is Kind.FRAMEWORK
    bench.edit(ttlSecondsAfterFinished=100)
    assert bench.plan().actions == []


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("seconds", "kept"), [(10, 10), (None, 2_592_000), ("x", 20)])
def test_an_invalid_spec_is_kept_as_long_as_it_says_or_said(seconds: Any, kept: int, *, restart: bool) -> None:
    """Where it says nothing that can be read, the last one counts, unless the process is another one."""
    bench = completed(ttlSecondsAfterFinished=20)
    bench.spoil(ttlSecondsAfterFinished=seconds)
    if restart:
        bench.restart()
        kept = 2_592_000 if seconds == "x" else kept
    bench.now += kept - 1
    assert bench.plan().actions == []
    bench.now += 1
    bench.plan()
    assert bench.only(bench.plan()).target.kind is Kind.FRAMEWORK
