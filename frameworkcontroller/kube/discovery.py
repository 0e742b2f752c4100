"""Reads objects and the served resource types of an API server, behind gateways that answer in its place."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError, ApiServerError, NotFound, TransportError
from frameworkcontroller.kube.resources import Resource


async def answered(asked: Awaitable[bytes], *, of_served: bool = True) -> dict[str, Any]:
    """Return the object in an answer. Raises ApiError, which is a ServerError for any answer of a gateway.

    ``of_served``: the resource type is known to be served. (If not, an API server answers 404 in plain text.)

    Raises TransportError if the answer is no object, as the page of a proxy.
    """
    try:
        answer = await asked
    except ApiError as error:
        if error.is_of_api or (isinstance(error, NotFound) and not of_served):
            raise
        raise ApiServerError(error.message, code=error.code, retry_after=error.retry_after) from error
    with suppress(ValueError):
        body = orjson.loads(answer)
        if isinstance(body, dict) and (isinstance(body.get("metadata"), dict) or "resources" in body):
            return body
    raise TransportError(f"the API server's answer is not an object: {answer[:100]!r}")


async def discovered(client: KubeClient, group: str, version: str) -> set[str]:
    """Return the names of the served resources and subresources. Raises the errors of `answered`."""
    listing = await answered(client.raw("GET", f"/apis/{group}/{version}"), of_served=False)
    return {one.get("name", "") for one in listing.get("resources") or () if isinstance(one, dict)}


async def find_served(client: KubeClient, *candidates: Resource) -> Resource | None:
    """Return the first of the candidates that is served, None if none is. Raises the errors of `answered`."""
    for resource in candidates:
        with suppress(NotFound):
            if resource.plural in await discovered(client, resource.group, resource.version):
                return resource
    return None
