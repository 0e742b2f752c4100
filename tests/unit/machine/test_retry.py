"""Every rule of docs/failures-and-retries.md, "Retry"."""

import pytest

from frameworkcontroller.api.completion import (
    ALWAYS_RETRIED,
    CONFIGMAP_EXTERNAL_DELETED,
    CONFIGMAP_LOCAL_CACHE_CREATION_TIMEOUT,
    CONTAINER_PERMANENT_FAILED,
    CONTAINER_TRANSIENT_CONFLICT_FAILED,
    CONTAINER_TRANSIENT_FAILED,
    CONTAINER_UNRECOGNIZED_FAILED_PHRASE,
    DELETE_TASK_REQUESTED,
    DISRUPTIONS,
    FRAMEWORK_ATTEMPT_COMPLETION,
    FRAMEWORK_SUSPEND_REQUESTED,
    NEVER_RETRIED,
    POD_CREATION_PERMANENT_ERROR,
    POD_CREATION_UNKNOWN_ERROR,
    POD_EXTERNAL_DELETED,
    POD_FAILED_WITHOUT_FAILED_CONTAINER,
    POD_LOCAL_CACHE_CREATION_TIMEOUT,
    POD_SUCCEEDED,
    STOP_FRAMEWORK_REQUESTED,
    Code,
    CompletionStatus,
)
from frameworkcontroller.api.spec import RetryPolicy
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.policy import NO_BACK_OFF, RetryBackOff, decide_retry, task_back_off
from tests.support.bench import Bench, limits, role, running

UNKNOWN = Code(1, "ContainerUnrecognizedFailed")
UNTYPED = Code(300, "Mine", attributes=None)
TRANSIENT = (
    CONTAINER_TRANSIENT_FAILED,
    CONFIGMAP_EXTERNAL_DELETED,
    POD_EXTERNAL_DELETED,
    CONFIGMAP_LOCAL_CACHE_CREATION_TIMEOUT,
    POD_LOCAL_CACHE_CREATION_TIMEOUT,
)
PERMANENT = (CONTAINER_PERMANENT_FAILED, POD_CREATION_PERMANENT_ERROR)
NEITHER = (UNKNOWN, UNTYPED, POD_FAILED_WITHOUT_FAILED_CONTAINER, POD_CREATION_UNKNOWN_ERROR)
LIMITS = (-2, -1, 0, 1, 3)

Answer = tuple[bool, bool, int]
NO: Answer = (False, False, 0)
AT_ONCE: Answer = (True, False, 0)
ACCOUNTABLE: Answer = (True, True, 0)


def ask(code: Code, *, fancy: bool, limit: int, used: int = 0, delay: int = 77) -> Answer:
    """Retry or not, accountable or not, and the delay in seconds."""
    policy = RetryPolicy(fancy_retry_policy=fancy, max_retry_count=limit)
    decision = decide_retry(policy, CompletionStatus.of(code, "why"), used, delay)
    assert decision.reason
    return decision.retry, decision.accountable, decision.delay_sec


@pytest.mark.parametrize("fancy", [False, True])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("code", [STOP_FRAMEWORK_REQUESTED, FRAMEWORK_ATTEMPT_COMPLETION, DELETE_TASK_REQUESTED])
def test_an_end_by_the_user_is_never_retried(code: Code, limit: int, fancy: bool) -> None:
    assert ask(code, fancy=fancy, limit=limit) == NO


@pytest.mark.parametrize("fancy", [False, True])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("used", [0, 1, 100])
def test_a_suspension_is_always_retried_and_not_accountable(limit: int, used: int, fancy: bool) -> None:
    assert ask(FRAMEWORK_SUSPEND_REQUESTED, fancy=fancy, limit=limit, used=used) == AT_ONCE


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("used", [0, 1, 100])
def test_fancy_transient_conflict_is_retried_after_the_drawn_delay_and_not_accountable(limit: int, used: int) -> None:
    answer = ask(CONTAINER_TRANSIENT_CONFLICT_FAILED, fancy=True, limit=limit, used=used, delay=77)
    assert answer == (True, False, 77)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("code", TRANSIENT)
