"""Pods on nodes that are lost, or only slow, under podForceDeletionPolicy NodeUnreachable; on API servers."""

from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.resources import NODES
from frameworkcontroller.local.kubelet.agent import DEFAULT_NODE_NAME
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, role, tasks

pytestmark = pytest.mark.usefixtures("controller")

RETRIED: Json = {"fancyRetryPolicy": True, "maxRetryCount": 0}
FORCED: Json = {"podGracefulDeletionTimeoutSec": 2, "podForceDeletionPolicy": "NodeUnreachable", "retryPolicy": RETRIED}


async def taint(client: KubeClient, *keys: str) -> None:
    """As Kubernetes, or an administrator, does."""
    taints: Any = [{"key": key, "effect": "NoExecute"} for key in keys] or None
    body = orjson.dumps({"spec": {"taints": taints}})
    await client.patch(NODES, DEFAULT_NODE_NAME, body, content_type=MERGE_PATCH)


async def on_a_lost_node(frameworks: Frameworks, pods: SimulatedRuntime, *keys: str) -> Json:
    """The Task's Pod is being deleted, and its node, which has these taints, does not answer. Returns the Pod."""
    await frameworks.create("f", role("a", 1, task=FORCED))
    await frameworks.until_running("f", 1)
    # Read first: right after its deletion it may be gone already.
    pod = (await frameworks.pods())["f-a-0"]
    pods.lose_node()
    if keys:
        await taint(frameworks.client, *keys)
    await frameworks.delete_pod("f-a-0", grace=1)
    return pod


async def until_replaced(frameworks: Frameworks, before: Json, *, within: float = 60) -> Json:
    """Wait for the Pod of the Task's next attempt. Returns the status then."""

    async def replaced() -> Json:
        status = await frameworks.status("f")
        pod = (await frameworks.pods()).get("f-a-0")
        assert tasks(status)[0]["attemptStatus"]["id"] == 1
        assert pod is not None
        assert pod["metadata"]["uid"] != before["metadata"]["uid"]
        return status

    return await eventually(replaced, within=within, every=0.2)


@pytest.mark.parametrize("key", ["node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"])
async def test_a_pod_on_a_lost_node_is_force_deleted(frameworks: Frameworks, pods: SimulatedRuntime, key: str) -> None:
    try:
        before = await on_a_lost_node(frameworks, pods, key)
        status = await until_replaced(frameworks, before)
        assert status["attemptStatus"]["taskRoleStatuses"][0]["podForceDeletionPolicy"] == "NodeUnreachable"
    finally:
        await taint(frameworks.client)
        pods.restore_node()
    await frameworks.until_running("f", 1)


async def test_a_pod_on_a_removed_node_is_force_deleted(frameworks: Frameworks, pods: SimulatedRuntime) -> None:
    before = await on_a_lost_node(frameworks, pods)
    await frameworks.client.delete(NODES, DEFAULT_NODE_NAME)
    try:
        await until_replaced(frameworks, before)
    finally:
        pods.restore_node()
