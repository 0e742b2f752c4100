"""Changes by users and other clients to a running Framework, and their outcome."""

from typing import Any

import orjson
import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.errors import AlreadyExists
from frameworkcontroller.kube.resources import PODS, RESOURCEQUOTAS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import read_until
from tests.support.exposure import Exposure
from tests.support.frameworks import Frameworks, Json, codes, condition, policy, role, states, tasks
from tests.support.objects import read
from tests.support.pods import pod_manifest


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime, controller: Controller) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


def completion(status: Json) -> Json:
    found: Json = status["attemptStatus"]["completionStatus"]
    return found


# --- executionType ----------------------------------------------------------------------------------------------


async def test_stop_ends_the_framework_against_all_policies(frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 2), retryPolicy={"fancyRetryPolicy": True, "maxRetryCount": -2})
    await frameworks.until_running("f", 2)
    await frameworks.set("f", executionType="Stop")
    status = await frameworks.until_state("f", "Completed")
    assert completion(status) == {
        "code": -210,
        "phrase": "StopFrameworkRequested",
        "type": {"name": "Failed", "attributes": ["Permanent"]},
        "diagnostics": "User has requested to stop the Framework",
    }
    assert codes(tasks(status)) == [-220, -220]
    assert condition(status, "Failed")["reason"] == "StopFrameworkRequested"
    await frameworks.assert_nothing_left("f")


async def test_a_deleted_framework_leaves_nothing_behind(frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 2))
    await frameworks.until_running("f", 2)
    await frameworks.delete("f")
    await frameworks.until_gone("f")


# --- retries ----------------------------------------------------------------------------------------------------


async def test_tasks_and_framework_are_retried_as_their_policies_say(frameworks: Frameworks) -> None:
    worker = role(
        "a",
        1,
        task={"retryPolicy": {"maxRetryCount": 2}},
        simulate={"run-seconds": 0.2, "exit-code": 3},
        frameworkAttemptCompletionPolicy=policy(1),
    )
    await frameworks.create("f", worker, retryPolicy={"maxRetryCount": 1})
    status = await frameworks.until_state("f", "Completed")
    assert status["attemptStatus"]["id"] == 1
    assert status["retryPolicyStatus"] == {
        "totalRetriedCount": 1,
        "accountableRetriedCount": 1,
        "retryDelaySec": None,
    }
    assert tasks(status)[0]["attemptStatus"]["id"] == 2
    assert completion(status)["phrase"] == "ContainerUnrecognizedFailed"
    assert completion(status)["code"] == 3
    assert completion(status)["trigger"] == {
        "message": "FailedTaskCount 1 has reached MinFailedTaskCount 1 in the TaskRole",
        "taskRoleName": "a",
        "taskIndex": 0,
    }
    await frameworks.assert_nothing_left("f")


# --- other clients ------------------------------------------------------------------------------------------------


async def test_a_pod_deleted_by_others_is_a_transient_failure(frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 2, task={"retryPolicy": {"fancyRetryPolicy": True}}))
    before = await frameworks.until_running("f", 2)
    await frameworks.delete_pod("f-a-0")
    after = await frameworks.until(
        "f", lambda status: states(status) == ["AttemptRunning"] * 2 and tasks(status)[0]["attemptStatus"]["id"] == 1
    )
    assert tasks(after)[0]["attemptStatus"]["podUID"] != tasks(before)[0]["attemptStatus"]["podUID"]
    assert tasks(after)[1]["attemptStatus"]["podUID"] == tasks(before)[1]["attemptStatus"]["podUID"]


async def test_a_conflicting_object_of_another_owner_is_not_touched(frameworks: Frameworks) -> None:
    other = pod_manifest(name="f-a-0", namespace=frameworks.namespace)
    made = orjson.loads(await frameworks.client.create(PODS, orjson.dumps(other), frameworks.namespace))
    await frameworks.create("f", role("a", 2))
    status = await frameworks.until("f", lambda status: condition(status, "Stalled").get("status") == "True")
    assert condition(status, "Stalled")["reason"] == "NamingConflict"
    assert "Pod f-a-0" in condition(status, "Stalled")["message"]
    await frameworks.until_running("f", 1)
    assert (await frameworks.pods())["f-a-0"]["metadata"]["uid"] == made["metadata"]["uid"]
    await frameworks.delete_pod("f-a-0", grace=0)
    status = await frameworks.until_running("f", 2)
    assert condition(status, "Stalled")["status"] == "False"


