"""Objects of any kind, read and awaited through the API."""

from dataclasses import replace
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.discovery import find_served
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import PODDISRUPTIONBUDGETS, Resource
from tests.support.eventually import eventually

Json = dict[str, Any]

V1BETA1_BUDGETS: Final = replace(PODDISRUPTIONBUDGETS, version="v1beta1")


async def served_budgets(client: KubeClient) -> Resource:
    """PodDisruptionBudgets in the version that is served."""
    found = await find_served(client, PODDISRUPTIONBUDGETS, V1BETA1_BUDGETS)
    assert found is not None
    return found


async def read(client: KubeClient, resource: Resource, name: str, namespace: str | None = None) -> Json:
    """The object."""
    found: Json = orjson.loads(await client.get(resource, name, namespace))
    return found


async def items(client: KubeClient, resource: Resource, namespace: str | None = None, **options: Any) -> list[Json]:
    """The objects of the kind; ``options``: of `KubeClient.list`."""
    found: list[Json] = orjson.loads(await client.list(resource, namespace, **options))["items"] or []
    return found


async def is_there(client: KubeClient, resource: Resource, name: str, namespace: str | None = None) -> bool:
    """Whether the object exists."""
    try:
        await client.get(resource, name, namespace)
    except NotFound:
        return False
    return True


async def until_missing(
    client: KubeClient, resource: Resource, name: str, namespace: str | None = None, *, within: float = 60.0
) -> None:
    """Wait until the object does not exist."""

    async def is_missing() -> bool:
        return not await is_there(client, resource, name, namespace)

    await eventually(is_missing, within=within)
