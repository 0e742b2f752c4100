"""The actions on a Framework's objects: what each has to know, the requests that carry it out, and its results.

The ``exchange`` of an action is a generator without I/O: it yields a request, is sent its answer, and returns a result.
The rules that ask for actions are in framework.py and task.py; owned.py folds the outcomes into the status.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Identity, ObjectError, identity_of
from frameworkcontroller.machine.kernel.failure import classify_creation_refusal
from frameworkcontroller.machine.kernel.requests import (
    COMPANIONS,
    MAX_BODY_BYTES,
    PODGROUPS,
    Answer,
    Answered,
    BodyTooLargeError,
    Get,
    Kind,
    MergePatch,
    PatchFinalizers,
    Post,
    Refusal,
    Refused,
    Remove,
    Request,
    Unanswered,
    metadata_in,
)

LOST_NODE_TAINTS: Final = frozenset({"node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"})
"""Taints of Nodes that do not answer, and of those that a person has declared to be off."""

_IDENTITY: Final = {
    Kind.POD: names.POD_IDENTITY,
    Kind.CONFIGMAP: names.CONFIGMAP_IDENTITY,
    Kind.FRAMEWORK: (),
    Kind.SERVICE: names.SERVICE_IDENTITY,
    Kind.VOLUME_CLAIM: names.CLAIM_IDENTITY,
    Kind.WORKLOAD: (),
    **dict.fromkeys(PODGROUPS, names.PODGROUP_IDENTITY),
}

PROPAGATION: Final[dict[Kind, str | None]] = {
    Kind.POD: None,
    # The attempt is over only when its last Pod is gone (C3, C4).
    Kind.CONFIGMAP: "Foreground",
    Kind.FRAMEWORK: "Foreground",
    Kind.VOLUME_CLAIM: None,
    Kind.WORKLOAD: None,
}
"""How deletions of each kind treat dependents."""


@dataclass(frozen=True, slots=True)
class Target:
    """The object of an action, and its attempt.

    Of Pods also the Task's ``role``, ``index`` and ``instance`` (UID): an outcome is folded only into the Task instance
    and attempt that asked for the action. Volume claims outlive instances and have only ``role`` and ``index``.
    """

    kind: Kind
    name: str
    attempt_id: int = 0
    role: str = ""
    index: int = -1
    instance: str = ""
    part: str = ""
    """What of a Framework: "finalizer" for its finalizers, else the object."""

    @property
    def key(self) -> tuple[str, int] | str | None:
        """Role and index of the Task of a Pod or volume claim, kind and name of another companion, else ``part``."""
        if self.kind in (Kind.POD, Kind.VOLUME_CLAIM):
            return self.role, self.index
        if self.kind is Kind.FRAMEWORK:
            return self.part or None
        return f"{self.kind}/{self.name}" if self.kind in COMPANIONS else None

    @property
    def claim(self) -> str:
        """The name of a volume claim, "" for other kinds."""
        return self.name if self.kind is Kind.VOLUME_CLAIM else ""


# --- results ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    """The object was created. ``kept``: whether the API server stored the field that it was asked for (``Create``)."""

    uid: str
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Exists:
    """The name is taken by ``found``, None if a live read does not find it. ``message``: of the API server."""

    found: Identity | None
    message: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The deletion was accepted; the object may still exist."""


@dataclass(frozen=True, slots=True)
class Gone:
    """No object of that UID exists (of a Cleanup or LookUp: none that is ours)."""


@dataclass(frozen=True, slots=True)
class Remains:
    """The object exists. ``unlabelled``: without the label by which it is watched."""

    message: str
    unlabelled: bool = False


