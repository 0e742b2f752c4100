"""The actions on a Framework's objects, and the requests that carry them out.

The ``exchange`` of an action is a generator without I/O: it yields a request, is sent its answer, and returns a result.
The rules that ask for actions are in framework.py and task.py; owned.py folds the outcomes into the status.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.machine.kernel.exchanges import (
    Accepted,
    Created,
    Exchange,
    Exists,
    FinalizersAre,
    Gone,
    NotDoneError,
    NotForced,
    Outdated,
    Patched,
    Remains,
    Result,
    confirm_gone,
    controlled_by,
    has_field,
    has_taint_of_lost_node,
    is_final,
    is_there,
    metadata_of,
    namesake,
    patched,
    read,
    spec_in,
    too_large,
)
from frameworkcontroller.machine.kernel.requests import (
    MAX_BODY_BYTES,
    Answer,
    Answered,
    BodyTooLargeError,
    Get,
    Kind,
    PatchFinalizers,
    Post,
    Refusal,
    Refused,
    Remove,
    Request,
    Target,
    Unanswered,
)

PROPAGATION: Final = {
    # The attempt is over only when its last Pod is gone (C3, C4).
    Kind.CONFIGMAP: "Foreground",
    Kind.FRAMEWORK: "Foreground",
}
"""How deletions treat dependents, by kind."""


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders a body, later. Unlike functions, those that render the same are equal."""

    render: Callable[..., bytes]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """Create the object. ``controller_uid``: of its controller, which identifies an existing object as ours.

    ``source``: the object's JSON, or its renderer: hundreds of up to three megabytes each may wait for a slot.
    ``field``: the path of a field that an API server may drop; the result says whether it did. ``is_large``: the body
    may have more than ``LARGE_BYTES``.
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
            return too_large(str(error))
        answer = yield Post(target.kind, target.name, body, whole=bool(self.field))
        match answer:
            case Answered(body=body):
                return Created(metadata_of(body, "uid")["uid"], not self.field or has_field(body, self.field))
            case Refused(kind=Refusal.ALREADY_EXISTS, message=message):
                return Exists((yield from namesake(target)), message)
            case Refused() as refused if target.kind is Kind.POD and is_final(refused):
                # An earlier request, whose answer was lost, may have created the Pod after all.
                found = yield from namesake(target)
                if found is not None and found.controller_uid == self.controller_uid:
                    return Exists(found)
        raise NotDoneError(answer)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of that UID.

    ``force``: with grace period 0. ``confirm``: done only when a live read no longer finds that UID.
    ``unrecorded``: no status records the object, so a live read of the Framework must confirm the status first.
    ``if_node_lost``: only if a live read shows that the Pod's Node is gone or unreachable. ``node``: the name of that
    Node, None if a live read of the Pod must find it. ``resource_version``: if given, only if the object has not
    changed since.
    """

    target: Target
    uid: str
    force: bool = False
    confirm: bool = False
    unrecorded: bool = field(default=False, compare=False)
    if_node_lost: bool = False
    node: str | None = field(default=None, compare=False)
    resource_version: str = field(default="", compare=False)

    def exchange(self) -> Exchange:
        target = self.target
        if self.if_node_lost and (reason := (yield from self._reason_to_spare())) is not None:
            return reason
        propagation = PROPAGATION.get(target.kind)
        answer = yield Remove(target.kind, target.name, self.uid, self.force, propagation, self.resource_version)
        match answer:
            case Answered(body=body):
                # A proxy's page must not look like an accepted deletion, which is never repeated.
                metadata_of(body)
                return (
                    (yield from confirm_gone(target, self.uid, "is still being deleted"))
                    if self.confirm
                    else Accepted()
                )
            case Refused(kind=Refusal.OBJECT_NOT_FOUND):
                return Gone()
            case Refused(kind=Refusal.CONFLICT | Refusal.ALREADY_EXISTS):
                # The precondition failed: the name belongs to another object now.
                if not (yield from is_there(target, self.uid)):
                    return Gone()
        raise NotDoneError(answer)

    def _reason_to_spare(self) -> Generator[Request, Answer, NotForced | Gone | None]:
        """Look at the Node of the Pod. Return None if it is lost, or the Pod was never bound to one."""
        node = self.node
        if node is None:
            found = yield from read(self.target.kind, self.target.name, whole=True)
            if found is None or metadata_of(found, "uid")["uid"] != self.uid:
                return Gone()
            node = spec_in(found).get("nodeName") or ""
            if not node:
                return None
        text = f"Pod {self.target.name} is not force-deleted (podForceDeletionPolicy NodeUnreachable)"
        answer = yield Get(Kind.NODE, node)
        match answer:
            case Answered(body=body):
                if has_taint_of_lost_node(body):
                    return None
                return NotForced(f"{text}: its Node {node} is neither unreachable nor out of service")
            case Refused(kind=Refusal.OBJECT_NOT_FOUND, by_api=True):
                return None
            case Refused(by_api=True, code=403 | 404 | 405):
                return NotForced(f"{text}: its Node {node} cannot be read: {answer.code}: {answer.message}", True)
        raise NotDoneError(replace(answer, message=f"its Node {node} cannot be read: {answer.message}"))


