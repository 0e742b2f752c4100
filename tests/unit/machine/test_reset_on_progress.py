"""``retryPolicy.resetOnProgress``: retries are counted from 0 again after an attempt that made progress."""

from __future__ import annotations

from typing import Any, Final

import pytest

from frameworkcontroller.api.status import ProgressStatus, State
from tests.support.bench import Bench, Body, role

POD: Final = "f-a-0"
DEADLINE: Final = 100
PROGRESS: Final[dict[str, Any]] = {"intervalSeconds": 10, "deadlineSeconds": DEADLINE}
ONCE_FAILED: Final = 1
IGNORED: Final[dict[str, Any]] = {
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]}
}


def of_framework(limit: int = 1, **retry: Any) -> Bench:
    """The first failure ends the attempt of the Framework."""
    policy = {"maxRetryCount": limit, "resetOnProgress": True, **retry}
    return begin(role(failed=ONCE_FAILED), retryPolicy=policy)


def of_task(limit: int = 1, *, task: dict[str, Any] | None = None, **retry: Any) -> Bench:
    policy = {"maxRetryCount": limit, "resetOnProgress": True, **retry}
    return begin(role(retryPolicy=policy, **(task or {})))


def begin(*roles: Body, progress: dict[str, Any] | None = PROGRESS, **spec: Any) -> Bench:
    bench = Bench(*roles, progress=progress, **spec)
    bench.run_all()
    return bench


def report(
    bench: Bench, *, first: float | None = None, changed: float | None = None, checkpoint: float | None = None
) -> None:
    """The status shows progress of this attempt."""
    times = [None if time is None else int(time) for time in (first, changed, checkpoint)]
    bench.status.progress = ProgressStatus(
        framework_attempt_id=bench.status.attempt.id,
        first_report_time=times[0],
        last_report_time=int(bench.now),
        last_change_time=times[1],
        last_checkpoint_time=times[2],
    )


def fail(bench: Bench, code: int = 1, *, after: float = 10) -> None:
    """The running Pod fails, and the next one runs if there is one."""
    bench.end(code=code, after=after)
    for _ in range(10):
        if POD in bench.pods or bench.status.state is State.COMPLETED:
            break
        bench.now += bench.plan().requeue_after or 0
        bench.settle()
    if POD in bench.pods:
        bench.run()


def retries(bench: Bench, *, task: bool) -> tuple[int, int]:
    """All retries, and the counted ones."""
    subject = bench.task() if task else bench.status
    return subject.retry.total_retried_count, subject.retry.accountable_retried_count


def is_over(bench: Bench) -> bool:
    return bench.status.state is State.COMPLETED


@pytest.mark.parametrize("task", [False, True])
@pytest.mark.parametrize("limit", [1, 3])
def test_any_number_of_failures_with_progress_and_few_without(limit: int, task: bool) -> None:
    bench = (of_task if task else of_framework)(limit)
    for number in range(1, 8):
        report(bench, checkpoint=bench.now + 1)
        fail(bench)
        assert retries(bench, task=task) == (number, 1)
    for _ in range(limit - 1):
        fail(bench)
    assert retries(bench, task=task) == (7 + limit - 1, limit)
    assert not is_over(bench)
    fail(bench)
    assert is_over(bench)


@pytest.mark.parametrize("task", [False, True])
def test_without_progress_the_first_attempt_has_its_retries(task: bool) -> None:
    bench = (of_task if task else of_framework)(2)
    for _ in range(2):
        fail(bench)
        assert not is_over(bench)
    fail(bench)
    assert is_over(bench)


@pytest.mark.parametrize("task", [False, True])
def test_it_is_off_by_default(task: bool) -> None:
    bench = (of_task if task else of_framework)(1, resetOnProgress=False)
    for _ in range(2):
        report(bench, checkpoint=bench.now + 1)
        fail(bench)
    assert is_over(bench)


@pytest.mark.parametrize("task", [False, True])
@pytest.mark.parametrize(("seconds", "counts"), [(DEADLINE - 1, False), (DEADLINE, True)])
def test_progress_for_long_enough(seconds: int, counts: bool, task: bool) -> None:
    """The time counts from the first report, not from the start of a program that loads for long."""
    bench = (of_task if task else of_framework)(1)
    fail(bench)
    first = bench.now + 1000
    report(bench, first=first, changed=first + seconds)
    fail(bench, after=2000)
    assert is_over(bench) is not counts


@pytest.mark.parametrize("task", [False, True])
def test_a_single_report_is_no_progress(task: bool) -> None:
    bench = (of_task if task else of_framework)(1)
    fail(bench)
    report(bench, first=bench.now + 5000, changed=bench.now + 5000)
    fail(bench, after=6000)
    assert is_over(bench)


