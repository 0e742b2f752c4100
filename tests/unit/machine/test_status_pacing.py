"""When a status is written: by the urgency of its changes, the size of the status and the time of the API server."""

from dataclasses import dataclass

import pytest

from frameworkcontroller.api.status import State, TaskAttemptStatus, TaskStatus
from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.kernel.pacing import FAST_SEC, LARGE_STATUS_BYTES, AnswerTimes, Pacing
from frameworkcontroller.machine.kernel.tracker import Tracker


@dataclass
class Due:
    """When a change is written, after ``clock`` seconds."""

    urgency: Urgency
    when: float
    at_rest: bool = False
    rested: bool = False
    unwritten_since: float | None = None
    write_sec: float = 0.0
    next_write: float = 0.0
    clock: float = 100.0
    answer_sec: float = 0.0
    tasks: int = 1


@pytest.mark.parametrize(
    "due",
    [
        Due(Urgency.NOW, 0.0),
        Due(Urgency.NOW, 0.0, unwritten_since=99, next_write=105, write_sec=5),
        # After a quiet at once, and then gathered for as long as a write takes.
        Due(Urgency.SOON, 100.0),
        Due(Urgency.SOON, 100.0, next_write=99, write_sec=5.0),
        Due(Urgency.SOON, 100.3, next_write=99.1, write_sec=0.3),
        Due(Urgency.SOON, 102.0, next_write=99.1, write_sec=5.0),
        Due(Urgency.SOON, 99.8, next_write=99.1, write_sec=0.3, unwritten_since=99.5),
        Due(Urgency.SOON, 101.5, next_write=101.5, write_sec=1.0, unwritten_since=100.0),
        # The last change in flight.
        Due(Urgency.SOON, 0.0, at_rest=True, next_write=99.1, write_sec=5.0),
        Due(Urgency.SOON, 0.0, at_rest=True, next_write=105, write_sec=5.0),
        Due(Urgency.SOON, 102.0, at_rest=True, rested=True, next_write=99.1, write_sec=5.0),
        # With the next step.
        Due(Urgency.LATER, 101.0),
        Due(Urgency.LATER, 101.0, at_rest=True),
        Due(Urgency.LATER, 103.0, write_sec=0.3),
        Due(Urgency.LATER, 110.0, write_sec=3.0),
        Due(Urgency.LATER, 99.0, unwritten_since=98.0),
        Due(Urgency.LATER, 104.0, next_write=104.0, unwritten_since=98.0),
        # A change for clients, like a change for one Task.
        Due(Urgency.SHOWN, 100.0),
        Due(Urgency.SHOWN, 100.3, next_write=99.1, write_sec=0.3),
        Due(Urgency.SHOWN, 0.0, at_rest=True, next_write=99.1, write_sec=5.0),
        # At a slow API server for longer, the fewer Tasks the write is for, with a limit.
        Due(Urgency.SHOWN, 100.0, answer_sec=FAST_SEC),
        Due(Urgency.SHOWN, 102.0, answer_sec=0.15),
        Due(Urgency.SHOWN, 102.0, answer_sec=0.15, at_rest=True),
        Due(Urgency.SHOWN, 101.0, answer_sec=0.15, tasks=2),
        Due(Urgency.SHOWN, 100.02, answer_sec=1.05, tasks=1000),
        Due(Urgency.SHOWN, 110.0, answer_sec=30.0),
        Due(Urgency.SHOWN, 112.0, answer_sec=30.0, next_write=112.0),
        # It counts from the first change of its urgency.
        Due(Urgency.SHOWN, 102.0, answer_sec=0.15, unwritten_since=91.0),
        Due(Urgency.SOON, 100.8, answer_sec=0.15),
        Due(Urgency.SOON, 100.4, answer_sec=0.15, tasks=2),
        Due(Urgency.SOON, 104.0, answer_sec=30.0),
        Due(Urgency.LATER, 101.0, answer_sec=0.06),
        Due(Urgency.LATER, 104.0, answer_sec=0.25),
        Due(Urgency.LATER, 110.0, answer_sec=30.0),
        Due(Urgency.NOW, 0.0, answer_sec=30.0),
    ],
)
def test_a_status_is_written_as_urgently_as_it_is(due: Due) -> None:
    tracker = Tracker()
    tracker.urgency = due.urgency
    tracker.task_states[State.RUNNING if due.at_rest else State.PREPARING] = due.tasks
    pacing = Pacing(due.rested, due.unwritten_since, due.write_sec, due.next_write)
    assert pacing.due(tracker, due.clock, due.answer_sec) == pytest.approx(due.when)


