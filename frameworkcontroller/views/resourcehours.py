"""Resource-seconds as people read them: CPU hours, GiB hours, and hours of other resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SPANS: Final = ("useful", "waiting", "lost")
"""The parts of a cost, in the order in which they are shown."""

_GIB: Final = 1 << 30
_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")


def title_of(resource: str) -> str:
    """Return the name of the unit: ``CPU hours``, ``memory GiB hours``, ``nvidia.com/gpu hours``."""
    if resource == "cpu":
        return "CPU hours"
    return f"{resource} GiB hours" if resource.startswith(_BYTES) else f"{resource} hours"


def hours(resource: str, seconds: float) -> str:
    """Format resource-seconds in the unit of ``title_of``."""
    value = seconds / 3600 / (_GIB if resource.startswith(_BYTES) else 1)
    if 0 < value < 0.0005:
        return "<0.001"
    digits = next((digits for below, digits in ((0.0005, 0), (1, 3), (10, 2), (100, 1)) if value < below), 0)
    return f"{value:,.{digits}f}"


def total_of(spans: Mapping[str, float]) -> float:
    """Return all resource-seconds of a resource."""
    return sum(spans[span] for span in SPANS)


def percent(part: float, whole: float) -> str:
    """Format a share; "" of nothing."""
    return f"{100 * part / whole:.1f}%" if whole else ""


def spans_in(item: Mapping[str, Any], resource: str) -> Mapping[str, float]:
    """Return the spans of a resource in an answer of the archive, zeros if it has none."""
    found: Mapping[str, float] = item["resources"].get(resource) or dict.fromkeys(SPANS, 0)
    return found
