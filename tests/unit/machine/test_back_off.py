"""Back-off of Tasks under fancyRetryPolicy (docs/manual.md, "Retry")."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.completion import (
    CONTAINER_TRANSIENT_CONFLICT_FAILED,
    CONTAINER_TRANSIENT_FAILED,
    DISRUPTIONS,
    POD_EXTERNAL_DELETED,
    POD_SUCCEEDED,
    Code,
    CompletionStatus,
)
from frameworkcontroller.api.spec import RetryPolicy
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.policy import back_off_sec, backs_off
from frameworkcontroller.machine.reasons import Reason
from tests.support.bench import Bench, limits, role

FANCY = {"fancyRetryPolicy": True, "maxRetryCount": -2}
DELAYS = [0, 0, 0, 10, 20, 40, 80, 160, 320, 360, 360]


def fail(bench: Bench, *, ran: float = 0, code: int = 200) -> float:
    """The Task's Pod runs for so long and ends; how long it takes from then to the creation of the next."""
    bench.run()
    bench.now += ran
    attempt = bench.task().attempt.id
    bench.end(code=code)
    ended = bench.now
    while bench.task().attempt.id == attempt:
        made = bench.plan()
        assert made.requeue_after is not None or bench.tracker.is_busy
        bench.now += 0 if bench.tracker.is_busy else made.requeue_after or 0
    bench.settle()
    assert bench.state() is State.PREPARING
    return bench.now - ended


def started() -> Bench:
    """A Task whose first Pod is created."""
    bench = Bench(role(retryPolicy=FANCY))
    bench.pod()
    bench.plan()
    return bench


# --- the rule -----------------------------------------------------------------------------------------------------


def test_delays() -> None:
    assert [back_off_sec(number, limits()) for number in range(len(DELAYS))] == DELAYS
    assert back_off_sec(10**9, limits()) == 360


def test_configured_delays() -> None:
    some = replace(limits(), task_min_retry_delay_sec=3, task_max_retry_delay_sec=7)
    assert [back_off_sec(number, some) for number in range(7)] == [0, 0, 0, 3, 6, 7, 7]


@pytest.mark.parametrize(
    ("code", "fancy", "expected"),
    [
        (CONTAINER_TRANSIENT_FAILED, True, True),
        (CONTAINER_TRANSIENT_CONFLICT_FAILED, True, True),
        (POD_EXTERNAL_DELETED, True, True),
        (Code(-1013, "PodNodeAffinityUnmatched", attributes=("Transient",)), True, True),
        (Code(1, "ContainerUnrecognizedFailed"), True, True),
        (POD_SUCCEEDED, True, True),
        (CONTAINER_TRANSIENT_FAILED, False, False),
        (POD_SUCCEEDED, False, False),
        *((code, True, False) for code in DISRUPTIONS.values()),
    ],
)
def test_which_retries_count(code: Code, fancy: bool, expected: bool) -> None:
    policy = RetryPolicy(fancy_retry_policy=fancy, max_retry_count=-2)
    assert backs_off(policy, CompletionStatus.of(code, ""), limits()) is expected


def test_no_retry_counts_where_it_is_switched_off() -> None:
    off = replace(limits(), task_min_retry_delay_sec=0)
    completion = CompletionStatus.of(CONTAINER_TRANSIENT_FAILED, "")
    assert not backs_off(RetryPolicy(fancy_retry_policy=True, max_retry_count=-2), completion, off)


# --- a Task -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [200, 1, 0])
def test_a_task_that_ends_at_once(code: int) -> None:
    bench = started()
    assert [fail(bench, code=code) for _ in DELAYS] == DELAYS


def test_a_task_without_fancy_retry_policy_is_always_retried_at_once() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": -2}))
    bench.pod()
    bench.plan()
    assert [fail(bench) for _ in range(6)] == [0] * 6
    assert bench.task().retry.recent_retried_count == 0


def test_a_restart_of_the_controller_forgets_nothing() -> None:
    bench = started()
    waits = []
    for _ in DELAYS:
        waits.append(fail(bench))
        bench.restart()
        bench.plan()
    assert waits == DELAYS


