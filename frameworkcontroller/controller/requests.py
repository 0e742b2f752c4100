"""Sends the requests of the machine, and translates the responses of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import orjson

from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import JSON_PATCH, MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    KubeError,
    NotFound,
    ObjectNotFound,
    ServerError,
    TooLarge,
    TooManyRequests,
)
from frameworkcontroller.kube.resources import (
    CONFIGMAPS,
    COSCHEDULING_PODGROUPS,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PODGROUPS,
    PODS,
    PRIORITYCLASSES,
    RESOURCEFLAVORS,
    SERVICES,
    VOLCANO_PODGROUPS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
    Resource,
)
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    MergePatch,
    PatchFinalizers,
    PatchStatus,
    Post,
    Refusal,
    Refused,
    Remove,
    Request,
    Unanswered,
)

RESOURCES: Final[Mapping[Kind, Resource]] = {
    Kind.POD: PODS,
    Kind.CONFIGMAP: CONFIGMAPS,
    Kind.FRAMEWORK: FRAMEWORKS,
    Kind.NODE: NODES,
    Kind.SERVICE: SERVICES,
    Kind.VOLUME_CLAIM: PERSISTENTVOLUMECLAIMS,
    Kind.WORKLOAD: WORKLOADS,
    Kind.RESOURCE_FLAVOR: RESOURCEFLAVORS,
    Kind.WORKLOAD_PRIORITY_CLASS: WORKLOADPRIORITYCLASSES,
    Kind.PRIORITY_CLASS: PRIORITYCLASSES,
    Kind.PODGROUP: PODGROUPS,
    Kind.VOLCANO_PODGROUP: VOLCANO_PODGROUPS,
    Kind.COSCHEDULING_PODGROUP: COSCHEDULING_PODGROUPS,
}
"""The resource of a kind. An API server may serve another version of it."""

_REFUSALS: Final[tuple[tuple[type[ApiError], Refusal], ...]] = (
    (AlreadyExists, Refusal.ALREADY_EXISTS),
    (Conflict, Refusal.CONFLICT),
    (ObjectNotFound, Refusal.OBJECT_NOT_FOUND),
    (NotFound, Refusal.NOT_FOUND),
    (Invalid, Refusal.INVALID),
    (TooLarge, Refusal.TOO_LARGE),
    (TooManyRequests, Refusal.TOO_MANY_REQUESTS),
    (ServerError, Refusal.SERVER_ERROR),
)
"""The first matching class decides."""


async def send(
    client: KubeClient, request: Request, namespace: str, flow: str, resources: Mapping[Kind, Resource] = RESOURCES
) -> Answer:
    """Send a request for a Framework. ``flow`` is its key. ``resources``: of the kinds, as they are served."""
    try:
        return Answered(await _send(client, request, namespace, flow, resources))
    except ApiError as error:
        kind = next((kind for cls, kind in _REFUSALS if isinstance(error, cls)), Refusal.OTHER)
        return Refused(
            error.code,
            error.message,
            orjson.dumps(error.status),
            error.retry_after or 0.0,
            error.reason,
            kind,
            error.is_of_api,
        )
    except KubeError as error:
        return Unanswered(str(error))


async def _send(
    client: KubeClient, request: Request, namespace: str, flow: str, resources: Mapping[Kind, Resource]
) -> bytes:
    match request:
        case Get(kind, name, whole):
            resource = resources[kind]
            return await client.get(
                resource,
                name,
                namespace if resource.namespaced else None,
                metadata_only=not whole and kind not in (Kind.FRAMEWORK, Kind.NODE),
                flow=flow,
            )
        case Post(kind, _, body, whole):
            return await client.create(resources[kind], body, namespace, metadata_only=not whole, flow=flow)
        case Remove(kind, name, uid, force, propagation, resource_version):
            return await client.delete(
                resources[kind],
                name,
                namespace,
                uid=uid,
                resource_version=resource_version or None,
                grace_period_seconds=0 if force else None,
                propagation=propagation,
                flow=flow,
            )
        case MergePatch(kind, name, body, subresource):
            return await client.patch(
                resources[kind],
                name,
                body,
                namespace,
                content_type=MERGE_PATCH,
                subresource=subresource or None,
                metadata_only=True,
                flow=flow,
            )
        case PatchFinalizers(kind, name, body=body):
            return await client.patch(
                resources[kind], name, body, namespace, content_type=JSON_PATCH, metadata_only=True, flow=flow
            )
        case PatchStatus(name, whole=whole):
            return await client.patch(
                FRAMEWORKS,
                name,
                await _json_patch(request),
                namespace,
                content_type=JSON_PATCH,
                subresource="status",
                metadata_only=not whole,
                flow=flow,
            )


async def _json_patch(request: PatchStatus) -> bytes:
    value = request.value
    if isinstance(value, EncodedStatus):
        if value.is_large:
            # In a thread, because it would delay all other Frameworks.
            await asyncio.to_thread(value.complete)
        value = value.body
    return orjson.dumps(
        [
            {"op": "test", "path": "/metadata/uid", "value": request.uid},
            {"op": "test", "path": "/metadata/generation", "value": request.generation},
            {"op": "test", "path": "/metadata/resourceVersion", "value": request.resource_version},
            {"op": "add", "path": request.path, "value": orjson.Fragment(value)},
        ]
    )
