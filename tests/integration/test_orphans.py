"""What a controller does about objects that no status records, on API servers."""

import orjson
import pytest

from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.api import config_map, open_api
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, role, states


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime, controller: Controller) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


async def test_an_orphaned_pod_on_a_lost_node_is_deleted_by_force_after_the_timeout_of_its_role(
    cluster: Cluster, frameworks: Frameworks, pods: SimulatedRuntime
) -> None:
    """As a creation makes it that was given up and arrives late, when its Task is completed."""
    ends = {"run-seconds": 0.1}
    await frameworks.create("f", role("a", 1, simulate=ends, task={"podGracefulDeletionTimeoutSec": 4}), role("b", 1))
    await frameworks.until("f", lambda status: states(status) == ["Completed", "AttemptRunning"])
    model = (await frameworks.pods())["f-b-0"]
    kept = {key: model["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
    spec = {"containers": [{"name": "main", "image": "none"}], "nodeName": model["spec"]["nodeName"]}
    pods.lose_node()
    orphan = {"metadata": {"name": "f-a-0", **kept}, "spec": spec}
    async with open_api(cluster.kubeconfig, cluster.namespace) as api, api.watch(api.path("pods")) as events:
        created = orjson.loads(await frameworks.client.create(PODS, orjson.dumps(orphan), frameworks.namespace))

        async def is_gone() -> None:
            assert [one["type"] for one in events.of("f-a-0")][-1:] == ["DELETED"]

        await eventually(is_gone)
    seen = [one["object"]["metadata"] for one in events.of("f-a-0")]
    assert {one["uid"] for one in seen} == {created["metadata"]["uid"]}
    # It was asked to end, and left the time that its role gives it. A forced deletion sets 0 at first.
    assert [one["deletionGracePeriodSeconds"] for one in seen if one.get("deletionGracePeriodSeconds")][-1] == 30
    status = await frameworks.status("f")
    assert states(status) == ["Completed", "AttemptRunning"]
    pods.restore_node()


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
async def test_owners_in_a_template_do_not_keep_pods(
    cluster: Cluster, frameworks: Frameworks, propagation: str
) -> None:
    """The garbage collector unties an object from an owner that goes, if another one stays."""
    client, namespace = frameworks.client, frameworks.namespace
    stays = orjson.loads(await client.create(CONFIGMAPS, orjson.dumps(config_map("stays")), namespace))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "stays", "uid": stays["metadata"]["uid"]}
    template = {"metadata": {"ownerReferences": [owner]}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    await frameworks.create("f", role("a", 1, task={"pod": template}))
    await frameworks.until_running("f", 1)
    await frameworks.delete("f", propagation)

    async def is_gone() -> None:
        assert await frameworks.pods() == {}

    await eventually(is_gone)


async def test_a_pod_that_loses_its_owner_ends_with_its_attempt(cluster: Cluster, frameworks: Frameworks) -> None:
    """Its ConfigMap is deleted, and leaves its Pods behind."""
    await frameworks.create("f", role("a", 2), retryPolicy={"maxRetryCount": 1})
    await frameworks.until_running("f", 2)
    before = {pod["metadata"]["uid"] for pod in (await frameworks.pods()).values()}
    await frameworks.client.delete(CONFIGMAPS, "f-attempt", frameworks.namespace, propagation="Orphan")
    await frameworks.until("f", lambda status: status["retryPolicyStatus"]["totalRetriedCount"] == 1)
    await frameworks.until_running("f", 2)
    assert not before & {pod["metadata"]["uid"] for pod in (await frameworks.pods()).values()}
