"""Merging of Pod templates."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.sdk.podtemplates import has_main, merged


@pytest.mark.parametrize(
    ("base", "change", "result"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": {"b": 1}}, {"a": None}, {}),
        ({"a": {"b": 1}}, {"a": {"b": None}}, {"a": {}}),
        ({}, {"a": {"b": None, "c": [{"d": None}]}}, {"a": {"c": [{}]}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
        ({"a": {"b": 1}}, {"a": 2}, {"a": 2}),
        (
            {"c": [{"name": "x", "v": 1}, {"name": "y"}]},
            {"c": [{"name": "z"}, {"name": "x", "w": 2}]},
            {"c": [{"name": "x", "v": 1, "w": 2}, {"name": "y"}, {"name": "z"}]},
        ),
        ({"c": [{"name": "x", "v": 1}]}, {"c": [{"v": 2}]}, {"c": [{"v": 2}]}),
        ({"c": [{"name": "x"}]}, {"c": []}, {"c": [{"name": "x"}]}),
        (
            {"m": [{"name": "v", "mountPath": "/a"}]},
            {"m": [{"name": "v", "mountPath": "/b"}, {"name": "w", "mountPath": "/a"}]},
            {"m": [{"name": "w", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]},
        ),
        ({"p": [{"containerPort": 1}]}, {"p": [{"containerPort": 2}]}, {"p": [{"containerPort": 2}]}),
    ],
)
def test_a_change_is_merged(base: Any, change: Any, result: Any) -> None:
    assert merged(base, change) == result
    assert merged(result, change) == result


def test_a_change_is_copied() -> None:
    change: dict[str, Any] = {"a": {"b": [1]}}
    made = merged({}, change)
    made["a"]["b"].append(2)
    assert change == {"a": {"b": [1]}}


@pytest.mark.parametrize(
    ("pod", "has"),
    [
        ({"spec": {"containers": [{"name": "main"}]}}, True),
        ({"spec": {"containers": [{"name": "other"}, 7]}}, False),
        ({"spec": {"containers": "main"}}, False),
        ({"spec": None}, False),
        ("main", False),
    ],
)
def test_the_container_of_a_role(pod: Any, has: bool) -> None:
    assert has_main(pod) is has
