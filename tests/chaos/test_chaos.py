"""Random histories under random faults: every guarantee holds, everything comes to its end, and nothing leaks.

A bounded part of what `make chaos` runs for as long as one likes. A history that fails names its seed, and is made
short.
"""

import os
import time

import pytest

from tests.chaos.embedded import failure_of, play
from tests.chaos.proxy import Fault, Kind
from tests.chaos.shrink import shrink
from tests.chaos.story import Step, Story, make_story
from tests.support.frameworks import role

HISTORIES = int(os.environ.get("HISTORIES", "80"))
_SHRINK_SEC = 60.0


def fail_with_short_story(story: Story, error: AssertionError) -> None:
    """Fail the test with the shortest story that ends in such an error, as found in a minute."""
    end = time.monotonic() + _SHRINK_SEC
    short, _ = shrink(story, lambda shorter: failure_of(shorter) if time.monotonic() < end else None)
    raise AssertionError(f"python -m tests.chaos --seed {story.seed} fails; in short:\n{short}\n{error}") from error


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_nothing_is_lost(seed: int) -> None:
    story = make_story(seed)
    outcome = play(story)
    if outcome.error is not None:
        fail_with_short_story(story, outcome.error)


def test_a_history_repeats_itself() -> None:
    first, second = play(make_story(7)), play(make_story(7))
    assert (first.writes, first.recovery, first.injected) == (second.writes, second.recovery, second.injected)
    assert first.writes > 10


# Stories that have shown something, made short.


def _work(**simulate: str) -> Step:
    return Step(0.0, "create", ("f0", [role("a", 1, simulate=simulate)], {}))


def test_an_event_that_a_watch_lost_is_made_up_for() -> None:
    skip = Step(0.5, "fault", (Fault(Kind.SKIPPED, resource="pods", times=3),))
    outcome = play(Story(0, (_work(**{"run-seconds": "2"}), skip)))
    assert outcome.error is None
    assert outcome.injected["skipped"] == 1
    assert 1 < outcome.recovery < 5000
