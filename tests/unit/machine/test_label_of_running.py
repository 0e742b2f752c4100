"""A label that is added during an attempt: the Framework enters the queue afterwards."""

from frameworkcontroller.api.objects import QueueLabels
from frameworkcontroller.machine.kernel.tracker import Tracker
from tests.support.queuedbench import NAME, QueuedBench


def test_an_attempt_that_was_not_recorded_does_not_enter_the_queue() -> None:
    bench = QueuedBench()
    bench.queue = None
    bench.plan()
    bench.created(bench.only(bench.plan()))
    # Another controller continues from the stored status: none yet.
    fresh = QueuedBench()
    fresh.queue = QueueLabels("team-a")
    fresh.plan()
    fresh.configmap = bench.configmap
    fresh.tracker = Tracker(fresh.status)
    made = fresh.plan()
    assert NAME not in [action.target.name for action in made.actions]
