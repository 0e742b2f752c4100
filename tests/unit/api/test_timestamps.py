"""Times of the wire: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.timestamps import format_time, parse_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_700_000_000, "2023-11-14T22:13:20Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (4_102_444_799, "2099-12-31T23:59:59Z"),
    ],
)
def test_known_times(seconds: int, text: str) -> None:
    assert format_time(seconds) == text
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:13:20.999Z",
        "2023-11-14T22:13:20.123456789Z",
        "2023-11-14T22:13:20+00:00",
        "2023-11-14T23:13:20+01:00",
        "2023-11-14T14:13:20.5-08:00",
    ],
)
def test_other_ways_to_write_a_time(text: str) -> None:
    assert parse_time(text) == 1_700_000_000


@pytest.mark.parametrize("text", ["", "now", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "20231114"])
def test_invalid_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_time(text)


@given(st.integers(0, 253_402_300_799))
def test_round_trip(seconds: int) -> None:
    text = format_time(seconds)
    assert parse_time(text) == seconds
    assert len(text) == 20


def test_a_long_text_is_no_time() -> None:
    """It would stay in the cache of times."""
    with pytest.raises(ValueError, match="too many digits"):
        parse_time(f"2023-11-14T22:13:20.{'0' * 1_000_000}Z")
