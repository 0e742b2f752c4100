"""Autoscaling on API servers: the object, its subresource scale, and the number of Tasks that follows."""

from __future__ import annotations

import orjson
import pytest

from frameworkcontroller.api.resources import ROLE_SCALERS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.resources import CRDS
from frameworkcontroller.manager.app import Controller
from tests.integration.test_rbac import CLUSTER_WIDE, ONE_NAMESPACE, permissions, rules
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, role, stalled
from tests.support.frontdoor import FrontDoor
from tests.support.objects import is_there, read, until_missing

RUNS: Json = {"run-seconds": "forever"}
BOUNDS: Json = {"minTasks": 1, "maxTasks": 5}


def scaled(number: int = 2) -> Json:
    """A role with autoscaling whose Pods run."""
    return role(number=number, simulate=RUNS, autoscaling=BOUNDS)


async def scale(client: KubeClient, namespace: str, number: int | None = None) -> Json:
    """The Scale of the object, after a change of its number as kubectl scale makes it."""
    path = f"{ROLE_SCALERS.path(namespace, 'f-a')}/scale"
    if number is None:
        found: Json = orjson.loads(await client.raw("GET", path))
    else:
        body = orjson.dumps({"spec": {"replicas": number}})
        found = orjson.loads(await client.raw("PATCH", path, body=body, headers={"Content-Type": MERGE_PATCH}))
    return found


async def until_pods(frameworks: Frameworks, number: int) -> None:
    """Wait until there are that many Pods, and the Scale shows them."""

    async def there() -> None:
        assert sorted(await frameworks.pods()) == [f"f-a-{at}" for at in range(number)]
        assert await is_there(frameworks.client, ROLE_SCALERS, "f-a", frameworks.namespace)
        assert (await scale(frameworks.client, frameworks.namespace))["status"]["replicas"] == number

    await eventually(there)


async def test_the_subresource_scale_sets_the_number_of_tasks(frameworks: Frameworks, controller: Controller) -> None:
    client, namespace = frameworks.client, frameworks.namespace
    await frameworks.create("f", scaled())
    await frameworks.until_running("f", 2)
    await until_pods(frameworks, 2)
    found = await scale(client, namespace)
    assert found["spec"]["replicas"] == 2
    assert found["status"] == {"replicas": 2, "selector": "FC_FRAMEWORK_NAME=f,FC_TASKROLE_NAME=a"}
    for asked, number in ((4, 4), (9, 5), (0, 1), (3, 3)):
        await scale(client, namespace, asked)
        await until_pods(frameworks, number)
        stored = (await frameworks.status("f"))["attemptStatus"]["taskRoleStatuses"][0]["autoscaling"]["taskNumber"]
        assert stored == number
    assert (await frameworks.get("f"))["spec"]["taskRoles"][0]["taskNumber"] == 2
    before = (await read(client, ROLE_SCALERS, "f-a", namespace))["metadata"]["uid"]
    await client.delete(ROLE_SCALERS, "f-a", namespace)

    async def made_again() -> None:
        assert await is_there(client, ROLE_SCALERS, "f-a", namespace)
        fresh = await read(client, ROLE_SCALERS, "f-a", namespace)
        assert fresh["metadata"]["uid"] != before
        assert fresh["spec"]["replicas"] == 3

    await eventually(made_again)
    await until_pods(frameworks, 3)
    await frameworks.set("f", taskRoles__0__autoscaling=None)
    await until_missing(client, ROLE_SCALERS, "f-a", namespace)
    await frameworks.until_running("f", 2)


async def test_it_goes_with_its_framework(frameworks: Frameworks, controller: Controller) -> None:
    await frameworks.create("f", scaled())
    await until_pods(frameworks, 2)
    await frameworks.delete("f")
    await until_missing(frameworks.client, ROLE_SCALERS, "f-a", frameworks.namespace)


