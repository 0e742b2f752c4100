"""ConfigMaps and Secrets that a Framework brings: created with it, and collected after it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.kube.client import JSON_PATCH, KubeClient
from frameworkcontroller.kube.errors import AlreadyExists as ObjectExists
from frameworkcontroller.kube.errors import Conflict, Invalid, NotFound
from frameworkcontroller.kube.resources import CONFIGMAPS, SECRETS, Resource
from frameworkcontroller.sdk.exceptions import AlreadyExists, RequestRefused
from frameworkcontroller.sdk.podtemplates import Json
from frameworkcontroller.sdk.translation import translated

_OBJECTS: Final[Mapping[str, Resource]] = {"ConfigMap": CONFIGMAPS, "Secret": SECRETS}
_HASHED: Final = ("framework-code-", "framework-ssh-")
"""Prefixes of names that are derived from the content: several Frameworks may own such an object."""

_GONE_SEC: Final = 120.0
_POLL_SEC: Final = 0.5


def check_kind(body: Json) -> None:
    """Raise RequestRefused unless the object is a ConfigMap or a Secret."""
    if body.get("kind") not in _OBJECTS:
        name = (body.get("metadata") or {}).get("name")
        raise RequestRefused(f"{body.get('kind')} {name}: a Framework brings only ConfigMaps and Secrets")


async def provide(client: KubeClient, namespace: str, body: Json, framework: Json) -> None:
    """Create an object that the Framework owns, or make the Framework an owner of one with the same content.

    Raises:
        AlreadyExists: an object of that name belongs to another client.
    """
    metadata = framework["metadata"]
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": metadata["name"], "uid": metadata["uid"]}
    kind, name = body["kind"], str(body["metadata"].get("name"))
    resource = _OBJECTS[kind]
    made = orjson.dumps({**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}})
    clock = asyncio.get_running_loop().time
    deadline = clock() + _GONE_SEC
    while clock() <= deadline:
        with translated("create", resource.plural, name=name, namespace=namespace):
            try:
                await client.create(resource, made, namespace)
            except ObjectExists:
                taken = await _take_over(client, namespace, resource, name, owner)
            else:
                return
        if taken is not None:
            if taken:
                return
            break
        await asyncio.sleep(_POLL_SEC)
    raise AlreadyExists(f'a {kind} "{name}" exists already in namespace "{namespace}"')


async def _take_over(client: KubeClient, namespace: str, resource: Resource, name: str, owner: Json) -> bool | None:
    """Make the Framework an owner of the existing object. Return None if that is to be tried again.

    False: the object belongs to another client.
    """
    try:
        found = orjson.loads(await client.get(resource, name, namespace, metadata_only=True))["metadata"]
        owners = found.get("ownerReferences") or []
        if owner in owners:
            return True
        if name.startswith(_HASHED) and not found.get("deletionTimestamp"):
            patch = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": found["resourceVersion"]},
                {"op": "add", "path": "/metadata/ownerReferences", "value": [*owners, owner]},
            ]
            await client.patch(resource, name, orjson.dumps(patch), namespace, content_type=JSON_PATCH)
            return True
    except (NotFound, Conflict, Invalid):
        return None
    # The object of a former Framework of this name is about to be collected.
    former = any((one.get("kind"), one.get("name")) == (names.KIND, owner["name"]) for one in owners)
    return None if former or name.startswith(_HASHED) else False
