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


HELD = {"finalizers": ["f"], "generation": 4}
OVER = {"deletionTimestamp": MARKED, "deletionGracePeriodSeconds": 0}
LATER = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
SOONER = {"deletionTimestamp": "2026-01-01T00:00:10Z", "deletionGracePeriodSeconds": 10}
FOREGROUND = {"finalizers": ["foregroundDeletion"]}


@pytest.mark.parametrize(
    ("before", "grace", "options", "fate", "after"),
    [
        pytest.param({"name": "a"}, None, {}, Fate.REMOVED, None, id="at once"),
        pytest.param(HELD, None, {}, Fate.KEPT, {**HELD, "generation": 5, **OVER}, id="a finalizer"),
        pytest.param({**HELD, **OVER}, None, {}, Fate.KEPT, None, id="the same again"),
        pytest.param({}, None, {"propagation": "Foreground"}, Fate.KEPT, {**FOREGROUND, **OVER}, id="Foreground"),
        pytest.param(FOREGROUND, None, {"propagation": "Background"}, Fate.REMOVED, None, id="Background"),
        pytest.param(
            {"finalizers": ["f"], **OVER},
            None,
            {"propagation": "Foreground"},
            Fate.KEPT,
            {"finalizers": ["f", "foregroundDeletion"], **OVER},
            id="Foreground later",
        ),
        pytest.param({}, 30, {}, Fate.KEPT, LATER, id="a grace period"),
        pytest.param(LATER, 30, {}, Fate.KEPT, None, id="the same period"),
        pytest.param(LATER, 60, {"grace_period_seconds": 60}, Fate.KEPT, None, id="a longer period"),
        pytest.param(LATER, 10, {"grace_period_seconds": 10}, Fate.KEPT, SOONER, id="a shorter period"),
        pytest.param(LATER, 0, {"grace_period_seconds": 0}, Fate.REMOVED, OVER, id="by force"),
        pytest.param({}, 0, {}, Fate.REMOVED, OVER, id="without grace"),
        pytest.param({"finalizers": ["f"]}, 0, {}, Fate.KEPT, {"finalizers": ["f"], **OVER}, id="finalizer, no grace"),
        pytest.param({"finalizers": ["f"], **OVER}, 0, {}, Fate.KEPT, None, id="finalizer, no grace, again"),
    ],
)
def test_a_deletion(
    before: dict[str, Any], grace: int | None, options: dict[str, Any], fate: Fate, after: dict[str, Any] | None
) -> None:
    given = dict(before)
    found = judge(given, DeleteOptions(**options), grace, NOW)
    (None if found.metadata is None else {k: v for k, v in found.metadata.items() if k in {**before, **(after or {})}})
    assert (found.fate, found.metadata) == (fate, after)
    assert given == before, "the metadata given was changed"


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
