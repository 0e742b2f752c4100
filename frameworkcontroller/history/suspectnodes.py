"""Nodes on which suspiciously many attempts of Tasks fail, in the answer of ``CountFailures`` by node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

Item = Mapping[str, Any]

_FRAMEWORKS: Final = 3
"""A node that fails the Tasks of fewer Frameworks may only run the wrong programs."""
_TIMES: Final = 3.0
"""How many times the expected failures."""


def is_suspect(item: Item) -> bool:
    """Whether Tasks of several Frameworks failed on the node, and far more often than on other nodes."""
    expected = item.get("expected")
    return expected is not None and item["frameworks"] >= _FRAMEWORKS and item["taskAttempts"] >= _TIMES * expected


def ranked(items: Iterable[Item]) -> Sequence[Item]:
    """The nodes, suspects first, then by Frameworks, then by the share of failed attempts."""

    def rank(item: Item) -> tuple[bool, int, float, str]:
        share = item["taskAttempts"] / (item["ofAttempts"] or 1)
        return not is_suspect(item), -item["frameworks"], -share, item["key"]

    return sorted(items, key=rank)
