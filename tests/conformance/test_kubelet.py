"""The scheduler, the Node and the kubelet as clients of an API server: Pods from creation to the end of deletion."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import NODES, PODS
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.kubelet.simulation import PREFIX
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.objects import read
from tests.support.pods import pod_manifest

Json = dict[str, Any]


class Pods:
    """The Pods of a test's namespace."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def key(self, name: str = "f-r-0") -> str:
        return f"{self.namespace}/{name}"

    def running(self, node: SimulatedRuntime) -> list[str]:
        """The Pods that run there; the node also has Pods of earlier tests."""
        prefix = self.key("")
        return [key.removeprefix(prefix) for key in node.running() if key.startswith(prefix)]

    async def create(self, manifest: Json) -> Json:
        manifest["metadata"]["namespace"] = self.namespace
        created: Json = orjson.loads(await self.client.create(PODS, orjson.dumps(manifest), self.namespace))
        return created

    async def get(self, name: str = "f-r-0") -> Json:
        return await read(self.client, PODS, name, self.namespace)

    async def delete(self, name: str = "f-r-0", *, grace: int | None = None) -> None:
        await self.client.delete(PODS, name, self.namespace, grace_period_seconds=grace)

    async def until(self, expected: Callable[[Json], bool], name: str = "f-r-0") -> Json:
        """The Pod once it is as expected."""
        seen: list[Json] = []

        async def probe() -> None:
            seen[:] = [await self.get(name)]
            assert expected(seen[0]), seen[0].get("status")

        await eventually(probe)
        return seen[0]

    async def until_phase(self, phase: str, name: str = "f-r-0") -> Json:
        return await self.until(lambda pod: pod["status"]["phase"] == phase, name)

    async def until_gone(self, name: str = "f-r-0") -> None:
        async def probe() -> bool:
            try:
                await self.get(name)
            except NotFound:
                return True
            return False

        await eventually(probe)


@pytest.fixture
async def api(cluster: Cluster) -> Pods:
    return Pods(await cluster.client(), cluster.namespace)


def sim(**values: str) -> dict[str, str]:
    return {PREFIX + key.replace("_", "-"): value for key, value in values.items()}


def terminated(pod: Json) -> Json:
    state: Json = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