@dataclass(frozen=True, slots=True)
class NotForced:
    """The Pod exists, and was not force-deleted: its Node is not known to be lost.

    ``unreadable``: Nodes may not be read, or are not served.
    """

    message: str
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Patched:
    """The object was changed. ``resource_version``: the new one."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Outdated:
    """The object of that UID exists, and another client has changed it: nothing was done."""

    message: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NotAttempted:
    """Nothing was sent; the next plan decides again."""


@dataclass(frozen=True, slots=True)
class FinalizersAre:
    """The finalizers are as wanted. ``resource_version``: of the Framework now, ``before``: right before."""

    finalizers: tuple[str, ...]
    before: str
    resource_version: str


class PartResult:
    """A result that only the part of its action knows."""

    __slots__ = ()


Result = (
    Created
    | Exists
    | Refused
    | Unanswered
    | Accepted
    | Gone
    | Remains
    | NotForced
    | Patched
    | FinalizersAre
    | Outdated
    | NotAttempted
    | PartResult
)

Exchange = Generator[Request, Answer, Result]


class NotDoneError(Exception):
    """Ends an exchange with a failed answer."""

    def __init__(self, answer: Refused | Unanswered) -> None:
        super().__init__(answer.message)
        self.answer = answer


# --- actions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders a body, later. Unlike functions, those that render the same are equal."""

    render: Callable[..., bytes]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """Create the object. ``controller_uid``: of its controller, which identifies an existing object as ours.

    ``source``: the object's JSON, or its renderer: hundreds of Pods and volume claims, of up to three
    megabytes each, may wait for a slot. ``field``: the path of a field that an API server may drop; the result says
    whether it did. ``is_large``: the body may have more than ``LARGE_BYTES``.
    """

    target: Target
    source: bytes | Renderer
    controller_uid: str
    field: tuple[str, ...] = ()
    is_large: bool = False

    @property
    def body(self) -> bytes:
        """The object's JSON, rendered at each call. Raises BodyTooLargeError."""
        source = self.source
        return source if isinstance(source, bytes) else source.render(*source.arguments)

    def exchange(self) -> Exchange:
        target = self.target
        try:
            body = self.body
            if len(body) > MAX_BODY_BYTES:
                raise BodyTooLargeError(f"the {target.kind}", len(body))
        except BodyTooLargeError as error:
            return _too_large(str(error))
        answer = yield Post(target.kind, target.name, body, whole=bool(self.field))
        match answer:
            case Answered(body=body):
                return Created(metadata_of(body, "uid")["uid"], not self.field or _has(body, self.field))
            case Refused(kind=Refusal.ALREADY_EXISTS, message=message):
                return Exists((yield from _namesake(target)), message)
            case Refused() as refused if target.kind is Kind.POD and _is_final(refused):
                # An earlier request, whose answer was lost, may have created the Pod after all.
                found = yield from _namesake(target)
                if found is not None and found.controller_uid == self.controller_uid:
                    return Exists(found)
        raise NotDoneError(answer)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of that UID.

    ``force``: with grace period 0. ``confirm``: done only when a live read no longer finds that UID. ``orphan``: the
    status does not record the object, so a live read of the Framework must confirm that status first.
    ``if_node_lost``: only if a live read shows that the Pod's Node is gone or unreachable. ``node``: the name of that
    Node, None if a live read of the Pod must find it. ``resource_version``: if given, only if the object has not
    changed since.
    """

    target: Target
    uid: str
    force: bool = False
    confirm: bool = False
    orphan: bool = field(default=False, compare=False)
    if_node_lost: bool = False
    node: str | None = field(default=None, compare=False)
    resource_version: str = field(default="", compare=False)

    def exchange(self) -> Exchange:
        target = self.target
        if self.if_node_lost and (reason := (yield from self._reason_to_spare())) is not None:
            return reason
        propagation = PROPAGATION[target.kind]
        answer = yield Remove(target.kind, target.name, self.uid, self.force, propagation, self.resource_version)
        match answer:
            case Answered(body=body):
                # A proxy's page must not look like an accepted deletion, which is never repeated.
                metadata_of(body)
                return (yield from _confirm(target, self.uid, "is still being deleted")) if self.confirm else Accepted()
            case Refused(kind=Refusal.OBJECT_NOT_FOUND):
                return Gone()
            case Refused(kind=Refusal.CONFLICT | Refusal.ALREADY_EXISTS):
                # The precondition failed: the name belongs to another object now.
                if not (yield from _is_there(target, self.uid)):
                    return Gone()
        raise NotDoneError(answer)

    def _reason_to_spare(self) -> Generator[Request, Answer, NotForced | Gone | None]:
        """Look at the Node of the Pod. Return None if it is lost, or the Pod was never bound to one."""
        node = self.node
        if node is None:
            answer = yield Get(self.target.kind, self.target.name, whole=True)
            match answer:
                case Answered(body=body) if metadata_of(body, "uid")["uid"] == self.uid:
                    node = _spec(body).get("nodeName") or ""
                case Answered() | Refused(kind=Refusal.OBJECT_NOT_FOUND):
                    return Gone()
                case _:
                    raise NotDoneError(answer)
            if not node:
                return None
        text = f"Pod {self.target.name} is not force-deleted (podForceDeletionPolicy NodeUnreachable)"
        answer = yield Get(Kind.NODE, node)
        match answer:
            case Answered(body=body):
                if _has_taint_of_lost_node(body):
                    return None
                return NotForced(f"{text}: its Node {node} is neither unreachable nor out of service")
            case Refused(kind=Refusal.OBJECT_NOT_FOUND, by_api=True):
                return None
            case Refused(by_api=True, code=403 | 404 | 405):
                return NotForced(f"{text}: its Node {node} cannot be read: {answer.code}: {answer.message}", True)
        raise NotDoneError(replace(answer, message=f"its Node {node} cannot be read: {answer.message}"))


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Check by a live read that ``controller_uid`` controls no object of that name."""

    target: Target
    controller_uid: str

    def exchange(self) -> Exchange:
        return (yield from _controlled(self.target, self.controller_uid))


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find out by a live read whether ``controller_uid`` controls an object of that name."""

    target: Target
    controller_uid: str

    def exchange(self) -> Exchange:
        return (yield from _controlled(self.target, self.controller_uid))


@dataclass(frozen=True, slots=True)
class Confirm:
    """Check by a live read that the object of that UID, which the cache does not show, is gone."""

    target: Target
    uid: str

    def exchange(self) -> Exchange:
        return (yield from _confirm(self.target, self.uid, "exists, but the cache does not show it"))


@dataclass(frozen=True, slots=True)
class Relabel:
    """Restore the label with the Framework's name, by which the object of that UID is watched."""

    target: Target
    uid: str
    framework_name: str

    def exchange(self) -> Exchange:
        target = self.target
        metadata = {"uid": self.uid, "labels": {names.FRAMEWORK_NAME: self.framework_name}}
        answer = yield MergePatch(target.kind, target.name, orjson.dumps({"metadata": metadata}))
        match answer:
            case Answered():
                return Accepted()
            case Refused(kind=Refusal.OBJECT_NOT_FOUND):
                return Gone()
            case Refused(kind=Refusal.CONFLICT | Refusal.ALREADY_EXISTS | Refusal.INVALID):
                # UIDs are immutable: the name belongs to another object now.
                if not (yield from _is_there(target, self.uid)):
                    return Gone()
        raise NotDoneError(answer)


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge ``change``, JSON of an object, into the object of that UID, or into its ``subresource``.

    ``resource_version``: if given, only if the object has not changed since.
    """

    target: Target
    uid: str
    change: bytes
    resource_version: str = ""
    subresource: str = ""

    def exchange(self) -> Exchange:
        change = orjson.loads(self.change)
        return (yield from patched(self.target, self.uid, change, self.resource_version, self.subresource))


@dataclass(frozen=True, slots=True)
class Refresh:
    """Read the Framework live: the object belongs to a later attempt than the status."""

    target: Target

    def exchange(self) -> Exchange:
        yield from ()
        # The Framework was read live before, and its status was as known.
        return Remains("the stored status is not newer")


@dataclass(frozen=True, slots=True)
class ChangeFinalizer:
    """Add or remove a finalizer, if the Framework is still the one of that UID and resourceVersion.

    ``resource_version``, ``finalizers``: as they are stored, which the reconciler knows when the action begins.
    """

    target: Target
    uid: str
    finalizer: str
    add: bool
    resource_version: str = field(default="", compare=False)
    finalizers: tuple[str, ...] = field(default=(), compare=False)

    def exchange(self) -> Exchange:
        name, version, present = self.finalizer, self.resource_version, self.finalizers
        if (name in present) == self.add:
            return FinalizersAre(present, version, version)
        index = None if self.add else present.index(name)
        target = self.target
        answer = yield PatchFinalizers(target.kind, target.name, self.uid, version, name, index, bool(present))
        match answer:
            case Answered(body=body):
                metadata = metadata_of(body, "resourceVersion")
                found = tuple(metadata.get("finalizers") or ())
                return FinalizersAre(found, version, str(metadata["resourceVersion"]))
            case Refused(kind=Refusal.OBJECT_NOT_FOUND):
                return Gone()
            case Refused(kind=Refusal.CONFLICT | Refusal.ALREADY_EXISTS | Refusal.INVALID, message=message):
                return Outdated(message)
        raise NotDoneError(answer)


@dataclass(frozen=True, slots=True, eq=False)
class PartAction:
    """An action of a part, whose exchange only the part knows."""

    target: Target
    needs_live: ClassVar[bool] = False
    """Whether a live read must confirm the status first."""

    @property
    def is_large(self) -> bool:
        """Whether a body may have more than ``LARGE_BYTES``."""
        return False

    def exchange(self) -> Exchange:
        """The requests of the action."""
        raise NotImplementedError


Action = Create | Delete | Cleanup | LookUp | Confirm | Relabel | Patch | Refresh | ChangeFinalizer | PartAction


@dataclass(frozen=True, slots=True)
class Outcome:
    """An action and its result."""

    action: Action
    result: Result


def needs_live_status(action: Action) -> bool:
    """Whether a live read must confirm the status first."""
    if isinstance(action, PartAction):
        return action.needs_live
    if isinstance(action, ChangeFinalizer):
        return not action.add
    return isinstance(action, Refresh) or (isinstance(action, Delete) and action.orphan)


def carry_out(action: Action) -> Exchange:
    """The exchange of ``action``. It never repeats a request."""
    try:
        return (yield from action.exchange())
    except NotDoneError as error:
        answer = error.answer
    if isinstance(answer, Unanswered):
        return answer
    if answer.kind is Refusal.SERVER_ERROR and not _is_final(answer):
        # A 504 may follow a completed write: the outcome is unknown.
        return Unanswered(f"{answer.code}: {answer.message}")
    if not answer.by_api and answer.kind is not Refusal.TOO_MANY_REQUESTS:
        # A gateway's refusal must not complete a Task.
        return Unanswered(answer.message)
    return answer


# --- parts of exchanges -----------------------------------------------------------------------------------------


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
            if not (yield from _is_there(target, uid)):
                return Gone()
            if refused.kind is Refusal.CONFLICT:
                return Outdated(message)
    raise NotDoneError(answer)


def _namesake(target: Target) -> Generator[Request, Answer, Identity | None]:
    """The existing object of that name. A refused read must not look like a refused creation."""
    try:
        return (yield from _identify(target))
    except NotDoneError as error:
        answer = error.answer
        if isinstance(answer, Refused):
            text = f"{target.kind} {target.name} may exist: {answer.code}: {answer.message}"
            raise NotDoneError(Unanswered(text)) from None
        raise


def _controlled(target: Target, controller_uid: str) -> Exchange:
    found = yield from _identify(target)
    return Gone() if found is None or found.controller_uid != controller_uid else Exists(found)


def _confirm(target: Target, uid: str, otherwise: str) -> Exchange:
    found = yield from find_metadata(target)
    if found is None or found["uid"] != uid:
        return Gone()
    labels = found.get("labels") or {}
    return Remains(f"{target.kind} {target.name} {otherwise}", unlabelled=names.FRAMEWORK_NAME not in labels)


def _is_there(target: Target, uid: str) -> Generator[Request, Answer, bool]:
    found = yield from _identify(target)
    return found is not None and found.uid == uid


def _identify(target: Target) -> Generator[Request, Answer, Identity | None]:
    """Read the identity of the object of the target's name, None if there is none."""
    found = yield from find_metadata(target)
    return None if found is None else identity_in(target, found)


