"""Attempts without progress (docs/lifecycle.md, "Hangs")."""

from __future__ import annotations

import pytest

from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.exchanges import NotAttempted
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Refusal, Refused, Unanswered
from frameworkcontroller.machine.parts.hangs.hangs import READ_SEC, WRITE_SEC, HangReason, ReadProgress
from tests.support.bench import NOW, Body, role
from tests.support.hangs import DEADLINE, INTERVAL, SPEC, START, HangBench, hanging
from tests.support.progressbench import CONFIGMAP

LIMIT = DEADLINE + INTERVAL + WRITE_SEC
START_LIMIT = START + INTERVAL + WRITE_SEC


def progressing() -> HangBench:
    """All run, and have reported."""
    bench = hanging()
    bench.now += 20
    bench.report_and_show(7)
    return bench


def ends_after(bench: HangBench, seconds: float = LIMIT) -> None:
    """Assert that the attempt ends after this time, and not before."""
    bench.live(seconds - 0.01)
    assert bench.code() is None
    bench.live(0.01)
    assert bench.code() == -252


def due(bench: HangBench) -> ReadProgress:
    """The read after the deadline."""
    bench.now += LIMIT
    return bench.read()


# --- the two deadlines ------------------------------------------------------------------------


def test_an_attempt_without_progress_fails_and_is_retried() -> None:
    bench = progressing()
    since = bench.now
    bench.live(LIMIT - 0.01)
    assert bench.code() is None
    bench.live(0.01)
    assert (bench.code(), bench.status.state) == (-252, State.DELETION_PENDING)
    assert bench.completion().diagnostics == (
        f"No progress for {LIMIT}s or more since {format_time(int(since))} at step 7: deadlineSeconds is {DEADLINE}; "
        f"the last report arrived at {format_time(int(since))}"
    )
    assert set(bench.task_codes()) == {-220}
    bench.settle()
    assert (bench.status.attempt.id, bench.status.retry.accountable_retried_count) == (1, 0)


def test_a_first_report_that_does_not_come() -> None:
    bench = hanging()
    ends_after(bench, START_LIMIT)
    assert bench.completion().diagnostics == (
        f"No report of progress for {START_LIMIT}s or more since the first container ran at {format_time(NOW)}: "
        f"startDeadlineSeconds is {START}"
    )


def test_only_the_first_report_counts_for_the_start() -> None:
    bench = hanging(progress={**SPEC, "deadlineSeconds": None})
    bench.report_and_show(0)
    bench.live(10 * START)
    assert bench.code() is None


def test_without_a_report_only_the_start_counts() -> None:
    bench = hanging(progress={**SPEC, "startDeadlineSeconds": None})
    bench.live(10 * DEADLINE)
    assert bench.code() is None


