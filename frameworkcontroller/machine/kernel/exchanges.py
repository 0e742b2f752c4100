"""The results of actions, and the requests that several actions send."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Identity, ObjectError, identity_of
from frameworkcontroller.machine.kernel.failure import classify_creation_refusal
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    MergePatch,
    Refusal,
    Refused,
    Request,
    Target,
    Unanswered,
    metadata_in,
)


class ActionResult:
    """The result of an action, other than a failed answer. Parts have their own."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Created(ActionResult):
    """The object was created. ``kept``: whether the API server stored the field that it was asked for (``Create``)."""

    uid: str
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Exists(ActionResult):
    """The name is taken by ``found``, None if a live read does not find it. ``message``: of the API server."""

    found: Identity | None
    message: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Accepted(ActionResult):
    """The deletion was accepted; the object may still exist."""


@dataclass(frozen=True, slots=True)
class Gone(ActionResult):
    """No object of that UID exists (of a ConfirmNone or LookUp: none that is ours)."""


@dataclass(frozen=True, slots=True)
class Remains(ActionResult):
    """The object exists. ``unlabelled``: without the label by which it is watched."""

    message: str
    unlabelled: bool = False


@dataclass(frozen=True, slots=True)
class NotForced(ActionResult):
    """The Pod exists, and was not force-deleted: its Node is not known to be lost.

    ``unreadable``: Nodes may not be read, or are not served.
    """

    message: str
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Patched(ActionResult):
    """The object was changed. ``resource_version``: the new one."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Outdated(ActionResult):
    """The object of that UID exists, and another client has changed it: nothing was done."""

    message: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NotAttempted(ActionResult):
    """Nothing was sent; the next plan decides again."""


@dataclass(frozen=True, slots=True)
class FinalizersAre(ActionResult):
    """The finalizers are as wanted. ``resource_version``: of the Framework now, ``before``: right before."""

    finalizers: tuple[str, ...]
    before: str
    resource_version: str


Result = ActionResult | Refused | Unanswered

Exchange = Generator[Request, Answer, Result]


class NotDoneError(Exception):
    """Ends an exchange with a failed answer."""

    def __init__(self, answer: Refused | Unanswered) -> None:
        super().__init__(answer.message)
        self.answer = answer


# --- requests that several actions send ---------------------------------------------------------------------------


LOST_NODE_TAINTS: Final = frozenset({"node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"})
"""Taints of Nodes that do not answer, or that a person has declared to be off."""


def patched(
    target: Target, uid: str, change: dict[str, Any], resource_version: str = "", subresource: str = ""
) -> Exchange:
    """Merge ``change`` into the object of that UID and, if given, resourceVersion. See ``Patch``."""
    metadata = {**change.get("metadata", {}), "uid": uid}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    body = orjson.dumps({**change, "metadata": metadata})
    answer = yield MergePatch(target.kind, target.name, body, subresource)
    match answer:
        case Answered(body=body):
            return Patched(str(metadata_of(body, "resourceVersion")["resourceVersion"]))
        case Refused(kind=Refusal.OBJECT_NOT_FOUND):
            return Gone()
        case Refused(kind=Refusal.CONFLICT | Refusal.ALREADY_EXISTS | Refusal.INVALID, message=message) as refused:
            # UIDs are immutable: the name may belong to another object now.
            if not (yield from is_there(target, uid)):
                return Gone()
            if refused.kind is Refusal.CONFLICT:
                return Outdated(message)
    raise NotDoneError(answer)


def namesake(target: Target) -> Generator[Request, Answer, Identity | None]:
    """The existing object of that name. A refused read must not look like a refused creation."""
    try:
        return (yield from identify(target))
    except NotDoneError as error:
        answer = error.answer
        if isinstance(answer, Refused):
            text = f"{target.kind} {target.name} may exist: {answer.code}: {answer.message}"
            raise NotDoneError(Unanswered(text)) from None
        raise


def controlled_by(target: Target, controller_uid: str) -> Exchange:
    found = yield from identify(target)
    return Gone() if found is None or found.controller_uid != controller_uid else Exists(found)


def confirm_gone(target: Target, uid: str, otherwise: str) -> Exchange:
    found = yield from find_metadata(target)
    if found is None or found["uid"] != uid:
        return Gone()
    labels = found.get("labels") or {}
    return Remains(f"{target.kind} {target.name} {otherwise}", unlabelled=names.FRAMEWORK_NAME not in labels)


def is_there(target: Target, uid: str) -> Generator[Request, Answer, bool]:
    found = yield from identify(target)
    return found is not None and found.uid == uid


def identify(target: Target) -> Generator[Request, Answer, Identity | None]:
    """Read the identity of the object of the target's name, None if there is none."""
    found = yield from find_metadata(target)
    return None if found is None else identity_in(target, found)


def identity_in(target: Target, metadata: Mapping[str, Any]) -> Identity:
    try:
        return identity_of(metadata, target.kind.identity)
    except ObjectError as error:
        text = f"the API server's answer is not a valid {target.kind}: {error}"
        raise NotDoneError(Unanswered(text)) from error


def find_metadata(target: Target) -> Generator[Request, Answer, dict[str, Any] | None]:
    """Read the metadata of the object of the target's name, None if there is none."""
    body = yield from read(target.kind, target.name)
    return None if body is None else metadata_of(body, "uid")


def read(kind: Kind, name: str, *, whole: bool = False) -> Generator[Request, Answer, bytes | None]:
    """Read an object, None if there is none."""
    answer = yield Get(kind, name, whole)
    match answer:
        case Answered(body=body):
            return body
        case Refused(kind=Refusal.OBJECT_NOT_FOUND):
            return None
    raise NotDoneError(answer)


def metadata_of(body: bytes, field: str | None = None) -> dict[str, Any]:
    """The metadata in an answer, which has the text ``field``; a Status has empty ones."""
    metadata = metadata_in(body, field)
    if isinstance(metadata, Unanswered):
        raise NotDoneError(metadata)
    return metadata


def spec_in(body: bytes) -> dict[str, Any]:
    spec = orjson.loads(body).get("spec")
    return spec if isinstance(spec, dict) else {}


def has_field(body: bytes, path: Iterable[str]) -> bool:
    value = orjson.loads(body)
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value is not None


def has_taint_of_lost_node(body: bytes) -> bool:
    metadata_of(body, "uid")
    taints = spec_in(body).get("taints")
    found = taints if isinstance(taints, list) else ()
    return any(isinstance(taint, dict) and taint.get("key") in LOST_NODE_TAINTS for taint in found)


def too_large(message: str) -> Refused:
    """The refusal of a body, as API servers word it."""
    code, reason = 413, "RequestEntityTooLarge"
    status = {"status": "Failure", "message": message, "reason": reason, "code": code}
    return Refused(code, message, orjson.dumps(status), reason=reason, kind=Refusal.TOO_LARGE)


def is_final(refused: Refused) -> bool:
    """Whether the API server refused to create a Pod, and would refuse again."""
    return refused.by_api and classify_creation_refusal(refused) is not None
