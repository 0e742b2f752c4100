"""Every rule of docs/failures-and-retries.md, "Completion", on Tasks that were walked to where they count."""

import pytest

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.exchanges import Accepted
from tests.support.bench import Bench, begun, prepared, role

NEVER_TRIGGERED = "and no user specified conditions in FrameworkAttemptCompletionPolicy have ever been triggered"


def decided(bench: Bench) -> CompletionStatus | None:
    """How the attempt was decided complete, if it was."""
    return bench.status.attempt.completion_status


def triggered(bench: Bench) -> tuple[int, str, str, int]:
    """Code, and the trigger's message, role and index."""
    trigger = bench.completion().trigger
    assert trigger is not None
    return bench.completion().code, trigger.message, trigger.task_role_name, trigger.task_index


def test_failed_tasks_reach_the_minimum() -> None:
    bench = prepared(role(number=3, failed=2, succeeded=3))
    bench.end("f-a-1", 5)
    assert decided(bench) is None
    bench.end("f-a-2", 210)
    assert triggered(bench) == (210, "FailedTaskCount 2 has reached MinFailedTaskCount 2 in the TaskRole", "a", 2)
    found = bench.completion()
    assert (found.phrase, found.type_name, found.attributes) == ("ContainerPermanentFailed", "Failed", ("Permanent",))
    assert (found.diagnostics, found.pod) == (bench.task_completion("a", 2).diagnostics, None)


def test_succeeded_tasks_reach_the_minimum() -> None:
    bench = prepared(role(number=3, failed=1, succeeded=2))
    bench.end("f-a-0")
    assert decided(bench) is None
    bench.end("f-a-1")
    assert triggered(bench) == (0, "SucceededTaskCount 2 has reached MinSucceededTaskCount 2 in the TaskRole", "a", 1)


@pytest.mark.parametrize("minimum", [-1, 0])
def test_less_than_one_is_never(minimum: int) -> None:
    bench = prepared(role(number=2, failed=minimum, succeeded=minimum))
    bench.end("f-a-0", 1)
    assert decided(bench) is None
    bench.end("f-a-1")
    assert bench.completion().phrase == "Succeeded"
    text = f"CompletedTaskCount 2 has reached TotalTaskCount 2 {NEVER_TRIGGERED}"
    assert bench.completion().diagnostics == text
    assert triggered(bench) == (0, text, "a", 1)


def test_all_tasks_of_all_roles_must_be_completed() -> None:
    bench = prepared(role("a", 1), role("b", 2))
    bench.end("f-a-0", 1)
    bench.end("f-b-0")
    assert decided(bench) is None
    bench.end("f-b-1", 3)
    text = f"CompletedTaskCount 3 has reached TotalTaskCount 3 {NEVER_TRIGGERED}"
    assert bench.completion().diagnostics == text
    assert triggered(bench) == (0, text, "b", 1)


# --- which Task came last, or first -------------------------------------------------------------------------------

NO_POLICIES = (role("b", 2), role("a", 3), role("c", 0))
ORDERS = (
    # Who ends, in this order, within one second; and who was the last.
    (["f-b-0", "f-b-1", "f-a-0", "f-a-1", "f-a-2"], ("a", 2)),
    (["f-a-0", "f-a-1", "f-a-2", "f-b-1", "f-b-0"], ("b", 0)),
    (["f-b-0", "f-a-2", "f-a-1", "f-b-1", "f-a-0"], ("a", 0)),
)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(("order", "last"), ORDERS)
def test_all_are_completed_by_the_one_that_came_last_within_a_second(
    order: list[str], last: tuple[str, int], at_once: bool
) -> None:
    """``at_once``: events gather while a status is written. Their order counts, not the Tasks' order."""
    bench = prepared(*NO_POLICIES)
    if at_once:
        for name in reversed(order):
            bench.stop(name)
        for action in bench.plan().actions + bench.plan().actions:
            bench.fold(action, Accepted())
    for name in order:
        bench.hide(name) if at_once else bench.end(name)
    bench.settle()
    assert triggered(bench)[2:] == last


