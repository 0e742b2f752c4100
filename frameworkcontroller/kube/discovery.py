"""Which version of a resource an API server serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import NotFound, TransportError
from frameworkcontroller.kube.resources import Resource


async def find_served(client: KubeClient, *candidates: Resource) -> Resource | None:
    """Return the first of the candidates that is served, None if none is.

    Raises:
        KubeError: the API server does not tell.
    """
    for resource in candidates:
        listed = await _get(client, f"/apis/{resource.group}/{resource.version}")
        resources = listed.get("resources") if listed is not None else None
        if any(isinstance(one, dict) and one.get("name") == resource.plural for one in resources or ()):
            return resource
    return None


async def _get(client: KubeClient, path: str) -> Mapping[str, Any] | None:
    """The object at that path, None if there is none."""
    try:
        body = orjson.loads(await client.raw("GET", path))
    except NotFound:
        return None
    except ValueError as error:
        raise TransportError(f"the answer to GET {path} is no JSON: {error}") from error
    return body if isinstance(body, dict) else None
