"""The effect of a DELETE on an object's metadata."""

from typing import Any

import pytest

from frameworkcontroller.local.apiserver.deletion import (
    DeleteOptions,
    Fate,
    Propagation,
    finalizers_for,
    judge,
    released,
)

NOW = 1_767_225_600.0
MARKED = "2026-01-01T00:00:00Z"


def verdict(metadata: dict[str, Any], grace: int | None, **options: Any) -> tuple[Fate, dict[str, Any] | None]:
    before = dict(metadata)
    found = judge(metadata, DeleteOptions(**options), grace, NOW)
    assert metadata == before, "the metadata given was changed"
    return found.fate, found.metadata


def test_an_ordinary_object_goes_at_once() -> None:
    assert verdict({"name": "a"}, None) == (Fate.REMOVED, None)


def test_a_finalizer_keeps_it_marked() -> None:
    held = {"finalizers": ["f"], "generation": 4}
    marked = {"finalizers": ["f"], "generation": 5, "deletionTimestamp": MARKED, "deletionGracePeriodSeconds": 0}
    assert verdict(held, None) == (Fate.KEPT, marked)
    assert verdict(marked, None) == (Fate.KEPT, None)


def test_propagation_is_a_finalizer() -> None:
    fate, metadata = verdict({}, None, propagation="Foreground")
    assert (fate, metadata and metadata["finalizers"]) == (Fate.KEPT, ["foregroundDeletion"])
    assert verdict({"finalizers": ["foregroundDeletion"]}, None, propagation="Background") == (Fate.REMOVED, None)


def test_foreground_can_be_asked_for_later() -> None:
    marked = {"finalizers": ["f"], "deletionTimestamp": MARKED, "deletionGracePeriodSeconds": 0}
    fate, metadata = verdict(marked, None, propagation="Foreground")
    assert (fate, metadata and metadata["finalizers"]) == (Fate.KEPT, ["f", "foregroundDeletion"])


@pytest.mark.parametrize(
    ("finalizers", "propagation", "expected"),
    [
        ([], None, []),
        (["f"], None, ["f"]),
        (["foregroundDeletion", "f"], None, ["foregroundDeletion", "f"]),
        (["orphan", "foregroundDeletion"], None, ["orphan"]),
        (["f", "orphan"], "Foreground", ["f", "foregroundDeletion"]),
        (["foregroundDeletion"], "Orphan", ["orphan"]),
        (["foregroundDeletion", "orphan", "f"], "Background", ["f"]),
    ],
)
def test_finalizers(finalizers: list[str], propagation: Propagation | None, expected: list[str]) -> None:
    assert finalizers_for(finalizers, propagation) == expected


def test_a_grace_period_keeps_it_marked() -> None:
    later = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
    assert verdict({}, 30) == (Fate.KEPT, later)
    assert verdict(later, 30) == (Fate.KEPT, None)
    assert verdict(later, 60, grace_period_seconds=60) == (Fate.KEPT, None)
    shorter = {"deletionTimestamp": "2026-01-01T00:00:10Z", "deletionGracePeriodSeconds": 10}
    assert verdict(later, 10, grace_period_seconds=10) == (Fate.KEPT, shorter)
    over = {"deletionTimestamp": MARKED, "deletionGracePeriodSeconds": 0}
    assert verdict(later, 0, grace_period_seconds=0) == (Fate.REMOVED, over)


def test_without_grace_it_is_marked_and_goes() -> None:
    assert verdict({}, 0) == (Fate.REMOVED, {"deletionTimestamp": MARKED, "deletionGracePeriodSeconds": 0})


def test_a_finalizer_outlasts_the_grace_period() -> None:
    fate, metadata = verdict({"finalizers": ["f"]}, 0)
    assert (fate, metadata and metadata["deletionGracePeriodSeconds"]) == (Fate.KEPT, 0)
    assert verdict(metadata or {}, 0) == (Fate.KEPT, None)


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ({}, {}, False),
        ({}, {"finalizers": ["f"]}, False),
        ({}, {"finalizers": ["f"], "deletionTimestamp": MARKED}, True),
        ({}, {"finalizers": ["f"], "deletionTimestamp": MARKED, "deletionGracePeriodSeconds": 0}, True),
        ({}, {"finalizers": ["f"], "deletionTimestamp": MARKED, "deletionGracePeriodSeconds": 5}, False),
        ({"finalizers": ["g"]}, {"finalizers": ["f", "g"], "deletionTimestamp": MARKED}, False),
    ],
)
def test_an_update_completes_a_deletion(new: dict[str, Any], old: dict[str, Any], expected: bool) -> None:
    assert released(new, old) is expected
