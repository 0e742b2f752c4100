"""CustomResourceDefinitions are found faulty, or not, as a real server finds them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from frameworkcontroller.local.apiserver import api_resources, builtin, builtin_resources, crd_validation
from frameworkcontroller.local.apiserver.schema import Structural
from tests.unit.apiserver import answers

ANSWERS = answers.load("definitions")
GOOD = next(case["crd"] for case in ANSWERS["cases"] if case["what"] == "statusnull")


def admitted(given: dict[str, Any]) -> dict[str, Any]:
    return builtin.default(builtin_resources.CRDS, builtin.decode(builtin_resources.CRDS, given).obj)


@pytest.mark.parametrize("case", ANSWERS["cases"], ids=lambda case: str(case["what"]))
def test_a_definition_has_the_faults_that_a_real_server_finds(case: dict[str, Any]) -> None:
    found = crd_validation.causes(admitted(case["crd"]))
    assert sorted([cause.reason, cause.field, cause.message] for cause in found) == case["causes"]


def test_names_are_derived_from_the_kind() -> None:
    spec = admitted(GOOD)["spec"]
    assert spec["names"] == {"kind": "Bad", "plural": "bads", "singular": "bad", "listKind": "BadList"}
    assert spec["conversion"] == {"strategy": "None"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scope": "Cluster"}, "spec.scope"),
        ({"names": {"kind": "Good", "plural": "bads"}}, "spec.names.kind"),
    ],
)
def test_the_names_of_a_resource_cannot_change(change: dict[str, Any], field: str) -> None:
    old, new = admitted(GOOD), admitted({**GOOD, "spec": {**GOOD["spec"], **change}})
    found = [(cause.field, cause.message) for cause in crd_validation.causes(new, old)]
    assert len(found) == 1
    assert found[0][0] == field
    assert found[0][1].endswith("field is immutable")


def test_a_definition_is_served_in_each_of_its_versions() -> None:
    given = copy.deepcopy(GOOD)
    version = given["spec"]["versions"][0]
    version["subresources"] = {
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    }
    given["spec"]["versions"].append({**version, "name": "v2", "storage": False, "subresources": {}})
    given["spec"]["versions"].append({**version, "name": "v3", "storage": False, "served": False})
    first, second = api_resources.crd_resources(admitted(given))
    assert (first.group_version, first.resource, first.list_kind) == (
        "test.example.com/v1",
        "bads.test.example.com",
        "BadList",
    )
    assert [sub.name for sub in first.subresources] == ["status", "scale"]
    assert first.scale == api_resources.ScalePaths(".spec.replicas", ".status.replicas")
    assert (second.version, second.subresources, second.scale) == ("v2", (), None)


def test_our_own_definition_is_without_fault() -> None:
    path = Path(__file__).parents[3] / "crd" / "frameworks.yaml"
    given = admitted(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert crd_validation.causes(given) == []
    (t,) = api_resources.crd_resources(given)
    assert t.schema is not None
    framework = {
        "apiVersion": t.group_version,
        "kind": t.kind,
        "metadata": {"name": "f"},
        "spec": {"taskRoles": [{"name": "a"}]},
    }
    structural = Structural(t.schema)
    assert structural.validate(structural.default(framework)) == []