def test_a_later_second_counts_for_more_than_the_order() -> None:
    """A clock that is set back: the completion times that clients see decide."""
    bench = prepared(*NO_POLICIES)
    for name in ("f-a-0", "f-a-1", "f-b-0", "f-b-1"):
        bench.end(name)
    bench.now -= 10
    bench.end("f-a-2")
    assert triggered(bench)[2:] == ("b", 1)


@pytest.mark.parametrize("before", range(5))
def test_an_end_that_a_new_process_sees_comes_after_earlier_ends(before: int) -> None:
    bench = prepared(*NO_POLICIES)
    order = ["f-b-1", "f-b-0", "f-a-2", "f-a-1", "f-a-0"]
    for name in order[:before]:
        bench.end(name)
    bench.restart()
    for name in order[before:]:
        bench.end(name)
    assert triggered(bench)[2:] == ("a", 0)


@pytest.mark.parametrize("inherits", [False, True])
def test_a_process_that_has_seen_no_end_goes_by_role_and_index(inherits: bool) -> None:
    """As the original: the highest index within a role; of roles the first in the spec."""
    bench = prepared(*NO_POLICIES, role("z", 1))
    for name in ("f-b-1", "f-b-0", "f-a-2", "f-a-0", "f-a-1"):
        bench.end(name)
    known = bench.tracker
    bench.restart()
    if inherits:
        bench.tracker.inherit(known)
    # The one Task that was not completed leaves.
    bench.edit_then_settle(*NO_POLICIES)
    assert triggered(bench)[2:] == (("a", 1) if inherits else ("b", 1))


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # One second: minFailed 2 of a, minSucceeded 1 of a, minFailed 1 of b. The first that is met counts.
        ([("f-a-2", 1), ("f-a-0", 1), ("f-a-1", 0), ("f-b-0", 1)], ("FailedTaskCount 2", "a", 0)),
        ([("f-a-2", 1), ("f-a-1", 0), ("f-a-0", 1), ("f-b-0", 1)], ("SucceededTaskCount 1", "a", 1)),
        ([("f-b-0", 1), ("f-a-2", 1), ("f-a-0", 1), ("f-a-1", 0)], ("FailedTaskCount 1", "b", 0)),
    ],
)
def test_the_earliest_trigger_within_a_second(order: list[tuple[str, int]], expected: tuple[str, str, int]) -> None:
    bench = prepared(role("a", 3), role("b", 2))
    for name, code in order:
        bench.end(name, code)
    bench.edit_then_plan(role("a", 3, failed=2, succeeded=1), role("b", 2, failed=1))
    _, message, name, index = triggered(bench)
    assert (message.partition(" has")[0], name, index) == expected


def test_the_earliest_trigger_within_a_second_that_no_process_saw() -> None:
    """As the original: by role, then failed before succeeded; within each by index."""
    bench = prepared(role("b", 2), role("a", 3))
    for name, code in (("f-a-2", 1), ("f-a-0", 0), ("f-a-1", 1), ("f-b-1", 0)):
        bench.end(name, code)
    bench.restart()
    bench.edit_then_plan(role("b", 2), role("a", 3, failed=1, succeeded=1))
    assert triggered(bench)[1:] == ("FailedTaskCount 2 has reached MinFailedTaskCount 1 in the TaskRole", "a", 1)


def test_each_role_counts_for_itself() -> None:
    bench = prepared(role("a", 2, failed=2), role("b", 2, failed=2))
    bench.end("f-a-0", 1)
    bench.end("f-b-0", 1)
    assert decided(bench) is None
    bench.end("f-b-1", 1)
    assert triggered(bench)[2:] == ("b", 1)


