"""Changes a Framework's spec by what it is now, and only if it still is that when the change arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import FIELD_MANAGER, Json, Session
from frameworkcontroller.kube.client import JSON_PATCH
from frameworkcontroller.kube.errors import Conflict, Invalid

_TRIES: Final = 10


async def edit(session: Session, name: str, change: Callable[[Json], list[Json]]) -> None:
    """Send the operations (of a JSON patch) that ``change`` makes of the object; none: there is nothing to change.

    The patch tests the object's UID and generation, and with them its whole spec, which is what ``change`` looks at.
    If somebody else was quicker, it is all done again on what they made of it.

    Raises:
        CommandError: there is no such Framework, or the API server does not take the change.
    """
    for _ in range(_TRIES):
        framework = await session.framework(name)
        operations = change(framework)
        if not operations:
            return
        metadata = framework["metadata"]
        guards = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": "/metadata/generation", "value": metadata["generation"]},
        ]
        try:
            await session.client.patch(
                FRAMEWORKS,
                name,
                orjson.dumps([*guards, *operations]),
                session.namespace,
                content_type=JSON_PATCH,
                field_manager=FIELD_MANAGER,
                metadata_only=True,
            )
        except Conflict:
            continue
        except Invalid as error:
            # A test that fails is told by this, too.
            now = (await session.framework(name))["metadata"]
            if (now["uid"], now["generation"]) == (metadata["uid"], metadata["generation"]):
                raise program.CommandError(f"{name}: {error}") from None
            continue
        return
    raise program.CommandError(f"{name}: others kept changing it; nothing was done")
