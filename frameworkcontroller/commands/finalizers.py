"""The removal of a finalizer by a person, in place of the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, Forbidden, Invalid, NotFound, ObjectNotFound
from frameworkcontroller.kube.resources import Resource
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
