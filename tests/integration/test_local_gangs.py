"""Gangs and requests on the local cluster's node."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import Invalid
from frameworkcontroller.kube.resources import NODES, PODS
from frameworkcontroller.local.apiserver.object_records import Change
from frameworkcontroller.local.cluster import LocalCluster
from frameworkcontroller.local.kubelet.simulation import PREFIX
from frameworkcontroller.local.podgroup_crd import PODGROUPS
from tests.support.eventually import eventually, read_until, until
from tests.support.objects import read
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock

Json = dict[str, Any]


class World:
    """A local cluster with a node of 4 processors. ``bound``: the Pods that were ever bound, in that order."""

    def __init__(self, cluster: LocalCluster, client: KubeClient) -> None:
        self.cluster = cluster
        self.client = client
        self.bound: list[str] = []
        cluster.server.storage.observe(self._observe)

    def _observe(self, change: Change) -> None:
        if change.record.resource == "pods" and change.record.document()["spec"].get("nodeName"):
            name = change.record.name
            if name not in self.bound:
                self.bound.append(name)

    async def group(self, name: str, minimum: int | None) -> None:
        policy: Json = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
        body = {
            "apiVersion": PODGROUPS.api_version,
            "kind": PODGROUPS.kind,
            "metadata": {"name": name},
            "spec": {"schedulingPolicy": policy},
        }
        await self.client.create(PODGROUPS, orjson.dumps(body), "default")

    async def pod(
        self, name: str, cpu: object = 1, *, group: str = "", seconds: object = "forever", **spec: Any
    ) -> None:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        grouped = {"schedulingGroup": {"podGroupName": group}} if group else {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {f"{PREFIX}run-seconds": str(seconds)}},
            "spec": {"restartPolicy": "Never", "containers": [container], **grouped, **spec},
        }
        await self.client.create(PODS, orjson.dumps(body), "default")

    async def get(self, name: str) -> Json:
        return await read(self.client, PODS, name, "default")

    async def scheduled(self, group: str) -> Json:
        """The condition of the group."""
        body = await read(self.client, PODGROUPS, group, "default")
        found: list[Json] = (body.get("status") or {}).get("conditions") or [{}]
        return found[0]

    async def until_bound(self, names: Iterable[str]) -> None:
        expected = set(names)
        await until(lambda: set(self.bound) == expected, within=120)

    async def until_waits(self, name: str, text: str) -> None:
        async def probe() -> None:
            conditions = (await self.get(name))["status"].get("conditions") or ()
            assert [one["message"] for one in conditions if one["type"] == "PodScheduled"] == [text]

        await eventually(probe)

    async def until_scheduled(self, group: str, status: str, text: str) -> None:
        await read_until(
            lambda: self.scheduled(group), lambda found: (found.get("status"), found.get("message")) == (status, text)
        )


@asynccontextmanager
async def running(path: Path, capacity: dict[str, str] | None) -> AsyncIterator[World]:
    async with (
        LocalCluster(path, runtime="simulated", capacity=capacity, wall=wall, rng=random.Random(1)) as cluster,
        KubeClient(cluster.connect()) as client,
    ):
        yield World(cluster, client)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path, {"cpu": "4"}) as world:
        yield world


NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."


async def test_a_pod_waits_until_its_requests_fit(world: World) -> None:
    assert (await read(world.client, NODES, "local"))["status"]["allocatable"]["cpu"] == "4"
    await world.pod("first", 3, seconds=60)
    await world.until_bound(["first"])
    await world.pod("second", 2)
    await world.until_waits("second", NO_ROOM)
    await world.pod("small", 1)
    await world.until_bound(["first", "small"])
    await world.until_bound(["first", "small", "second"])
    assert (await world.get("first"))["status"]["phase"] == "Succeeded"


async def test_without_a_capacity_requests_are_ignored(tmp_path: Path) -> None:
    async with running(tmp_path, None) as world:
        await world.pod("huge", 1000)
        await world.until_bound(["huge"])
        await world.group("g", 2)
        await world.pod("g-0", 1000, group="g")
        await world.until_scheduled("g", "False", "only 1 of at least 2 Pods of the group exist")
        await world.pod("g-1", 1000, group="g")
        await world.until_bound(["huge", "g-0", "g-1"])


async def test_a_gang_is_bound_as_a_whole_when_all_fit(world: World) -> None:
    await world.pod("other", 2, seconds=60)
    await world.until_bound(["other"])
    await world.group("g", 3)
    for number in range(3):
        await world.pod(f"g-{number}", group="g")
    text = f'3 Pods of PodGroup "g" do not fit together: {NO_ROOM}'
    await world.until_scheduled("g", "False", text)
    await world.until_waits("g-0", text)
    assert world.bound == ["other"]
    await world.until_bound(["other", "g-0", "g-1", "g-2"])
    await world.until_scheduled("g", "True", "the Pods of the group are scheduled")


async def test_more_than_the_minimum_are_bound_one_by_one(world: World) -> None:
    await world.group("g", 2)
    for number in range(5):
        await world.pod(f"g-{number}", group="g", seconds=60 if number == 0 else "forever")
    await world.until_bound(f"g-{number}" for number in range(4))
    await world.until_waits("g-4", NO_ROOM)
    await world.until_bound(f"g-{number}" for number in range(5))


async def test_a_replaced_pod_counts_with_those_that_are_bound(world: World) -> None:
    await world.group("g", 3)
    for number in range(3):
        await world.pod(f"g-{number}", group="g")
    await world.until_bound(["g-0", "g-1", "g-2"])
    await world.client.delete(PODS, "g-1", "default", grace_period_seconds=0)
    world.bound.clear()
    await world.pod("g-1", group="g")
    await world.until_bound(["g-1"])
    assert (await world.scheduled("g"))["status"] == "True"


async def test_a_lower_minimum_lets_the_others_be_bound(world: World) -> None:
    await world.group("g", 3)
    await world.pod("g-0", group="g")
    await world.pod("g-1", group="g")
    await world.until_scheduled("g", "False", "only 2 of at least 3 Pods of the group exist")
    assert world.bound == []
    body = orjson.dumps({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    await world.client.patch(PODGROUPS, "g", body, "default", content_type=MERGE_PATCH)
    await world.until_bound(["g-0", "g-1"])


async def test_pods_wait_for_their_group(world: World) -> None:
    await world.pod("g-0", group="g")
    await world.pod("g-1", group="g")
    await world.until_waits("g-0", '0/1 nodes are available: PodGroup "g" not found.')
    await world.group("g", 2)
    await world.until_bound(["g-0", "g-1"])


async def test_pods_of_a_basic_group_are_bound_one_by_one(world: World) -> None:
    await world.group("g", None)
    await world.pod("g-0", 3, group="g", seconds=30)
    await world.until_bound(["g-0"])
    await world.pod("g-1", 3, group="g")
    await world.until_waits("g-1", NO_ROOM)
    await world.until_bound(["g-0", "g-1"])


async def test_a_taint_holds_back_the_whole_gang(world: World) -> None:
    body = orjson.dumps({"spec": {"unschedulable": True}})
    await world.client.patch(NODES, "local", body, content_type=MERGE_PATCH)
    await world.group("g", 2)
    tolerant = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}
    await world.pod("g-0", group="g", **tolerant)
    await world.pod("g-1", group="g")
    text = '2 Pods of PodGroup "g" do not fit together: 0/1 nodes are available: 1 node(s) were unschedulable.'
    await world.until_scheduled("g", "False", text)
    assert world.bound == []
    await world.client.patch(NODES, "local", orjson.dumps({"spec": {"unschedulable": False}}), content_type=MERGE_PATCH)
    await world.until_bound(["g-0", "g-1"])


async def test_a_gated_pod_waits_for_its_gates(world: World) -> None:
    await world.pod("gated", schedulingGates=[{"name": "example.com/gate"}])
    await world.pod("free")
    await world.until_bound(["free"])
    body = orjson.dumps({"spec": {"schedulingGates": [{"name": "example.com/other"}]}})
    with pytest.raises(Invalid, match=r"only deletion is allowed, but found new scheduling gate 'example\.com/other'"):
        await world.client.patch(PODS, "gated", body, "default", content_type=MERGE_PATCH)
    body = orjson.dumps({"spec": {"schedulingGates": None}})
    await world.client.patch(PODS, "gated", body, "default", content_type=MERGE_PATCH)
    await world.until_bound(["free", "gated"])


@pytest.mark.parametrize(
    ("group", "text"),
    [({}, "Required value"), ({"podGroupName": "A_"}, "a lowercase RFC 1123 subdomain")],
)
async def test_the_name_of_a_group_is_validated(world: World, group: Json, text: str) -> None:
    with pytest.raises(Invalid, match=text) as raised:
        await world.pod("p", schedulingGroup=group)
    assert [one["field"] for one in raised.value.details["causes"]] == ["spec.schedulingGroup.podGroupName"]


@pytest.mark.parametrize("policy", [{}, {"basic": {}, "gang": {"minCount": 1}}, {"gang": {"minCount": 0}}])
async def test_the_policy_of_a_group_is_validated(world: World, policy: Json) -> None:
    body = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": policy},
    }
    with pytest.raises(Invalid, match="schedulingPolicy"):
        await world.client.create(PODGROUPS, orjson.dumps(body), "default")


async def test_many_gangs_that_come_at_once_all_run(world: World) -> None:
    """In any order of arrival: the node never holds more than it has, and every gang gets its turn."""
    rng = random.Random(5)
    sizes = {f"g{number}": rng.randint(1, 4) for number in range(8)}
    members = [f"{name}-{index}" for name, size in sizes.items() for index in range(size)]
    rng.shuffle(members)
    for name, size in sizes.items():
        await world.group(name, size)
    await asyncio.gather(
        *(world.pod(member, group=member.partition("-")[0], seconds=rng.randint(1, 20)) for member in members)
    )
    await world.until_bound(members)
    order = [name.partition("-")[0] for name in world.bound]
    # Each gang was bound in one go: its Pods are next to each other.
    assert [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name] == list(dict.fromkeys(order))
