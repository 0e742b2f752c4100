"""The finalizer that keeps Frameworks until they are archived, and its removal by a person in place of the controller.

The controller removes it once nothing of the Framework runs and the archive has all of it. Without a controller, or
without an archive that answers, it stays, and so does the Framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.kube.client import JSON_PATCH
from frameworkcontroller.kube.errors import Conflict, Forbidden, Invalid, NotFound, ObjectNotFound
from frameworkcontroller.views.texts import clean_line

_TRIES: Final = 10
_ORPHAN_FINALIZER: Final = "orphan"
"""A finalizer of Kubernetes: the user wants the dependents to stay. It excludes the one of foreground deletion."""


@dataclass(frozen=True, slots=True)
class Held:
    """A Framework with the finalizer.

    Attributes:
        deleted: when its deletion was asked for, as in its metadata; "" if it was not.
        finalizers: all, in their order.
        attempt: the id of its current attempt; None without a status that can be read.
        tasks: the number of Tasks of that attempt.
    """

    namespace: str
    name: str
    uid: str
    deleted: str
    finalizers: tuple[str, ...]
    state: str
    attempt: int | None
    tasks: int

    @property
    def key(self) -> str:
        """Its namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def only_held_by_history(self) -> bool:
        """Whether it is being deleted, and only for its history still there.

        In foreground deletion this says that nothing of it runs.
        """
        return bool(self.deleted) and self.finalizers == (names.HISTORY_FINALIZER,)


def held(body: Mapping[str, Any]) -> Held | None:
    """Return what matters of a Framework; None if it does not have the finalizer."""
    metadata = body["metadata"]
    finalizers = tuple(metadata.get("finalizers") or ())
    if names.HISTORY_FINALIZER not in finalizers:
        return None
    status = None
    with suppress(StatusError):
        status = decode_status(body.get("status"))
    return Held(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        metadata.get("deletionTimestamp") or "",
        finalizers,
        "" if status is None else status.state.value,
        None if status is None else status.attempt.id,
        0 if status is None else sum(len(role.tasks) for role in status.attempt.roles),
    )


async def find_held(invocation: Invocation, *, all_namespaces: bool) -> list[Held]:
    """Return the Frameworks with the finalizer."""
    bodies = invocation.each(FRAMEWORKS, all_namespaces=all_namespaces)
    return [found async for body in bodies if (found := held(body)) is not None]


async def let_go(invocation: Invocation, one: Held) -> str:
    """Remove the finalizer. Return why that was not possible; "" if the Framework no longer has it.

    A Framework that is being deleted then stays until its Pods have ended, as the controller would have it.
    """
    client = invocation.client
    found: Held | None = None
    for _ in range(_TRIES):
        try:
            body = orjson.loads(await client.get(FRAMEWORKS, one.name, one.namespace, metadata_only=True))
            found = held(body)
            if found is None or found.uid != one.uid:
                return ""
            if found.deleted and not {names.FOREGROUND_FINALIZER, _ORPHAN_FINALIZER} & {*found.finalizers}:
                # Without this, the Framework would go at once, and its Pods later.
                await client.delete(FRAMEWORKS, one.name, one.namespace, uid=one.uid, propagation="Foreground")
                body = orjson.loads(await client.get(FRAMEWORKS, one.name, one.namespace, metadata_only=True))
                found = held(body)
                if found is None or found.uid != one.uid:
                    return ""
            at = found.finalizers.index(names.HISTORY_FINALIZER)
            path = f"/metadata/finalizers/{at}"
            patch = [
                {"op": "test", "path": "/metadata/uid", "value": one.uid},
                {"op": "test", "path": path, "value": names.HISTORY_FINALIZER},
                {"op": "remove", "path": path},
            ]
            await client.patch(
                FRAMEWORKS,
                one.name,
                orjson.dumps(patch),
                one.namespace,
                content_type=JSON_PATCH,
                metadata_only=True,
            )
        except ObjectNotFound:
            return ""
        except Conflict:
            continue
        except Invalid as error:
            # A failed test looks the same as an object that today's CRD refuses.
            refusal = clean_line(str(error))
            if await _is_unchanged(invocation, found):
                return refusal
        except (Forbidden, NotFound) as error:
            return clean_line(str(error))
        else:
            return ""
    return "other clients change it"


async def _is_unchanged(invocation: Invocation, one: Held | None) -> bool:
    """Return whether the Framework still has these finalizers."""
    if one is None:
        return False
    try:
        body = orjson.loads(await invocation.client.get(FRAMEWORKS, one.name, one.namespace, metadata_only=True))
    except NotFound:
        return False
    now = held(body)
    return now is not None and (now.uid, now.finalizers) == (one.uid, one.finalizers)
