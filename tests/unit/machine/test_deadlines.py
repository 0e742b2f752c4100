"""Deadlines and retention of one Framework (docs/failures-and-retries.md, "Deadlines")."""

from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import ConfirmNone, Create, Delete
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import NOW, Bench, accepted, begun, foreign, prepared, role, running

CONFIGMAP = "f-attempt"
POD = "f-a-0"
ALWAYS = {"maxRetryCount": -2}


def stored(bench: Bench) -> dict[str, Any]:
    """The status as JSON."""
    value: dict[str, Any] = orjson.loads(encode_status("f", bench.status))
    return value


# --- activeDeadlineSeconds -----------------------------------------------------------------------------------------


def test_a_framework_that_exceeds_its_deadline_fails_without_a_retry() -> None:
    bench = running(role(), activeDeadlineSeconds=100, retryPolicy=ALWAYS)
    bench.now += 99
    made = bench.plan()
    assert (bench.status.state, made.requeue_after) == (State.RUNNING, 1)
    bench.now += 1
    made = bench.plan(write=False)
    assert made.actions == []
    assert (bench.status.state, bench.code()) == (State.DELETION_PENDING, -250)
    assert [record.warning for record in made.records if record.reason is LifeReason.FRAMEWORK_ATTEMPT_COMPLETING] == [
        True
    ]
    bench.write()
    bench.settle()
    assert bench.status.state is State.COMPLETED
    assert bench.status.retry.total_retried_count == 0


def test_the_deadline_counts_from_the_creation_of_the_configmap() -> None:
    bench = accepted(role(), activeDeadlineSeconds=100)
    action = bench.only(bench.plan())
    bench.created(action, show=False)
    bench.now += 70
    bench.show_then_plan(CONFIGMAP)
    assert bench.status.attempt.execution_start_time == NOW
    assert stored(bench)["attemptStatus"]["executionStartTime"] == format_time(NOW)
    bench.pass_time(30)
    assert bench.code() == -250


def test_no_plan_creates_a_pod_and_exceeds_the_deadline() -> None:
    bench = begun(role(number=2), activeDeadlineSeconds=5)
    bench.now += 5
    assert not [action for action in bench.plan().actions if isinstance(action, Create)]
    assert bench.code() == -250


def test_a_completion_policy_that_is_met_at_the_same_moment_counts() -> None:
    bench = running(role(), activeDeadlineSeconds=100)
    bench.stop()
    bench.now += 99
    for action in bench.plan().actions:
        bench.fold(action, Accepted())
    for action in bench.plan().actions:
        bench.fold(action, Accepted())
    bench.now += 1
    bench.hide(POD)
    bench.settle()
    assert (bench.status.state, bench.code()) == (State.COMPLETED, 0)


def test_stop_counts_before_the_deadline() -> None:
    bench = prepared(role(), activeDeadlineSeconds=100)
    bench.edit(executionType="Stop")
    bench.pass_time(100)
    assert bench.code() == -210


@pytest.mark.parametrize(("seconds", "ends"), [(50, True), (150, False), (None, False)])
def test_a_changed_deadline_counts_at_once(seconds: int | None, ends: bool) -> None:
    bench = running(role(), activeDeadlineSeconds=100)
    bench.pass_time(60)
    bench.edit_then_plan(activeDeadlineSeconds=seconds)
    assert (bench.code() == -250) is ends
    bench.pass_time(50)
    assert (bench.code() == -250) is ends


@pytest.mark.parametrize("later", [False, True])
def test_the_deadline_counts_from_the_creation_of_the_configmap_after_a_restart_or_an_edit(later: bool) -> None:
    bench = running(activeDeadlineSeconds=None if later else 100)
    bench.now += 60
    if later:
        bench.edit(activeDeadlineSeconds=100)
    else:
        bench.restart()
    bench.plan()
    assert bench.status.attempt.execution_start_time == NOW
    bench.pass_time(39)
    assert bench.code() is None
    bench.pass_time(1)
    assert bench.code() == -250


