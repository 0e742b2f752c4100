"""Deduplication, aggregation and rate limit of Events."""

import itertools

from frameworkcontroller.controller.eventcorrelator import (
    BURST,
    COMBINED,
    REFILL_SEC,
    RESERVE,
    SIMILAR,
    SIMILAR_SEC,
    CorrelatedEvent,
    EventCorrelator,
    InvolvedObject,
    Priority,
)

FRAMEWORK = InvolvedObject("ns", "f", "uid")
NOW = 1_700_000_000.0


class Bench:
    """A correlator, and the time."""

    def __init__(self, capacity: int = 100) -> None:
        numbers = itertools.count(1)
        self.correlator = EventCorrelator(lambda involved: f"{involved.name}.{next(numbers)}", capacity=capacity)
        self.now = NOW

    def correlate(
        self,
        message: str = "it happened",
        reason: str = "It",
        involved_object: InvolvedObject = FRAMEWORK,
        priority: Priority = Priority.FRAMEWORK,
    ) -> CorrelatedEvent | None:
        event = CorrelatedEvent(involved_object, reason, message, warning=False)
        return self.correlator.correlate(event, self.now, priority)

    def accept(
        self, message: str = "it happened", reason: str = "It", involved_object: InvolvedObject = FRAMEWORK
    ) -> CorrelatedEvent:
        event = self.correlate(message, reason, involved_object)
        assert event is not None
        return event


def test_a_repeated_event_raises_the_count() -> None:
    bench = Bench()
    first = bench.accept()
    bench.now += 5
    second = bench.accept()
    assert (first.name, first.count, first.last_timestamp) == ("f.1", 1, NOW)
    assert (second.name, second.count) == ("f.1", 2)
    assert (second.first_timestamp, second.last_timestamp) == (NOW, NOW + 5)


def test_an_event_with_another_message_reason_or_framework_is_new() -> None:
    bench = Bench()
    events = [
        bench.accept(),
        bench.accept("more"),
        bench.accept(reason="Other"),
        bench.accept(involved_object=InvolvedObject("ns", "f", "namesake")),
    ]
    assert [event.count for event in events] == [1] * 4
    assert len({event.name for event in events}) == 4


def test_similar_events_are_combined() -> None:
    bench = Bench()
    events = [bench.accept(f"number {number}") for number in range(SIMILAR + 4)]
    assert [event.count for event in events] == [1] * SIMILAR + [2, 3, 4, 5]
    assert len({event.name for event in events}) == SIMILAR
    assert events[-1].message == f"{COMBINED}number {SIMILAR + 3}"
    assert events[SIMILAR - 2].message == f"number {SIMILAR - 2}"


def test_after_a_pause_similar_events_are_not_combined() -> None:
    bench = Bench()
    for number in range(SIMILAR + 1):
        bench.accept(f"number {number}")
    bench.now += SIMILAR_SEC + 1
    assert bench.accept("another").message == "another"


def test_each_framework_has_a_burst_and_a_refill_rate() -> None:
    bench = Bench()
    reasons = [f"Reason{number}" for number in range(BURST + 5)]
    assert [bench.correlate(reason=reason) is not None for reason in reasons] == [True] * BURST + [False] * 5
    # Other Frameworks have their own.
    assert bench.correlate(involved_object=InvolvedObject("ns", "g", "other")) is not None
    bench.now += REFILL_SEC
    assert bench.correlate(reason="Later") is not None
    assert bench.correlate(reason="Too") is None


def test_events_about_tasks_leave_a_reserve_for_their_framework() -> None:
    bench = Bench()
    minor = [bench.correlate(reason=f"Task{number}", priority=Priority.TASK) is not None for number in range(BURST)]
    assert minor == [True] * (BURST - RESERVE) + [False] * RESERVE
    assert [bench.correlate(reason=f"Framework{number}") is not None for number in range(RESERVE)] == [True] * RESERVE
    assert bench.correlate(reason="Framework") is None
    assert bench.correlate(reason="Completed", priority=Priority.FINAL) is not None


def test_a_clock_set_back_neither_refills_nor_blocks_the_bucket() -> None:
    bench = Bench()
    for number in range(BURST):
        bench.correlate(reason=f"Reason{number}")
    bench.now -= 10 * REFILL_SEC
    assert bench.correlate(reason="Back") is None
    bench.now += REFILL_SEC
    assert bench.correlate(reason="Later") is not None


def test_the_caches_are_bounded() -> None:
    bench = Bench(capacity=10)
    for number in range(100):
        bench.accept(involved_object=InvolvedObject("ns", f"f{number}", "uid"))
    assert bench.accept(involved_object=InvolvedObject("ns", "f99", "uid")).count == 2
    assert bench.accept(involved_object=InvolvedObject("ns", "f0", "uid")).count == 1