@pytest.mark.parametrize("spec", [None, {"intervalSeconds": 10}])
def test_without_a_deadline_only_checkpoints_count(spec: dict[str, Any] | None) -> None:
    policy = {"maxRetryCount": 1, "resetOnProgress": True}
    bench = begin(role(failed=ONCE_FAILED), progress=spec, retryPolicy=policy)
    fail(bench)
    report(bench, first=bench.now, changed=bench.now + 50_000)
    fail(bench, after=60_000)
    assert is_over(bench)


@pytest.mark.parametrize("task", [False, True])
def test_progress_of_an_earlier_attempt_of_the_framework(task: bool) -> None:
    bench = (of_task if task else of_framework)(1)
    fail(bench)
    report(bench, checkpoint=bench.now + 1)
    assert bench.status.progress is not None
    bench.status.progress = ProgressStatus(framework_attempt_id=7, last_checkpoint_time=int(bench.now + 1))
    fail(bench)
    assert is_over(bench)


@pytest.mark.parametrize(("before", "counts"), [(1, False), (0, False), (-1, True)])
def test_a_checkpoint_counts_for_a_task_that_ran_then(before: int, counts: bool) -> None:
    bench = of_task(1)
    fail(bench)
    report(bench, checkpoint=bench.now - before)
    fail(bench)
    assert is_over(bench) is not counts


def test_progress_counts_for_a_task_while_it_ran() -> None:
    bench = of_task(1)
    first = bench.now
    fail(bench, after=1000)
    report(bench, first=first, changed=bench.now + DEADLINE - 1)
    fail(bench, after=DEADLINE)
    assert is_over(bench)


def test_a_task_that_never_ran_made_none() -> None:
    policy = {"maxRetryCount": 1, "resetOnProgress": True}
    bench = Bench(role(retryPolicy=policy, preRunningDeadlineSeconds=10), role("b"), progress=PROGRESS)
    bench.all_pods()
    bench.run("f-b-0")
    for _ in range(2):
        report(bench, checkpoint=bench.now + 5)
        bench.now += 10
        bench.touch(POD)
        bench.settle()
    assert bench.state() is State.COMPLETED


def test_a_checkpoint_after_the_end_of_a_task_does_not_count() -> None:
    """Another Task reports it while the next attempt of this one waits."""
    policy = {"maxRetryCount": 1, "resetOnProgress": True, "backoff": {"baseSeconds": 100}}
    bench = begin(role(number=2, retryPolicy=policy))
    for number in range(2):
        bench.end(code=1, after=10)
        report(bench, checkpoint=bench.now + 5)
        bench.now += 50
        bench.plan()
        bench.now += 50
        bench.settle()
        if number == 0:
            assert bench.task().retry.accountable_retried_count == 1
            bench.run()
            bench.now += 10
            bench.status.progress = None
    assert bench.state() is State.COMPLETED


@pytest.mark.parametrize("task", [False, True])
def test_the_back_off_starts_again(task: bool) -> None:
    bench = (of_task if task else of_framework)(-2, backoff={"baseSeconds": 10, "maxSeconds": 1000})
    subject = bench.task if task else lambda: bench.status
    delays = []
    for number in range(6):
        if number == 3:
            report(bench, checkpoint=bench.now + 1)
        bench.end(code=1, after=10)
        delays.append(subject().retry.retry_delay_sec)
        bench.now += delays[-1] or 0
        bench.settle()
        bench.run()
    assert delays == [10, 20, 40, 10, 20, 40]


def test_fancy_retries_are_not_counted_either_way() -> None:
    bench = of_task(1, fancyRetryPolicy=True)
    for _ in range(3):
        fail(bench, 200)
    assert retries(bench, task=True) == (3, 0)
    fail(bench, 1)
    assert retries(bench, task=True) == (4, 1)
    report(bench, checkpoint=bench.now + 1)
    fail(bench, 200)
    assert retries(bench, task=True) == (5, 0)


def test_ignored_failures_renew_but_do_not_count() -> None:
    bench = of_task(1, task=IGNORED)
    fail(bench, 1)
    assert retries(bench, task=True) == (1, 1)
    fail(bench, 42)
    assert retries(bench, task=True) == (2, 1)
    report(bench, checkpoint=bench.now + 1)
    fail(bench, 42)
    assert retries(bench, task=True) == (3, 0)
    fail(bench, 1)
    assert retries(bench, task=True) == (4, 1)


@pytest.mark.parametrize("restarts", [False, True])
def test_the_counts_are_stored_with_the_end(restarts: bool) -> None:
    """A controller that is killed before or after it counts as often as one that is not."""
    bench = of_task(2, backoff={"baseSeconds": 100})
    fail(bench)
    report(bench, checkpoint=bench.now + 1)
    bench.now += 10
    bench.stop(code=1)
    bench.plan()
    for _ in range(2):
        if restarts:
            bench.restart()
        bench.settle()
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert (bench.task().retry.accountable_retried_count, bench.task().retry.recent_retried_count) == (0, 0)
    # Other progress in the meantime changes nothing.
    bench.status.progress = None
    bench.now += 200
    if restarts:
        bench.restart()
    bench.settle()
    assert retries(bench, task=True) == (2, 1)
