"""The change of a volume claim that exists."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import is_claim_of
from frameworkcontroller.machine.kernel.actions import PartAction
from frameworkcontroller.machine.kernel.exchanges import (
    Created,
    Exchange,
    Exists,
    Gone,
    NotDoneError,
    Remains,
    find_metadata,
    identity_in,
    metadata_of,
)
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    MergePatch,
    Refusal,
    Refused,
    Request,
)


@dataclass(frozen=True, slots=True)
class MarkClaim(PartAction):
    """Set the labels, the annotations and the owner of a volume claim, if it is that of its Task.

    ``identity``: values of ``names.CLAIM_IDENTITY``. ``owner``: the reference to the Framework as JSON, None for none.
    """

    framework_uid: str
    identity: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    owner: bytes | None
    needs_live: ClassVar[bool] = True

    def exchange(self) -> Exchange:
        target = self.target
        metadata = yield from find_metadata(target)
        if metadata is None:
            return Gone()
        found = identity_in(target, metadata)
        if found.deleting or not is_claim_of(found, self.identity, self.framework_uid):
            return Exists(found)
        change = self._change(metadata, owned=found.controller_uid is not None)
        if not change:
            return Created(found.uid)
        if names.FRAMEWORK_UID in change.get("annotations", ()) and not (yield from self._framework_exists()):
            return Remains("its Framework is gone")
        # Both are preconditions: nothing that another client has changed since is undone.
        change |= {"uid": found.uid, "resourceVersion": metadata.get("resourceVersion")}
        answer = yield MergePatch(target.kind, target.name, orjson.dumps({"metadata": change}))
        match answer:
            case Answered():
                return Created(found.uid)
            case Refused(kind=Refusal.OBJECT_NOT_FOUND):
                return Gone()
            case Refused(kind=Refusal.CONFLICT, message=message):
                return Remains(message)
        raise NotDoneError(answer)

    def _framework_exists(self) -> Generator[Request, Answer, bool]:
        """Whether the Framework still exists, now that the claim was read.

        If so, no later Framework of its name had adopted the claim, which would be lost with an owner that is gone.
        """
        answer = yield Get(Kind.FRAMEWORK, self.identity[1])
        match answer:
            case Answered(body=body):
                return bool(metadata_of(body, "uid")["uid"] == self.framework_uid)
            case Refused(kind=Refusal.OBJECT_NOT_FOUND):
                return False
        raise NotDoneError(answer)

    def _change(self, metadata: Mapping[str, Any], *, owned: bool) -> dict[str, Any]:
        """The changes of the metadata, empty if they are as wanted."""
        change: dict[str, Any] = {}
        for field_name, wanted in (("labels", self.labels), ("annotations", self.annotations)):
            present = metadata.get(field_name) or {}
            if missing := {key: value for key, value in wanted if present.get(key) != value}:
                change[field_name] = missing
        if owned != (self.owner is not None):
            others = [one for one in metadata.get("ownerReferences") or () if one.get("uid") != self.framework_uid]
            change["ownerReferences"] = others if self.owner is None else [*others, orjson.loads(self.owner)]
        return change