async def test_a_new_controller_keeps_the_number(frameworks: Frameworks, cluster: Cluster, door: FrontDoor) -> None:
    async with Controller(Config(), door.connection, wall=cluster.wall):
        await frameworks.create("f", scaled())
        await until_pods(frameworks, 2)
        await scale(frameworks.client, frameworks.namespace, 4)
        await until_pods(frameworks, 4)
    await scale(frameworks.client, frameworks.namespace, 3)
    async with Controller(Config(), door.connection, wall=cluster.wall):
        await until_pods(frameworks, 3)


async def test_a_foreign_object_stalls_the_framework(frameworks: Frameworks, controller: Controller) -> None:
    # The first Framework with autoscaling installs the CRD.
    await frameworks.create("g", scaled())
    client, namespace = frameworks.client, frameworks.namespace
    await eventually(lambda: _there(client, namespace, "g-a"))
    body = {
        "apiVersion": ROLE_SCALERS.api_version,
        "kind": ROLE_SCALERS.kind,
        "metadata": {"name": "f-a", "labels": {"FC_FRAMEWORK_NAME": "f"}},
        "spec": {"replicas": 5},
    }
    made = orjson.loads(await client.create(ROLE_SCALERS, orjson.dumps(body), namespace))
    await frameworks.create("f", scaled())
    await frameworks.until("f", lambda status: stalled(status) == "NamingConflict")
    await frameworks.until_running("f", 2)
    kept = await read(client, ROLE_SCALERS, "f-a", namespace)
    assert kept["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def _there(client: KubeClient, namespace: str, name: str) -> None:
    assert await is_there(client, ROLE_SCALERS, name, namespace)


@pytest.mark.newest
async def test_who_does_not_use_it_pays_nothing(frameworks: Frameworks, watched: Controller, door: FrontDoor) -> None:
    await frameworks.create("f", role(simulate=RUNS))
    await frameworks.until_running("f", 1)
    assert door.requests
    assert not [one for one in door.requests if "rolescaler" in f"{one.resource} {one.name}"]
    names = {one.name for one in door.requests if one.resource == CRDS.plural}
    assert names <= {"frameworks.frameworkcontroller.microsoft.com"}


async def test_the_command_scale_names_the_other_command(
    frameworks: Frameworks, controller: Controller, cli: Cli
) -> None:
    await frameworks.create("f", scaled())
    done = await cli("scale", "f", "a=3")
    assert done.code == 2
    assert done.err.strip().endswith("f: a has autoscaling; use kubectl scale frameworkrolescaler/f-a --replicas 3")
    assert (await frameworks.get("f"))["spec"]["taskRoles"][0]["taskNumber"] == 2


@pytest.mark.newest
async def test_the_rules_match_its_requests(frameworks: Frameworks, watched: Controller, door: FrontDoor) -> None:
    await frameworks.create("f", scaled())
    await until_pods(frameworks, 2)
    bare = {"metadata": {"labels": None}}
    await frameworks.merge(ROLE_SCALERS, "f-a", bare)
    await eventually(lambda: _labelled(frameworks))
    await frameworks.set("f", taskRoles__0__autoscaling=None)
    await until_missing(frameworks.client, ROLE_SCALERS, "f-a", frameworks.namespace)
    used = {(one.verb, one.resource) for one in door.requests if one.resource.startswith(ROLE_SCALERS.plural)}
    for file, kind in ((CLUSTER_WIDE, "ClusterRole"), (ONE_NAMESPACE, "Role")):
        given = {(verb, resource) for verb, _, resource in permissions(rules(file, kind))}
        assert used == {one for one in given if one[1].startswith(ROLE_SCALERS.plural)}


async def _labelled(frameworks: Frameworks) -> None:
    found = await read(frameworks.client, ROLE_SCALERS, "f-a", frameworks.namespace)
    assert "FC_FRAMEWORK_NAME" in (found["metadata"].get("labels") or {})
