"""Back-off of Tasks and Frameworks (docs/failures-and-retries.md, "Retry")."""

from dataclasses import replace
from typing import Any

import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.completion import (
    CONTAINER_TRANSIENT_CONFLICT_FAILED,
    CONTAINER_TRANSIENT_FAILED,
    DISRUPTIONS,
    POD_EXTERNAL_DELETED,
    POD_SUCCEEDED,
    TASK_PRE_RUNNING_DEADLINE_EXCEEDED,
    Code,
    CompletionStatus,
    DecidedRule,
    FailureAction,
)
from frameworkcontroller.api.spec import RetryBackoff, RetryPolicy
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.model import Limits
from frameworkcontroller.machine.kernel.part import Part, Parts
from frameworkcontroller.machine.kernel.policy import NO_BACK_OFF, RetryBackOff, framework_back_off, task_back_off
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.parts import PARTS
from tests.support.bench import Bench, limits, prepared, role

FANCY: dict[str, Any] = {"fancyRetryPolicy": True, "maxRetryCount": -2}
GIVEN: dict[str, Any] = {"maxRetryCount": -2, "backoff": {"baseSeconds": 5, "maxSeconds": 30}}
DELAYS = [0, 0, 0, 10, 20, 40, 80, 160, 320, 360, 360]


def fail(bench: Bench, *, ran: float = 0, code: int = 200) -> float:
    """The Task's Pod runs for that time and ends. Return the seconds until the creation of the next one."""
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


def started(policy: dict[str, Any] = FANCY) -> Bench:
    """A Task with that retry policy, whose first Pod is created."""
    bench = Bench(role(retryPolicy=policy))
    bench.pod()
    bench.plan()
    return bench


# --- the rule -----------------------------------------------------------------------------------------------------


FAILED = CompletionStatus.of(CONTAINER_TRANSIENT_FAILED, "")


def delays(count: int, some: Limits, **policy: Any) -> list[int]:
    back_off = task_back_off(RetryPolicy(**{"fancy_retry_policy": True, **policy}), FAILED, some)
    return [back_off.delay_sec(number, FAILED) for number in range(count)]


def test_delays() -> None:
    assert delays(len(DELAYS), limits()) == DELAYS
    assert task_back_off(RetryPolicy(fancy_retry_policy=True), FAILED, limits()).delay_sec(10**9, FAILED) == 360


def test_configured_delays() -> None:
    some = replace(limits(), task_min_retry_delay_sec=3, task_max_retry_delay_sec=7)
    assert delays(7, some) == [0, 0, 0, 3, 6, 7, 7]


@pytest.mark.parametrize("fancy", [True, False])
@pytest.mark.parametrize(
    ("base", "longest", "expected"),
    [(5, 30, [5, 10, 20, 30, 30]), (0, 30, [0] * 5), (0, 0, [0] * 5), (7, 7, [7] * 5)],
)
def test_given_delays(fancy: bool, base: int, longest: int, expected: list[int]) -> None:
    backoff = RetryBackoff(base_seconds=base, max_seconds=longest)
    assert delays(5, limits(), fancy_retry_policy=fancy, backoff=backoff) == expected
    back_off = framework_back_off(RetryPolicy(backoff=backoff), FAILED, limits())
    assert [back_off.delay_sec(number, FAILED) for number in range(5)] == expected


def test_a_framework_has_only_a_configured_back_off() -> None:
    assert framework_back_off(RetryPolicy(fancy_retry_policy=True), FAILED, limits()) is NO_BACK_OFF


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
    completion = CompletionStatus.of(code, "")
    assert task_back_off(policy, completion, limits()).counts(completion) is expected


@pytest.mark.parametrize("code", [*DISRUPTIONS.values(), POD_EXTERNAL_DELETED])
def test_no_disruption_counts_for_a_configured_back_off(code: Code) -> None:
    completion = CompletionStatus.of(code, "")
    back_off = framework_back_off(RetryPolicy(backoff=RetryBackoff()), completion, limits())
    disrupts = code is not POD_EXTERNAL_DELETED
    assert back_off.delay_sec(3, completion) == (0 if disrupts else 80)
    assert back_off.row_after(3, completion) == (3 if disrupts else 4)


@pytest.mark.parametrize("at_once", [0, 3])
@pytest.mark.parametrize("code", DISRUPTIONS.values())
def test_early_disruptions_in_a_row_wait(code: Code, at_once: int) -> None:
    back_off = RetryBackOff(10, 30, at_once)
    completion = CompletionStatus.of(code, "")
    assert [back_off.delay_sec(number, completion, early=True) for number in range(7)] == [0, 0, 0, 10, 20, 30, 30]
    assert back_off.row_after(3, completion, early=True) == 4


NEVER_RAN = CompletionStatus.of(TASK_PRE_RUNNING_DEADLINE_EXCEEDED, "")


