"""What becomes of many Events about one Framework, and about many."""

import itertools

from frameworkcontroller.controller.eventcorrelator import (
    BURST,
    COMBINED,
    REFILL_SEC,
    RESERVE,
    SIMILAR,
    SIMILAR_SEC,
    Draft,
    EventCorrelator,
    Subject,
    Telling,
)

F = Subject("ns", "f", "uid")
NOW = 1_700_000_000.0


class Desk:
    """A correlator, and the time."""

    def __init__(self, most: int = 100) -> None:
        numbers = itertools.count(1)
        self.correlator = EventCorrelator(lambda subject: f"{subject.name}.{next(numbers)}", most=most)
        self.now = NOW

    def tell(
        self,
        message: str = "it happened",
        reason: str = "It",
        subject: Subject = F,
        *,
        minor: bool = False,
        vital: bool = False,
    ) -> Telling | None:
        draft = Draft(subject, reason, message, warning=False, minor=minor, vital=vital)
        return self.correlator.correlate(draft, self.now)

    def told(self, message: str = "it happened", reason: str = "It", subject: Subject = F) -> Telling:
        telling = self.tell(message, reason, subject)
        assert telling is not None
        return telling


def test_the_same_again_is_counted() -> None:
    desk = Desk()
    first = desk.told()
    desk.now += 5
    second = desk.told()
    assert (first.name, first.count, first.fresh) == ("f.1", 1, True)
    assert (second.name, second.count, second.fresh) == ("f.1", 2, False)
    assert (second.first, second.last) == (NOW, NOW + 5)


def test_another_message_reason_or_framework_is_another_event() -> None:
    desk = Desk()
    told = [
        desk.told(),
        desk.told("more"),
        desk.told(reason="Other"),
        desk.told(subject=Subject("ns", "f", "namesake")),
    ]
    assert [telling.count for telling in told] == [1] * 4
    assert len({telling.name for telling in told}) == 4


def test_similar_ones_become_one() -> None:
    desk = Desk()
    told = [desk.told(f"number {number}") for number in range(SIMILAR + 4)]
    assert [telling.count for telling in told] == [1] * SIMILAR + [2, 3, 4, 5]
    assert len({telling.name for telling in told}) == SIMILAR
    assert told[-1].message == f"{COMBINED}number {SIMILAR + 3}"
    assert told[SIMILAR - 2].message == f"number {SIMILAR - 2}"


def test_after_a_silence_similar_ones_are_told_one_by_one_again() -> None:
    desk = Desk()
    for number in range(SIMILAR + 1):
        desk.told(f"number {number}")
    desk.now += SIMILAR_SEC + 1
    assert desk.told("another").message == "another"


def test_of_one_framework_there_are_so_many_at_once_and_then_few() -> None:
    desk = Desk()
    reasons = [f"Reason{number}" for number in range(BURST + 5)]
    assert [desk.tell(reason=reason) is not None for reason in reasons] == [True] * BURST + [False] * 5
    # Others are told of all the same.
    assert desk.tell(subject=Subject("ns", "g", "other")) is not None
    desk.now += REFILL_SEC
    assert desk.tell(reason="Later") is not None
    assert desk.tell(reason="Too") is None


def test_single_tasks_leave_something_for_their_framework() -> None:
    desk = Desk()
    minor = [desk.tell(reason=f"Task{number}", minor=True) is not None for number in range(BURST)]
    assert minor == [True] * (BURST - RESERVE) + [False] * RESERVE
    assert [desk.tell(reason=f"Framework{number}") is not None for number in range(RESERVE)] == [True] * RESERVE
    assert desk.tell(reason="Framework") is None
    assert desk.tell(reason="Completed", vital=True) is not None


def test_a_clock_that_goes_back_gives_nothing_away_and_keeps_nobody_silent() -> None:
    desk = Desk()
    for number in range(BURST):
        desk.tell(reason=f"Reason{number}")
    desk.now -= 10 * REFILL_SEC
    assert desk.tell(reason="Back") is None
    desk.now += REFILL_SEC
    assert desk.tell(reason="Later") is not None


def test_what_is_remembered_is_bounded() -> None:
    desk = Desk(most=10)
    for number in range(100):
        assert desk.correlator.is_full == (number >= 10)
        desk.told(subject=Subject("ns", f"f{number}", "uid"))
    assert desk.told(subject=Subject("ns", "f99", "uid")).count == 2
    assert desk.told(subject=Subject("ns", "f0", "uid")).count == 1
