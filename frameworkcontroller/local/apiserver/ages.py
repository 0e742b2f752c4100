"""Ages in the format of ``kubectl get``."""

from __future__ import annotations

import calendar
import re
from datetime import datetime

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_BARE_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z")


def age(timestamp: str | None, now: float) -> str:
    """The time from ``timestamp`` (RFC 3339) to ``now`` (epoch seconds): ``12s``, ``3m5s``, ``2d4h``."""
    if not timestamp:
        return "<unknown>"
    moment = epoch(timestamp)
    return "<invalid>" if moment is None else duration(now - moment)


def epoch(timestamp: str) -> float | None:
    """Convert a time (RFC 3339) to epoch seconds; None if it is invalid."""
    found = _BARE_TIME.fullmatch(timestamp)
    try:
        if found is not None:
            return float(calendar.timegm((*map(int, found.groups()), 0, 0, 0)))
        moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", timestamp))
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def duration(seconds: float) -> str:
    """Format a duration with at most two units; short ones are exact, long ones rounded."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{large_name}" + (f"{rest}{small_name}" if rest else "")
