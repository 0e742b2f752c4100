"""The finalizer that keeps Frameworks until they are archived, and its removal by a person in place of the controller.

The controller removes it once nothing of the Framework runs and the archive has all of it. Without a controller, or
without an archive that answers, it stays, and so does the Framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands.finalizers import remove_finalizer
from frameworkcontroller.commands.invocation import Invocation

_ENDINGS: Final = frozenset({names.FOREGROUND_FINALIZER, "orphan"})
"""Finalizers of Kubernetes: the Framework waits for its Pods, or the user wants them to stay."""


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
    """Read a Framework; None if it does not have the finalizer."""
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

    async def delete_in_foreground(metadata: Mapping[str, Any]) -> bool:
        if not metadata.get("deletionTimestamp") or _ENDINGS & {*metadata["finalizers"]}:
            return False
        # Without this, the Framework would go at once, and its Pods later.
        await client.delete(FRAMEWORKS, one.name, one.namespace, uid=one.uid, propagation="Foreground")
        return True

    return await remove_finalizer(
        client, FRAMEWORKS, one.namespace, one.name, one.uid, names.HISTORY_FINALIZER, delete_in_foreground
    )
