"""The requests that a machine asks its driver to send, and the answers to them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import orjson

from frameworkcontroller import depths
from frameworkcontroller.api import objectkinds
from frameworkcontroller.api.codec import EncodedStatus

Kind = objectkinds.Kind


@dataclass(frozen=True, slots=True)
class Target:
    """The object of an action, and its attempt.

    Of Pods also the Task's ``role``, ``index`` and ``instance`` (UID): an outcome is folded only into the Task instance
    and attempt that asked for the action. Other objects of Tasks outlive instances, and have
    only ``role`` and ``index``.
    """

    kind: Kind
    name: str
    attempt_id: int = 0
    role: str = ""
    index: int = -1
    instance: str = ""
    part: str = ""
    """Of an action of a part: its ``target_part``, such as "finalizer" for the Framework's. "" for the object."""

    @property
    def key(self) -> tuple[str, int] | str | None:
        """Role and index of the Task that the object belongs to, kind and name of another companion, else ``part``.

        None: the Framework or its ConfigMap.
        """
        if self.kind.of_task:
            return self.role, self.index
        if self.part or self.kind is Kind.FRAMEWORK:
            return self.part or None
        return self.object_key if self.kind.is_companion else None

    @property
    def object_key(self) -> str:
        """Kind and name, the key of the pauses between changes of the object, which other clients may undo at once."""
        return f"{self.kind}/{self.name}"

    @property
    def companion(self) -> str:
        """The name of an object that a Task has besides its Pod, "" for others."""
        return self.name if self.kind.of_task and self.kind.is_companion else ""


MAX_BODY_BYTES: Final = 3 << 20
"""API servers refuse larger requests."""

LARGE_BYTES: Final = 256 << 10
"""Size of a body from which few requests are in flight at once."""


class BodyTooLargeError(Exception):
    """A body would have more than ``MAX_BODY_BYTES``, and was not made."""

    def __init__(self, what: str, size: int) -> None:
        super().__init__(f"{what} would have {size:,} bytes, where API servers accept {MAX_BODY_BYTES:,}")


# --- requests ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Get:
    """Read an object. ``whole``: more than the metadata, which Frameworks and Nodes always are."""

    kind: Kind
    name: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Post:
    """Create an object from its JSON. ``whole``: the answer is to have the object as it is stored."""

    kind: Kind
    name: str
    body: bytes
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the object of that UID and, if given, ``resource_version``. ``force``: with grace period 0."""

    kind: Kind
    name: str
    uid: str
    force: bool
    propagation: str | None
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class MergePatch:
    """Merge JSON into an object, or into its ``subresource``."""

    kind: Kind
    name: str
    body: bytes
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Set ``path`` of the Framework's status to ``value``. Preconditions: UID, generation and resourceVersion.

    ``whole``: the answer is to have the status as it is stored, not only the metadata.
    """

    name: str
    path: str
    value: bytes | EncodedStatus
    uid: str
    generation: int
    resource_version: str
    whole: bool = False

    @property
    def size(self) -> int:
        return len(self.value.body if isinstance(self.value, EncodedStatus) else self.value)


@dataclass(frozen=True, slots=True)
class PatchFinalizers:
    """Add or remove (``index`` not None: its place) ``finalizer`` of an object. Preconditions: UID, resourceVersion.

    ``has_others``: whether the object has other finalizers.
    """

    kind: Kind
    name: str
    uid: str
    resource_version: str
    finalizer: str
    index: int | None = None
    has_others: bool = False

    @property
    def body(self) -> bytes:
        """The JSON patch."""
        path = "/metadata/finalizers"
        steps: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": self.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": self.resource_version},
        ]
        if self.index is not None:
            place = f"{path}/{self.index}"
            steps += [{"op": "test", "path": place, "value": self.finalizer}, {"op": "remove", "path": place}]
        elif self.has_others:
            steps.append({"op": "add", "path": f"{path}/-", "value": self.finalizer})
        else:
            steps.append({"op": "add", "path": path, "value": [self.finalizer]})
        return orjson.dumps(steps)


Request = Get | Post | Remove | MergePatch | PatchStatus | PatchFinalizers


# --- answers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """A success. ``body``: the returned object as JSON."""

    body: bytes


class Refusal(Enum):
    ALREADY_EXISTS = auto()
    CONFLICT = auto()
    INVALID = auto()
    OBJECT_NOT_FOUND = auto()
    NOT_FOUND = auto()
    """A 404 that does not name the object: of the resource type, or not of an API server."""
    TOO_LARGE = auto()
    TOO_MANY_REQUESTS = auto()
    SERVER_ERROR = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server refused, and did nothing.

    ``status_json``: its Status object. ``retry_after_sec``: its Retry-After. ``reason``: of the Status, "" if none.
    ``by_api``: False if a proxy or gateway answered.
    """

    code: int
    message: str
    status_json: bytes
    retry_after_sec: float = 0.0
    reason: str = ""
    kind: Refusal = Refusal.OTHER
    by_api: bool = True


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No usable answer: the request may have been executed."""

    message: str


Answer = Answered | Refused | Unanswered


def metadata_in(body: bytes, field: str | None = None) -> dict[str, Any] | Unanswered:
    """The metadata in an answer, which has the text ``field``; Unanswered if it is no such object."""
    with suppress(ValueError, KeyError, TypeError):
        metadata = depths.loads(body)["metadata"]
        if isinstance(metadata, dict) and (field is None or isinstance(metadata.get(field), str)):
            return metadata
    return Unanswered(f"the API server's answer is not an object: {body[:100]!r}")
