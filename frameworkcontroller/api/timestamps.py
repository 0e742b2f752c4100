"""Times as the API writes them: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=4096)
def format_time(seconds: int) -> str:
    """``seconds`` since the epoch as ``2026-01-31T12:00:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=4096)
def parse_time(text: str) -> int:
    """Seconds since the epoch that an RFC 3339 ``text`` stands for; fractions are cut.

    Raises:
        ValueError: ``text`` is not a time with a zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time without a zone: {text!r}")
    return int(moment.timestamp() // 1)
