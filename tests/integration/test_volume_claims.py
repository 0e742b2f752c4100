"""Volume claims on API servers: their life with Tasks, Frameworks and controllers, and claims of other owners."""

from typing import Any

import orjson
import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.resources import PERSISTENTVOLUMECLAIMS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.claims import claim_spec, claims_in, until_claims_are
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, condition, role, stalled
from tests.support.frontdoor import FrontDoor, Request, refusal

CLAIMS = PERSISTENTVOLUMECLAIMS


def claiming(number: int = 1, *, deleted: str = "Retain", scaled: str = "Retain", **fields: Any) -> Json:
    """A role whose Tasks have a claim each."""
    template = {"metadata": {"name": "data", "labels": {"pod": "{{FC_POD_NAME}}"}}, "spec": claim_spec()}
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    made = {**role(number=number, **fields), "volumeClaimTemplates": [template]}
    return {**made, "persistentVolumeClaimRetentionPolicy": policy}


def owners(claim: Json) -> list[str]:
    """The UIDs of the owners of the claim."""
    return [one["uid"] for one in claim["metadata"].get("ownerReferences", ())]


async def test_a_claim_precedes_the_pod_and_outlives_attempts(
    frameworks: Frameworks, pods: SimulatedRuntime, watched: Controller, door: FrontDoor
) -> None:
    failing = claiming(1, simulate={"run-seconds": "forever, 0", "exit-code": "1"})
    failing["task"]["retryPolicy"] = {"maxRetryCount": 1}
    failing["frameworkAttemptCompletionPolicy"] = {"minFailedTaskCount": 1}
    failing["task"]["pod"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    made = await frameworks.create("f", failing, retryPolicy={"maxRetryCount": 1})
    await frameworks.until_running("f", 1)
    (claim,) = (await claims_in(frameworks)).values()
    assert claim["metadata"]["name"] == "data-f-a-0"
    assert claim["metadata"]["labels"] == {
        "pod": "f-a-0", "FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "a", "FC_TASK_INDEX": "0",
    }  # fmt: skip
    assert claim["metadata"]["annotations"]["FC_FRAMEWORK_UID"] == made["metadata"]["uid"]
    assert owners(claim) == []
    volumes = (await frameworks.pods())["f-a-0"]["spec"]["volumes"]
    assert volumes[0] == {"name": "data", "persistentVolumeClaim": {"claimName": "data-f-a-0"}}
    assert [one["name"] for one in volumes if not one["name"].startswith("kube-api-access")] == ["data", "tmp"]
    pods.fail(f"{frameworks.namespace}/f-a-0")
    await frameworks.until("f", lambda status: status["attemptStatus"]["id"] == 1)
    await frameworks.until_running("f", 1)
    pods.fail(f"{frameworks.namespace}/f-a-0")
    await frameworks.until_state("f", "Completed")
    wanted = ("persistentvolumeclaims", "configmaps", "pods")
    assert [one.resource for one in door.requests if one.verb == "create" and one.resource in wanted] == [
        "configmaps", "persistentvolumeclaims", "pods", "pods", "configmaps", "pods", "pods",
    ]  # fmt: skip
    assert [one["metadata"]["uid"] for one in (await claims_in(frameworks)).values()] == [claim["metadata"]["uid"]]
    await frameworks.delete("f")
    await frameworks.until_gone("f")
    await until_claims_are(frameworks, {"data-f-a-0"})


async def test_a_retained_claim_is_used_again_by_a_framework_of_the_same_name(
    frameworks: Frameworks, controller: Controller
) -> None:
    await frameworks.create("f", claiming(2))
    await frameworks.until_running("f", 2)
    before = await claims_in(frameworks)
    await frameworks.delete("f")
    await frameworks.until_gone("f")
    again = await frameworks.create("f", claiming(1, deleted="Delete"))
    await frameworks.until_running("f", 1)
    after = await claims_in(frameworks)
    uid = again["metadata"]["uid"]
    assert {name: one["metadata"]["uid"] for name, one in after.items()} == {
        name: one["metadata"]["uid"] for name, one in before.items()
    }
    assert after["data-f-a-0"]["metadata"]["annotations"]["FC_FRAMEWORK_UID"] == uid
    assert owners(after["data-f-a-0"]) == [uid]
    assert after["data-f-a-1"] == before["data-f-a-1"]
    await frameworks.delete("f")
    await frameworks.until_gone("f")
    await until_claims_are(frameworks, {"data-f-a-1"})


async def test_a_changed_policy_counts_for_claims_that_exist(frameworks: Frameworks, controller: Controller) -> None:
    made = await frameworks.create("f", claiming(1))
    await frameworks.until_running("f", 1)
    for policy, wanted in (({"whenDeleted": "Delete"}, [made["metadata"]["uid"]]), ({}, [])):
        await frameworks.set("f", taskRoles__0__persistentVolumeClaimRetentionPolicy=policy)

        async def has_owners(wanted: list[str] = wanted) -> None:
            assert owners((await claims_in(frameworks))["data-f-a-0"]) == wanted

        await eventually(has_owners)


@pytest.mark.parametrize("removed", [False, True], ids=["fewer Tasks", "no TaskRole"])
async def test_a_scale_down_deletes_claims_if_the_policy_says_so(
    cluster: Cluster, frameworks: Frameworks, controller: Controller, removed: bool
) -> None:
    kept = {**claiming(2), "name": "k"}
    await frameworks.create("f", kept, claiming(2, scaled="Delete"))
    await frameworks.until_running("f", 4)
    assert len(await claims_in(frameworks)) == 4
    if removed:
        await frameworks.set("f", taskRoles=[{**kept, "taskNumber": 1}])
    else:
        await frameworks.set("f", taskRoles__0__taskNumber=1, taskRoles__1__taskNumber=1)
    stays = {"data-f-k-0", "data-f-k-1"} | (set() if removed else {"data-f-a-0"})
    await until_claims_are(frameworks, stays)
    await frameworks.until_running("f", 1 if removed else 2)


@pytest.mark.parametrize("labels", [{}, {"FC_FRAMEWORK_NAME": "f"}], ids=["plain", "with our label"])
async def test_a_claim_of_another_owner_is_ignored(
    frameworks: Frameworks, controller: Controller, labels: dict[str, str]
) -> None:
    metadata = {"name": "data-f-a-0", "labels": labels}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim_spec()}
    other = orjson.loads(await frameworks.client.create(CLAIMS, orjson.dumps(body), frameworks.namespace))
    made = await frameworks.create("f", claiming(2))
    status = await frameworks.until("f", lambda status: stalled(status) == "NamingConflict")
    assert "PersistentVolumeClaim data-f-a-0" in condition(status, "Stalled")["message"]
    await frameworks.until_running("f", 1)
    assert [*await frameworks.pods()] == ["f-a-1"]
    found = (await claims_in(frameworks))["data-f-a-0"]
    for field in ("annotations", "labels", "ownerReferences"):  # the cluster binds it meanwhile
        assert found["metadata"].get(field) == other["metadata"].get(field)
    # Its owner gives it to the Task, as docs/write-a-framework.md says.
    marks = {
        "FC_FRAMEWORK_NAMESPACE": frameworks.namespace,
        "FC_FRAMEWORK_NAME": "f",
        "FC_TASKROLE_NAME": "a",
        "FC_TASK_INDEX": "0",
    }
    await frameworks.merge(CLAIMS, "data-f-a-0", {"metadata": {"annotations": marks}})
    status = await frameworks.until_running("f", 2)
    assert stalled(status) == ""
    found = (await claims_in(frameworks))["data-f-a-0"]
    assert found["metadata"]["uid"] == other["metadata"]["uid"]
    assert found["metadata"]["annotations"]["FC_FRAMEWORK_UID"] == made["metadata"]["uid"]


@pytest.mark.virtual_clock
@pytest.mark.parametrize("verb", ["list", "create"])
async def test_without_permissions_only_frameworks_with_claims_wait(
    cluster: Cluster, frameworks: Frameworks, door: FrontDoor, verb: str
) -> None:
    def forbid(request: Request) -> Any:
        if request.resource == "persistentvolumeclaims" and request.verb == verb:
            return refusal(403, "Forbidden", f'User "controller" cannot {verb} persistentvolumeclaims')
        return None

    async with Controller(Config(), door.connection, wall=cluster.wall) as controller:
        with door.answering(forbid):
            await frameworks.create("f", claiming())
            await frameworks.create("g", role())
            await frameworks.until_running("g", 1)
            status = await frameworks.until("f", lambda status: bool(stalled(status)))
            assert stalled(status) == ("VolumeClaimNotListed" if verb == "list" else "VolumeClaimNotAnswered")
            assert f"cannot {verb} persistentvolumeclaims" in condition(status, "Stalled")["message"]
            assert controller.ready
        status = await frameworks.until_running("f", 1)
        assert stalled(status) == ""
