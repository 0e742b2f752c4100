"""The removal of finalizers by a person in place of the controller, and the release of Workloads in Kueue's queues.

A Workload has a finalizer, because Kueue counts its quota until nothing runs with it. Only a controller with Kueue
enabled in its configuration removes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.workloads import IN_USE_FINALIZER
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, Forbidden, Invalid, NotFound, ObjectNotFound
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, WORKLOADS, Resource
from frameworkcontroller.views.apiobjects import pod_selector
from frameworkcontroller.views.texts import clean_line

_TRIES: Final = 10


async def remove_finalizer(
    client: KubeClient,
    resource: Resource,
    namespace: str,
    name: str,
    uid: str,
    finalizer: str,
    before: Callable[[Mapping[str, Any]], Awaitable[bool]] | None = None,
) -> str:
    """Remove the finalizer of the object with that UID. Return why that was not possible; "" if it no longer has it.

    ``before``: takes the metadata, and returns whether it has changed the object. It changes it at most once.
    """
    for _ in range(_TRIES):
        try:
            metadata = orjson.loads(await client.get(resource, name, namespace, metadata_only=True))["metadata"]
            present = metadata.get("finalizers") or []
            if metadata["uid"] != uid or finalizer not in present:
                return ""
            if before is not None and await before(metadata):
                before = None
                continue
            change = {
                "uid": uid,
                "resourceVersion": metadata["resourceVersion"],
                "finalizers": [one for one in present if one != finalizer],
            }
            body = orjson.dumps({"metadata": change})
            await client.patch(resource, name, body, namespace, content_type=MERGE_PATCH, metadata_only=True)
        except ObjectNotFound:
            return ""
        except Conflict:
            continue
        except (Forbidden, Invalid, NotFound) as error:
            return clean_line(str(error))
        else:
            return ""
    return "other clients change it"


@dataclass(frozen=True, slots=True)
class OwnedWorkload:
    """A Workload of a Framework that has the finalizer. ``framework_uid``: of its owner."""

    namespace: str
    name: str
    uid: str
    framework: str
    framework_uid: str

    @property
    def key(self) -> str:
        """Its namespace and name."""
        return f"{self.namespace}/{self.name}"


async def find_workloads(invocation: Invocation) -> list[OwnedWorkload]:
    """Return the Workloads of Frameworks in all namespaces; none where Kueue is not installed.

    Raises:
        Forbidden: the person may not read them.
    """
    try:
        # The first page tells whether there is such a resource: ``each`` would report that Frameworks are missing.
        await invocation.client.list(WORKLOADS, None, limit=1)
    except NotFound:
        return []
    bodies = invocation.each(WORKLOADS, all_namespaces=True, label_selector=names.FRAMEWORK_NAME, metadata_only=True)
    return [found async for body in bodies if (found := _workload(body["metadata"])) is not None]


def _workload(metadata: Mapping[str, Any]) -> OwnedWorkload | None:
    if IN_USE_FINALIZER in (metadata.get("finalizers") or ()):
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller") and (owner["apiVersion"], owner["kind"]) == (names.API_VERSION, names.KIND):
                namespace, name, uid = (metadata[field] for field in ("namespace", "name", "uid"))
                return OwnedWorkload(namespace, name, uid, owner["name"], owner["uid"])
    return None


async def release_unused(invocation: Invocation, workload: OwnedWorkload) -> None:
    """Delete the Workload and remove its finalizer, if nothing runs with its quota, nor is to run.

    The controller may do it first.
    """
    if await _may_begin(invocation, workload) or await _still_runs(invocation, workload):
        return
    with suppress(NotFound, Conflict):
        await invocation.client.delete(WORKLOADS, workload.name, workload.namespace, uid=workload.uid)
    await remove_finalizer(
        invocation.client, WORKLOADS, workload.namespace, workload.name, workload.uid, IN_USE_FINALIZER
    )


async def _may_begin(invocation: Invocation, workload: OwnedWorkload) -> bool:
    """Return whether the Workload's Framework exists and is not being deleted."""
    try:
        body = await invocation.client.get(FRAMEWORKS, workload.framework, workload.namespace, metadata_only=True)
    except ObjectNotFound:
        return False
    metadata = orjson.loads(body)["metadata"]
    return bool(metadata["uid"] == workload.framework_uid and not metadata.get("deletionTimestamp"))


async def _still_runs(invocation: Invocation, workload: OwnedWorkload) -> bool:
    """Return whether a ConfigMap or Pod of the Workload's Framework exists."""
    found = []
    with suppress(ObjectNotFound):
        name = names.configmap_name(workload.framework)
        answer = await invocation.client.get(CONFIGMAPS, name, workload.namespace, metadata_only=True)
        found.append(orjson.loads(answer))
    there = replace(invocation, namespace=workload.namespace)
    found += [
        pod async for pod in there.each(PODS, label_selector=pod_selector(workload.framework), metadata_only=True)
    ]
    uids = [(body["metadata"].get("annotations") or {}).get(names.FRAMEWORK_UID) for body in found]
    return workload.framework_uid in uids
