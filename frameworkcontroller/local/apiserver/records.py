"""What the store holds: one immutable record per version of an object, and one change per accepted write.

A record's truth is its JSON text. Whoever wants to modify an object decodes a private copy of it, so no reader can
ever see a half-made change, nothing is ever copied deeply, and a thousand watchers send the very same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import orjson

from frameworkcontroller.local.apiserver import depth, gojson

Json: TypeAlias = dict[str, Any]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

# The version comes first in the metadata, so that giving an object another version is a splice of its text.
_HEAD: Final = b'{"metadata":{"resourceVersion":"'
_EMPTY: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Owner:
    """One of an object's ``ownerReferences``."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool
    block_owner_deletion: bool


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One version of one object."""

    resource: str
    """``pods`` or ``plural.group``, as :attr:`ServedType.resource`."""
    key: str
    """``namespace/name``, or ``name`` where there is no namespace."""
    revision: int
    """The object's resourceVersion."""
    body: bytes
    """Its JSON without ``apiVersion`` and ``kind``: those belong to the version it is read through."""
    uid: str
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    """What field selectors of its type may ask for."""
    finalizers: tuple[str, ...]
    owners: tuple[Owner, ...]
    deleting: bool
    """Whether it has a deletionTimestamp."""

    @property
    def namespace(self) -> str:
        """Its namespace, empty where it has none."""
        return self.key.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    def document(self) -> Json:
        """A private, freely modifiable copy of the object, without ``apiVersion`` and ``kind``."""
        document: Json = orjson.loads(self.body)
        return document

    def at(self, revision: int) -> Record:
        """The same content under another resourceVersion."""
        rest = self.body[self.body.index(b'"', len(_HEAD)) :]
        return replace(self, revision=revision, body=_HEAD + b"%d" % revision + rest)


@dataclass(frozen=True, slots=True)
class Origin:
    """Who made a write, and how: nothing decides on it, a checker can."""

    verb: str
    """``create``, ``update``, ``patch``, ``delete``, ``deletecollection``."""
    subresource: str = ""
    agent: str = ""
    """User-Agent of the client, or the part of the server that acted on its own: ``garbage-collector``, ..."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One accepted write."""

    revision: int
    type: ChangeType
    old: Record | None
    """What was there before; None if this created the object."""
    record: Record
    """What is there now. For a deletion: the last version, under the resourceVersion of the deletion."""
    origin: Origin

    @property
    def new(self) -> Record | None:
        """What is there now; None after a deletion."""
        return None if self.type == "DELETED" else self.record


def make_record(resource: str, key: str, revision: int, obj: Mapping[str, Any], fields: Mapping[str, str]) -> Record:
    """The record of ``obj`` (which is only read) as written at ``revision``; 0 stands for a dry run's, of no write.

    Raises StatusError if it has too many levels to be kept.
    """
    metadata = obj["metadata"]
    document: Json = {"metadata": {"resourceVersion": str(revision)} if revision else {}}
    document["metadata"].update((k, v) for k, v in metadata.items() if k != "resourceVersion")
    document.update((k, v) for k, v in obj.items() if k not in {"apiVersion", "kind", "metadata"})
    return Record(
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


def owners_of(metadata: Mapping[str, Any]) -> tuple[Owner, ...]:
    """``metadata.ownerReferences``, read."""
    references = metadata.get("ownerReferences")
    if not references:
        return ()
    return tuple(
        Owner(
            api_version=reference.get("apiVersion") or "",
            kind=reference.get("kind") or "",
            name=reference.get("name") or "",
            uid=reference.get("uid") or "",
            controller=bool(reference.get("controller")),
            block_owner_deletion=bool(reference.get("blockOwnerDeletion")),
        )
        for reference in references
    )
