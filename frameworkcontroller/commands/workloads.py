"""The Workloads that Frameworks have in Kueue's queues, and their release by a person in place of the controller.

The controller sets a finalizer on each, so that Kueue counts its quota until nothing of the Framework runs. Without a
controller that knows of queues, it stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.workloads import IN_USE_FINALIZER
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.errors import Conflict, NotFound, ObjectNotFound
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, WORKLOADS
from frameworkcontroller.views.apiobjects import pod_selector

_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Workload:
    """A Workload of a Framework. ``framework_uid``: of its owner. ``in_use``: whether it has the finalizer."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    framework: str
    framework_uid: str
    deleting: bool
    finalizers: tuple[str, ...]

    @property
    def in_use(self) -> bool:
        """Whether it has the finalizer."""
        return IN_USE_FINALIZER in self.finalizers

    @property
    def key(self) -> str:
        """Its namespace and name."""
        return f"{self.namespace}/{self.name}"


async def find_workloads(invocation: Invocation, *, all_namespaces: bool) -> list[Workload]:
    """Return the Workloads of Frameworks; none where Kueue is not installed.

    Raises:
        Forbidden: the person may not read them.
    """
    try:
        # The first page tells whether there is such a resource: ``each`` takes its absence for that of Frameworks.
        await invocation.client.list(WORKLOADS, None if all_namespaces else invocation.namespace, limit=1)
    except NotFound:
        return []
    return [
        found
        async for body in invocation.each(
            WORKLOADS, all_namespaces=all_namespaces, label_selector=names.FRAMEWORK_NAME, metadata_only=True
        )
        if (found := _workload(body)) is not None
    ]


def _workload(body: Mapping[str, Any]) -> Workload | None:
    metadata = body["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and (owner.get("apiVersion"), owner.get("kind")) == (names.API_VERSION, names.KIND):
            return Workload(
                metadata["namespace"],
                metadata["name"],
                metadata["uid"],
                metadata["resourceVersion"],
                owner["name"],
                owner["uid"],
                bool(metadata.get("deletionTimestamp")),
                tuple(metadata.get("finalizers") or ()),
            )
    return None


async def is_going(invocation: Invocation, workload: Workload) -> bool:
    """Return whether the Workload's Framework is being deleted, or gone, and so begins nothing."""
    try:
        body = await invocation.client.get(FRAMEWORKS, workload.framework, workload.namespace, metadata_only=True)
    except ObjectNotFound:
        return True
    metadata = orjson.loads(body)["metadata"]
    return metadata["uid"] != workload.framework_uid or bool(metadata.get("deletionTimestamp"))


async def still_runs(invocation: Invocation, workload: Workload) -> str:
    """Return what there still is of the attempt of the Workload's Framework; "" if nothing of it can run."""
    client, namespace = invocation.client, workload.namespace
    configmap = names.configmap_name(workload.framework)
    with suppress(ObjectNotFound):
        found = orjson.loads(await client.get(CONFIGMAPS, configmap, namespace, metadata_only=True))
        if _is_of(found, workload):
            return f"ConfigMap {configmap}"
    there = replace(invocation, namespace=namespace)
    async for pod in there.each(PODS, label_selector=pod_selector(workload.framework), metadata_only=True):
        if _is_of(pod, workload):
            return f"Pod {pod['metadata']['name']}"
    return ""


def _is_of(body: Mapping[str, Any], workload: Workload) -> bool:
    return (body["metadata"].get("annotations") or {}).get(names.FRAMEWORK_UID) == workload.framework_uid


async def release(invocation: Invocation, workload: Workload) -> bool:
    """Delete the Workload, of whose Framework nothing runs, and remove its finalizer. Return whether that is done.

    The controller may do it first. Other clients may change the Workload meanwhile.
    """
    client, name, namespace = invocation.client, workload.name, workload.namespace
    for _ in range(_TRIES):
        try:
            if not workload.deleting:
                await client.delete(WORKLOADS, name, namespace, uid=workload.uid)
            found = _workload(orjson.loads(await client.get(WORKLOADS, name, namespace, metadata_only=True)))
            if found is None or found.uid != workload.uid or not found.in_use:
                return True
            others = [one for one in found.finalizers if one != IN_USE_FINALIZER]
            change = {"uid": found.uid, "resourceVersion": found.resource_version, "finalizers": others}
            body = orjson.dumps({"metadata": change})
            await client.patch(WORKLOADS, name, body, namespace, content_type=MERGE_PATCH, metadata_only=True)
        except NotFound:
            return True
        except Conflict:
            continue
    return False
