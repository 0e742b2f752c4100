"""Changes by users and other clients to a running Framework, and their outcome."""

import orjson
import pytest

from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.errors import AlreadyExists
from frameworkcontroller.kube.resources import RESOURCEQUOTAS
from tests.support.clusters import Cluster
from tests.support.eventually import read_until
from tests.support.frameworks import Frameworks, Json, codes, condition, role, states, tasks
from tests.support.objects import read

pytestmark = pytest.mark.usefixtures("controller")


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


@pytest.mark.parametrize(
    ("reason", "grace", "code"), [("PreemptionByScheduler", None, -1008), ("DeletionByPodGC", 0, -1011), ("", 1, -101)]
)
async def test_a_disruption_has_its_code(
    cluster: Cluster, frameworks: Frameworks, reason: str, grace: int | None, code: int
) -> None:
    """Without one, the Pod does not go by itself: it is deleted by force when its timeout is over."""
    stuck = {} if reason else {"stop-seconds": "forever"}
    await frameworks.create("f", role("a", 1, simulate=stuck, task={"podGracefulDeletionTimeoutSec": 2}))
    await frameworks.until_running("f", 1)
    if reason:
        await cluster.disrupt("f-a-0", reason, "said why", **({"phase": "Failed"} if grace == 0 else {}))
    await frameworks.delete_pod("f-a-0", grace=grace)
    assert codes(tasks(await frameworks.until_state("f", "Completed"))) == [code]


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
