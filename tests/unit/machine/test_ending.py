"""The end of a Framework whose spec is invalid (docs/lifecycle.md, "An invalid spec")."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.spec import ENDING_FIELDS, ExecutionType, SpecError, parse_spec
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Create
from frameworkcontroller.machine.scale import SCALED_DOWN
from frameworkcontroller.machine.specreading import Ends, ends_in, ends_of, spec_to_end
from tests.support.bench import Bench, role
from tests.support.queuedbench import QueuedBench, admitted, begun

SUSPENDED: Final = ("True", "Suspended")


def said(bench: Bench, kind: str) -> tuple[str, str] | None:
    """Status and reason of a condition."""
    return next(((one.status, one.reason) for one in bench.status.conditions if one.type == kind), None)


# --- the states in which a spec becomes invalid -----------------------------------------------------------------------


def new(bench: Bench) -> None:
    """It has no status."""


def accepted(bench: Bench) -> None:
    """Its attempt is about to begin."""
    bench.plan()


def requested(bench: Bench) -> None:
    """The cache does not show the ConfigMap yet."""
    bench.plan()
    bench.created(bench.only(bench.plan()), show=False)


def preparing(bench: Bench) -> None:
    """One of two Pods is created."""
    bench.pod("f-a-0")


def running(bench: Bench) -> None:
    """All Pods run."""
    bench.run_all()


def ending(bench: Bench) -> None:
    """A Pod has ended, which is persisted, and is to be deleted."""
    running(bench)
    bench.stop_then_plan("f-a-0", 1)


def retried(bench: Bench) -> None:
    """The Framework waits for its next attempt."""
    running(bench)
    for name in list(bench.pods):
        bench.stop(name, 1)
    bench.settle()
    assert bench.status.state is State.ATTEMPT_COMPLETED


STATES: Final = (new, accepted, requested, preparing, running, ending, retried)


class NothingNew(Bench):
    """A bench on which nothing is created once the spec is invalid."""

    def created(self, action: Any, *, show: bool = True) -> str:
        assert not self.framework.invalid, f"created with an invalid spec: {action.target}"
        return super().created(action, show=show)


def begin(reach: Callable[[Bench], None], **spec: Any) -> Bench:
    """A Framework of two Tasks in a state."""
    backoff = {"baseSeconds": 60, "maxSeconds": 60}
    bench = NothingNew(role("a", 2, failed=2), retryPolicy={"maxRetryCount": -1, "backoff": backoff}, **spec)
    reach(bench)
    return bench


# --- ends -------------------------------------------------------------------------------------------------------------

ORDERS: Final = ["at once", "invalid before", "restarted"]


def ask(bench: Bench, order: str, **wanted: Any) -> None:
    """The user asks for an end: with the change that makes the spec invalid, or with a later one."""
    if order == "invalid before":
        bench.spoil()
        bench.settle()
        bench.edit(**wanted)
    else:
        bench.spoil(**wanted)
    if order == "restarted" and bench.tracker.status is not None:
        bench.restart()
    bench.listed = bench.now
    bench.settle()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("reach", STATES)
def test_a_suspension_ends_the_attempt_and_sets_its_condition(reach: Callable[[Bench], None], order: str) -> None:
    bench = begin(reach)
    ask(bench, order, suspend=True)
    assert said(bench, "Suspended") == SUSPENDED
    assert (bench.configmap, bench.pods) == (None, {})
    before = bench.status.attempt.id
    bench.edit_then_settle(coordinator=None)
    assert said(bench, "Suspended") == SUSPENDED
    bench.edit_then_settle(suspend=False)
    bench.now += 100
    running(bench)
    assert bench.states() == ["Running", "Running"]
    assert bench.status.attempt.id >= before
    assert bench.status.retry.accountable_retried_count == (reach is retried)
    assert said(bench, "Stalled") == ("False", "Progressing")


def test_the_time_of_earlier_attempts_ends_one_that_has_not_begun() -> None:
    bench = begin(running, activeDeadlineSeconds=100)
    bench.now += 100
    for name in list(bench.pods):
        bench.stop(name, 1)
    bench.spoil()
    bench.restart()
    bench.settle()
    assert (bench.status.state, bench.code()) == (State.COMPLETED, -250)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("reach", [one for one in STATES if one is not requested])
def test_without_an_end_nothing_happens(reach: Callable[[Bench], None], order: str) -> None:
    bench = begin(reach)
    before = set(bench.pods)
    ask(bench, order, description="x")
    for _ in range(5):
        bench.now += 1000
        made = bench.plan()
        assert [action for action in made.actions if isinstance(action, Create)] == []
    assert set(bench.pods) == before
    assert not bench.tracker.is_busy
    bench.edit_then_settle(coordinator=None)
    running(bench)
    assert said(bench, "Stalled") == ("False", "Progressing")
    assert bench.status.attempt.completion_status is None


def test_ends_of_tasks_with_an_invalid_spec_are_recorded_with_the_end() -> None:
    bench = begin(running)
    bench.spoil()
    bench.settle()
    bench.stop("f-a-0", 0)
    bench.settle()
    assert bench.states() == ["Running", "Running"]
    bench.edit_then_plan(suspend=True)
    codes = [task.attempt.completion_status and task.attempt.completion_status.code for task in bench.tracker.tasks()]
    assert codes == [0, -220]


def test_a_completed_one_stays_completed() -> None:
    bench = begin(running)
    bench.edit_then_settle(executionType="Stop")
    bench.spoil(executionType="Start", suspend=True)
    bench.restart()
    bench.settle()
    assert (bench.status.state, said(bench, "Suspended")) == (State.COMPLETED, None)


# --- an end by Kueue --------------------------------------------------------------------------------------------------


def queued(*, restart: bool = False) -> QueuedBench:
    """A Framework that runs in a queue, and whose spec is invalid."""
    bench = begun(role("a", 2), retryPolicy={"maxRetryCount": 0})
    bench.all_pods_run()
    bench.spoil()
    if restart:
        bench.restart()
    bench.settle()
    assert len(bench.pods) == 2
    return bench


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("reason", ["Preempted", "MaximumExecutionTimeExceeded", "Deactivated"])
def test_an_eviction_ends_it_and_gives_its_quota_back(reason: str, *, restart: bool) -> None:
    bench = queued(restart=restart)
    bench.evict_then_settle(reason)
    assert (bench.code(), bench.status.admission, bench.pods) == (-241, None, {})
    assert (bench.live, bench.status.state) == (None, State.ATTEMPT_COMPLETED)
    # Once its spec is valid, it waits for quota again.
    bench.edit_then_settle(coordinator=None)
    assert bench.live is not None
    bench.admit()
    bench.all_pods_run()
    assert bench.states() == ["Running", "Running"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("wanted", [{"suspend": True}, {"executionType": "Stop"}])
def test_an_end_by_its_user_gives_the_quota_back(wanted: dict[str, Any], *, restart: bool) -> None:
    bench = queued(restart=restart)
    bench.edit_then_settle(**wanted)
    assert (bench.status.admission, bench.pods) == (None, {})
    assert bench.live is None or "finalizers" not in bench.live["metadata"] or not bench.live["metadata"]["finalizers"]


def test_one_that_has_not_begun_waits_in_no_queue() -> None:
    bench = admitted(role("a", 2))
    bench.spoil()
    bench.settle()
    assert (bench.live, bench.configmap, bench.status.admission) == (None, None, None)
    bench.edit(coordinator=None)
    bench.enter()


def test_other_pods_than_were_admitted_are_no_reason_to_end_it() -> None:
    """With an invalid spec, no Pod is created by it."""
    bench = queued()
    bench.edit_then_settle(role("a", 2, pod={"spec": {"containers": [], "nodeSelector": {"a": "b"}}}))
    assert (bench.code(), len(bench.pods)) == (None, 2)


# --- field by field ---------------------------------------------------------------------------------------------------

LAST: Final = Ends(ExecutionType.STOP, True, 7, 8)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Ends()),
        ({"executionType": None, "suspend": None}, Ends()),
        ({"executionType": "Start", "suspend": "yes"}, Ends(suspend=True)),
        ({"executionType": "start", "suspend": False}, Ends(ExecutionType.STOP)),
        ({"activeDeadlineSeconds": 0, "ttlSecondsAfterFinished": 0}, Ends(ExecutionType.START, False, 7, 0)),
        ({"activeDeadlineSeconds": 5.0, "ttlSecondsAfterFinished": -1}, Ends(ExecutionType.START, False, 5, 8)),
        ({"activeDeadlineSeconds": 10**30, "suspend": [[]]}, Ends(ExecutionType.START, True, 7)),
        ([], LAST),
        ("x", LAST),
        (None, LAST),
    ],
)
def test_a_field_that_is_invalid_itself_has_its_last_value(given: Any, expected: Ends) -> None:
    assert ends_in(given, LAST) == expected


VALUES: Final = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "x", "start", "Stop"])
    | st.lists(st.none(), max_size=1)
)


@given(st.dictionaries(st.sampled_from(ENDING_FIELDS), VALUES))
def test_a_valid_field_counts_as_in_a_valid_spec(given: dict[str, Any]) -> None:
    ends = ends_in({**given, "taskRoles": 1}, LAST)
    try:
        assert ends == ends_of(parse_spec(given))
    except SpecError:
        for field, value, last in zip(ENDING_FIELDS, ends, LAST, strict=True):
            one = {key: item for key, item in given.items() if key == field}
            assert value in (last, ends_in(one, LAST)[ENDING_FIELDS.index(field)])


def test_roles_and_tasks_come_from_the_status() -> None:
    bench = Bench(role("a", 3), role("b", 1))
    bench.plan()
    bench.tracker.mark_leaving(bench.task("a", 2), SCALED_DOWN)
    spec = spec_to_end(LAST, bench.status)
    assert [(one.name, one.task_number) for one in spec.task_roles] == [("a", 2), ("b", 1)]
    assert ends_of(spec) == LAST
    assert spec_to_end(Ends(), None).task_roles == ()