def test_the_time_of_all_attempts_is_summed_without_the_delay_between_them() -> None:
    bench = running(role(failed=1), activeDeadlineSeconds=100, retryPolicy={"fancyRetryPolicy": True})
    bench.end(code=201, after=60)
    assert bench.status.state is State.ATTEMPT_COMPLETED
    assert stored(bench)["accumulatedPastExecutionTimeSeconds"] == 60
    bench.restart()
    bench.now += require(bench.status.retry.retry_delay_sec)
    bench.all_pods()
    assert bench.status.attempt.id == 1
    assert bench.status.attempt.execution_start_time == bench.now
    bench.pass_time(39)
    assert bench.code() is None
    bench.pass_time(1)
    assert bench.code() == -250


def require(value: int | None) -> int:
    """The value, which is known."""
    assert value is not None
    return value


def exhausted() -> Bench:
    """A Framework whose second attempt has no time left."""
    bench = running(role(failed=1), activeDeadlineSeconds=100, retryPolicy={"fancyRetryPolicy": True})
    bench.end(code=201, after=60)
    bench.edit_then_plan(activeDeadlineSeconds=60)
    bench.now += require(bench.status.retry.retry_delay_sec)
    return bench


def test_an_attempt_without_time_left_ends_without_a_configmap() -> None:
    bench = exhausted()
    made = bench.plan(write=False)
    assert (bench.status.attempt.id, bench.code()) == (1, -250)
    assert made.actions == [], "persisted before anything is asked for"
    bench.write()
    action = bench.expect(ConfirmNone)
    bench.fold(action, Gone())
    bench.settle()
    assert (bench.status.state, bench.code(), bench.status.attempt.id) == (State.COMPLETED, -250, 1)


def test_a_persisted_end_is_not_taken_back_by_a_later_deadline() -> None:
    bench = exhausted()
    bench.plan()
    bench.plan()
    assert bench.code() == -250
    bench.edit(activeDeadlineSeconds=1000)
    bench.restart()
    # Its caches show the objects of the process before.
    bench.listed = bench.now
    bench.settle()
    assert (bench.status.state, bench.code()) == (State.COMPLETED, -250)


def test_a_configmap_of_an_attempt_without_time_left_is_deleted_and_not_adopted() -> None:
    bench = exhausted()
    bench.plan()
    bench.plan()
    action = bench.expect(ConfirmNone)
    bench.fold(action, Exists(foreign(CONFIGMAP, "late", controller="framework-uid")))
    deletion = next(action for action in bench.wait(5).actions if isinstance(action, Delete))
    assert (deletion.target.kind, deletion.uid, deletion.unrecorded) == (Kind.CONFIGMAP, "late", True)
    assert bench.status.state is State.CREATION_PENDING


def test_a_creation_that_is_answered_after_the_end_was_decided_is_ended() -> None:
    bench = prepared(role(failed=1), activeDeadlineSeconds=100, retryPolicy={"fancyRetryPolicy": True})
    bench.now += 60
    bench.run()
    bench.end(code=201)
    bench.pass_time(require(bench.status.retry.retry_delay_sec))
    action = bench.expect(Create)
    bench.edit_then_plan(activeDeadlineSeconds=60)
    assert bench.code() == -250
    bench.created(action)
    bench.settle()
    assert (bench.status.state, bench.code()) == (State.COMPLETED, -250)


def test_a_framework_without_a_deadline_stores_nothing_of_one() -> None:
    bench = running(role(), retryPolicy={"maxRetryCount": 1})
    bench.end(code=1, after=60)
    text = encode_status("f", bench.status)
    assert b"xecutionTime" not in text
    assert b"executionStartTime" not in text


def test_the_clock_set_back_does_not_prolong_the_time() -> None:
    bench = running(role(), activeDeadlineSeconds=100)
    bench.plan()
    bench.put_clock_back(1000)
    bench.pass_time(100)
    assert bench.code() == -250


# --- preRunningDeadlineSeconds -----------------------------------------------------------------------------------


