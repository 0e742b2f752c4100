"""The properties of clusters that every test relies on."""

from functools import partial

import orjson
import pytest

from frameworkcontroller.kube.errors import Forbidden
from frameworkcontroller.kube.resources import CRDS, NAMESPACES, PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.objects import read
from tests.support.pods import pod_manifest


async def test_the_namespace_and_the_crd_are_there(cluster: Cluster) -> None:
    client = await cluster.client()
    namespace = await read(client, NAMESPACES, cluster.namespace)
    assert namespace["status"]["phase"] == "Active"
    crd = await read(client, CRDS, "frameworks.frameworkcontroller.microsoft.com")
    conditions = {one["type"]: one["status"] for one in crd["status"]["conditions"]}
    assert conditions["Established"] == "True"


async def test_pods_run_on_the_simulated_node(cluster: Cluster, pods: SimulatedRuntime) -> None:
    client = await cluster.client()
    await client.create(PODS, orjson.dumps(pod_manifest(namespace=cluster.namespace)), cluster.namespace)

    async def phase_is(phase: str) -> None:
        pod = await read(client, PODS, "f-r-0", cluster.namespace)
        assert pod["status"]["phase"] == phase

    await eventually(partial(phase_is, "Running"))
    pods.fail(f"{cluster.namespace}/f-r-0", 3)
    await eventually(partial(phase_is, "Failed"))


async def test_real_clusters_distinguish_users(cluster: Cluster) -> None:
    if cluster.kubeconfig_of is None:
        pytest.skip("the embedded cluster lets everybody do everything")
    stranger = await cluster.client("stranger")
    with pytest.raises(Forbidden):
        await stranger.list(PODS, cluster.namespace)
