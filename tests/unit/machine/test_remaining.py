"""The estimate of a Framework's next requests: it falls from step to step, and orders Frameworks as it should."""

import orjson
import pytest

from frameworkcontroller.api.objects import FrameworkRecord, framework_record
from frameworkcontroller.api.status import State
from frameworkcontroller.machine import remaining
from frameworkcontroller.machine.kernel.states import EDGES
from frameworkcontroller.machine.kernel.tracker import Tracker
from tests.support.bench import Bench, role


def record(*numbers: int, status: object = None) -> FrameworkRecord:
    """A Framework of roles with these numbers of Tasks."""
    roles = [role(f"r{index}", number) for index, number in enumerate(numbers)]
    metadata = {"namespace": "ns", "name": "f", "uid": "u", "resourceVersion": "1", "generation": 1}
    return framework_record(
        orjson.loads(orjson.dumps({"metadata": metadata, "spec": {"taskRoles": roles}, "status": status}))
    )


def test_it_falls_until_all_tasks_run_and_until_completion() -> None:
    bench = Bench(role(number=2, succeeded=2))
    found = [remaining.of_record(record(2))]

    def note() -> None:
        found.append(remaining.of_tracker(bench.tracker))

    bench.plan()
    note()
    bench.created(bench.only(bench.plan()))
    note()
    bench.all_pods()
    note()
    bench.run("f-a-0")
    note()
    bench.run("f-a-1")
    note()
    assert found == sorted(set(found), reverse=True), found
    bench.stop("f-a-0")
    bench.stop_then_plan("f-a-1")
    assert 0 < remaining.of_tracker(bench.tracker) < found[2]
    bench.settle()
    assert (bench.status.state, remaining.of_tracker(bench.tracker)) == (State.COMPLETED, 0)


def test_one_that_has_begun_comes_before_a_new_one_of_its_size_and_a_small_one_before_a_large_one() -> None:
    begun, large = Bench(role(number=2)), Bench(role(number=5000))
    begun.plan()
    large.plan()
    of_begun, of_large = remaining.of_tracker(begun.tracker), remaining.of_tracker(large.tracker)
    assert of_begun < remaining.of_record(record(2)) < remaining.of_record(record(2, 1)) < of_large
    assert of_large < remaining.of_record(record(5000))
    assert remaining.of_record(record(2)) < remaining.of_record(record(2, status={"state": "x"})) == remaining.UNREAD
    assert remaining.of_record(None) == remaining.UNREAD < remaining.of_record(record(2, status={"state": "Completed"}))
    assert remaining.of_tracker(Tracker()) > 0


@pytest.mark.parametrize("status", [None, {}, {"state": "x"}])
def test_a_record_that_is_packed_has_the_same(status: object) -> None:
    found = record(2, status=status)
    before = remaining.of_record(found)
    found.pack()
    assert remaining.of_record(found) == before


def test_every_state_has_an_estimate_and_each_step_towards_rest_lowers_it() -> None:
    for table in (remaining.FRAMEWORK, remaining.TASK):
        assert table.keys() == set(State)
        for state, following in EDGES.items():
            for after in following - {State.DELETION_PENDING, State.DELETING, State.CREATION_PENDING}:
                assert table[after] <= table[state] or state is State.RUNNING, (state, after)
