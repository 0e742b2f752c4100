"""Reads collections a page at a time, to hold no more than a page in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import Gone
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.views.apiobjects import Json

_PAGE_ITEMS: Final = 100


async def each_object(
    client: KubeClient,
    resource: Resource,
    namespace: str | None,
    *,
    label_selector: str | None = None,
    field_selector: str | None = None,
    most: int | None = None,
    metadata_only: bool = False,
) -> AsyncIterator[Json]:
    """Yield the objects of a namespace, or (None) of all. Stop after the page with the object number ``most``.

    Raises the errors of the client.
    """
    token: str | None = None
    read = 0
    while True:
        try:
            page = orjson.loads(
                await client.list(
                    resource,
                    namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    limit=_PAGE_ITEMS,
                    continue_token=token,
                    metadata_only=metadata_only,
                )
            )
        except Gone as error:
            # The token has expired. The error has one that continues with the current objects.
            token = (error.status.get("metadata") or {}).get("continue")
            if not token:
                raise
            continue
        for item in page.get("items") or ():
            yield item
            read += 1
        token = (page.get("metadata") or {}).get("continue")
        if not token or (most is not None and read >= most):
            return
