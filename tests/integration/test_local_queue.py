"""The local queue on API servers, with Workloads that the test owns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, Invalid, NotFound
from frameworkcontroller.kube.resources import CRDS, RESOURCEFLAVORS, WORKLOADPRIORITYCLASSES, WORKLOADS
from frameworkcontroller.local.queues import setup
from frameworkcontroller.local.queues.kueue_crds import CLUSTERQUEUES, LOCALQUEUES, definitions
from frameworkcontroller.local.queues.setup import CLUSTER_QUEUE, FLAVOR, LOCAL_QUEUE, PRIORITIES, provide_queue
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frontdoor import FrontDoor, Request
from tests.support.kubectl import Kubectl
from tests.support.localqueue import Json, Workloads, objects_of_queue, queue_on, working_queue
from tests.support.objects import items, read
from tests.support.othercontrollers import crd_of

pytestmark = pytest.mark.newest

SHORT = (
    "couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor default-flavor, "
    "{} more needed"
)


@pytest.fixture
async def workloads(cluster: Cluster) -> Workloads:
    return Workloads(await cluster.client(), cluster.namespace)


@pytest.mark.virtual_clock
async def test_a_preempted_workload_comes_back(cluster: Cluster, workloads: Workloads) -> None:
    async with queue_on(cluster, {"cpu": "8"}):
        await workloads.create("low", 2, 4)
        await workloads.until("low", "Admitted", "True")
        assert (await workloads.get("low"))["status"]["admission"] == {
            "clusterQueue": CLUSTER_QUEUE,
            "podSetAssignments": [
                {"name": "worker", "count": 4, "flavors": {"cpu": FLAVOR}, "resourceUsage": {"cpu": "8"}}
            ],
        }
        await workloads.create("equal", 3)
        await workloads.until("equal", "QuotaReserved", "False", SHORT.format(3))

        await workloads.create("high", 5, priority=1)
        evicted = await workloads.until("low", "Evicted", "True")
        assert evicted["reason"] == "Preempted"
        assert evicted["message"].startswith(f"Preempted for workload {cluster.namespace}/high (UID: ")
        text = SHORT.format(5) + ". Pending the preemption of 1 workload(s)"
        await workloads.until("high", "QuotaReserved", "False", text)
        assert await workloads.admitted() == {"low"}

        await workloads.let_go("low")
        await workloads.until("high", "Admitted", "True")
        await workloads.until("equal", "Admitted", "True")
        await workloads.until("low", "QuotaReserved", "False", SHORT.format(8))

        await workloads.finish("high")
        await workloads.finish("equal")
        await workloads.until("low", "Admitted", "True")
        after = await workloads.conditions("low")
        assert {kind: after[kind]["status"] for kind in ("QuotaReserved", "Evicted", "Preempted")} == {
            "QuotaReserved": "True",
            "Evicted": "False",
            "Preempted": "False",
        }
        assert after["Evicted"]["message"] == f"Previously: {evicted['message']}"


@pytest.fixture
async def schemas_of_kueue(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Kueue's own CustomResourceDefinitions in place of the local queue's, where there are any."""
    theirs = [crd_of(_instance(definition)) or definition for definition in definitions()]
    if theirs == definitions():
        pytest.skip("no CustomResourceDefinitions of Kueue in ../shared/crds or OTHER_CRDS")
    monkeypatch.setattr(setup, "definitions", lambda: theirs)
    client = await cluster.client()

    async def are_gone() -> None:
        names = {item["metadata"]["name"] for item in await items(client, CRDS)}
        left = names & {crd["metadata"]["name"] for crd in theirs}
        for name in left:
            with suppress(NotFound):
                await client.delete(CRDS, name)
        assert not left

    await eventually(are_gone)
    yield
    await eventually(are_gone)


