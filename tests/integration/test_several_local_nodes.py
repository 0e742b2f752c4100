"""A local cluster of three nodes: Pods spread by room, and each node is cordoned, drained and lost by itself."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.resources import NODES, PODS
from frameworkcontroller.local.cluster import LocalCluster
from frameworkcontroller.local.kubelet.node import DISCONNECTED
from tests.support.eventually import eventually, read_until
from tests.support.frameworks import condition, role
from tests.support.kubectl import Kubectl
from tests.support.objects import read
from tests.support.pods import pod_manifest
from tests.support.site import LocalSite, kubectl_on, local_site
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
FREE: Json = {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 0}}


class World(LocalSite):
    """A local cluster of three nodes with two GPUs each."""

    async def create(self, name: str, gpus: int = 1, **spec: Any) -> None:
        container = {"name": "main", "resources": {"limits": {GPU: gpus}}}
        await self.client.create(PODS, orjson.dumps(pod_manifest(container, name=name, **spec)), "default")

    async def pod(self, name: str) -> Json:
        return await read(self.client, PODS, name, "default")

    async def until_on(self, name: str, *nodes: str) -> str:
        """Wait until the Pod runs on one of the nodes."""
        pod = await read_until(lambda: self.pod(name), lambda pod: pod["status"]["phase"] == "Running", within=600)
        node: str = pod["spec"]["nodeName"]
        assert node in nodes
        return node

    async def until_waits(self, name: str, text: str) -> None:
        def waits(pod: Json) -> bool:
            return condition(pod["status"], "PodScheduled").get("message") == text

        await read_until(lambda: self.pod(name), waits)

    async def patch_node(self, name: str, change: Json) -> None:
        await self.client.patch(NODES, name, orjson.dumps(change), content_type=MERGE_PATCH)

    async def until_node(self, name: str, ready: str) -> None:
        def is_so(node: Json) -> bool:
            return bool(condition(node["status"], "Ready")["status"] == ready)

        await read_until(lambda: read(self.client, NODES, name), is_so, within=120, every=1)


@asynccontextmanager
async def running(path: Path, capacity: dict[str, str] | None) -> AsyncIterator[World]:
    async with local_site(path, World, nodes=3, capacity=capacity) as world:
        yield world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path, {GPU: "2"}) as world:
        yield world


@pytest.fixture
def kubectl(world: World, tmp_path: Path) -> Kubectl:
    return kubectl_on(world.cluster, tmp_path)


ALL = ("local-0", "local-1", "local-2")


async def test_each_node_has_its_own_room(world: World) -> None:
    nodes = orjson.loads(await world.client.list(NODES))["items"]
    assert [(node["metadata"]["name"], node["status"]["allocatable"][GPU]) for node in nodes] == [
        (name, "2") for name in ALL
    ]
    for number in range(3):
        await world.create(f"small-{number}")
    assert sorted([await world.until_on(f"small-{number}", *ALL) for number in range(3)]) == list(ALL)
    await world.create("large", 2)
    await world.until_waits("large", f"0/3 nodes are available: 3 Insufficient {GPU}.")
    world.pods.finish("default/small-1")
    freed = (await world.pod("small-1"))["spec"]["nodeName"]
    await world.until_on("large", freed)
    for number in range(2):
        await world.create(f"more-{number}")
    assert freed not in [await world.until_on(f"more-{number}", *ALL) for number in range(2)]


async def test_pods_without_requests_spread(tmp_path: Path) -> None:
    async with running(tmp_path, None) as world:
        await world.frameworks.create("f", role("a", 9, simulate={}))
        await world.frameworks.until_running("f", 9)
        pods = (await world.frameworks.pods()).values()
        assert Counter(pod["spec"]["nodeName"] for pod in pods) == dict.fromkeys(ALL, 3)


async def test_a_node_selector_chooses_a_node(world: World, kubectl: Kubectl) -> None:
    await world.create("picky", nodeSelector={"disk": "fast"})
    await world.until_waits("picky", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")
    await kubectl.ok("label", "node", "local-1", "disk=fast")
    await world.until_on("picky", "local-1")
    await world.create("named", nodeSelector={"kubernetes.io/hostname": "local-2"})
    await world.until_on("named", "local-2")


async def test_a_single_node_takes_pods_with_any_selector(tmp_path: Path) -> None:
    async with (
        LocalCluster(tmp_path, runtime="simulated", wall=wall) as cluster,
        KubeClient(cluster.connect()) as client,
    ):
        body = pod_manifest(name="picky", nodeSelector={"disk": "fast"})
        await client.create(PODS, orjson.dumps(body), "default")
        await read_until(
            lambda: read(client, PODS, "picky", "default"), lambda pod: pod["spec"].get("nodeName") == "local"
        )


async def test_nodes_are_cordoned_and_drained_apart(world: World, kubectl: Kubectl) -> None:
    await world.frameworks.create("f", role("a", 3, task=FREE, simulate={}))
    await world.frameworks.until_running("f", 3)
    said = await kubectl.ok("drain", "local-1")
    assert said.count("evicted") == 1
    await kubectl.ok("cordon", "local-2")

    async def moved() -> None:
        pods = await world.frameworks.pods()
        nodes = Counter(pod["spec"].get("nodeName") for pod in pods.values() if pod["status"]["phase"] == "Running")
        assert nodes == {"local-0": 2, "local-2": 1}

    await eventually(moved, within=120, every=1)
    await kubectl.ok("taint", "node", "local-0", "team=blue:NoSchedule")
    await world.create("late")
    reasons = "1 node(s) had untolerated taint {team: blue}, 2 node(s) were unschedulable"
    await world.until_waits("late", f"0/3 nodes are available: {reasons}.")
    await kubectl.ok("uncordon", "local-1")
    await world.until_on("late", "local-1")
    found = (await kubectl.ok("get", "nodes", "--no-headers")).splitlines()
    assert [line.split()[:2] for line in found] == [
        ["local-0", "Ready"],
        ["local-1", "Ready"],
        ["local-2", "Ready,SchedulingDisabled"],
    ]


async def test_the_task_of_a_lost_node_continues_on_another_one(world: World) -> None:
    forced = {"podGracefulDeletionTimeoutSec": 20, "podForceDeletionPolicy": "Always"}
    await world.frameworks.create("f", role("a", 3, task={**FREE, **forced}, simulate={}))
    await world.frameworks.until_running("f", 3)
    before = await world.frameworks.pods()
    lost = before["f-a-0"]["spec"]["nodeName"]
    await world.patch_node(lost, {"metadata": {"annotations": {DISCONNECTED: "true"}}})
    await world.until_node(lost, "Unknown")
    others = [name for name in ALL if name != lost]
    for other in others:
        await world.until_node(other, "True")

    async def replaced() -> None:
        pod = await world.pod("f-a-0")
        assert pod["metadata"]["uid"] != before["f-a-0"]["metadata"]["uid"]

    await eventually(replaced, within=1200, every=5)
    await world.until_on("f-a-0", *others)
    await world.patch_node(lost, {"metadata": {"annotations": {DISCONNECTED: None}}})
    await world.until_node(lost, "True")
    await asyncio.sleep(10)
    assert world.pods.running() == ["default/f-a-0", "default/f-a-1", "default/f-a-2"]
    after = await world.frameworks.pods()
    for name in ("f-a-1", "f-a-2"):
        assert after[name]["metadata"]["uid"] == before[name]["metadata"]["uid"]
    assert after["f-a-0"]["spec"]["nodeName"] in others


async def test_a_pod_waits_for_a_disconnected_node_only_if_no_other_has_room(world: World) -> None:
    await world.patch_node("local-0", {"metadata": {"annotations": {DISCONNECTED: "true"}}})
    for name in ("first", "second"):
        await world.create(name, 2)
        await world.until_on(name, "local-1", "local-2")
    await world.create("third", 2)
    await world.patch_node("local-0", {"metadata": {"annotations": {DISCONNECTED: None}}})
    await world.until_on("third", "local-0")


async def test_a_gang_is_bound_over_several_nodes(world: World) -> None:
    tasks = {"containers": [{"name": "main", "image": "none", "resources": {"limits": {GPU: 1}}}]}
    await world.create("small")
    await world.until_on("small", *ALL)
    one = role("a", 6, simulate={})
    one["task"]["pod"]["spec"].update(tasks)
    await world.frameworks.create("f", one, scheduling={"schedulingPolicy": {"gang": {}}})
    await asyncio.sleep(30)
    pods = await world.frameworks.pods()
    assert [pods[f"f-a-{index}"]["spec"].get("nodeName") for index in range(6)] == [None] * 6
    text = f'6 Pods of PodGroup "{pods["f-a-0"]["spec"]["schedulingGroup"]["podGroupName"]}" do not fit together: '
    await world.until_waits("f-a-0", f"{text}0/3 nodes are available: 3 Insufficient {GPU}.")
    world.pods.finish("default/small")
    await world.frameworks.until_running("f", 6)
    pods = await world.frameworks.pods()
    assert Counter(pods[f"f-a-{index}"]["spec"]["nodeName"] for index in range(6)) == dict.fromkeys(ALL, 2)
