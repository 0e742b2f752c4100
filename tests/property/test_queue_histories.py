"""Random histories of a Framework in a queue, whose Pods may be a gang, with the stand-ins for Kueue and schedulers.

K1 to K3, G1 and G2 hold after every step (tests/support/queueguarantees.py), Pods that exist never need more than the
quota that is reserved for them (tests/support/kueue.py), and everything comes to its end (G3). A story that fails is
made short. More of them: ``HISTORIES=2000 pytest tests/property/test_queue_histories.py``.
"""

from __future__ import annotations

import os
import time
from typing import Final

import pytest

from tests.chaos.shrink import shrink
from tests.support.queuedhistory import Story, make_story

HISTORIES: Final = int(os.environ.get("HISTORIES", "200"))
FIRST: Final = int(os.environ.get("FIRST_SEED", "0"))
_AT_ONCE: Final = 20
_SHRINK_SEC: Final = 60.0


def error_of(story: Story) -> AssertionError | None:
    """The error of the story."""
    try:
        story.play()
    except AssertionError as error:
        return error
    return None


def failure_of(story: Story) -> str | None:
    """The kind of the story's error: the first words that name no object."""
    error = error_of(story)
    if error is None:
        return None
    words = str(error).partition("\n")[0].split()
    return " ".join([type(error).__name__, *(word for word in words[:6] if word.strip(":,").isalpha())])


def shorten(story: Story) -> Story:
    """The shortest story that fails likewise, as found in a minute."""
    end = time.monotonic() + _SHRINK_SEC
    short, _ = shrink(story, lambda shorter: failure_of(shorter) if time.monotonic() < end else None)
    return short


def check(seed: int, *, gang: bool) -> None:
    """Play the story of that seed; if it fails, make it short."""
    story = make_story(seed, gang=gang)
    if error_of(story) is not None:
        short = shorten(story)
        raise AssertionError(f"make_story({seed}, {gang=}) fails; in short:\n{short}\n{error_of(short)}")


@pytest.mark.parametrize("first", range(FIRST, FIRST + HISTORIES, _AT_ONCE))
def test_quota_holds_and_everything_comes_to_its_end(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        check(seed, gang=False)


@pytest.mark.parametrize("first", range(FIRST, FIRST + HISTORIES, _AT_ONCE))
def test_gangs_hold_and_everything_comes_to_its_end(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        check(seed, gang=True)
