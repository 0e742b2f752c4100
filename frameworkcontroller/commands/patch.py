"""Changes of a Framework's spec by JSON patches that fail if the spec has changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import FIELD_MANAGER, Invocation
from frameworkcontroller.commands.objects import Json
from frameworkcontroller.kube.client import JSON_PATCH
from frameworkcontroller.kube.errors import Conflict, Invalid

_TRIES: Final = 10


async def patch_spec(invocation: Invocation, name: str, change: Callable[[Json], list[Json]]) -> None:
    """Send the JSON patch operations that ``change`` returns for the Framework; nothing if it returns none.

    The patch tests the UID and the generation, which changes with the spec. After a concurrent change, ``change`` is
    called again with the new object.

    Raises:
        CommandError: there is no such Framework, or the API server refuses the patch.
    """
    for _ in range(_TRIES):
        framework = await invocation.framework(name)
        operations = change(framework)
        if not operations:
            return
        metadata = framework["metadata"]
        tests = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": "/metadata/generation", "value": metadata["generation"]},
        ]
        try:
            await invocation.client.patch(
                FRAMEWORKS,
                name,
                orjson.dumps([*tests, *operations]),
                invocation.namespace,
                content_type=JSON_PATCH,
                field_manager=FIELD_MANAGER,
                metadata_only=True,
            )
        except Conflict:
            pass
        except Invalid as error:
            # A failed test looks the same as a refused spec.
            now = (await invocation.framework(name))["metadata"]
            if (now["uid"], now["generation"]) == (metadata["uid"], metadata["generation"]):
                raise program.CommandError(f"{name}: {error}") from None
        else:
            return
    raise program.CommandError(f"{name}: not changed: other clients changed it {_TRIES} times meanwhile")