def _instance(definition: Json) -> Json:
    spec = definition["spec"]
    return {"apiVersion": f"{spec['group']}/{spec['versions'][0]['name']}", "kind": spec["names"]["kind"]}


@pytest.mark.usefixtures("schemas_of_kueue")
async def test_the_objects_of_the_queue_are_valid_by_kueues_schemas(cluster: Cluster, workloads: Workloads) -> None:
    async with queue_on(cluster, {"cpu": "8", "memory": "1Gi"}):
        await workloads.create("low", 2, 4)
        await workloads.until("low", "Admitted", "True")
        await workloads.create("high", 5, priority=1)
        await workloads.until("low", "Preempted", "True")
        await workloads.let_go("low")
        await workloads.until("high", "Admitted", "True")
        await workloads.until("low", "QuotaReserved", "False", "5 more needed")
        await workloads.finish("high")
        await workloads.until("low", "Admitted", "True")


@pytest.mark.virtual_clock
async def test_the_status_of_queues(cluster: Cluster, workloads: Workloads) -> None:
    client = workloads.client
    async with queue_on(cluster, {"cpu": "4"}):
        await workloads.create("a", 3)
        await workloads.create("b", 3)

        async def counted() -> None:
            for resource, name, namespace in (
                (LOCALQUEUES, LOCAL_QUEUE, cluster.namespace),
                (CLUSTERQUEUES, CLUSTER_QUEUE, None),
            ):
                status = (await read(client, resource, name, namespace)).get("status") or {}
                assert (status.get("pendingWorkloads"), status.get("admittedWorkloads")) == (1, 1), status
                assert status["flavorsUsage"] == [{"name": FLAVOR, "resources": [{"name": "cpu", "total": "3"}]}]
                assert status["conditions"][0]["reason"] == "Ready"

        await eventually(counted)


@pytest.mark.virtual_clock
async def test_a_queue_is_stopped_drained_and_opened(cluster: Cluster, workloads: Workloads) -> None:
    async def set_policy(value: str) -> None:
        body = orjson.dumps({"spec": {"stopPolicy": value}})
        await workloads.client.patch(CLUSTERQUEUES, CLUSTER_QUEUE, body, content_type=MERGE_PATCH)

    async with queue_on(cluster, {"cpu": "4"}):
        await workloads.create("a", 2)
        await workloads.until("a", "Admitted", "True")
        await set_policy("HoldAndDrain")
        assert (await workloads.until("a", "Evicted", "True"))["reason"] == "ClusterQueueStopped"
        await workloads.let_go("a")
        await workloads.create("b", 2)
        text = f"ClusterQueue {CLUSTER_QUEUE} is inactive: it is stopped"
        await workloads.until("b", "QuotaReserved", "False", text)
        await set_policy("None")
        await workloads.until("a", "Admitted", "True")
        await workloads.until("b", "Admitted", "True")


@pytest.mark.virtual_clock
async def test_quota_can_grow(cluster: Cluster, workloads: Workloads) -> None:
    async with queue_on(cluster, {"cpu": "4"}):
        await workloads.create("a", 6)
        text = "request > maximum capacity (6 > 4)"
        await workloads.until("a", "QuotaReserved", "False", text)
        await provide_queue(workloads.client, {"cpu": "6"}, namespace=cluster.namespace)
        await workloads.until("a", "Admitted", "True")


class Forgetful(FrontDoor):
    """Executes every write of a Workload, and answers every other one with an error, as a gateway may."""

    _count = 0

    async def respond(self, request: Request, incoming: web.BaseRequest, body: bytes) -> web.StreamResponse:
        response = await super().respond(request, incoming, body)
        if request.verb == "patch" and request.plural == WORKLOADS.plural:
            self._count += 1
            if self._count % 2:
                return web.Response(status=504, text="the answer is lost")
        return response