def test_the_row_is_forgotten_once_an_attempt_has_run_for_ten_minutes() -> None:
    bench = started()
    assert [fail(bench, ran=599) for _ in range(5)] == [0, 0, 0, 10, 20]
    assert [fail(bench, ran=600), *(fail(bench) for _ in range(4))] == [0, 0, 0, 10, 20]


def test_disruptions_neither_wait_nor_count() -> None:
    bench = started()
    for _ in range(3):
        fail(bench)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    for _ in range(3):
        bench.run()
        attempt = bench.task().attempt.id
        bench.show("f-a-0", deleting=bench.now + 30, conditions=[condition])
        bench.plan()
        bench.hide("f-a-0")
        bench.settle()
        assert bench.task().attempt.id == attempt + 1
    assert fail(bench) == 10


def waiting() -> Bench:
    """A Task that waits for its fourth retry in a row."""
    bench = started()
    for _ in range(3):
        fail(bench)
    bench.run()
    bench.end(code=200)
    assert bench.state() is State.ATTEMPT_COMPLETED
    return bench


def test_the_delay_is_persisted_before_it_is_waited_for() -> None:
    bench = waiting()
    retry = bench.task().retry
    assert (retry.retry_delay_sec, retry.recent_retried_count) == (10, 3)
    assert bench.tracker.is_clean
    bench.restart()
    bench.plan()
    bench.now += 9
    assert not bench.plan().actions
    bench.now += 1
    bench.plan()
    assert bench.task().attempt.id == 4
    retry = bench.task().retry
    assert (retry.retry_delay_sec, retry.recent_retried_count) == (None, 4)


def test_it_is_told() -> None:
    bench = started()
    for _ in range(3):
        fail(bench)
    bench.run()
    bench.stop(code=200)
    records = []
    for _ in range(8):
        made = bench.plan()
        records += made.records
        for action in made.actions:
            bench.hide(action.target.name)
    told = [record.message for record in records if record.reason is Reason.TASK_RETRY_SCHEDULED]
    assert told == [
        "TaskAttempt 4 follows 10s later, as the failure is transient, "
        "after 200 ContainerTransientFailed and 3 retries in a row"
    ]
    bench.now += 10
    (record,) = [record for record in bench.plan().records if record.reason is Reason.TASK_RETRIED]
    assert record.message == (
        "TaskAttempt 4 follows after 10s, as the failure is transient, after 200 ContainerTransientFailed"
    )


def test_a_scale_down_does_not_wait() -> None:
    bench = waiting()
    bench.edit(role(number=0, retryPolicy=FANCY))
    bench.settle()
    assert bench.states() == []


def test_stop_does_not_wait() -> None:
    bench = waiting()
    bench.edit(executionType="Stop")
    bench.settle()
    assert bench.status.state is State.COMPLETED


def test_a_completed_task_has_no_row() -> None:
    bench = waiting()
    bench.now += 10
    bench.settle()
    assert bench.task().retry.recent_retried_count == 4
    bench.run()
    bench.end(code=210)
    assert bench.state() is State.COMPLETED
    assert bench.task().retry.recent_retried_count == 0


def test_a_status_without_the_count() -> None:
    """As the original writes it, and as a CRD without the field leaves it."""
    bench = waiting()
    body = orjson.loads(encode_status("f", bench.status))
    retry = body["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["retryPolicyStatus"]
    assert retry.pop("recentRetriedCount") == 3
    status = decode_status(body)
    assert status is not None
    assert status.attempt.roles[0].tasks[0].retry.recent_retried_count == 0


def test_a_status_without_retries_in_a_row_has_no_such_field() -> None:
    bench = started()
    assert b"recentRetriedCount" not in encode_status("f", bench.status)


def test_other_tasks_do_not_wait() -> None:
    bench = Bench(role(number=2, retryPolicy=FANCY))
    bench.all_pods()
    bench.plan()
    for _ in range(3):
        fail(bench)
    bench.run()
    bench.stop(code=200)
    bench.settle()
    assert bench.state() is State.ATTEMPT_COMPLETED
    bench.run("f-a-1")
    bench.end("f-a-1", code=200)
    assert bench.task(index=1).attempt.id == 1
    assert bench.task(index=1).state is State.PREPARING
    assert bench.state() is State.ATTEMPT_COMPLETED
