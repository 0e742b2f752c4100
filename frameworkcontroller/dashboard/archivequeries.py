"""The queries of the pages of the archive: a grouping, a period and a namespace."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

_DAY_SEC: Final = 86400
PERIODS: Final = {"1": "last day", "7": "last week", "30": "last 30 days", "": "all time"}


@dataclass(frozen=True, slots=True)
class ArchiveQuery:
    """The query of the URL. ``since``: days, "" for all time."""

    by: str
    since: str = "7"
    namespace: str = ""

    def begins(self, now: float) -> int | None:
        """Return the begin of the period, in seconds since the epoch; None: all time."""
        return int(now) - int(self.since) * _DAY_SEC if self.since else None


def fields_in(query: Mapping[str, str], groupings: Container[str], usual: str) -> tuple[str, str, str]:
    """Return the fields of an `ArchiveQuery` in the query of a URL. Unknown values count as absent."""
    by, since = query.get("by", ""), query.get("since", "7")
    return by if by in groupings else usual, since if since in PERIODS else "7", query.get("namespace", "")
