"""What a controller does about objects that no status records, on API servers."""

import orjson
import pytest

from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.api import open_api
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
