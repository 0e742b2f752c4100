"""Changes of a Framework's spec that hold against concurrent changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import orjson

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import JSON_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, Invalid
from frameworkcontroller.views.apiobjects import Json

T = TypeVar("T")

TRIES: Final = 10


class ContentionError(Exception):
    """Other clients changed the Framework each time."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: not changed: other clients changed it {TRIES} times meanwhile")


async def patch_spec(
    client: KubeClient,
    read: Callable[[], Awaitable[Json]],
    change: Callable[[Json], tuple[list[Json], T]],
    *,
    manager: str,
) -> T:
    """Send JSON patch operations to a Framework, unless there are none. Return the last result of ``change``.

    The patch tests the UID and the generation, which changes with the spec.

    Args:
        read: returns the Framework.
        change: returns the operations and a result for it. It is called again after a concurrent change.

    Raises:
        ContentionError: there was a concurrent change at each of several tries.
        KubeError: the API server refuses the patch, or does not answer.
    """
    tried = 0
    while True:
        body = await read()
        metadata = body["metadata"]
        operations, result = change(body)
        if not operations:
            return result
        tests = [{"op": "test", "path": f"/metadata/{key}", "value": metadata[key]} for key in ("uid", "generation")]
        try:
            await client.patch(
                FRAMEWORKS,
                metadata["name"],
                orjson.dumps([*tests, *operations]),
                metadata["namespace"],
                content_type=JSON_PATCH,
                field_manager=manager,
                metadata_only=True,
            )
        except Conflict:
            pass
        except Invalid:
            # A failed test looks the same as a refused spec.
            now = (await read())["metadata"]
            if (now["uid"], now["generation"]) == (metadata["uid"], metadata["generation"]):
                raise
        else:
            return result
        tried += 1
        if tried == TRIES:
            raise ContentionError(metadata["name"])
