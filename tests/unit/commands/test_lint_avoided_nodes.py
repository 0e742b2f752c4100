"""Lint: avoidNodes without effect, or with an unlikely one."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.commands.lint.unlikely import check_spec

FIELD = "spec.taskRoles[0].task.retryPolicy.avoidNodes"


def found(
    avoid: dict[str, Any], *, retry: Any = None, number: int = 2, of_framework: Any = None, **task: Any
) -> list[str]:
    """The findings on avoidNodes."""
    pod = {"spec": {"restartPolicy": "Never", **task.pop("spec", {})}}
    policy = {**(retry or {}), "avoidNodes": avoid}
    role = {"name": "a", "taskNumber": number, "task": {"retryPolicy": policy, "pod": pod, **task}}
    spec = parse_spec({"taskRoles": [role], "retryPolicy": of_framework or {}})
    return [str(one) for one in check_spec(spec) if FIELD in str(one)]


RETRIED = {"maxRetryCount": 3}


@pytest.mark.parametrize(
    "options",
    [
        {"retry": RETRIED},
        {"retry": {"fancyRetryPolicy": True}},
        {"of_framework": RETRIED},
        {"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]}},
        {"retry": RETRIED, "spec": {"hostNetwork": True}},
        {"retry": RETRIED, "preRunningDeadlineSeconds": 601},
    ],
)
def test_a_sensible_one(options: dict[str, Any]) -> None:
    assert found({}, **options) == []


@pytest.mark.parametrize(
    ("avoid", "options", "text"),
    [
        ({}, {}, "has no effect: neither the Task nor the Framework is retried"),
        ({}, {"retry": RETRIED, "spec": {"nodeName": "n1"}}, "has no effect: the Pods name their node"),
        ({"limit": 16}, {"retry": RETRIED, "number": 10_000}, "each avoids at most 4 nodes"),
        (
            {"relaxAfterSeconds": 60},
            {"retry": RETRIED, "preRunningDeadlineSeconds": 60},
            "has no effect: preRunningDeadlineSeconds 60 ends the attempt before",
        ),
    ],
)
def test_one_without_effect(avoid: dict[str, Any], options: dict[str, Any], text: str) -> None:
    (one,) = found(avoid, **options)
    assert text in one
