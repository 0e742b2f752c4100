"""The counts of Tasks by state in the status are always right, and cost no write of their own."""

from frameworkcontroller.api.status import TaskCounts
from frameworkcontroller.machine.kernel.model import Urgency
from tests.support.bench import Bench, prepared, role, running


def counts(bench: Bench) -> tuple[int, int, int, int, int]:
    """Total, running, succeeded, failed and stopped; the bench checks after every step that they match the Tasks."""
    found = bench.status.task_counts
    assert found is not None
    return found.total, found.running, found.succeeded, found.failed, found.stopped


def test_tasks_that_the_end_of_the_attempt_stops_do_not_count_as_failed() -> None:
    bench = prepared(role("a", 3, succeeded=1))
    bench.run("f-a-1")
    bench.end("f-a-0")
    assert bench.status.state.value == "Completed"
    assert counts(bench) == (3, 0, 1, 0, 2)


def test_a_task_that_leaves_counts_no_more_from_the_mark_on() -> None:
    bench = running(role("a", 3))
    bench.edit_then_plan(role("a", 1))
    assert bench.task("a", 2).is_leaving
    assert counts(bench) == (1, 1, 0, 0, 0)
    bench.edit_then_settle(role("a", 1), role("b", 1))
    assert counts(bench) == (2, 1, 0, 0, 0)


def test_they_alone_are_no_reason_to_write_a_status() -> None:
    """As another controller has written it, without counts."""
    bench = prepared(role("a", 2))
    bench.run("f-a-0")
    bench.run("f-a-1")
    bench.status.task_counts = None
    bench.restart()
    assert bench.plan().urgency is Urgency.NONE
    assert bench.tracker.is_clean
    assert bench.status.task_counts == TaskCounts(total=2, running=2)
