"""An API server's objections to an object, without creating it."""

from typing import Any

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.resources import Resource

Json = dict[str, Any]


async def dry_run(client: KubeClient, namespace: str, resource: Resource, body: Json) -> list[str]:
    """The API server's objections; a field that it drops is one that it does not know."""
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        path = resource.path(namespace if resource.namespaced else None)
        answer = await client.raw("POST", path, body=orjson.dumps(body), query=query)
    except ApiError as error:
        return [error.message]
    return list(lost(body, orjson.loads(answer)))


def lost(sent: Any, kept: Any, where: str = "") -> list[str]:
    """Fields and items that were sent and are not kept."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        return [
            line
            for key, value in sent.items()
            # A null is nothing to keep.
            if value is not None
            for line in (lost(value, kept[key], f"{where}.{key}") if key in kept else [f"{where}.{key} was dropped"])
        ]
    if isinstance(sent, list) and isinstance(kept, list):
        if len(kept) < len(sent):
            return [f"{where} has {len(kept)} items for {len(sent)}"]
        return [line for number, item in enumerate(sent) for line in lost(item, kept[number], f"{where}[{number}]")]
    return []
