"""Durations, counts and foreign text."""

import pytest

from frameworkcontroller.commands.humanize import clean_line, counted, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (61, "1m1s"), (3599, "59m59s"), (3600, "1h"),
        (3661, "1h1m"), (86400, "1d"), (90000, "1d1h"), (400 * 86400, "400d"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers() -> None:
    assert [counted(1, "Task"), counted(0, "Task"), counted(10000, "Task")] == ["1 Task", "0 Tasks", "10,000 Tasks"]
    assert counted(2, "retry", "retries") == "2 retries"


def test_what_a_container_wrote_does_nothing_to_the_terminal() -> None:
    assert clean_line("a\n\x1b[31mb\tc\x07  d") == "a  [31mb c  d"
    assert clean_line("x" * 400) == "x" * 299 + "…"