async def test_quota_is_waited_for(cluster: Cluster, frameworks: Frameworks) -> None:
    if cluster.name == "1.36":
        pytest.skip("this API server enforces no quota")
    await set_quota(cluster, frameworks, 1)
    await frameworks.create("f", role("a", 2))
    status = await frameworks.until("f", lambda status: condition(status, "Stalled").get("status") == "True")
    assert condition(status, "Stalled")["reason"] == "QuotaExceeded"
    assert (
        "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in condition(status, "Stalled")["message"]
    )
    await set_quota(cluster, frameworks, 2)
    status = await frameworks.until_running("f", 2)
    assert condition(status, "Stalled")["status"] == "False"


async def set_quota(cluster: Cluster, frameworks: Frameworks, number: int) -> None:
    """Allow this number of Pods in the namespace; in force when this returns."""
    client, namespace = frameworks.client, frameworks.namespace
    hard = {"pods": str(number)}
    body = orjson.dumps(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    )
    try:
        await client.create(RESOURCEQUOTAS, body, namespace)
    except AlreadyExists:
        await client.patch(RESOURCEQUOTAS, "q", body, namespace, content_type=MERGE_PATCH)
    if not cluster.embedded:
        # The work of the quota controller, which does not run here.
        status = orjson.dumps({"status": {"hard": hard, "used": {"pods": str(len(await frameworks.pods()))}}})
        await client.patch(RESOURCEQUOTAS, "q", status, namespace, content_type=MERGE_PATCH, subresource="status")
    await read_until(
        lambda: read(client, RESOURCEQUOTAS, "q", namespace), lambda quota: quota.get("status", {}).get("hard") == hard
    )


async def test_a_pod_that_does_not_go_is_force_deleted_when_that_is_allowed(frameworks: Frameworks) -> None:
    stuck: dict[str, Any] = {"stop-seconds": "forever"}
    await frameworks.create("f", role("a", 1, simulate=stuck, task={"podGracefulDeletionTimeoutSec": 2}))
    await frameworks.until_running("f", 1)
    await frameworks.delete_pod("f-a-0", grace=1)
    status = await frameworks.until_state("f", "Completed")
    assert codes(tasks(status)) == [-101]


async def test_a_pod_that_is_preempted(cluster: Cluster, frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 1))
    await frameworks.until_running("f", 1)
    await cluster.disrupt("f-a-0", "PreemptionByScheduler", "said why")
    await frameworks.delete_pod("f-a-0")
    status = await frameworks.until_state("f", "Completed")
    assert codes(tasks(status)) == [-1008]
    assert completion(tasks(status)[0])["phrase"] == "PodPreemptedByScheduler"


async def test_a_pod_whose_node_is_gone(cluster: Cluster, frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 1))
    await frameworks.until_running("f", 1)
    await cluster.disrupt("f-a-0", "DeletionByPodGC", "said why", phase="Failed")
    await frameworks.delete_pod("f-a-0", grace=0)
    status = await frameworks.until_state("f", "Completed")
    assert codes(tasks(status)) == [-1011]


async def test_a_pod_that_is_evicted(cluster: Cluster, frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 1))
    await frameworks.until_running("f", 1)
    await cluster.evict("f-a-0")
    status = await frameworks.until_state("f", "Completed")
    ended = completion(tasks(status)[0])
    if cluster.tells_disruptions:
        said = "Pod is being deleted by others: EvictionByEvictionAPI: Eviction API: evicting"
        assert (ended["code"], ended["diagnostics"]) == (-1010, said)
    else:
        assert ended["code"] == -101


async def test_a_completed_framework_is_deleted_when_its_retention_ends(
    cluster: Cluster, pods: SimulatedRuntime
) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    config = Config(framework_completed_retain_sec=3)
    exposure = Exposure(frameworks.client, cluster.namespace)
    async with exposure.following(), Controller(config, await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role("a", 1, simulate={"run-seconds": 0.1}))
        await frameworks.until_gone("f")
        await exposure.until_last("Completed")
