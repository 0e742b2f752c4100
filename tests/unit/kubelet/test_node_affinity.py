"""Required node affinity of the local cluster's scheduler, by kube-scheduler's rules."""

from __future__ import annotations

from typing import Any, Final

import pytest

from frameworkcontroller.local.kubelet.nodeaffinity import matches, required_terms

LABELS: Final = {"disk": "fast", "gpus": "8", "odd": "x"}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def by(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": [*values]} if values else {})}


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        (by("disk", "In", "slow", "fast"), True),
        (by("disk", "In", "slow"), False),
        (by("none", "In", "slow"), False),
        (by("disk", "NotIn", "slow"), True),
        (by("disk", "NotIn", "fast"), False),
        (by("none", "NotIn", "fast"), True),
        (by("disk", "Exists"), True),
        (by("none", "Exists"), False),
        (by("disk", "DoesNotExist"), False),
        (by("none", "DoesNotExist"), True),
        (by("gpus", "Gt", "7"), True),
        (by("gpus", "Gt", "8"), False),
        (by("gpus", "Lt", "9"), True),
        (by("gpus", "Lt", "8"), False),
        (by("odd", "Gt", "1"), False),
        (by("none", "Lt", "1"), False),
        (by("gpus", "Gt", "x"), False),
        (by("gpus", "Gt", "1", "2"), False),
        (by("gpus", "Gt", "-" + "9" * 5000), False),
        (by("gpus", "Lt", str(2**63)), False),
        (by("gpus", "Like", "8"), False),
        ({}, False),
    ],
)
def test_expressions(requirement: dict[str, Any], holds: bool) -> None:
    assert matches([{"matchExpressions": [requirement]}], "n1", LABELS) is holds


@pytest.mark.parametrize(
    ("terms", "found"),
    [
        ([], False),
        ([{}], False),
        ([{"matchExpressions": [], "matchFields": None}], False),
        ([{"matchFields": [by("metadata.name", "In", "n1")]}], True),
        ([{"matchFields": [by("metadata.name", "NotIn", "n1")]}], False),
        ([{"matchFields": [by("metadata.name", "NotIn", "n2"), by("metadata.name", "NotIn", "n3")]}], True),
        ([{"matchFields": [by("metadata.name", "NotIn", "n2"), by("metadata.name", "NotIn", "n1")]}], False),
        ([{"matchFields": [by("metadata.name", "NotIn", "n2")], "matchExpressions": [by("none", "Exists")]}], False),
        ([{"matchExpressions": [by("none", "Exists")]}, {"matchExpressions": [by("disk", "Exists")]}], True),
    ],
)
def test_terms(terms: list[dict[str, Any]], found: bool) -> None:
    assert matches(terms, "n1", LABELS) is found


@pytest.mark.parametrize("spec", [{}, {"affinity": None}, {"affinity": {}}, {"affinity": {"nodeAffinity": {}}}])
def test_a_pod_without_terms(spec: dict[str, Any]) -> None:
    assert required_terms(spec) is None


def test_a_pod_with_terms() -> None:
    spec: dict[str, Any] = {
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, None, {"matchFields": []}]}}}
    }
    assert required_terms(spec) == ({}, {}, {"matchFields": []})