async def test_a_pod_is_bound_runs_and_ends(api: Pods, pods: SimulatedRuntime) -> None:
    await api.create(pod_manifest(inits=({"name": "i"},), annotations={PREFIX + "run-seconds.i": "0"}))
    pod = await api.until_phase("Running")
    assert pod["spec"]["nodeName"] == "local"
    status = pod["status"]
    assert status["hostIP"] == "127.0.0.1"
    assert status["podIP"] == status["podIPs"][0]["ip"]
    assert status["startTime"]
    assert status["qosClass"] == "BestEffort"
    assert {one["type"]: one["status"] for one in status["conditions"]} == dict.fromkeys(
        ("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True"
    )
    assert "reason" not in next(one for one in status["conditions"] if one["type"] == "Ready")
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    pods.fail(api.key(), 3, message="no luck")
    pod = await api.until_phase("Failed")
    assert (terminated(pod)["exitCode"], terminated(pod)["message"]) == (3, "no luck")
    assert {one["type"]: one["status"] for one in pod["status"]["conditions"]}["Ready"] == "False"
    await api.delete()
    await api.until_gone()


async def test_the_node_is_there(api: Pods, pods: SimulatedRuntime) -> None:
    node = await read(api.client, NODES, "local")
    assert {one["type"]: one["status"] for one in node["status"]["conditions"]} == {"Ready": "True"}
    assert node["status"]["addresses"][0] == {"type": "InternalIP", "address": "127.0.0.1"}
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("simulated://")


async def test_whose_pods_are_scheduled(api: Pods, pods: SimulatedRuntime) -> None:
    await api.create(pod_manifest(name="f-other-0", schedulerName="other-scheduler"))
    await api.create(pod_manifest(name="f-away-0", nodeName="elsewhere"))
    await api.create(pod_manifest(name="f-here-0", nodeName="local"))
    await api.create(pod_manifest(name="f-r-0"))
    pod = await api.until_phase("Running", "f-here-0")
    assert {one["type"]: one["status"] for one in pod["status"]["conditions"]}["PodScheduled"] == "True"
    await api.until_phase("Running", "f-r-0")
    other, away = await api.get("f-other-0"), await api.get("f-away-0")
    assert "nodeName" not in other["spec"]
    assert (other["status"]["phase"], away["status"]["phase"]) == ("Pending", "Pending")
    for name in ("f-away-0", "f-other-0"):
        await api.delete(name, grace=0)


async def test_graceful_deletion_lasts_until_the_containers_have_ended(api: Pods, pods: SimulatedRuntime) -> None:
    await api.create(pod_manifest(annotations=sim(stop_seconds="forever"), terminationGracePeriodSeconds=20))
    await api.until_phase("Running")
    await api.delete()
    pod = await api.get()
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 20
    assert api.running(pods) == ["f-r-0"]
    pods.finish(api.key())
    await api.until_gone()
    assert api.running(pods) == []
    assert not pods.knows(api.key())


async def test_a_pod_that_does_not_go_away_goes_by_force(api: Pods, pods: SimulatedRuntime) -> None:
    await api.create(pod_manifest(annotations=sim(stop_seconds="forever"), terminationGracePeriodSeconds=1))
    await api.until_phase("Running")
    await api.delete()
    await asyncio.sleep(2)
    assert (await api.get())["metadata"]["deletionTimestamp"]
    await api.delete(grace=0)
    await api.until_gone()
    await until(lambda: not pods.knows(api.key()))
    await api.create(pod_manifest())
    await api.until_phase("Running")


async def test_a_finalizer_keeps_the_pod_but_not_its_containers(api: Pods, pods: SimulatedRuntime) -> None:
    manifest = pod_manifest()
    manifest["metadata"]["finalizers"] = ["example.com/keep"]
    await api.create(manifest)
    await api.until_phase("Running")
    await api.delete()
    await until(lambda: api.running(pods) == [])
    await api.until(lambda pod: pod["metadata"]["deletionGracePeriodSeconds"] == 0)
    await api.client.patch(PODS, "f-r-0", b'{"metadata":{"finalizers":null}}', api.namespace, content_type=MERGE_PATCH)
    await api.until_gone()


async def test_a_pod_fails_as_a_whole(api: Pods, pods: SimulatedRuntime) -> None:
    await api.create(pod_manifest(restartPolicy="Always"))
    await api.until_phase("Running")
    pods.fail_pod(api.key(), "Evicted", "The node was low on resource: memory.")
    status = (await api.until_phase("Failed"))["status"]
    assert (status["reason"], status["message"]) == ("Evicted", "The node was low on resource: memory.")
    await api.create(pod_manifest(name="f-r-1", activeDeadlineSeconds=1))
    status = (await api.until_phase("Failed", "f-r-1"))["status"]
    assert status["reason"] == "DeadlineExceeded"


async def test_restarts_are_counted(api: Pods, pods: SimulatedRuntime, cluster: Cluster) -> None:
    await api.create(pod_manifest(restartPolicy="OnFailure", annotations=sim(run_seconds="1", exit_code="1")))

    def in_back_off(pod: Json) -> bool:
        return bool(
            pod["status"].get("containerStatuses")
            and pod["status"]["containerStatuses"][0]["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"
        )

    container = (await api.until(in_back_off))["status"]["containerStatuses"][0]
    # A slow client sees a later one.
    assert container["restartCount"] == 1 or not cluster.embedded
    assert container["lastState"]["terminated"]["exitCode"] == 1
    assert (await api.get())["status"]["phase"] == "Running"


async def test_a_node_that_is_cut_off_and_comes_back(api: Pods, pods: SimulatedRuntime) -> None:
    for name in ("f-r-0", "f-r-1", "f-r-2"):
        await api.create(pod_manifest(name=name))
        await api.until_phase("Running", name)
    pods.set_phase(api.key("f-r-2"), "Unknown", "NodeLost", "no word from the node")
    await api.until_phase("Unknown", "f-r-2")
    pods.lose_node()
    pods.fail(api.key("f-r-0"), 5)
    await api.delete("f-r-1", grace=0)
    await api.delete("f-r-2")
    await api.create(pod_manifest(name="f-r-3"))
    await asyncio.sleep(1)
    assert (await api.get("f-r-0"))["status"]["phase"] == "Running"
    assert pods.knows(api.key("f-r-1"))
    assert (await api.get("f-r-2"))["metadata"]["deletionTimestamp"]
    assert "nodeName" not in (await api.get("f-r-3"))["spec"]
    pods.restore_node()
    assert terminated(await api.until_phase("Failed", "f-r-0"))["exitCode"] == 5
    await api.until_gone("f-r-2")
    await api.until_phase("Running", "f-r-3")
    assert api.running(pods) == ["f-r-3"]


@asynccontextmanager
async def node(cluster: Cluster, runtime: SimulatedRuntime) -> AsyncIterator[None]:
    agent = NodeAgent(await cluster.client(), runtime, nodes={"mortal": None}, schedule=False, wall=cluster.wall)
    running = asyncio.create_task(agent.run())
    await agent.wait_ready()
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_kubelet_starts_with_existing_pods(cluster: Cluster, api: Pods) -> None:
    names = ("f-runs-0", "f-ended-0", "f-deleted-0")
    async with node(cluster, SimulatedRuntime(wall=cluster.wall)):
        for name in names:
            annotations = sim(run_seconds="0") if name == "f-ended-0" else {}
            await api.create(pod_manifest(name=name, nodeName="mortal", annotations=annotations))
            await api.until_phase("Succeeded" if name == "f-ended-0" else "Running", name)
    address = (await api.get("f-runs-0"))["status"]["podIP"]
    await api.delete("f-deleted-0")
    await api.create(pod_manifest(name="f-new-0", nodeName="mortal"))
    adopting = SimulatedRuntime(wall=cluster.wall)
    async with node(cluster, adopting):
        await api.until_gone("f-deleted-0")
        await api.until_phase("Running", "f-new-0")
        assert api.running(adopting) == ["f-new-0", "f-runs-0"]
        pod = await api.get("f-runs-0")
        assert (pod["status"]["phase"], pod["status"]["podIP"]) == ("Running", address)
        assert (await api.get("f-ended-0"))["status"]["phase"] == "Succeeded"
    async with node(cluster, SimulatedRuntime(survives_restart=False, wall=cluster.wall)):
        pod = await api.until_phase("Failed", "f-runs-0")
        assert pod["status"]["reason"] == "NodeLost"
        assert "ended with the kubelet" in pod["status"]["message"]
        assert terminated(pod)["reason"] == "ContainerStatusUnknown"
        await api.delete("f-ended-0")
        await api.until_gone("f-ended-0")


async def test_a_pod_replaced_under_its_name_is_another(api: Pods, pods: SimulatedRuntime) -> None:
    first = await api.create(pod_manifest(annotations=sim(exit_code="9", run_seconds="1")))
    await api.until(lambda pod: pod["status"]["phase"] != "Pending")
    await api.delete(grace=0)
    second = await api.create(pod_manifest())
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    pod = await api.until_phase("Running")
    assert pod["metadata"]["uid"] == second["metadata"]["uid"]
    await asyncio.sleep(1.5)
    assert (await api.get())["status"]["phase"] == "Running"
