"""Sends the requests of the machine, and translates the responses of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import orjson

from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.objectkinds import RESOURCES
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube import errors
from frameworkcontroller.kube.client import JSON_PATCH, MERGE_PATCH, KubeClient
from frameworkcontroller.kube.resources import Resource
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

_REFUSALS: Final[tuple[tuple[type[errors.ApiError], Refusal], ...]] = (
    (errors.AlreadyExists, Refusal.ALREADY_EXISTS),
    (errors.Conflict, Refusal.CONFLICT),
    (errors.ObjectNotFound, Refusal.OBJECT_NOT_FOUND),
    (errors.NotFound, Refusal.NOT_FOUND),
    (errors.Invalid, Refusal.INVALID),
    (errors.TooLarge, Refusal.TOO_LARGE),
    (errors.TooManyRequests, Refusal.TOO_MANY_REQUESTS),
    (errors.ApiServerError, Refusal.SERVER_ERROR),
)
"""The first matching class decides."""


async def send(
    client: KubeClient, request: Request, namespace: str, flow: str, served: Mapping[Kind, Resource] = RESOURCES
) -> Answer:
    """Send a request for a Framework. ``flow`` is its key. ``served``: the resources of the kinds."""
    try:
        return Answered(await _send(client, request, namespace, flow, served))
    except errors.ApiError as error:
        kind = next((kind for cls, kind in _REFUSALS if isinstance(error, cls)), Refusal.OTHER)
        status, retry_after = orjson.dumps(error.status), error.retry_after or 0.0
        return Refused(error.code, error.message, status, retry_after, error.reason, kind, error.is_of_api)
    except errors.KubeError as error:
        return Unanswered(str(error))


async def _send(
    client: KubeClient, request: Request, namespace: str, flow: str, served: Mapping[Kind, Resource]
) -> bytes:
    match request:
        case Get(kind, name, whole):
            resource = served[kind]
            within = namespace if resource.namespaced else None
            metadata_only = not whole and kind not in (Kind.FRAMEWORK, Kind.NODE)
            return await client.get(resource, name, within, metadata_only=metadata_only, flow=flow)
        case Post(kind, _, body, whole):
            return await client.create(served[kind], body, namespace, metadata_only=not whole, flow=flow)
        case Remove(kind, name, uid, force, propagation, resource_version):
            return await client.delete(
                served[kind],
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
                served[kind],
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
                served[kind], name, body, namespace, content_type=JSON_PATCH, metadata_only=True, flow=flow
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
