"""Prepares a cluster for the queue: its resources, and a queue with a quota."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.crd import ensure_crd
from frameworkcontroller.kube.errors import AlreadyExists, NotFound, ObjectNotFound
from frameworkcontroller.kube.resources import RESOURCEFLAVORS, WORKLOADPRIORITYCLASSES, Resource
from frameworkcontroller.local.queues.kueue_crds import CLUSTERQUEUES, LOCALQUEUES, definitions

LOCAL_QUEUE: Final = "team-a"
"""Not "default": Kueue puts every Job and Pod of a namespace into a LocalQueue of that name."""
CLUSTER_QUEUE: Final = "cluster-queue"
FLAVOR: Final = "default-flavor"
PRIORITIES: Final = {"low": -1000, "normal": 0, "high": 1000}
"""Names and values of the WorkloadPriorityClasses. A workload without one has priority 0."""

_SERVED_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.1


async def install(client: KubeClient) -> None:
    """Create the CustomResourceDefinitions, and wait until they are served."""
    async with asyncio.TaskGroup() as group:
        for definition in definitions():
            group.create_task(ensure_crd(client, definition))


async def provide_queue(client: KubeClient, quota: Mapping[str, str], *, namespace: str = "default") -> None:
    """Create or update the objects of a queue with this quota, by resource, in ``namespace``."""
    for resource, place, body in _objects(quota, namespace):
        async with asyncio.timeout(_SERVED_SECONDS):
            await _provide(client, resource, place, body)


def _objects(quota: Mapping[str, str], namespace: str) -> Iterator[tuple[Resource, str | None, dict[str, Any]]]:
    yield RESOURCEFLAVORS, None, {"metadata": {"name": FLAVOR}}
    for name, value in PRIORITIES.items():
        yield WORKLOADPRIORITYCLASSES, None, {"metadata": {"name": name}, "value": value}
    flavor = {
        "name": FLAVOR,
        "resources": [{"name": name, "nominalQuota": amount} for name, amount in quota.items()],
    }
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": list(quota), "flavors": [flavor]}],
        "stopPolicy": "None",
    }
    yield CLUSTERQUEUES, None, {"metadata": {"name": CLUSTER_QUEUE}, "spec": spec}
    yield LOCALQUEUES, namespace, {"metadata": {"name": LOCAL_QUEUE}, "spec": {"clusterQueue": CLUSTER_QUEUE}}


async def _provide(client: KubeClient, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
    named = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    while True:
        try:
            await client.create(resource, orjson.dumps(named), namespace)
        except AlreadyExists:
            name = body["metadata"]["name"]
            await client.patch(resource, name, orjson.dumps(body), namespace, content_type=MERGE_PATCH)
        except NotFound as error:
            if isinstance(error, ObjectNotFound):
                raise
            # A real API server serves a resource a moment after it is established.
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        return