def test_a_pod_that_does_not_run_is_deleted_and_its_task_retried() -> None:
    bench = prepared(role(preRunningDeadlineSeconds=30, retryPolicy={"fancyRetryPolicy": True}))
    bench.now += 29
    made = bench.plan()
    assert (bench.state(), made.requeue_after) == (State.PREPARING, 1)
    bench.now += 1
    made = bench.plan(write=False)
    assert (bench.state(), bench.task_code(), made.actions) == (State.DELETION_PENDING, -260, [])
    completion = bench.task_completion()
    assert "had no node" in completion.diagnostics
    bench.write()
    bench.settle()
    assert (bench.task().attempt.id, bench.task().retry.accountable_retried_count) == (1, 0)


@pytest.mark.parametrize("seconds", [29, 30])
def test_a_pod_that_runs_in_time_has_no_deadline(seconds: int) -> None:
    """It may be seen to run only after its deadline."""
    bench = prepared(role(preRunningDeadlineSeconds=30))
    bench.now += seconds
    bench.run()
    bench.now += 100
    bench.show_then_plan(POD, phase="Pending")
    assert bench.state() is State.RUNNING


def test_a_lowered_deadline_counts_at_once() -> None:
    bench = prepared(role(preRunningDeadlineSeconds=300))
    bench.now += 60
    bench.edit_then_plan(role(preRunningDeadlineSeconds=30))
    assert bench.task_code() == -260


def test_a_gang_that_does_not_run_releases_its_pods() -> None:
    """The recipe of docs/shared-clusters.md, "Gangs"."""
    bench = Bench(
        role(number=2, failed=1, preRunningDeadlineSeconds=30),
        retryPolicy={"fancyRetryPolicy": True},
    )
    bench.all_pods()
    bench.run()
    bench.now += 30
    bench.settle()
    assert (bench.status.state, bench.code()) == (State.ATTEMPT_COMPLETED, -260)
    assert 60 <= require(bench.status.retry.retry_delay_sec) <= 900
    assert bench.pods == {}


# --- ttlSecondsAfterFinished ---------------------------------------------------------------------------------------


def completed(**spec: Any) -> Bench:
    """A Framework that has succeeded."""
    bench = running(role(), **spec)
    bench.stop()
    for _ in range(20):
        for action in bench.plan().actions:
            assert action.target.kind is not Kind.FRAMEWORK
            bench.fold(action, Gone() if isinstance(action, ConfirmNone) else Accepted())
            bench.hide(action.target.name)
        if bench.status.state is State.COMPLETED:
            return bench
    raise AssertionError("it does not complete")


@pytest.mark.parametrize("seconds", [0, 10])
def test_a_completed_framework_is_deleted_after_its_own_time_once_the_end_is_persisted(seconds: int) -> None:
    bench = completed(ttlSecondsAfterFinished=seconds)
    if seconds:
        assert bench.plan().requeue_after == seconds
    assert bench.expect(Delete, after=seconds).target.kind is Kind.FRAMEWORK


def test_a_changed_time_counts_at_once() -> None:
    bench = completed()
    bench.idle(after=60)
    bench.edit_then_plan(ttlSecondsAfterFinished=60)
    assert bench.only(bench.plan()).target.kind is Kind.FRAMEWORK
    bench.edit(ttlSecondsAfterFinished=100)
    bench.idle()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("seconds", "kept"), [(10, 10), (None, 2_592_000), ("x", 20)])
def test_an_invalid_spec_is_kept_as_long_as_it_says_or_said(seconds: Any, kept: int, *, restart: bool) -> None:
    """Where it says nothing that can be read, the last one counts, unless the process is another one."""
    bench = completed(ttlSecondsAfterFinished=20)
    bench.spoil(ttlSecondsAfterFinished=seconds)
    if restart:
        bench.restart()
        kept = 2_592_000 if seconds == "x" else kept
    bench.idle(after=kept - 1)
    bench.pass_time(1)
    assert bench.only(bench.plan()).target.kind is Kind.FRAMEWORK