@pytest.mark.parametrize("limit", [-2, -1, 7])
def test_retries_of_pods_that_never_run_wait(limit: int) -> None:
    expected = [0, 0, 0, 10, 20]
    plain, fancy = (RetryPolicy(fancy_retry_policy=fancy, max_retry_count=limit) for fancy in (False, True))
    for back_off in (
        task_back_off(plain, NEVER_RAN, limits()),
        task_back_off(fancy, NEVER_RAN, limits()),
        framework_back_off(plain, NEVER_RAN, limits()),
    ):
        assert [back_off.delay_sec(number, NEVER_RAN) for number in range(5)] == expected
    # The Framework has the delay of a transient conflict.
    assert framework_back_off(fancy, NEVER_RAN, limits()) is NO_BACK_OFF


@pytest.mark.parametrize("fancy", [True, False])
@pytest.mark.parametrize("action", FailureAction)
def test_which_actions_let_retries_wait(action: FailureAction, fancy: bool) -> None:
    completion = replace(FAILED, policy=DecidedRule(action, 0))
    policy = RetryPolicy(fancy_retry_policy=fancy, max_retry_count=-2)
    of_task, of_framework = (choose(policy, completion, limits()) for choose in (task_back_off, framework_back_off))
    assert (of_task is not NO_BACK_OFF) is (fancy or action is FailureAction.IGNORE)
    assert (of_framework is not NO_BACK_OFF) is (action is FailureAction.RESTART_FRAMEWORK)


def test_no_retry_counts_where_it_is_switched_off() -> None:
    off = replace(limits(), task_min_retry_delay_sec=0)
    assert not task_back_off(RetryPolicy(fancy_retry_policy=True, max_retry_count=-2), FAILED, off).counts(FAILED)


# --- a Task -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "restart"), [(200, False), (1, False), (0, False), (200, True)])
def test_a_task_that_ends_at_once(code: int, restart: bool) -> None:
    bench = started()
    waits = []
    for _ in DELAYS:
        waits.append(fail(bench, code=code))
        if restart:
            bench.restart()
            bench.plan()
    assert waits == DELAYS


def test_a_task_without_fancy_retry_policy_is_always_retried_at_once() -> None:
    bench = started({"maxRetryCount": -2})
    assert [fail(bench) for _ in range(6)] == [0] * 6
    assert bench.task().retry.recent_retried_count == 0


@pytest.mark.parametrize("code", [200, 1, 0])
def test_a_configured_back_off_begins_with_the_first_retry(code: int) -> None:
    bench = started(GIVEN)
    assert [fail(bench, code=code) for _ in range(5)] == [5, 10, 20, 30, 30]
    assert [fail(bench, ran=600, code=code), fail(bench, code=code)] == [5, 10]


def test_a_back_off_that_is_taken_away() -> None:
    bench = started(GIVEN)
    assert [fail(bench) for _ in range(2)] == [5, 10]
    bench.edit(role(retryPolicy={"maxRetryCount": -2}))
    assert fail(bench) == 0
    assert bench.task().retry.recent_retried_count == 0


def fail_framework(bench: Bench, *, ran: float = 0, code: int = 1) -> float:
    """The one Task's Pod runs for that time and fails, which ends the attempt; seconds until the next one."""
    bench.all_pods()
    bench.run()
    bench.plan()
    bench.now += ran
    attempt = bench.status.attempt.id
    bench.end(code=code)
    ended = bench.now
    while bench.status.attempt.id == attempt:
        made = bench.plan()
        assert made.requeue_after is not None or bench.tracker.is_busy
        bench.now += 0 if bench.tracker.is_busy else made.requeue_after or 0
    bench.settle()
    return bench.now - ended


@pytest.mark.parametrize("restart", [False, True])
def test_the_back_off_of_a_framework(restart: bool) -> None:
    bench = Bench(role(failed=1), retryPolicy=GIVEN)
    waits = []
    for number in range(5):
        waits.append(fail_framework(bench))
        assert bench.status.retry.recent_retried_count == number + 1
        if restart:
            bench.restart()
    assert waits == [5, 10, 20, 30, 30]
    assert [fail_framework(bench, ran=600), fail_framework(bench)] == [5, 10]


def test_a_framework_without_back_off_has_no_row() -> None:
    bench = Bench(role(failed=1), retryPolicy={"maxRetryCount": -1})
    assert [fail_framework(bench) for _ in range(3)] == [0, 0, 0]
    assert b"recentRetriedCount" not in encode_status("f", bench.status)


@pytest.mark.parametrize(("base", "expected"), [(5, 10), (20, 20)])
def test_a_framework_waits_for_the_longer_delay_after_a_transient_conflict(base: int, expected: int) -> None:
    retry = {"fancyRetryPolicy": True, "backoff": {"baseSeconds": base}}
    bench = Bench(role(failed=1), limit=limits(minimum=10, maximum=10), retryPolicy=retry)
    assert fail_framework(bench, code=201) == expected