def test_a_report_without_progress_is_none() -> None:
    bench = progressing()
    changed = bench.now
    for _ in range(LIMIT // 10):
        bench.live(10)
        bench.report_and_show(7, changed=changed)
    bench.settle_reads()
    assert bench.code() == -252
    assert bench.completion().diagnostics.endswith(f"the last report arrived at {format_time(int(bench.now - 10))}")


@pytest.mark.parametrize("what", ["change", "checkpoint"])
def test_progress_starts_the_clock_again(what: str) -> None:
    bench = progressing()
    changed = bench.now
    for _ in range(20):
        bench.live(LIMIT - 1)
        if what == "change":
            bench.report_and_show(7)
        else:
            bench.report_and_show(7, changed=changed, checkpoint=bench.now)
    assert bench.code() is None


def test_each_attempt_has_its_own_clock() -> None:
    bench = progressing()
    bench.live(LIMIT)
    bench.settle()
    bench.run_all()
    assert bench.status.attempt.id == 1
    ends_after(bench, START_LIMIT)


def test_a_retry_that_counts_is_bounded() -> None:
    bench = hanging(retryPolicy={"maxRetryCount": 1})
    for _ in range(2):
        bench.live(START_LIMIT)
        bench.settle()
        bench.run_all()
    assert (bench.status.state, bench.code()) == (State.COMPLETED, -252)
    assert bench.status.retry.accountable_retried_count == 1


def test_without_progress_in_the_spec_nothing_is_looked_at() -> None:
    bench = hanging(progress={"intervalSeconds": 10})
    assert bench.plan().requeue_after is None
    bench.live(100_000)
    assert bench.code() is None


# --- the live read ------------------------------------------------------------------------


def test_a_live_read_precedes_the_end() -> None:
    bench = progressing()
    action = due(bench)
    assert bench.code() is None
    bench.fold(action, bench.find(action))
    bench.plan()
    assert bench.code() == -252


def test_the_overdue_deadline_is_recorded_once() -> None:
    bench = progressing()
    bench.now += LIMIT
    first, second = bench.plan(), bench.plan()
    assert [record.reason for record in first.records] == [HangReason.OVERDUE]
    assert second.records == []


def test_progress_that_only_the_live_read_shows() -> None:
    bench = progressing()
    bench.now += LIMIT
    bench.report_unseen(8)
    bench.settle_reads()
    assert bench.code() is None
    bench.live(LIMIT - 1)
    assert bench.code() is None


@pytest.mark.parametrize(
    "answer",
    [
        Unanswered("timed out"),
        Refused(503, "no", b"{}", kind=Refusal.SERVER_ERROR),
        Refused(403, "forbidden", b"{}", reason="Forbidden"),
        Answered(b'{"kind": "Status", "metadata": {}}'),
        Answered(b"[]"),
        Answered(b"<html>"),
    ],
)
def test_without_an_answer_nothing_ends(answer: Answer) -> None:
    bench = progressing()
    for number in range(6):
        action = due(bench) if number == 0 else bench.only(bench.wait(60))
        bench.fold(action, bench.find(action, answer))
        bench.plan()
        assert bench.code() is None
    assert bench.stall()[0] == "ConfigMapNotAnswered"
    bench.now += 60
    bench.settle_reads()
    assert bench.code() == -252
    assert bench.stall() == ("", "")


@pytest.mark.parametrize("gone", [True, False])
def test_another_configmap_proves_nothing(gone: bool) -> None:
    bench = progressing()
    action = due(bench)
    if gone:
        answer: Answer = Refused(404, "gone", b"{}", reason="NotFound", kind=Refusal.OBJECT_NOT_FOUND)
        result = bench.find(action, answer)
    else:
        body = bench.bodies[CONFIGMAP]
        bench.bodies[CONFIGMAP] = {**body, "metadata": {**body["metadata"], "uid": "another"}}
        result = bench.find(action)
    bench.fold(action, result)
    bench.plan()
    bench.live(LIMIT - 20)
    assert bench.code() is None


def test_a_slow_answer_proves_nothing() -> None:
    bench = progressing()
    action = due(bench)
    result = bench.find(action)
    bench.now += READ_SEC + 1
    bench.fold(action, result)
    assert isinstance(bench.only(bench.plan()), ReadProgress)
    assert bench.code() is None


def test_a_read_that_was_not_sent_is_repeated() -> None:
    bench = progressing()
    bench.fold(due(bench), NotAttempted())
    bench.settle_reads()
    assert bench.code() == -252


def test_progress_between_the_read_and_the_end() -> None:
    bench = progressing()
    action = due(bench)
    result = bench.find(action)
    bench.report_unseen(8)
    bench.show(CONFIGMAP)
    bench.fold(action, result)
    bench.plan()
    assert bench.code() is None


def test_an_answer_from_before_a_new_clock() -> None:
    bench = progressing()
    action = due(bench)
    result = bench.find(action)
    bench.now += 5
    bench.report_and_show(8)
    bench.fold(action, result)
    bench.live(LIMIT - 1)
    assert bench.code() is None


def test_an_attempt_that_has_nowhere_to_report_to_is_ignored() -> None:
    """Its ConfigMap was created before the spec had ``progress``."""
    bench = hanging()
    del bench.bodies[CONFIGMAP]["data"]["interval"]
    bench.live(10 * START)
    assert bench.code() is None


def test_the_interval_of_the_attempt_counts() -> None:
    """The spec has a shorter one since the attempt began, which its report servers do not know."""
    bench = progressing()
    bench.edit(progress={**SPEC, "intervalSeconds": 1, "deadlineSeconds": 2})
    bench.plan()
    ends_after(bench, 2 + INTERVAL + WRITE_SEC)


# --- ignorance ------------------------------------------------------------------------


def test_without_knowledge_there_is_no_clock() -> None:
    bench = progressing()
    bench.reports_since = None
    bench.live(10 * LIMIT)
    assert bench.code() is None
    bench.reports_since = bench.now
    ends_after(bench)


def test_knowledge_that_broke_between_two_plans() -> None:
    bench = progressing()
    bench.live(LIMIT - 1)
    bench.reports_since = bench.now
    bench.live(LIMIT - 1)
    assert bench.code() is None


def test_knowledge_that_breaks_during_the_read() -> None:
    bench = progressing()
    action = due(bench)
    bench.reports_since = bench.now
    bench.fold(action, bench.find(action))
    bench.plan()
    assert bench.code() is None


def test_another_process_starts_the_clock_again() -> None:
    bench = progressing()
    bench.live(LIMIT - 1)
    bench.restart()
    bench.reports_since = bench.now - 10
    bench.plan()
    ends_after(bench)


@pytest.mark.parametrize("seconds", [-100_000.0, 100_000.0])
def test_the_wall_clock_means_nothing(seconds: float) -> None:
    bench = progressing()
    bench.live(LIMIT - 1)
    bench.put_clock_back(-seconds)
    bench.settle_reads()
    assert bench.code() is None
    bench.live(1)
    assert bench.code() == -252


def test_times_of_a_report_server_with_another_clock() -> None:
    bench = hanging()
    for step in range(30):
        bench.live(LIMIT - 1)
        bench.report_and_show(step, changed=NOW + step)
    assert bench.code() is None


def test_a_configmap_that_the_cache_does_not_show() -> None:
    bench = progressing()
    bench.live(LIMIT - 1)
    bench.drop(CONFIGMAP)
    bench.plan()
    bench.now += 5
    bench.show_then_plan(CONFIGMAP)
    bench.live(LIMIT - 1)
    assert bench.code() is None


# --- reasons to make no progress ------------------------------------------------------------------------


def test_a_task_that_is_retried_stops_the_clock() -> None:
    bench = hanging(role(number=2, retryPolicy={"maxRetryCount": -2}))
    bench.report_and_show(7)
    bench.live(LIMIT - 1)
    bench.stop("f-a-1", 1)
    for _ in range(20):
        made = bench.plan()
        if not made.actions and not bench.tracker.is_busy:
            break
        bench.settle()
    bench.live(10 * LIMIT)
    assert bench.code() is None
    bench.run("f-a-1")
    ends_after(bench)


def test_the_end_of_a_task_at_the_same_moment_counts_first() -> None:
    bench = hanging(role(number=2, retryPolicy={"maxRetryCount": -2}))
    bench.report_and_show(7)
    action = due(bench)
    bench.fold(action, bench.find(action))
    bench.stop("f-a-1", 1)
    bench.plan()
    assert bench.code() is None


def test_a_completed_task_stops_no_clock() -> None:
    bench = hanging()
    bench.report_and_show(7)
    bench.end("f-a-1", 0)
    bench.live(LIMIT)
    assert bench.code() == -252


def test_a_rescale_stops_the_clock() -> None:
    bench = progressing()
    bench.live(LIMIT - 1)
    bench.edit(role(number=3))
    bench.plan()
    bench.now += 10
    bench.all_pods()
    bench.live(LIMIT)
    assert bench.code() is None
    bench.run("f-a-2")
    ends_after(bench)


def test_a_role_that_waits_for_another_stops_the_clock() -> None:
    roles: list[Body] = [role("a"), {**role("b"), "dependsOn": [{"name": "a", "status": "Complete"}]}]
    bench = hanging(*roles)
    bench.report_and_show(7)
    bench.live(10 * LIMIT)
    assert bench.code() is None


def test_a_framework_that_is_being_deleted_has_no_clock() -> None:
    bench = progressing()
    bench.deleting = True
    bench.live(10 * LIMIT)
    assert bench.code() is None


def test_a_suspension_counts_first() -> None:
    bench = progressing()
    action = due(bench)
    bench.edit(suspend=True)
    bench.fold(action, bench.find(action))
    bench.plan()
    assert bench.code() == -240


def test_another_deadline_counts_first() -> None:
    bench = hanging(activeDeadlineSeconds=LIMIT + 1)
    bench.report_and_show(7)
    action = due(bench)
    bench.now += 1
    bench.fold(action, bench.find(action))
    bench.plan()
    assert bench.code() == -250


def test_an_invalid_spec_has_no_clock() -> None:
    bench = progressing()
    bench.live(LIMIT - 1)
    bench.spoil()
    bench.live(10)
    bench.edit(coordinator=None)
    bench.plan()
    ends_after(bench)


def test_a_deadline_that_is_added_counts_from_then() -> None:
    bench = hanging(progress={"intervalSeconds": INTERVAL})
    bench.report_and_show(7)
    bench.live(10 * LIMIT)
    bench.edit(progress=SPEC)
    bench.plan()
    ends_after(bench)
