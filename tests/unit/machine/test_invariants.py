"""The checks that other tests rely on refuse each forbidden status."""

from collections.abc import Callable

import orjson
import pytest

from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.completion import DELETE_TASK_REQUESTED, POD_SUCCEEDED, CompletionStatus
from frameworkcontroller.api.status import FrameworkStatus, State
from frameworkcontroller.machine.kernel.model import InvariantError
from tests.support.bench import NOW, prepared, role
from tests.support.invariants import check_status, check_step

DONE = CompletionStatus.of(POD_SUCCEEDED, "Pod succeeded")
OTHER = CompletionStatus.of(DELETE_TASK_REQUESTED, "other")
Change = Callable[[FrameworkStatus], None]


def running() -> FrameworkStatus:
    """A status that is in order: two Tasks, one running and one retried."""
    bench = prepared(role("a", 2, retryPolicy={"maxRetryCount": 5}), role("b", 1))
    bench.run("f-a-0")
    bench.end("f-a-1", 1)
    bench.all_pods()
    return copy(bench.status)


def copy(status: FrameworkStatus) -> FrameworkStatus:
    """The status as another reader gets it."""
    made = decode_status(orjson.loads(encode_status("f", status)))
    assert made is not None
    return made


def set_task(index: int, **fields: object) -> Change:
    """A change of a Task of the first role; fields of its attempt begin with ``attempt_``."""

    def change(status: FrameworkStatus) -> None:
        task = status.attempt.roles[0].tasks[index]
        for name, value in fields.items():
            target = task.attempt if name.startswith("attempt_") else task
            setattr(target, name.removeprefix("attempt_"), value)

    return change


def set_framework(**fields: object) -> Change:
    """A change of the Framework; fields of its attempt begin with ``attempt_``."""

    def change(status: FrameworkStatus) -> None:
        for name, value in fields.items():
            target = status.attempt if name.startswith("attempt_") else status
            setattr(target, name.removeprefix("attempt_"), value)

    return change


def swap(status: FrameworkStatus) -> None:
    """Two Tasks change places."""
    status.attempt.roles[0].tasks.reverse()


def double(status: FrameworkStatus) -> None:
    """A role appears twice."""
    status.attempt.roles.append(status.attempt.roles[0])


def accountable(status: FrameworkStatus) -> None:
    """More accountable retries than retries."""
    status.retry.accountable_retried_count = 1


def miscount(status: FrameworkStatus) -> None:
    """One Task more is said to run than does."""
    assert status.task_counts is not None
    status.task_counts.running += 1


def test_a_status_that_is_in_order_passes() -> None:
    status = running()
    check_status(status)
    check_step(status, copy(status))


@pytest.mark.parametrize(
    ("change", "story"),
    [
        (set_framework(attempt_id=1), "attempt id is not the total retried count"),
        (accountable, "accountable > total"),
        (set_framework(attempt_configmap_uid=None), "without a recorded UID"),
        (set_framework(state=State.COMPLETED), "completionStatus"),
        (set_framework(attempt_completion_time=NOW), "attempt completionTime"),
        (set_framework(completion_time=NOW), "completionTime and state differ"),
        (set_framework(attempt_run_time=None), "Running without runTime"),
        (double, "two TaskRoles of the same name"),
        (swap, "index is"),
        (miscount, "taskCounts are"),
        (set_task(0, attempt_pod_uid=None), "without a recorded UID"),
        (set_task(0, attempt_id=3), "attempt id is not the total retried count"),
        (set_task(0, state=State.DELETION_PENDING), "without completionStatus"),
        (set_task(0, state=State.CREATION_PENDING), "with a recorded UID"),
        (set_task(0, state=State.COMPLETED, attempt_completion_status=DONE, completion_time=NOW), "completionTime"),
        (set_task(0, attempt_run_time=None), "Running without runTime"),
        (set_task(0, is_leaving=True), "deletionPending without completionStatus"),
    ],
)
def test_a_status_that_must_never_be(change: Change, story: str) -> None:
    status = running()
    change(status)
    with pytest.raises(InvariantError, match=story):
        check_status(status)


@pytest.mark.parametrize(
    ("change", "story"),
    [
        (set_framework(attempt_id=-1), "Framework attempt id went back"),
        (set_framework(start_time=NOW + 1), "startTime changed"),
        (set_framework(run_time=None), "runTime changed"),
        (set_framework(state=State.PREPARING), "Framework went from"),
        (set_framework(attempt_configmap_uid="other"), "configMapUID changed"),
        (set_framework(attempt_configmap_uid=None), "configMapUID changed"),
        (set_task(0, state=State.PREPARING), "went from"),
        (set_task(0, attempt_pod_uid="other"), "podUID changed"),
        (set_task(0, attempt_run_time=None), "runTime changed"),
        (set_task(1, attempt_id=0), "attempt id went back"),
    ],
)
def test_a_step_that_goes_back(change: Change, story: str) -> None:
    before = running()
    after = copy(before)
    change(after)
    with pytest.raises(InvariantError, match=story):
        check_step(before, after)


def test_a_decision_about_a_task_is_never_undone() -> None:
    before = running()
    set_task(0, is_leaving=True, attempt_completion_status=DONE)(before)
    check_step(running(), before)
    for change, story in (
        (set_task(0, is_leaving=False), "deletionPending went back"),
        (set_task(0, attempt_completion_status=None), "completionStatus changed"),
        (set_task(0, attempt_completion_status=OTHER), "completionStatus changed"),
    ):
        after = copy(before)
        change(after)
        with pytest.raises(InvariantError, match=story):
            check_step(before, after)


def test_a_task_instance_that_is_another_one_may_begin_again() -> None:
    before = running()
    after = copy(before)
    task = after.attempt.roles[0].tasks[0]
    task.instance_uid = "another"
    set_task(0, state=State.CREATION_PENDING, attempt_pod_uid=None)(after)
    check_step(before, after)


def test_a_completed_task_stays_so() -> None:
    before = running()
    set_task(0, state=State.COMPLETED)(before)
    after = copy(before)
    set_task(0, state=State.CREATION_PENDING, attempt_id=1)(after)
    with pytest.raises(InvariantError, match="Completed was left"):
        check_step(before, after)


def test_a_completed_framework_stays_so() -> None:
    before = running()
    before.state = State.COMPLETED
    after = copy(before)
    set_framework(state=State.CREATION_PENDING, attempt_id=1)(after)
    with pytest.raises(InvariantError, match="Completed was left"):
        check_step(before, after)


def test_a_later_attempt_of_the_framework_starts_again() -> None:
    before = running()
    after = copy(before)
    set_framework(state=State.CREATION_PENDING, attempt_id=1, attempt_configmap_uid=None)(after)
    check_step(before, after)
