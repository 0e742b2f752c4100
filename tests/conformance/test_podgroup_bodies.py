"""The schemas of Volcano and of the coscheduling plugin judge each PodGroup that the controller writes.

The schemas are looked for where tests/support/othercontrollers.py says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import orjson
import pytest
from hypothesis import strategies as st

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.podgroups import (
    GangScheduler,
    PodGroupRecord,
    coscheduling_podgroup_record,
    volcano_podgroup_record,
)
from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.resources import CONFIGMAPS, Resource
from frameworkcontroller.machine.parts.gangs.podgroupbodies import gangs_of, minimum_patch, podgroup_body, refusal
from tests.support.clusters import Cluster
from tests.support.drawnframeworks import drawn, specs, templates
from tests.support.dryrun import dry_run
from tests.support.othercontrollers import crd_of, served

pytestmark = pytest.mark.newest
"""The schemas need later versions than the older control planes."""

Json = dict[str, Any]

RECORDS: Final = {
    GangScheduler.VOLCANO: ("scheduling.volcano.sh/v1beta1", volcano_podgroup_record),
    GangScheduler.COSCHEDULING: ("scheduling.x-k8s.io/v1alpha1", coscheduling_podgroup_record),
}

POLICY: Final[st.SearchStrategy[Json]] = (
    st.just({"basic": {}}) | st.just({"gang": {}}) | st.integers(1, 40).map(lambda count: {"gang": {"minCount": count}})
)


def scheduling(scheduler: GangScheduler) -> st.SearchStrategy[Json]:
    """A spec.scheduling that the scheduler has words for."""
    queue = {"queue": st.sampled_from(["team-a", "a.b"])} if scheduler is GangScheduler.VOLCANO else {}
    return st.fixed_dictionaries({"schedulingPolicy": POLICY}, optional=queue)


def frameworks(scheduler: GangScheduler) -> st.SearchStrategy[Json]:
    """Specs with gangs. Some roles wait for others, and have a group of their own."""

    def join(spec: Json, gang: Json, waits: bool) -> Json:
        first, *others = spec["taskRoles"]
        if waits:
            others = [{**one, "dependsOn": [{"name": first["name"], "status": "Ready"}]} for one in others]
        return {**spec, "taskRoles": [first, *others], "scheduling": gang}

    pods = templates(topology=False, priorities=("", "batch"))
    return st.builds(join, specs(pods, tasks=40), scheduling(scheduler), st.booleans())


@pytest.fixture(params=RECORDS, ids=str)
async def scheduler(request: pytest.FixtureRequest) -> GangScheduler:
    found: GangScheduler = request.param
    return found


@pytest.fixture
async def podgroups(cluster: Cluster, scheduler: GangScheduler) -> AsyncIterator[Resource]:
    if cluster.embedded:
        pytest.skip("the tests of its schemas are elsewhere")
    crd = crd_of({"apiVersion": RECORDS[scheduler][0], "kind": "PodGroup"})
    if crd is None:
        pytest.skip(f"no CustomResourceDefinition of {RECORDS[scheduler][0]} in ../shared/crds or OTHER_CRDS")
    async with served(await cluster.client(), crd) as resource:
        yield resource


async def owner(cluster: Cluster, client: KubeClient) -> str:
    """The ConfigMap of an attempt, which a garbage collector looks for; its UID."""
    body = orjson.dumps({"metadata": {"name": names.configmap_name("f")}})
    created = orjson.loads(await client.create(CONFIGMAPS, body, cluster.namespace))
    uid: str = created["metadata"]["uid"]
    return uid


async def test_each_podgroup_is_accepted_whole(cluster: Cluster, scheduler: GangScheduler, podgroups: Resource) -> None:
    client, wrong = await cluster.client(), []
    for spec in drawn(frameworks(scheduler), 20):
        framework = _framework(cluster, spec)
        gangs = gangs_of(framework, scheduler, None)
        assert refusal(framework, gangs) is None
        for group in gangs.groups:
            for minimum in (1, max(1, sum(role.task_number for role in group.roles))):
                body = orjson.loads(podgroup_body(framework, gangs, group, minimum, attempt=(0, "u"), version=""))
                wrong += [(line, body) for line in await dry_run(client, cluster.namespace, podgroups, body)]
    assert wrong == []


async def test_a_lowered_minimum_equals_the_minimum_of_a_new_podgroup(
    cluster: Cluster, scheduler: GangScheduler, podgroups: Resource
) -> None:
    """A merge patch keeps unnamed fields: resources that the first Tasks do not request."""
    client = await cluster.client()
    uid = await owner(cluster, client)
    decode = RECORDS[scheduler][1]
    gang_specs = drawn(frameworks(scheduler).filter(lambda spec: "gang" in spec["scheduling"]["schedulingPolicy"]), 10)
    for number, spec in enumerate(gang_specs):
        framework = _framework(cluster, spec)
        gangs = gangs_of(framework, scheduler, None)
        group = gangs.groups[0]
        most = max(1, sum(role.task_number for role in group.roles))

        async def create(minimum: int, *, name: str) -> Json:
            body = podgroup_body(framework, gangs, group, minimum, attempt=(0, uid), version="")  # noqa: B023
            named = orjson.loads(body)
            named["metadata"]["name"] = name
            stored: Json = orjson.loads(await client.create(podgroups, orjson.dumps(named), cluster.namespace))
            assert _record(decode, stored).minimum == minimum
            return stored

        await create(most, name=f"old{number}")
        for lower in sorted({1, (most + 1) // 2, most - 1} - {0}, reverse=True):
            patch = minimum_patch(gangs, group, lower)
            answer = await client.patch(podgroups, f"old{number}", patch, cluster.namespace, content_type=MERGE_PATCH)
            lowered, fresh = orjson.loads(answer), await create(lower, name=f"new{number}-{lower}")
            assert _record(decode, lowered).minimum == lower
            assert _amounts(lowered) == _amounts(fresh)
            assert {**lowered["spec"], "minResources": {}} == {**fresh["spec"], "minResources": {}}


def _framework(cluster: Cluster, spec: Json) -> Framework:
    return Framework(cluster.namespace, "f", "uid", 1, deleting=False, spec=parse_spec(spec, framework="f"))


def _record(decode: Any, body: Json) -> PodGroupRecord:
    record: PodGroupRecord = decode(body)
    return record


def _amounts(podgroup: Json) -> Json:
    """The resources that the group needs, without zeros."""
    needed = podgroup["spec"].get("minResources") or {}
    return {name: parse_quantity(amount) for name, amount in needed.items() if parse_quantity(amount)}