def test_the_earliest_trigger_by_completion_time_wins() -> None:
    """Two policies are reached between two looks at them: the Task that completed first gives the status."""
    bench = prepared(role("a", 2), role("b", 2))
    for number, name in enumerate(("f-a-0", "f-a-1", "f-b-0")):
        bench.end(name, number + 1, after=10)
    assert decided(bench) is None
    bench.edit_then_plan(role("a", 2, failed=2), role("b", 2, failed=1))
    assert triggered(bench) == (2, "FailedTaskCount 2 has reached MinFailedTaskCount 2 in the TaskRole", "a", 1)


def test_the_task_that_reached_the_minimum_is_the_trigger_even_if_more_have_followed() -> None:
    bench = prepared(role("a", 4))
    for index, code in ((2, 1), (0, 2), (3, 3)):
        bench.end(f"f-a-{index}", code)
        bench.now += 10
    bench.edit_then_plan(role("a", 4, failed=2))
    assert triggered(bench) == (2, "FailedTaskCount 3 has reached MinFailedTaskCount 2 in the TaskRole", "a", 0)


def test_failed_before_succeeded_in_one_role_goes_by_time_too() -> None:
    bench = prepared(role("a", 3))
    bench.end("f-a-2")
    bench.end("f-a-0", 1, after=10)
    bench.edit_then_plan(role("a", 3, failed=1, succeeded=1))
    assert triggered(bench)[1:] == ("SucceededTaskCount 1 has reached MinSucceededTaskCount 1 in the TaskRole", "a", 2)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_a_task_whose_end_is_seen_as_its_attempt_completes_has_the_code_of_its_pod(first: int, second: int) -> None:
    bench = prepared(role("a", 3, failed=1))
    bench.stop_then_plan(f"f-a-{first}", 5)
    for action in bench.plan().actions:
        bench.fold(action, Accepted())
    bench.stop(f"f-a-{second}", 7)
    bench.hide(f"f-a-{first}")
    bench.settle()
    assert triggered(bench)[0] == 5
    assert [bench.task_code("a", index) for index in (first, second, 2)] == [5, 7, -220]


def test_a_task_whose_end_is_seen_before_it_is_scaled_down_has_the_code_of_its_pod() -> None:
    bench = prepared(role("a", 2))
    bench.stop("f-a-1", 7)
    bench.plan(write=False)
    bench.edit(role("a", 1))
    bench.plan(write=False)
    completion = bench.task("a", 1).attempt.completion_status
    assert bench.task("a", 1).is_leaving
    assert completion is not None
    assert completion.code == 7


def test_a_framework_without_tasks_never_completes_by_itself() -> None:
    for roles in ((), (role("a", 0),)):
        bench = begun(*roles)
        bench.settle()
        assert decided(bench) is None
        assert bench.status.state is State.PREPARING


def test_a_task_that_leaves_counts_for_nothing() -> None:
    """S1: the rescale counts for everything decided after it is observed."""
    bench = prepared(role("a", 3, failed=1))
    bench.show("f-a-2", phase="Failed")
    # The rescale is observed together with the failure of the Task that it makes leave.
    bench.edit_then_settle(role("a", 2, failed=1))
    assert decided(bench) is None
    assert bench.states() == ["Preparing", "Preparing"]


def test_leaving_tasks_do_not_make_up_the_total() -> None:
    bench = prepared(role("a", 3))
    bench.end("f-a-0")
    bench.end("f-a-2")
    bench.edit_then_settle(role("a", 2))
    assert decided(bench) is None
    bench.end("f-a-1", 1)
    assert bench.completion().diagnostics == f"CompletedTaskCount 2 has reached TotalTaskCount 2 {NEVER_TRIGGERED}"


def test_a_rescale_can_complete_the_attempt() -> None:
    """The one Task that was not completed leaves: the Tasks of the spec are all completed."""
    bench = prepared(role("a", 2))
    bench.end("f-a-0")
    bench.edit_then_settle(role("a", 1))
    assert bench.completion().diagnostics == f"CompletedTaskCount 1 has reached TotalTaskCount 1 {NEVER_TRIGGERED}"
