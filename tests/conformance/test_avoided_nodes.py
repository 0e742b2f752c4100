"""avoidNodes on API servers: its bounds, and the Pods with the affinity that it adds."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api.spec import SpecError, parse_spec
from frameworkcontroller.kube.errors import Invalid
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.machine.parts.nodes.nodeavoidance import OtherNodes
from tests.conformance.test_framework_crd import Frameworks, with_role
from tests.support.clusters import Cluster

Json = dict[str, Any]

FIELD: Final = "spec.taskRoles.task.retryPolicy.avoidNodes"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ZONE: Final = {"key": "zone", "operator": "In", "values": ["z"]}
_N: Final = [{"key": "metadata.name", "operator": "NotIn", "values": [f"node-{number}"]} for number in range(16)]


def avoiding(**avoid: Any) -> Json:
    """A spec with these fields."""
    return with_role(task={"retryPolicy": {"avoidNodes": avoid}})


@pytest.mark.parametrize(
    ("avoid", "refusal", "problem"),
    [
        ({"after": 0}, f"{FIELD}.after in body should be greater than or equal to 1", "after: 0: must be at least 1"),
        ({"limit": 0}, f"{FIELD}.limit in body should be greater than or equal to 1", "limit: 0: must be at least 1"),
        ({"limit": 17}, f"{FIELD}.limit in body should be less than or equal to 16", "limit: 17: must be at most 16"),
        (
            {"relaxAfterSeconds": 0},
            f"{FIELD}.relaxAfterSeconds in body should be greater than or equal to 1",
            "relaxAfterSeconds: 0: must be at least 1",
        ),
        ({"after": "1"}, f"{FIELD}.after in body must be of type integer", "after: '1': must be a whole number"),
        ({"onCodes": {"operator": "In"}}, f"{FIELD}.onCodes.values: Required", "onCodes.values: is required"),
        (
            {"onCodes": {"operator": "In", "values": []}},
            f"{FIELD}.onCodes.values in body should have at least 1 items",
            "onCodes.values: a list: must have at least 1 item",
        ),
        (
            {"onCodes": {"operator": "In", "values": [0]}},
            f'"{FIELD}.onCodes.values" must not validate the schema (not)',
            "onCodes.values: 0: is no code of a failure",
        ),
    ],
)
async def test_bad_values_are_refused(cluster: Cluster, avoid: Json, refusal: str, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        await Frameworks(await cluster.client(), cluster.namespace).create(spec=avoiding(**avoid))
    assert refusal in re.sub(r"\[\d+\]", "", str(refused.value))
    with pytest.raises(SpecError) as error:
        parse_spec(avoiding(**avoid))
    assert f"{FIELD}.{problem}" in re.sub(r"\[\d+\]", "", str(error.value))


@pytest.mark.parametrize(
    "avoid",
    [
        {},
        {"after": 3, "limit": 16, "relaxAfterSeconds": 1, "onCodes": {"operator": "NotIn", "values": [0, -1009]}},
        {"after": None, "limit": None, "relaxAfterSeconds": None, "onCodes": None},
    ],
)
async def test_good_values_are_kept(cluster: Cluster, avoid: Json) -> None:
    stored = (await Frameworks(await cluster.client(), cluster.namespace).create(spec=avoiding(**avoid)))["spec"]
    assert parse_spec(stored) == parse_spec(avoiding(**avoid))
    kept = stored["taskRoles"][0]["task"]["retryPolicy"]["avoidNodes"]
    assert {"after", "limit", "relaxAfterSeconds"} <= kept.keys()


def pod(name: str, required: Json | None) -> Json:
    """A Pod that avoids 16 nodes."""
    spec: Json = {"containers": [{"name": "main", "image": "none"}]}
    if required is not None:
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
    OtherNodes(tuple(one["values"][0] for one in _N)).apply({}, spec, name)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("required", "terms"),
    [
        (None, [{"matchFields": _N}]),
        (
            {"nodeSelectorTerms": [{"matchExpressions": [_ZONE]}, {"matchFields": _N[:1]}]},
            [{"matchExpressions": [_ZONE], "matchFields": _N}, {"matchFields": [*_N[:1], *_N]}],
        ),
        # An empty term matches nothing, and is valid.
        (
            {"nodeSelectorTerms": [{}, {"matchExpressions": [_ZONE]}]},
            [{}, {"matchExpressions": [_ZONE], "matchFields": _N}],
        ),
    ],
)
async def test_pods_with_the_affinity_are_accepted(cluster: Cluster, required: Json | None, terms: list[Json]) -> None:
    client = await cluster.client()
    stored = orjson.loads(await client.create(PODS, orjson.dumps(pod("avoids", required)), cluster.namespace))
    assert stored["spec"]["affinity"]["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"] == terms


@pytest.mark.parametrize("required", [{"nodeSelectorTerms": []}, {}])
async def test_a_list_without_terms_stays_refused(cluster: Cluster, required: Json) -> None:
    if cluster.embedded:
        pytest.skip("the embedded API server does not validate affinity")
    client = await cluster.client()
    with pytest.raises(Invalid, match="must have at least one node selector term"):
        await client.create(PODS, orjson.dumps(pod("refused", required)), cluster.namespace)
