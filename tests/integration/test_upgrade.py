"""A cluster of Microsoft's FrameworkController is taken over, handed back, and taken over again, while its Pods run."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.config.config import Config
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support import original
from tests.support.api import CRDS, Api, open_api, replace_spec
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, condition, role, states, tasks
from tests.support.kubectl import Kubectl
from tests.support.original import Running
from tests.support.realcluster import CRD

POD: Final = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
ROLE: Final = {"name": "a", "taskNumber": 3, "task": {"retryPolicy": {"maxRetryCount": 2}, "pod": {"spec": POD}}}
FAILED: Final[Json] = {
    "code": 7,
    "phrase": "ContainerUnrecognizedFailed",
    "type": {"name": "Failed", "attributes": []},
    "diagnostics": "Pod failed: PodPattern unmatched: {}",
    "pod": {"containers": [{"name": "main", "reason": "Error", "code": 7}]},
}


@pytest.fixture
async def api(cluster: Cluster, pods: SimulatedRuntime) -> AsyncIterator[Api]:
    """The API server, with a node, and the original's CRD; our CRD is restored in the end in any case."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(open_api(cluster.kubeconfig, cluster.namespace))
        path = f"{CRDS}/{names.CRD_NAME}"
        ours = (await api.get(path)).ok()["spec"]

        async def restore() -> None:
            await replace_spec(api, path, ours)

        stack.push_async_callback(restore)
        yield api


@asynccontextmanager
async def takeover(cluster: Cluster) -> AsyncIterator[Controller]:
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall) as controller:
        yield controller


async def objects(api: Api, kind: str) -> dict[str, Any]:
    """UIDs, and the other signs of recreation and deletion, of the namespace's objects."""
    items = (await api.get(api.path(kind), labelSelector=names.FRAMEWORK_NAME)).ok()["items"]
    return {
        item["metadata"]["name"]: (
            item["metadata"]["uid"],
            item["metadata"].get("deletionTimestamp"),
            item["metadata"]["ownerReferences"],
        )
        for item in items
    }


async def settled(api: Api, *wanted: str) -> dict[str, Json]:
    """The Frameworks, once a status of this controller takes the current spec of each into account."""

    async def probe() -> dict[str, Json]:
        found = {}
        for name in wanted:
            body = (await api.get(original.frameworks(api, name))).ok()
            status = body.get("status") or {}
            assert status.get("observedGeneration") == body["metadata"]["generation"], status
            found[name] = body
        return found

    return await eventually(probe)


def kept(after: Any, before: Any, where: str = "status") -> None:
    """Fail unless everything that the original wrote is still there as it was."""
    if isinstance(before, dict):
        for key, value in before.items():
            assert key in after, f"{where}.{key}"
            kept(after[key], value, f"{where}.{key}")
    elif isinstance(before, list):
        assert len(after) == len(before), where
        for index, (one, other) in enumerate(zip(after, before, strict=True)):
            kept(one, other, f"{where}[{index}]")
    else:
        assert after == before, where


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_running_frameworks_change_hands(
    cluster: Cluster, pods: SimulatedRuntime, api: Api, version: str
) -> None:
    if version == "v1beta1" and cluster.name != "1.20":
        pytest.skip("only old API servers have CRDs of v1beta1")
    await original.install_crd(api, version)
    runs = await Running.start(api, "runs", executionType="Start", taskRoles=[ROLE], unheardOf=1)
    await runs.task("a", 0, spec=POD)
    await runs.task("a", 1, attempt=1, spec=POD)
    runs.completed_task("a", 2, FAILED)
    ancient = await Running.start(api, "ancient", ancient=True, taskRoles=[{**ROLE, "taskNumber": 1}])
    await ancient.task("a", 0, spec=POD)
    large = await Running.start(api, "large", taskRoles=[{**ROLE, "taskNumber": 1}])
    await large.task("a", 0, spec=POD)
    before = {
        "runs": await runs.write(),
        "ancient": await ancient.write(),
        "large": await large.write(compressed=True),
    }
    made = {kind: await objects(api, kind) for kind in ("pods", "configmaps")}
    assert len(made["pods"]) == 4

    for _ in range(2):
        async with takeover(cluster):
            after = await settled(api, *before)
            for name, body in after.items():
                assert body["metadata"]["uid"] == before[name]["metadata"]["uid"]
                if name != "large":
                    kept(body["status"], before[name]["status"])
                assert body["status"]["state"] == "AttemptRunning"
                assert condition(body["status"], "Running")["status"] == "True"
            kept(after["large"]["status"]["attemptStatus"]["taskRoleStatuses"], large.roles)
            counts = {"total": 3, "running": 2, "succeeded": 0, "failed": 1, "stopped": 0}
            assert after["runs"]["status"]["taskCounts"] == counts
        assert {kind: await objects(api, kind) for kind in made} == made
        crd = (await api.get(f"{CRDS}/{names.CRD_NAME}")).ok()["spec"]
        assert crd["versions"][0]["subresources"] == {"status": {}}
        assert not crd.get("preserveUnknownFields")

        # Back: the original replaces the CRD when it starts, and continues from the stored status.
        await original.install_crd(api, version)
        for name, stored in after.items():
            body = (await api.get(original.frameworks(api, name))).ok()
            assert body["status"] == stored["status"]
            original.read(body)
            # It knows nothing of our fields, so they go with its first write.
            status = {key: value for key, value in body["status"].items() if key in before[name]["status"]}
            await original.write_status(api, name, status)
        assert {kind: await objects(api, kind) for kind in made} == made

    async with takeover(cluster):
        await settled(api, *before)
        frameworks = Frameworks(await cluster.client(), cluster.namespace)
        # From here on they are Frameworks like all others.
        pods.fail(f"{cluster.namespace}/runs-a-1")
        status = await frameworks.until("runs", lambda status: tasks(status)[1]["attemptStatus"]["id"] == 2)
        assert tasks(status)[1]["retryPolicyStatus"]["accountableRetriedCount"] == 2
        await frameworks.until("runs", lambda status: states(status)[1] == "AttemptRunning")
        for pod in ("runs-a-0", "runs-a-1", "ancient-a-0", "large-a-0"):
            pods.finish(f"{cluster.namespace}/{pod}")
        for name in before:
            status = await frameworks.until_state(name, "Completed")
            assert condition(status, "Succeeded")["status"] == "True"
            await frameworks.assert_nothing_left(name)


