"""Lint: disruption budgets and autoscaling without effect, or with an unlikely one."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.commands.lint.findings import roles_of
from frameworkcontroller.commands.lint.queues import check_queue
from frameworkcontroller.commands.lint.unlikely import check_spec

GANG: dict[str, Any] = {"schedulingPolicy": {"gang": {}}}
BOUNDS = {"maxTasks": 4}


def found(field: str, value: Any, *, number: int = 2, queued: bool = False, **spec: Any) -> list[str]:
    """The findings on the field of a role, and on another one in its place."""
    role = {"name": "a", "taskNumber": number, "task": {"pod": {"spec": {"restartPolicy": "Never"}}}, field: value}
    if field == "disruptionBudget" and "autoscaling" in spec:
        role["autoscaling"] = spec.pop("autoscaling")
    body = {"taskRoles": [role], **spec}
    labels = {names.QUEUE_NAME: "q"} if queued else {}
    framework = {"metadata": {"name": "f", "labels": labels}, "spec": body}
    all_found = [*check_spec(parse_spec(body)), *check_queue(framework, roles_of(framework))]
    return [str(one) for one in all_found if f"spec.taskRoles[0].{field}" in str(one)]


@pytest.mark.parametrize(
    ("most", "options", "text"),
    [
        (1, {}, ""),
        (2, {}, "2: has no effect: the role has at most 2 Tasks"),
        (3, {"autoscaling": BOUNDS}, ""),
        (4, {"autoscaling": BOUNDS}, "4: has no effect: the role has at most 4 Tasks"),
        (0, {}, "0: forbids every eviction: kubectl drain of a node"),
        (0, {"number": 0}, ""),
    ],
)
def test_disruption_budgets(most: int, options: dict[str, Any], text: str) -> None:
    texts = found("disruptionBudget", {"maxUnavailable": most}, **options)
    assert [text in one for one in texts] == ([True] if text else [])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, ""),
        ({"scheduling": GANG}, "added Tasks are placed one by one"),
        ({"queued": True}, "Tasks beyond the admitted number wait"),
    ],
)
def test_autoscaling(options: dict[str, Any], text: str) -> None:
    texts = found("autoscaling", BOUNDS, **options)
    assert [text in one for one in texts] == ([True] if text else [])


@pytest.mark.parametrize(
    ("container", "number", "warns"),
    [({}, 2, True), ({"readinessProbe": {"tcpSocket": {"port": 80}}}, 2, False), ({}, 1, False)],
)
def test_rolling_updates_without_a_readiness_probe(container: dict[str, Any], number: int, warns: bool) -> None:
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    task = {"pod": pod}
    role = {"name": "a", "taskNumber": number, "updateStrategy": {"type": "RollingUpdate"}, "task": task}
    texts = [str(one) for one in check_spec(parse_spec({"taskRoles": [role]}))]
    assert ["no container has a readinessProbe" in one for one in texts if "updateStrategy" in one] == [True] * warns
