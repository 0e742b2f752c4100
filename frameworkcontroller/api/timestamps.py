"""Timestamps of the API: RFC 3339, UTC, whole seconds; of records of the history, with microseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

FIRST_TIME = -62_135_596_800
LAST_TIME = 253_402_300_799
"""The first second of the year 1 and the last of the year 9999: other times have no such format."""

_MAX_CHARS = 64


@lru_cache(maxsize=4096)
def format_time(seconds: int) -> str:
    """``seconds`` since the epoch as ``2026-01-31T12:00:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def format_precise_time(seconds: float) -> str:
    """``seconds`` since the epoch as ``2026-01-31T12:00:00.000000Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@lru_cache(maxsize=4096)
def parse_time(text: str) -> int:
    """Seconds since the epoch of an RFC 3339 ``text``; fractions are cut.

    Raises:
        ValueError: ``text`` is not a time with a zone, or out of range.
    """
    if len(text) > _MAX_CHARS:
        # The cache would keep it.
        raise ValueError("time of too many digits")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time without a zone: {text!r}")
    seconds = int(moment.timestamp() // 1)
    if not FIRST_TIME <= seconds <= LAST_TIME:
        raise ValueError(f"time out of range: {text!r}")
    return seconds
