"""Reads collections a page at a time, to hold no more than a page in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, TypedDict, Unpack

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ResourceExpired
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.views.apiobjects import Json

_PAGE_ITEMS: Final = 100


class Selection(TypedDict, total=False):
    """The selected objects and fields of a collection."""

    label_selector: str | None
    field_selector: str | None
    metadata_only: bool


async def each_object(
    client: KubeClient,
    resource: Resource,
    namespace: str | None,
    *,
    most: int | None = None,
    **listing: Unpack[Selection],
) -> AsyncIterator[Json]:
    """Yield the objects of a namespace, or (None) of all. Stop after the page with the object number ``most``.

    Raises the errors of the client.
    """
    token: str | None = None
    read = 0
    while True:
        try:
            answer = await client.list(resource, namespace, limit=_PAGE_ITEMS, continue_token=token, **listing)
        except ResourceExpired as error:
            # The token has expired. The error has one that continues with the current objects.
            token = (error.status.get("metadata") or {}).get("continue")
            if not token:
                raise
            continue
        page = orjson.loads(answer)
        for item in page.get("items") or ():
            yield item
            read += 1
        token = (page.get("metadata") or {}).get("continue")
        if not token or (most is not None and read >= most):
            return
