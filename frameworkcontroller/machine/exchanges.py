"""The requests that carry out an action, as generators without I/O.

An exchange yields a request, is sent its answer, and returns the result of the action.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.objects import Framework, Identity, ObjectError, identity_of
from frameworkcontroller.machine.failure import classify_creation_refusal
from frameworkcontroller.machine.model import (
    Accepted,
    Action,
    Cleanup,
    Confirm,
    Create,
    Created,
    Delete,
    Exists,
    Gone,
    Kind,
    Refresh,
    Refusal,
    Refused,
    Relabel,
    Remains,
    Result,
    Target,
    Unanswered,
)

_IDENTITY: Final = {Kind.POD: names.POD_IDENTITY, Kind.CONFIGMAP: names.CONFIGMAP_IDENTITY, Kind.FRAMEWORK: ()}

PROPAGATION: Final[dict[Kind, str | None]] = {
    Kind.POD: None,
    # The attempt is over only when its last Pod is gone (C3, C4).
    Kind.CONFIGMAP: "Foreground",
    Kind.FRAMEWORK: "Foreground",
}
"""How deletions of each kind treat dependents."""


# --- requests and answers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Get:
    """Read an object; of Pods and ConfigMaps only the metadata."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Post:
    """Create an object from its JSON."""

    kind: Kind
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the object of that UID. ``force``: with grace period 0."""

    kind: Kind
    name: str
    uid: str
    force: bool
    propagation: str | None


@dataclass(frozen=True, slots=True)
class MergePatch:
    """Merge JSON into an object."""

    kind: Kind
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Set ``path`` of the Framework's status to ``value``. Preconditions: UID, generation and resourceVersion."""

    name: str
    path: str
    value: bytes | EncodedStatus
    uid: str
    generation: int
    resource_version: str


Request = Get | Post | Remove | MergePatch | PatchStatus


@dataclass(frozen=True, slots=True)
class Answered:
    """A success. ``body``: the returned object as JSON."""

    body: bytes


Answer = Answered | Refused | Unanswered
"""The answer to one request."""


# --- exchanges ------------------------------------------------------------------------------------------------------

Exchange = Generator[Request, Answer, Result]


class _NotDoneError(Exception):
    """Ends an exchange with a failed answer."""

    def __init__(self, answer: Refused | Unanswered) -> None:
        super().__init__(answer.message)
        self.answer = answer


def carry_out(action: Action, framework: Framework) -> Exchange:
    """The exchange of ``action``. It never repeats a request."""
    try:
        return (yield from _carry_out(action, framework))
    except _NotDoneError as error:
        return _result_of(error.answer)


def _carry_out(action: Action, framework: Framework) -> Exchange:
    match action:
        case Create():
            return (yield from _create(action))
        case Delete(target=target, uid=uid, force=force, confirm=confirm):
            if not (yield from _delete(target, uid, force)):
                return Gone()
            if confirm:
                return (yield from _confirm(target, uid, "is still being deleted"))
            return Accepted()
        case Cleanup(target=target, controller_uid=controller_uid):
            found = yield from _identify(target)
            return Gone() if found is None or found.controller_uid != controller_uid else Exists(found)
        case Relabel(target=target, uid=uid):
            return (yield from _relabel(framework, target, uid))
        case Confirm(target=target, uid=uid):
            return (yield from _confirm(target, uid, "exists, but the cache does not show it"))
        case Refresh():
            # The Framework was read live before, and its status was as known.
            return Remains("the stored status is not newer")


def _create(action: Create) -> Exchange:
    target = action.target
    answer = yield Post(target.kind, target.name, action.body)
    match answer:
        case Answered(body=body):
            return Created(_identified(body)["uid"])
        case Refused(kind=Refusal.ALREADY_EXISTS, message=message):
            return Exists((yield from _namesake(target)), message)
        case Refused() as refused if target.kind is Kind.POD and _is_final(refused):
            # An earlier request, whose answer was lost, may have created the Pod after all.
            found = yield from _namesake(target)
            if found is not None and found.controller_uid == action.controller_uid:
                return Exists(found)
    raise _NotDoneError(answer)


def _namesake(target: Target) -> Generator[Request, Answer, Identity | None]:
    """The existing object of that name. A refused read must not look like a refused creation."""
    try:
        return (yield from _identify(target))
    except _NotDoneError as error:
        answer = error.answer
        if isinstance(answer, Refused):
            text = f"{target.kind} {target.name} may exist: {answer.code}: {answer.message}"
            raise _NotDoneError(Unanswered(text)) from None
        raise


