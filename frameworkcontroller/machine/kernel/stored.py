"""The stored Framework as far as a reconciler knows it: whether a status that it is shown is the one it continues from.

Source: docs/guarantees.md (the preconditions of a status write).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from frameworkcontroller.api.codec import AddedFields, EncodedStatus, StatusError, added_fields, decode_status
from frameworkcontroller.api.objects import (
    FrameworkRecord,
    Parsed,
    compressed_json,
    decoded_json,
    decompressed_json,
    encoded_json,
)
from frameworkcontroller.api.status import FrameworkStatus


@dataclass(slots=True)
class Stored:
    """The last known stored Framework.

    After a failed precondition, version and digest show whether another client changed the status or only the rest.
    """

    name: str
    resource_version: str
    finalizers: tuple[str, ...] = ()
    """At this version."""
    added: AddedFields = field(default_factory=dict)
    """Fields of the status that an older CRD lacks."""
    confirmed: bool = False
    """Whether an answer of the API server has shown it, not only the cache."""
    unsure: bytes | None = None
    """Digest of the last write if its answer was lost: it may be stored."""
    _digest: bytes | None = None
    """Of the status; None: that of ``_json``. A restart finds many that are never compared."""
    _json: bytes | Parsed | None = None
    """The status in the cache, compressed."""

    @classmethod
    def in_cache(cls, record: FrameworkRecord, status: FrameworkStatus | None) -> Self:
        """What the cache shows. ``status``: that of the record."""
        json = compressed_json(record.status_json)
        return cls(record.name, record.resource_version, record.finalizers, added_fields(status), _json=json)

    @classmethod
    def in_answer(
        cls, name: str, resource_version: str, finalizers: tuple[str, ...], digest: bytes, added: AddedFields
    ) -> Self:
        """What an answer of the API server has shown."""
        return cls(name, resource_version, finalizers, added, confirmed=True, _digest=digest)

    @property
    def digest(self) -> bytes:
        """Digest of the status."""
        if self._digest is None:
            self._digest = digest_of(self.name, decode_status(decoded_json(decompressed_json(self._json))))
            self._json = None
        return self._digest

    def has_status_of(self, record: FrameworkRecord) -> bool:
        """Whether the record has this status. Raises StatusError if its status is invalid."""
        if self._digest is None and encoded_json(record.status) == decompressed_json(self._json):
            return True
        return digest_of(self.name, decode_status(record.status)) == self.digest

    def may_be(self, digest: bytes) -> bool:
        """Whether a status with this digest is the stored one, or that of the write whose answer was lost."""
        return digest in (self.digest, self.unsure)

    def changed(self, resource_version: str, digest: bytes) -> None:
        """It has this version now, and a status with this digest."""
        self.resource_version, self._digest, self._json = resource_version, digest, None

    def see_spec(self, record: FrameworkRecord) -> None:
        """Know the version that a newer spec has given to this Framework, if that is all that has changed."""
        if record.finalizers != self.finalizers:
            return
        try:
            has_status = self.has_status_of(record)
        except StatusError:
            return
        if has_status:
            self.resource_version = record.resource_version


def digest_of(name: str, status: FrameworkStatus | None) -> bytes:
    """Digest of the status of the Framework ``name``, which does not depend on compression."""
    return b"" if status is None else EncodedStatus(name, status).digest
