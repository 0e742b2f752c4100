"""Since when no report can have escaped a process."""

from __future__ import annotations

import pytest

from frameworkcontroller.reports.knowledge import PAUSE_SEC, Spell, Wakefulness, latest
from frameworkcontroller.tokenbucket import TokenBucket
from tests.support.virtual_clock import HandClock


@pytest.mark.parametrize(
    ("begins", "found"),
    [
        ((1.0, 2.0, 3.0, 4.0), 4.0),
        ((4.0, 2.0, 3.0, 1.0), 4.0),
        ((None, 2.0, 3.0, 4.0), None),
        ((1.0, None, 3.0, 4.0), None),
        ((1.0, 2.0, None, 4.0), None),
        ((1.0, 2.0, 3.0, None), None),
        ((None, None, None, None), None),
    ],
    ids=["the latest", "whichever it is", "no lease", "no watch", "no server", "asleep", "nothing"],
)
def test_all_conditions_count(begins: tuple[float | None, ...], found: float | None) -> None:
    assert latest(*begins) == found


def test_a_spell_begins_again_after_its_end() -> None:
    clock = HandClock()
    spell = Spell(clock)
    assert spell.since(holds=False) is None
    assert spell.since(holds=True) == 100.0
    clock.now = 110.0
    assert spell.since(holds=True) == 100.0
    assert spell.since(holds=False) is None
    assert spell.since(holds=True) == 110.0


def test_a_process_that_ticks_has_been_awake() -> None:
    clock = HandClock()
    awake = Wakefulness(clock)
    for _ in range(100):
        clock.now += PAUSE_SEC
        awake.tick()
    assert awake.since == 100.0


@pytest.mark.parametrize("ticks_first", [True, False])
def test_a_pause_ends_the_former_knowledge(ticks_first: bool) -> None:
    """Whichever comes first after it: the tick, or the look of a machine."""
    clock = HandClock()
    awake = Wakefulness(clock)
    clock.now = 500.0
    if ticks_first:
        awake.tick()
    assert awake.since == 500.0
    clock.now = 501.0
    awake.tick()
    assert awake.since == 500.0


def test_a_bucket_lets_bursts_pass_and_bounds_the_rate() -> None:
    bucket = TokenBucket(2, 0.5)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert not bucket.take(1.0)
    assert bucket.take(2.0)
    assert not bucket.take(3.0)
    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]
    bucket.put_back()
    assert bucket.take(1000.0)
    # A clock that goes back gives nothing.
    assert not bucket.take(0.0)