@dataclass(frozen=True, slots=True)
class ConfirmNone:
    """Confirm by a live read that ``controller_uid`` controls no object of that name, so that an attempt can end.

    Unlike with ``LookUp``, an object that exists is never adopted.
    """

    target: Target
    controller_uid: str

    def exchange(self) -> Exchange:
        return (yield from controlled_by(self.target, self.controller_uid))


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find out by a live read whether ``controller_uid`` controls an object of that name, which may be adopted."""

    target: Target
    controller_uid: str

    def exchange(self) -> Exchange:
        return (yield from controlled_by(self.target, self.controller_uid))


@dataclass(frozen=True, slots=True)
class ConfirmGone:
    """Confirm by a live read that the object of that UID, which the cache does not show, is gone."""

    target: Target
    uid: str

    def exchange(self) -> Exchange:
        return (yield from confirm_gone(self.target, self.uid, "exists, but the cache does not show it"))


@dataclass(frozen=True, slots=True)
class Relabel:
    """Restore the label with the Framework's name, by which the object of that UID is watched."""

    target: Target
    uid: str
    framework_name: str

    def exchange(self) -> Exchange:
        metadata = {"uid": self.uid, "labels": {names.FRAMEWORK_NAME: self.framework_name}}
        result = yield from patched(self.target, self.uid, {"metadata": metadata})
        return Accepted() if isinstance(result, Patched) else result


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
class LeaveNewer:
    """Leave an object that belongs to a later attempt than the status, once a live read confirms that status."""

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


Action = (
    Create | Delete | ConfirmNone | LookUp | ConfirmGone | Relabel | Patch | LeaveNewer | ChangeFinalizer | PartAction
)


@dataclass(frozen=True, slots=True)
class Outcome:
    action: Action
    result: Result


def needs_live_status(action: Action) -> bool:
    if isinstance(action, PartAction):
        return action.needs_live
    if isinstance(action, ChangeFinalizer):
        return not action.add
    return isinstance(action, LeaveNewer) or (isinstance(action, Delete) and action.unrecorded)


# --- parts of exchanges -----------------------------------------------------------------------------------------


def carry_out(action: Action) -> Exchange:
    """The exchange of ``action``. It never repeats a request."""
    try:
        return (yield from action.exchange())
    except NotDoneError as error:
        answer = error.answer
    if isinstance(answer, Unanswered):
        return answer
    if answer.kind is Refusal.SERVER_ERROR and not is_final(answer):
        # A 504 may follow a completed write: the outcome is unknown.
        return Unanswered(f"{answer.code}: {answer.message}")
    if not answer.by_api and answer.kind is not Refusal.TOO_MANY_REQUESTS:
        # A gateway's refusal must not complete a Task.
        return Unanswered(answer.message)
    return answer