def test_fancy_transient_is_retried_at_once_and_not_accountable(code: Code, limit: int) -> None:
    assert ask(code, fancy=True, limit=limit, used=100) == AT_ONCE


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("code", PERMANENT)
def test_fancy_permanent_is_not_retried(code: Code, limit: int) -> None:
    assert ask(code, fancy=True, limit=limit) == NO


@pytest.mark.parametrize("code", [*NEITHER, POD_SUCCEEDED])
@pytest.mark.parametrize(("limit", "used"), [(-2, 5), (-1, 5), (0, 0), (1, 0), (1, 1), (3, 2), (3, 3), (3, 4)])
def test_fancy_without_a_type_is_as_plain(code: Code, limit: int, used: int) -> None:
    assert ask(code, fancy=True, limit=limit, used=used) == ask(code, fancy=False, limit=limit, used=used)


@pytest.mark.parametrize("code", [*TRANSIENT, CONTAINER_TRANSIENT_CONFLICT_FAILED, *PERMANENT, *NEITHER])
@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (-2, 0, ACCOUNTABLE),
        (-2, 100, ACCOUNTABLE),
        (-1, 0, ACCOUNTABLE),
        (-1, 100, ACCOUNTABLE),
        (0, 0, NO),
        (1, 0, ACCOUNTABLE),
        (1, 1, NO),
        (3, 2, ACCOUNTABLE),
        (3, 3, NO),
        (3, 4, NO),
    ],
)
def test_plain_failure(code: Code, limit: int, used: int, expected: Answer) -> None:
    assert ask(code, fancy=False, limit=limit, used=used) == expected


@pytest.mark.parametrize("fancy", [False, True])
@pytest.mark.parametrize(("limit", "expected"), [(-2, ACCOUNTABLE), (-1, NO), (0, NO), (1, NO), (3, NO)])
def test_success_is_retried_only_by_always(limit: int, expected: Answer, fancy: bool) -> None:
    assert ask(POD_SUCCEEDED, fancy=fancy, limit=limit) == expected


def test_an_attribute_of_the_users_own_decides_nothing() -> None:
    assert ask(Code(300, "Mine", attributes=("Odd",)), fancy=True, limit=0) == NO
    assert ask(Code(300, "Mine", attributes=("Odd", "Transient")), fancy=True, limit=0) == AT_ONCE
    # A conflict alone is not a transient one.
    assert ask(Code(300, "Mine", attributes=("Conflict",)), fancy=True, limit=0) == NO


# --- exit codes below 0, which Windows has ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [*ALWAYS_RETRIED, *NEVER_RETRIED, *(one.code for one in DISRUPTIONS.values()), -260])
def test_an_exit_code_of_a_program_is_never_the_code_of_the_controller(code: int) -> None:
    of_program = Code(code, CONTAINER_UNRECOGNIZED_FAILED_PHRASE)
    assert ask(of_program, fancy=True, limit=0) == NO
    assert ask(of_program, fancy=True, limit=1) == ACCOUNTABLE
    completion = CompletionStatus.of(of_program, "why")
    assert completion.unexpected
    back_off = RetryBackOff(5, 20)
    assert back_off.counts(completion)
    assert back_off.delay_sec(0, completion) == 5
    assert task_back_off(RetryPolicy(), completion, limits()) is NO_BACK_OFF


def test_a_task_that_exits_like_a_suspension_is_retried_with_a_limit() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 1}))
    for _ in range(2):
        bench.all_pods()
        bench.run()
        bench.stop(code=-240)
        bench.settle()
    completion = bench.completion()
    assert (bench.status.state, bench.task().retry.accountable_retried_count) == (State.COMPLETED, 1)
    assert (completion.code, bench.status.retry.total_retried_count) == (0, 0)


def test_a_framework_whose_task_exits_like_an_eviction_is_retried_with_a_limit() -> None:
    bench = running(role(failed=1))
    bench.stop(code=-241)
    bench.settle()
    completion = bench.completion()
    assert (bench.status.state, completion.code, bench.status.attempt.id) == (State.COMPLETED, -241, 0)
    assert bench.tracker.process.counters is None or not bench.tracker.process.counters.evicted
