"""The local queue on clusters of tests, and Workloads that tests write themselves."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

from frameworkcontroller.api.names import PRIORITY_CLASS, QUEUE_NAME
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import WORKLOADS
from frameworkcontroller.local.queues.queue_controller import QueueController
from frameworkcontroller.local.queues.setup import LOCAL_QUEUE, install, provide_queue
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import role

Json = dict[str, Any]


def needing(cpu: object, number: int = 1, *, pod: Json | None = None, **options: Any) -> Json:
    """A role whose Pods request processors; ``pod``: further fields of their spec."""
    made = role("a", number, **options)
    spec = made["task"]["pod"]["spec"]
    spec["containers"][0]["resources"] = {"requests": {"cpu": str(cpu)}}
    spec |= pod or {}
    return made


def in_queue(priority: str = "") -> Json:
    """The metadata of a Framework in the queue."""
    labels = {QUEUE_NAME: LOCAL_QUEUE, **({PRIORITY_CLASS: priority} if priority else {})}
    return {"labels": labels}


@asynccontextmanager
async def queue_on(
    cluster: Cluster, quota: Mapping[str, str], *, client: KubeClient | None = None
) -> AsyncIterator[QueueController]:
    """A queue with this quota that works on the cluster, by ``client`` if given. Afterwards no Workload is left."""
    async with objects_of_queue(cluster, quota), working_queue(cluster, client or await cluster.client()) as queue:
        yield queue


@asynccontextmanager
async def objects_of_queue(cluster: Cluster, quota: Mapping[str, str]) -> AsyncIterator[None]:
    """The resources and objects of a queue, without its controller. Afterwards no Workload is left."""
    admin = await cluster.client()
    await install(admin)
    await provide_queue(admin, quota, namespace=cluster.namespace)
    try:
        yield
    finally:
        # Another test has a queue with the same ClusterQueue.
        for body in orjson.loads(await admin.list(WORKLOADS, cluster.namespace))["items"]:
            name = body["metadata"]["name"]
            with suppress(NotFound):
                await admin.delete(WORKLOADS, name, cluster.namespace)
                patch = orjson.dumps({"metadata": {"finalizers": None}})
                await admin.patch(WORKLOADS, name, patch, cluster.namespace, content_type=MERGE_PATCH)


@asynccontextmanager
async def working_queue(cluster: Cluster, client: KubeClient) -> AsyncIterator[QueueController]:
    """The controller of a queue alone, on a cluster that has its resources and objects."""
    queue = QueueController(client, wall=cluster.wall)
    work = asyncio.create_task(queue.run())
    try:
        await queue.wait_ready()
        yield queue
    finally:
        work.cancel()
        await asyncio.wait([work])


class Workloads:
    """The Workloads of a test, and their owner's actions."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def create(self, name: str, cpu: object, count: int = 1, *, priority: int = 0, **spec: Any) -> None:
        """Create one with a set of ``count`` Pods that request ``cpu`` processors each."""
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        pod_set = {"name": "worker", "count": count, "template": {"spec": {"containers": [container]}}}
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": {"name": name},
            "spec": {"queueName": LOCAL_QUEUE, "priority": priority, "podSets": [pod_set], **spec},
        }
        await self.client.create(WORKLOADS, orjson.dumps(body), self.namespace)

    async def get(self, name: str) -> Json:
        """The object."""
        body: Json = orjson.loads(await self.client.get(WORKLOADS, name, self.namespace))
        return body

    async def conditions(self, name: str) -> dict[str, Json]:
        """Its conditions by type."""
        return {one["type"]: one for one in ((await self.get(name)).get("status") or {}).get("conditions") or ()}

    async def until(self, name: str, kind: str, status: str, message: str = "") -> Json:
        """Wait until the condition of that type has that status, and this in its message; the condition then."""

        async def probe() -> Json:
            found = (await self.conditions(name)).get(kind) or {}
            assert found.get("status") == status, (name, kind, found)
            assert message in found["message"], (name, kind, found)
            return found

        return await eventually(probe)

    async def admitted(self) -> set[str]:
        """The names of Workloads that hold quota and have not finished."""
        items = orjson.loads(await self.client.list(WORKLOADS, self.namespace))["items"]
        return {item["metadata"]["name"] for item in items if holds_quota(item)}

    async def let_go(self, name: str) -> None:
        """Give the quota back, as the owner of an evicted Workload does once its Pods have ended."""
        await self._set_conditions(name, {"QuotaReserved": "False", "Admitted": "False"}, {"admission": None})

    async def finish(self, name: str) -> None:
        """Say that the work is done."""
        await self._set_conditions(name, {"Finished": "True"}, {})

    async def _set_conditions(self, name: str, states: Mapping[str, str], more: Json) -> None:
        body = await self.get(name)
        conditions = {one["type"]: one for one in body["status"]["conditions"]}
        since = body["metadata"]["creationTimestamp"]
        for kind, status in states.items():
            changed = {
                "type": kind,
                "status": status,
                "reason": "ByTheTest",
                "message": "for a test",
                "lastTransitionTime": since,
            }
            conditions[kind] = changed
        patch = {
            "metadata": {"resourceVersion": body["metadata"]["resourceVersion"]},
            "status": {"conditions": list(conditions.values()), **more},
        }
        await self.client.patch(
            WORKLOADS, name, orjson.dumps(patch), self.namespace, content_type=MERGE_PATCH, subresource="status"
        )


def holds_quota(workload: Json) -> bool:
    """Whether the Workload has quota that no other one may have."""
    status = workload.get("status") or {}
    finished = any(one["type"] == "Finished" and one["status"] == "True" for one in status.get("conditions") or ())
    return bool(status.get("admission")) and not finished