@pytest.fixture
async def forgetful(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with Forgetful(await cluster.connection()) as door:
        client = KubeClient(door.connection)
        try:
            yield client
        finally:
            await client.close()


@pytest.mark.virtual_clock
async def test_quota_is_given_once_though_answers_are_lost_and_the_queue_restarts(
    cluster: Cluster, workloads: Workloads, forgetful: KubeClient
) -> None:
    """The owner releases at once, and finishes admitted Workloads: in the end every Workload has run."""
    left = {f"w{number}" for number in range(12)}
    async with objects_of_queue(cluster, {"cpu": "8"}):
        for number, name in enumerate(sorted(left)):
            await workloads.create(name, 3, priority=number % 3)
        while left:
            async with working_queue(cluster, forgetful):

                async def some_are_admitted() -> set[str]:
                    found = await workloads.admitted()
                    assert len(found) <= 2, found
                    assert found
                    return found

                for _ in range(2):
                    found = await eventually(some_are_admitted)
                    for name in found & left:
                        conditions = await workloads.conditions(name)
                        evicted = conditions.get("Evicted", {}).get("status") == "True"
                        try:
                            await (workloads.let_go if evicted else workloads.finish)(name)
                        except Conflict:
                            continue
                        if not evicted:
                            left.discard(name)
                    if not left:
                        break
                    await asyncio.sleep(0)
        assert await workloads.admitted() == set()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"queueingStrategy": "LIFO"}, "queueingStrategy"),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, "namespaceSelector"),
        ({"preemption": {"withinClusterQueue": "Any"}}, "withinClusterQueue"),
        (
            {
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [
                            {"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}]} for name in ("x", "y")
                        ],
                    }
                ]
            },
            "flavors",
        ),
    ],
)
async def test_unsupported_requests_are_refused(
    cluster: Cluster, workloads: Workloads, spec: dict[str, object], field: str
) -> None:
    async with queue_on(cluster, {"cpu": "4"}):
        body = orjson.dumps({"spec": spec})
        with pytest.raises(Invalid) as raised:
            await workloads.client.patch(CLUSTERQUEUES, CLUSTER_QUEUE, body, content_type=MERGE_PATCH)
        assert {cause["field"].rpartition(".")[2] for cause in raised.value.details["causes"]} == {field}


@pytest.mark.virtual_clock
async def test_classes_and_flavors_can_be_read(cluster: Cluster, workloads: Workloads) -> None:
    async with queue_on(cluster, {"cpu": "4"}):
        classes = await items(workloads.client, WORKLOADPRIORITYCLASSES)
        values = {item["metadata"]["name"]: item["value"] for item in classes}
        assert PRIORITIES.items() <= values.items()
        assert (await read(workloads.client, RESOURCEFLAVORS, FLAVOR))["metadata"]["name"] == FLAVOR


async def test_kubectl_shows_who_waits_and_who_has_quota(
    cluster: Cluster, workloads: Workloads, kubectl: Kubectl
) -> None:
    async with queue_on(cluster, {"cpu": "4"}):
        await workloads.create("a", 3)
        await workloads.until("a", "Admitted", "True")
        await workloads.create("b", 3)
        await workloads.until("b", "QuotaReserved", "False", SHORT.format(2))
        first, *rows = (await kubectl.ok("get", "workloads.kueue.x-k8s.io")).splitlines()
        assert first.split("  ")[0] == "NAME"
        assert "RESERVED IN" in first
        assert [row.split()[:4] for row in rows] == [
            ["a", LOCAL_QUEUE, CLUSTER_QUEUE, "True"],
            ["b", LOCAL_QUEUE, rows[1].split()[2], *rows[1].split()[3:4]],
        ]
        assert CLUSTER_QUEUE not in rows[1]
        assert SHORT.format(2) in await kubectl.ok("describe", "workloads.kueue.x-k8s.io", "b")
        explained = await kubectl.ok("explain", "clusterqueues.spec.preemption.withinClusterQueue")
        assert "LowerOrNewerEqualPriority" in explained