def _delete(target: Target, uid: str, force: bool) -> Generator[Request, Answer, bool]:
    """Return False if no object of that UID exists, True if its deletion was accepted."""
    answer = yield Remove(target.kind, target.name, uid, force, PROPAGATION[target.kind])
    match answer:
        case Answered(body=body):
            # A proxy's page must not look like an accepted deletion, which is never repeated.
            _metadata(body)
            return True
        case Refused(kind=Refusal.OBJECT_NOT_FOUND):
            return False
        case Refused(kind=Refusal.CONFLICT | Refusal.ALREADY_EXISTS) if not (yield from _is_there(target, uid)):
            # The precondition failed: the name belongs to another object now.
            return False
    raise _NotDoneError(answer)


def _is_there(target: Target, uid: str) -> Generator[Request, Answer, bool]:
    found = yield from _identify(target)
    return found is not None and found.uid == uid


def _confirm(target: Target, uid: str, otherwise: str) -> Exchange:
    found = yield from _find(target)
    if found is None or found["uid"] != uid:
        return Gone()
    labels = found.get("labels") or {}
    return Remains(f"{target.kind} {target.name} {otherwise}", unlabelled=names.FRAMEWORK_NAME not in labels)


def _relabel(framework: Framework, target: Target, uid: str) -> Exchange:
    metadata = {"uid": uid, "labels": {names.FRAMEWORK_NAME: framework.name}}
    answer = yield MergePatch(target.kind, target.name, orjson.dumps({"metadata": metadata}))
    match answer:
        case Answered():
            return Accepted()
        case Refused(kind=Refusal.OBJECT_NOT_FOUND):
            return Gone()
        case Refused(kind=Refusal.CONFLICT | Refusal.ALREADY_EXISTS | Refusal.INVALID):
            # UIDs are immutable: the name belongs to another object now.
            if not (yield from _is_there(target, uid)):
                return Gone()
    raise _NotDoneError(answer)


def _identify(target: Target) -> Generator[Request, Answer, Identity | None]:
    """Read the identity of the object of the target's name, None if there is none."""
    found = yield from _find(target)
    if found is None:
        return None
    try:
        return identity_of(found, _IDENTITY[target.kind])
    except ObjectError as error:
        text = f"the API server's answer is not a valid {target.kind}: {error}"
        raise _NotDoneError(Unanswered(text)) from error


def _find(target: Target) -> Generator[Request, Answer, dict[str, Any] | None]:
    """Read the metadata of the object of the target's name, None if there is none."""
    answer = yield Get(target.kind, target.name)
    match answer:
        case Answered(body=body):
            return _identified(body)
        case Refused(kind=Refusal.OBJECT_NOT_FOUND):
            return None
    raise _NotDoneError(answer)


def _result_of(answer: Refused | Unanswered) -> Refused | Unanswered:
    if isinstance(answer, Unanswered):
        return answer
    if answer.kind is Refusal.SERVER_ERROR and not _is_final(answer):
        # A 504 may follow a completed write: the outcome is unknown.
        return Unanswered(f"{answer.code}: {answer.message}")
    if not answer.by_api and answer.kind is not Refusal.TOO_MANY_REQUESTS:
        # A gateway's refusal must not complete a Task.
        return Unanswered(answer.message)
    return answer


def _is_final(refused: Refused) -> bool:
    """Whether the API server refused to create a Pod, and would refuse again."""
    return refused.by_api and classify_creation_refusal(refused) is not None


# --- bodies of answers ------------------------------------------------------------------------------------------------


def resource_version(body: bytes) -> str | None:
    """The resourceVersion of the object in an answer; None if the answer is not an object."""
    with suppress(ValueError, KeyError, TypeError):
        version = orjson.loads(body)["metadata"]["resourceVersion"]
        if isinstance(version, str):
            return version
    return None


def _identified(body: bytes) -> dict[str, Any]:
    """The metadata of the object in an answer, with a UID."""
    metadata = _metadata(body)
    if not isinstance(metadata.get("uid"), str):
        raise _NotDoneError(no_object(body))
    return metadata


def _metadata(body: bytes) -> dict[str, Any]:
    """The metadata in an answer; a Status has empty ones."""
    with suppress(ValueError, KeyError, TypeError):
        metadata = orjson.loads(body)["metadata"]
        if isinstance(metadata, dict):
            return metadata
    raise _NotDoneError(no_object(body))


def no_object(body: bytes) -> Unanswered:
    """The result of an answer that is not an object."""
    return Unanswered(f"the API server's answer is not an object: {body[:100]!r}")
