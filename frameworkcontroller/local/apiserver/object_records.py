"""The content of the store: an immutable record per version of an object, and a change per accepted write.

A record consists of its JSON text. A writer decodes a private copy, so readers never see partial changes, nothing is
deep-copied, and all watchers send the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import orjson

from frameworkcontroller.api import gojson
from frameworkcontroller.local.apiserver import depth

Json: TypeAlias = dict[str, Any]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

# The version comes first in the metadata, so that it can be replaced by splicing the text.
_HEAD: Final = b'{"metadata":{"resourceVersion":"'
_EMPTY: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """One of an object's ``ownerReferences``."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool
    block_owner_deletion: bool


@dataclass(frozen=True, slots=True, eq=False)
class ObjectRecord:
    """One version of one object."""

    resource: str
    """``pods`` or ``plural.group``, as in :attr:`ApiResource.resource`."""
    key: str
    """``namespace/name``, or ``name`` without a namespace."""
    revision: int
    """The object's resourceVersion."""
    body: bytes
    """The JSON without ``apiVersion`` and ``kind``, which depend on the version of the request."""
    uid: str
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    """The values of its field selectors."""
    finalizers: tuple[str, ...]
    owners: tuple[OwnerReference, ...]
    deleting: bool
    """Whether it has a deletionTimestamp."""

    @property
    def namespace(self) -> str:
        """Its namespace, or empty."""
        return self.key.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    def document(self) -> Json:
        """A private, modifiable copy of the object, without ``apiVersion`` and ``kind``."""
        document: Json = orjson.loads(self.body)
        return document

    def at(self, revision: int) -> ObjectRecord:
        """The same content at another resourceVersion."""
        rest = self.body[self.body.index(b'"', len(_HEAD)) :]
        return replace(self, revision=revision, body=_HEAD + b"%d" % revision + rest)


@dataclass(frozen=True, slots=True)
class Origin:
    """The author and verb of a write, only for checkers."""

    verb: str
    """``create``, ``update``, ``patch``, ``delete``, ``deletecollection``."""
    subresource: str = ""
    agent: str = ""
    """User-Agent of the client, or the server's component: ``garbage-collector``, ..."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One accepted write."""

    revision: int
    type: ChangeType
    old: ObjectRecord | None
    """The previous version; None for a creation."""
    record: ObjectRecord
    """The new version. For a deletion: the last version, at the resourceVersion of the deletion."""
    origin: Origin

    @property
    def new(self) -> ObjectRecord | None:
        """The new version; None for a deletion."""
        return None if self.type == "DELETED" else self.record


def make_record(
    resource: str, key: str, revision: int, obj: Mapping[str, Any], fields: Mapping[str, str]
) -> ObjectRecord:
    """Create the record of ``obj`` (which is not modified) at ``revision``; 0 is a dry run.

    Raises StatusError if it is nested too deeply.
    """
    metadata = obj["metadata"]
    document: Json = {"metadata": {"resourceVersion": str(revision)} if revision else {}}
    document["metadata"].update((k, v) for k, v in metadata.items() if k != "resourceVersion")
    document.update((k, v) for k, v in obj.items() if k not in {"apiVersion", "kind", "metadata"})
    return ObjectRecord(
        resource=resource,
        key=key,
        revision=revision,
        body=gojson.as_go(depth.encode(document)),
        uid=metadata.get("uid") or "",
        labels=dict(metadata["labels"]) if metadata.get("labels") else _EMPTY,
        fields=fields,
        finalizers=tuple(metadata.get("finalizers") or ()),
        owners=owners_of(metadata),
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def owners_of(metadata: Mapping[str, Any]) -> tuple[OwnerReference, ...]:
    """Parse ``metadata.ownerReferences``."""
    references = metadata.get("ownerReferences")
    if not references:
        return ()
    return tuple(
        OwnerReference(
            api_version=reference.get("apiVersion") or "",
            kind=reference.get("kind") or "",
            name=reference.get("name") or "",
            uid=reference.get("uid") or "",
            controller=bool(reference.get("controller")),
            block_owner_deletion=bool(reference.get("blockOwnerDeletion")),
        )
        for reference in references
    )