def test_a_large_status_waits_for_the_pods_that_were_created_last() -> None:
    tracker = Tracker(urgency=Urgency.SHOWN)
    tracker.task_states |= {State.PREPARING: 600, State.RUNNING: 400}
    pacing = Pacing(write_sec=0.2, next_write=92.0, created_at=100.0)
    assert pacing.due(tracker, 95.0) == 104.0
    # Not for a third batch: the first change is as old as that.
    pacing.created_at = 103.0
    assert pacing.due(tracker, 103.0) == 105.0
    tracker.urgency = Urgency.SOON
    assert pacing.due(tracker, 103.0) == 95.0
    tracker.urgency = Urgency.SHOWN
    tracker.task_states |= {State.PREPARING: 0, State.RUNNING: 1000}
    assert pacing.due(tracker, 103.0) == 0.0
    # A small one shows each state.
    tracker.task_states |= {State.PREPARING: 1, State.RUNNING: 1}
    pacing.write_sec = FAST_SEC
    assert pacing.due(tracker, 103.0) == 95.0


def test_a_large_status_waits_while_tasks_change() -> None:
    tracker = Tracker(urgency=Urgency.SOON)
    tracker.task_states[State.PREPARING] = 5
    ended = [TaskStatus(index, "", 0, 0, TaskAttemptStatus(0, 0)) for index in range(5)]

    def end(number: int, clock: float) -> float:
        for task in ended[:number]:
            tracker.change(task, Urgency.SOON)
        return pacing.due(tracker, clock)

    pacing = Pacing()
    pacing.wrote(99.0, 99.2, LARGE_STATUS_BYTES)
    assert end(1, 100.0) == pytest.approx(100.2)
    assert end(1, 100.1) == pytest.approx(100.2)
    assert end(2, 100.1) == pytest.approx(100.3)
    assert end(3, 101.1) == pytest.approx(101.3)
    # Others may change indefinitely.
    assert end(4, 101.9) == pytest.approx(102.0)
    # No other can.
    assert end(5, 101.9) == pytest.approx(100.2)
    pacing.unwritten_since = None
    tracker.on_persisted()
    assert end(1, 103.0) == 103.0
    # Nor does a small one wait.
    pacing.unwritten_since = None
    pacing.wrote(102.9, 103.1, LARGE_STATUS_BYTES - 1)
    tracker.on_persisted()
    assert end(1, 103.2) == pytest.approx(103.4)
    assert end(3, 103.3) == pytest.approx(103.4)


def test_the_last_end_waits_for_no_other() -> None:
    tracker = Tracker(urgency=Urgency.SOON)
    tracker.task_states |= {State.DELETION_PENDING: 1, State.RUNNING: 1}
    assert Pacing().due(tracker, 100.0, 30.0) == 104.0
    tracker.task_states |= {State.DELETION_PENDING: 2, State.RUNNING: 0}
    assert Pacing().due(tracker, 100.0, 30.0) == 100.0


def test_a_change_that_is_more_urgent_waits_from_its_own_time() -> None:
    tracker = Tracker(urgency=Urgency.LATER)
    tracker.task_states[State.PREPARING] = 1
    pacing = Pacing()
    assert pacing.due(tracker, 100.0, 30.0) == 110.0
    tracker.urgency = Urgency.SHOWN
    assert pacing.due(tracker, 103.0, 30.0) == 113.0
    assert pacing.due(tracker, 107.0, 30.0) == 113.0
    tracker.urgency = Urgency.SOON
    assert pacing.due(tracker, 107.5, 30.0) == 111.5
    # After a write, all times start again.
    pacing.unwritten_since = None
    assert pacing.due(tracker, 120.0, 30.0) == 124.0


def test_the_api_server_is_slow_if_it_answers_many_writes_slowly() -> None:
    times = AnswerTimes()
    for number in range(200):
        times.note(100 + number / 40, 100.5 + number / 40, 3000)
    assert times.smoothed(105.5) == pytest.approx(0.5, rel=0.2)
    # A single answer that is fast is no proof, many are.
    times.note(105.5, 105.51, 3000)
    assert times.smoothed(105.51) > 0.35
    for number in range(100):
        times.note(106 + number / 40, 106.01 + number / 40, 3000)
    assert times.smoothed(109) < FAST_SEC


def test_few_slow_writes_long_ones_and_old_ones_count_little() -> None:
    times = AnswerTimes()
    for second in range(100, 110, 2):
        times.note(second, second + 0.5, 3000)
    assert 0 < times.smoothed(110) < FAST_SEC
    for number in range(200):
        times.note(110 + number / 40, 111 + number / 40, LARGE_STATUS_BYTES)
    assert times.smoothed(116) < FAST_SEC
    for number in range(200):
        times.note(120 + number / 40, 121 + number / 40, LARGE_STATUS_BYTES - 1)
    assert times.smoothed(126) > 0.5
    assert times.smoothed(160) < FAST_SEC


@pytest.mark.parametrize(("seconds", "next_write"), [(0.5, 101.0), (2.0, 104.0), (30.0, 132.0)])
def test_after_a_write_the_api_server_has_a_breath(seconds: float, next_write: float) -> None:
    pacing = Pacing()
    pacing.wrote(100.0, 100.0 + seconds, 3000)
    assert (pacing.write_sec, pacing.next_write) == (seconds, next_write)