def identity_in(target: Target, metadata: Mapping[str, Any]) -> Identity:
    try:
        return identity_of(metadata, _IDENTITY[target.kind])
    except ObjectError as error:
        text = f"the API server's answer is not a valid {target.kind}: {error}"
        raise NotDoneError(Unanswered(text)) from error


def find_metadata(target: Target) -> Generator[Request, Answer, dict[str, Any] | None]:
    """Read the metadata of the object of the target's name, None if there is none."""
    answer = yield Get(target.kind, target.name)
    match answer:
        case Answered(body=body):
            return metadata_of(body, "uid")
        case Refused(kind=Refusal.OBJECT_NOT_FOUND):
            return None
    raise NotDoneError(answer)


def metadata_of(body: bytes, field: str | None = None) -> dict[str, Any]:
    """The metadata in an answer, which has the text ``field``; a Status has empty ones."""
    metadata = metadata_in(body, field)
    if isinstance(metadata, Unanswered):
        raise NotDoneError(metadata)
    return metadata


def _spec(body: bytes) -> dict[str, Any]:
    """The spec in an answer, which is an object."""
    spec = orjson.loads(body).get("spec")
    return spec if isinstance(spec, dict) else {}


def _has(body: bytes, path: Iterable[str]) -> bool:
    """Whether the object in an answer has the field."""
    value = orjson.loads(body)
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value is not None


def _has_taint_of_lost_node(body: bytes) -> bool:
    metadata_of(body, "uid")
    taints = _spec(body).get("taints")
    found = taints if isinstance(taints, list) else ()
    return any(isinstance(taint, dict) and taint.get("key") in LOST_NODE_TAINTS for taint in found)


def _too_large(message: str) -> Refused:
    """The refusal of a body, as API servers word it."""
    code, reason = 413, "RequestEntityTooLarge"
    status = {"status": "Failure", "message": message, "reason": reason, "code": code}
    return Refused(code, message, orjson.dumps(status), reason=reason, kind=Refusal.TOO_LARGE)


def _is_final(refused: Refused) -> bool:
    """Whether the API server refused to create a Pod, and would refuse again."""
    return refused.by_api and classify_creation_refusal(refused) is not None
