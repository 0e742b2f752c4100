"""The removal of finalizers by a person in place of the controller.

The history's finalizer keeps a Framework until nothing of it runs and the archive has all of it. Without a controller,
or without an archive that answers, it stays, and so does the Framework.

A Workload in Kueue's queues has one, because Kueue counts its quota until nothing runs with it. Only a controller with
Kueue enabled in its configuration removes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.workloads import IN_USE_FINALIZER
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, Forbidden, Invalid, NotFound, ObjectNotFound
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, WORKLOADS, Resource
from frameworkcontroller.views.apiobjects import pod_selector
from frameworkcontroller.views.texts import clean_line

_TRIES: Final = 10

_ENDINGS: Final = frozenset({names.FOREGROUND_FINALIZER, "orphan"})
"""Finalizers of Kubernetes: the Framework waits for its Pods, or the user wants them to stay."""


@dataclass(frozen=True, slots=True)
class _Object:
    """An object with a finalizer."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """Its namespace and name."""
        return f"{self.namespace}/{self.name}"


async def _remove_finalizer(
    client: KubeClient,
    resource: Resource,
    one: _Object,
    finalizer: str,
    before: Callable[[Mapping[str, Any]], Awaitable[bool]] | None = None,
) -> str:
    """Remove the finalizer. Return why that was not possible; "" if the object no longer has it.

    ``before``: takes the metadata, and returns whether it has changed the object. It changes it at most once.
    """
    for _ in range(_TRIES):
        try:
            metadata = orjson.loads(await client.get(resource, one.name, one.namespace, metadata_only=True))["metadata"]
            present = metadata.get("finalizers") or []
            if metadata["uid"] != one.uid or finalizer not in present:
                return ""
            if before is not None and await before(metadata):
                before = None
                continue
            change = {
                "uid": one.uid,
                "resourceVersion": metadata["resourceVersion"],
                "finalizers": [other for other in present if other != finalizer],
            }
            body = orjson.dumps({"metadata": change})
            await client.patch(resource, one.name, body, one.namespace, content_type=MERGE_PATCH, metadata_only=True)
        except ObjectNotFound:
            return ""
        except Conflict:
            continue
        except (Forbidden, Invalid, NotFound) as error:
            return clean_line(str(error))
        else:
            return ""
    return "other clients change it"


# --- the history's finalizer ---


@dataclass(frozen=True, slots=True)
class Held(_Object):
    """A Framework with the history's finalizer.

    Attributes:
        deleted: when its deletion was asked for, as in its metadata; "" if it was not.
        finalizers: all, in their order.
        attempt: the id of its current attempt; None without a status that can be read.
        tasks: the number of Tasks of that attempt.
    """

    deleted: str
    finalizers: tuple[str, ...]
    state: str
    attempt: int | None
    tasks: int

    @property
    def only_held_by_history(self) -> bool:
        """Whether it is being deleted, and only for its history still there.

        In foreground deletion this says that nothing of it runs.
        """
        return bool(self.deleted) and self.finalizers == (names.HISTORY_FINALIZER,)


def held(body: Mapping[str, Any]) -> Held | None:
    """Read a Framework; None if it does not have the history's finalizer."""
    metadata = body["metadata"]
    finalizers = tuple(metadata.get("finalizers") or ())
    if names.HISTORY_FINALIZER not in finalizers:
        return None
    status = None
    with suppress(StatusError):
        status = decode_status(body.get("status"))
    return Held(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        metadata.get("deletionTimestamp") or "",
        finalizers,
        "" if status is None else status.state.value,
        None if status is None else status.attempt.id,
        0 if status is None else sum(len(role.tasks) for role in status.attempt.roles),
    )


async def find_held(invocation: Invocation, *, all_namespaces: bool) -> list[Held]:
    """Return the Frameworks with the history's finalizer."""
    bodies = invocation.each(FRAMEWORKS, all_namespaces=all_namespaces)
    return [found async for body in bodies if (found := held(body)) is not None]


async def let_go(invocation: Invocation, one: Held) -> str:
    """Remove the history's finalizer. Return why that was not possible; "" if the Framework no longer has it.

    A Framework that is being deleted then stays until its Pods have ended, as the controller would have it.
    """
    client = invocation.client

    async def delete_in_foreground(metadata: Mapping[str, Any]) -> bool:
        if not metadata.get("deletionTimestamp") or _ENDINGS & {*metadata["finalizers"]}:
            return False
        # Without this, the Framework would go at once, and its Pods later.
        await client.delete(FRAMEWORKS, one.name, one.namespace, uid=one.uid, propagation="Foreground")
        return True

    return await _remove_finalizer(client, FRAMEWORKS, one, names.HISTORY_FINALIZER, delete_in_foreground)


# --- Workloads ---


@dataclass(frozen=True, slots=True)
class OwnedWorkload(_Object):
    """A Workload of a Framework that has the finalizer. ``framework_uid``: of its owner."""

    framework: str
    framework_uid: str


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
    await _remove_finalizer(invocation.client, WORKLOADS, workload, IN_USE_FINALIZER)


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