async def test_a_framework_that_is_held_back_does_not_start_under_the_original(
    cluster: Cluster, frameworks: Frameworks, api: Api
) -> None:
    async with takeover(cluster):
        await frameworks.create("f", role())
        await frameworks.until_running("f", 1)
        await frameworks.set("f", suspend=True)
        await frameworks.until("f", lambda status: condition(status, "Suspended").get("status") == "True")
        assert await frameworks.pods() == {}
        assert original.starts(await frameworks.get("f"))
        await frameworks.set("f", executionType="Create")
    await original.install_crd(api)
    body = await frameworks.get("f")
    original.read(body)
    assert not original.starts(body)
    async with takeover(cluster):
        await settled(api, "f")
        await frameworks.set("f", suspend=False)
        await frameworks.set("f", executionType="Start")
        await frameworks.until_running("f", 1)


async def test_frameworks_that_are_not_running_change_hands(cluster: Cluster, pods: SimulatedRuntime, api: Api) -> None:
    await original.install_crd(api)
    only = {"name": "a", "task": {"pod": {"spec": POD}}}
    (await api.post(original.frameworks(api), original.framework("waits", taskRoles=[only]))).ok()
    # One that was created, and whose UID the original had no time to write.
    started = await Running.start(api, "started", taskRoles=[only])
    await started.task("a", 0, spec=POD, recorded=False)
    await started.write()
    # One whose attempt had ended, to be retried in an hour; one that had ended permanently.
    over = await Running.start(api, "over", retryPolicy={"fancyRetryPolicy": True}, taskRoles=[only])
    done = await Running.start(api, "done", taskRoles=[only])
    completion = {**FAILED, "code": 201, "type": {"name": "Failed", "attributes": ["Transient", "Conflict"]}}
    del completion["pod"]
    statuses = {}
    for one in (over, done):
        one.completed_task("a", 0, completion)
        status = (await one.write())["status"]
        await api.delete(api.path("configmaps", f"{one.name}-attempt"), {"propagationPolicy": "Foreground"})
        now = format_time(int(cluster.wall()))
        is_done = one is done
        status |= {"state": "Completed" if is_done else "AttemptCompleted", "transitionTime": now}
        status["completionTime"] = now if is_done else None
        status["attemptStatus"] |= {"completionTime": now, "completionStatus": completion}
        status["retryPolicyStatus"]["retryDelaySec"] = None if is_done else 3600
        statuses[one.name] = (await original.write_status(api, one.name, status))["status"]
    made = await objects(api, "pods")

    async with takeover(cluster):
        frameworks = Frameworks(await cluster.client(), cluster.namespace)
        await frameworks.until_running("waits", 1)
        status = await frameworks.until_running("started", 1)
        assert tasks(status)[0]["attemptStatus"]["podUID"] == made["started-a-0"][0]
        after = await settled(api, "over", "done")
        for name, before in statuses.items():
            kept(after[name]["status"], before)
        assert condition(after["done"]["status"], "Failed")["reason"] == FAILED["phrase"]
        assert (await objects(api, "pods"))["started-a-0"] == made["started-a-0"]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_the_crd_can_be_applied_over_the_originals(
    cluster: Cluster, api: Api, kubectl: Kubectl, version: str
) -> None:
    if version == "v1beta1" and cluster.name != "1.20":
        pytest.skip("only old API servers have CRDs of v1beta1")
    await original.install_crd(api, version)
    # An API server older than CEL does not tell kubectl of the rule, and kubectl then calls it an unknown field.
    options = ["--validate=false"] if cluster.name == "1.20" else []
    await kubectl.ok("apply", *options, "-f", str(CRD))
    crd = (await api.get(f"{CRDS}/{names.CRD_NAME}")).ok()
    async with takeover(cluster):
        again = (await api.get(f"{CRDS}/{names.CRD_NAME}")).ok()
        assert again["spec"] == crd["spec"]


async def test_a_status_that_is_sent_with_the_object_counts_no_more(cluster: Cluster, api: Api) -> None:
    """A client notices two changes: status and spec are written apart, and generation counts specs only."""
    await original.install_crd(api)
    stored = (await api.post(original.frameworks(api), {**original.framework("f"), "status": {"state": "x"}})).ok()
    assert stored["status"] == {"state": "x"}
    await api.delete(original.frameworks(api, "f"))
    async with takeover(cluster):

        async def apart() -> Json:
            body = {**original.framework("f", executionType="Create"), "status": {"state": "x"}}
            made: Json = (await api.post(original.frameworks(api), body)).ok()
            if "status" in made:
                await api.delete(original.frameworks(api, "f"))
            assert "status" not in made
            return made

        await eventually(apart)
        body = (await settled(api, "f"))["f"]
        again = (await api.put(original.frameworks(api, "f"), {**body, "status": {"state": "Completed"}})).ok()
        assert again["status"]["state"] == "AttemptCreationPending"
        assert again["metadata"]["generation"] == 1
