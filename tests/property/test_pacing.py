"""A status is written in time, at any speed of the API server and after any later changes."""

from dataclasses import dataclass
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.status import State, TaskAttemptStatus, TaskStatus
from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.kernel.pacing import (
    BREATH_MAX_SEC,
    FAST_SEC,
    FLOW_FACTOR,
    FLOW_MAX_SEC,
    JOIN_MAX_SEC,
    LARGE_STATUS_BYTES,
    RIDE_MAX_SEC,
    SHOW_MAX_SEC,
    AnswerTimes,
    Pacing,
)
from frameworkcontroller.machine.kernel.tracker import Tracker

LONGEST_SEC: Final = RIDE_MAX_SEC + SHOW_MAX_SEC + JOIN_MAX_SEC
SHOWN_SEC: Final = SHOW_MAX_SEC + JOIN_MAX_SEC

_TASKS: Final = [TaskStatus(index, "", 0, 0, TaskAttemptStatus(0, 0)) for index in range(20)]
_STATES: Final = [State.CREATION_REQUESTED, State.RUNNING, State.DELETION_PENDING, State.COMPLETED]


SIZES: Final = st.sampled_from([LARGE_STATUS_BYTES - 1, LARGE_STATUS_BYTES])


@dataclass(frozen=True)
class Change:
    """A change of the status, this long after the one before."""

    after: float
    urgency: Urgency
    states: dict[State, int]
    answer_sec: float
    tasks: int
    """Number of Tasks that have changed since the last write, at least."""


def changes(answer_sec: st.SearchStrategy[float]) -> st.SearchStrategy[list[Change]]:
    """What happens between two writes."""
    urgency = st.sampled_from([Urgency.LATER, Urgency.SHOWN, Urgency.SOON])
    states = st.dictionaries(st.sampled_from(_STATES), st.integers(1, 1000), min_size=1)
    return st.lists(
        st.builds(Change, st.floats(0.0, 8.0), urgency, states, answer_sec, st.integers(0, 20)), min_size=1, max_size=12
    )


def track(tracker: Tracker, change: Change) -> None:
    tracker.urgency = max(tracker.urgency, change.urgency)
    tracker.task_states.update(dict.fromkeys(State, 0) | change.states)
    for task in _TASKS[: change.tasks]:
        tracker.change(task, Urgency.NONE)


@given(changes(st.floats(0.0, 60.0)), st.floats(0.0, 30.0), st.booleans(), SIZES)
def test_no_change_waits_for_longer_than_is_promised(
    what: list[Change], write_sec: float, rested: bool, size: int
) -> None:
    clock, tracker = 1000.0, Tracker()
    pacing = Pacing(rested)
    pacing.wrote(clock - write_sec, clock, size)
    first = shown = 0.0
    for change in what:
        clock += change.after
        track(tracker, change)
        first = first or clock
        if tracker.urgency >= Urgency.SHOWN:
            shown = shown or clock
        due = pacing.due(tracker, clock, change.answer_sec)
        assert due <= max(pacing.next_write, first + LONGEST_SEC)
        if shown:
            assert due <= max(pacing.next_write, shown + max(SHOWN_SEC, BREATH_MAX_SEC))
        if due <= clock:
            return


@given(changes(st.floats(0.0, FAST_SEC)), st.floats(0.0, 30.0), st.booleans(), SIZES)
def test_where_it_is_fast_nothing_waits_for_that(what: list[Change], write_sec: float, rested: bool, size: int) -> None:
    clock, tracker = 1000.0, Tracker()
    paced, simple = Pacing(rested), Pacing(rested)
    for pacing in (paced, simple):
        pacing.wrote(clock - write_sec, clock, size)
    for change in what:
        clock += change.after
        track(tracker, change)
        assert paced.due(tracker, clock, change.answer_sec) == simple.due(tracker, clock)


@given(changes(st.just(0.0)), st.floats(0.0, 30.0), st.booleans())
def test_a_large_status_waits_a_bounded_time_for_more_tasks(what: list[Change], write_sec: float, rested: bool) -> None:
    clock, tracker = 1000.0, Tracker(urgency=Urgency.SOON)
    pacing, small = Pacing(rested), Pacing(rested)
    pacing.wrote(clock - write_sec, clock, LARGE_STATUS_BYTES)
    small.wrote(clock - write_sec, clock, 0)
    first = clock + what[0].after
    for change in what:
        clock += change.after
        track(tracker, change)
        due, least = pacing.due(tracker, clock), small.due(tracker, clock)
        longest = min(FLOW_MAX_SEC, FLOW_FACTOR * write_sec) + 1e-9
        assert least - 1e-9 <= due <= max(pacing.next_write, least, first + longest)


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 60.0), st.integers(0, 100_000)), max_size=60))
def test_the_smoothed_time_is_never_longer_than_the_longest(answers: list[tuple[float, float, int]]) -> None:
    times, clock, longest = AnswerTimes(), 1000.0, 0.0
    for after, seconds, size in answers:
        clock += after
        longest = max(longest, seconds)
        times.note(clock - seconds, clock, size)
        assert -1e-9 <= times.smoothed(clock) <= longest + 1e-9
        assert times.smoothed(clock + 1) <= times.smoothed(clock)