def test_a_completed_framework_has_no_row() -> None:
    bench = Bench(role(failed=1), retryPolicy={**GIVEN, "maxRetryCount": 1})
    assert fail_framework(bench) == 5
    assert bench.status.retry.recent_retried_count == 1
    bench.run()
    bench.end(code=1)
    assert bench.status.state is State.COMPLETED
    assert bench.status.retry.recent_retried_count == 0


def test_the_row_is_forgotten_once_an_attempt_has_run_for_ten_minutes() -> None:
    bench = started()
    assert [fail(bench, ran=599) for _ in range(5)] == [0, 0, 0, 10, 20]
    assert [fail(bench, ran=600), *(fail(bench) for _ in range(4))] == [0, 0, 0, 10, 20]


def disrupt(bench: Bench, *, ran: float) -> float:
    """Kubernetes deletes the Task's Pod so long after its creation; seconds from then to the creation of the next."""
    bench.run()
    bench.now += ran
    attempt, ended = bench.task().attempt.id, bench.now
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    bench.show_then_plan("f-a-0", deleting=bench.now + 30, conditions=[condition])
    bench.hide("f-a-0")
    bench.settle()
    while bench.task().attempt.id == attempt:
        bench.now += bench.plan().requeue_after or 0
        bench.settle()
    return bench.now - ended


def test_disruptions_neither_wait_nor_count() -> None:
    bench = started()
    for _ in range(3):
        fail(bench)
    assert [disrupt(bench, ran=30) for _ in range(3)] == [0, 0, 0]
    assert fail(bench) == 10


@pytest.mark.parametrize("policy", [FANCY, GIVEN])
def test_a_pod_that_names_a_tainted_node(policy: dict[str, Any]) -> None:
    bench = Bench(role(retryPolicy=policy))
    bench.pod()
    base = 10 if policy is FANCY else 5
    assert [disrupt(bench, ran=1) for _ in range(5)] == [0, 0, 0, base, 2 * base]
    assert disrupt(bench, ran=600) == 0
    assert disrupt(bench, ran=1) == 0


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
    bench.idle(after=9)
    bench.pass_time(1)
    assert bench.task().attempt.id == 4
    retry = bench.task().retry
    assert (retry.retry_delay_sec, retry.recent_retried_count) == (None, 4)


def test_a_delayed_retry_is_recorded() -> None:
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
    told = [record.message for record in records if record.reason is LifeReason.TASK_RETRY_SCHEDULED]
    assert told == [
        "TaskAttempt 4 follows 10s later, as the failure is transient, "
        "after 200 ContainerTransientFailed and 3 retries in a row"
    ]
    bench.now += 10
    (record,) = [record for record in bench.plan().records if record.reason is LifeReason.TASK_RETRIED]
    assert record.message == (
        "TaskAttempt 4 follows after 10s, as the failure is transient, after 200 ContainerTransientFailed"
    )


@pytest.mark.parametrize("edit", [{"executionType": "Stop"}, {"taskRoles": [role(number=0, retryPolicy=FANCY)]}])
def test_stop_and_scale_down_do_not_wait(edit: dict[str, Any]) -> None:
    bench = waiting()
    bench.edit_then_settle(**edit)
    assert bench.states() == [] if "taskRoles" in edit else bench.status.state is State.COMPLETED


def test_a_completed_task_has_no_row() -> None:
    bench = waiting()
    bench.now += 10
    bench.settle()
    assert bench.task().retry.recent_retried_count == 4
    bench.run()
    bench.end(code=210)
    assert bench.state() is State.COMPLETED
    assert bench.task().retry.recent_retried_count == 0


def test_other_tasks_do_not_wait() -> None:
    bench = prepared(role(number=2, retryPolicy=FANCY))
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


# --- delays by parts --------------------------------------------------------------------------------------------------


class _FirstRetryDelay(Part):
    """A part that delays the first retry of each Task."""

    def retry_delay_sec(self, ctx: Context, task: TaskStatus) -> int:
        return 0 if task.attempt.id else 90


@pytest.mark.parametrize(("base", "first", "second"), [(0, 90, 0), (100, 100, 200)])
def test_a_part_may_delay_a_retry(monkeypatch: pytest.MonkeyPatch, base: int, first: int, second: int) -> None:
    """The longer delay counts: the part's or the back-off's."""
    parts = Parts(*PARTS, _FirstRetryDelay())
    monkeypatch.setattr(Parts, "active", lambda *_: parts)
    bench = started({"maxRetryCount": -2, "backoff": {"baseSeconds": base}})
    assert fail(bench) == first
    assert fail(bench) == second
