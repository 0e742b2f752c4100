"""The Framework as this process knows it: from the cache, live reads, and the answers to its own requests.

Source: docs/guarantees.md (the preconditions of a status write).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Self

from frameworkcontroller.api.codec import AddedFields, EncodedStatus, StatusError, added_fields, decode_status
from frameworkcontroller.api.objects import (
    Framework,
    FrameworkRecord,
    Parsed,
    QueueLabels,
    compressed_json,
    decoded_json,
    decompressed_json,
    encoded_json,
)
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import FrameworkStatus
from frameworkcontroller.machine.kernel.exchanges import FinalizersAre
from frameworkcontroller.machine.kernel.model import Limits, require
from frameworkcontroller.machine.parts import PARTS
from frameworkcontroller.machine.specreading import (
    LARGE_SPEC_BYTES,
    Ends,
    ReadSpec,
    ends_in,
    ends_of,
    read_spec,
    spec_to_end,
)


class KnownFramework:
    """Spec, metadata and stored version of one Framework."""

    def __init__(self, record: FrameworkRecord, status: FrameworkStatus | None) -> None:
        """``status``: the record's."""
        self.uid = record.uid
        self.stored = Stored.in_cache(record, status)
        self.framework: Framework | None = None
        """At the newest known generation; None before the first pass, and while another spec may be the stored one."""
        self.spec_error = ""
        """Why the spec is invalid."""
        self._ends = Ends()
        """The ending fields of the last spec, or each of the last one in which it was valid."""
        self._large_spec: ReadSpec | None = None
        """The last spec that was parsed, if it is large."""
        self._labels: QueueLabels | None = None
        """The labels that parts read, by the last live read or a later version in the cache."""
        self._labels_version = ""
        """The resourceVersion in the cache whose labels were read last."""
        self._cached_held = _is_held(record.finalizers)
        """Whether the cache showed a finalizer of a part when it was read last."""
        self._held_version = record.resource_version
        """The resourceVersion in the cache by then."""

    # --- the cache ---

    def on_event(self, record: FrameworkRecord) -> None:
        """The Framework changed. If only its spec did, know its version: no write of the status is refused for it.

        The newer generation shows that the cache is ahead; the status, that it is the stored one. Later records have
        none.
        """
        if self.framework is not None and record.generation > self.framework.generation:
            self.stored.changed_spec(record)

    def must_read(self, record: FrameworkRecord) -> bool:
        """Whether ``read`` needs the spec of this record, which is large: give it to ``on_read`` before."""
        large, known = self._large_spec, self.framework
        is_new = known is None or record.generation > known.generation
        return is_new and len(record.spec_json) > LARGE_SPEC_BYTES and not (large is not None and large.is_of(record))

    def on_read(self, read: ReadSpec) -> None:
        """Keep a large spec for the next ``read``."""
        self._large_spec = read

    def read(self, record: FrameworkRecord, status: FrameworkStatus | None, limits: Limits) -> Framework:
        """The Framework at the newest known generation. ``status``: the tracked one."""
        before, held, labels = self.framework, self._read_finalizers(record), self._read_labels(record, limits)
        deleting = record.deletion_time is not None
        if before is not None and record.generation <= before.generation and deleting <= before.deleting:
            self._set_metadata()
            return require(self.framework, "Framework")
        if before is not None and record.generation < before.generation:
            spec, generation = before.spec, before.generation
        else:
            spec, generation = self._read_spec(record, status), record.generation
        ignored = "" if record.queue is None or _reads_labels(limits) else record.queue.queue_name
        self.framework = Framework(
            record.namespace,
            record.name,
            record.uid,
            generation,
            deleting,
            spec,
            labels,
            ignored,
            held,
            self.spec_error,
        )
        return self.framework

    def is_behind(self, record: FrameworkRecord) -> bool:
        """Whether the record, in the cache, is of a later version than the stored one that is known."""
        return record.resource_version != self.stored.resource_version

    def must_confirm(self, status: FrameworkStatus | None, limits: Limits) -> bool:
        """Whether a live read must come before the first plan, as a part acts on the cached status."""
        if self.stored.confirmed:
            return False
        if _is_held(self.stored.finalizers) and not self._cached_held:
            return True
        return any(part.must_confirm(status, limits) for part in PARTS.must_confirm)

    def forget_spec(self) -> None:
        self.framework = None

    def save_memory(self) -> None:
        """Drop specs: most Frameworks of a big cluster are completed."""
        self.framework = self._large_spec = None

    def _read_spec(self, record: FrameworkRecord, status: FrameworkStatus | None) -> FrameworkSpec:
        read = self._large_spec
        if read is None or not read.is_of(record):
            read = read_spec(record)
            self._large_spec = read if read.digest else None
        self.spec_error = read.error
        if read.spec is None:
            self._ends = ends_in(read.ends, self._ends)
            return spec_to_end(self._ends, status)
        self._ends = ends_of(read.spec)
        return read.spec

    def _read_finalizers(self, record: FrameworkRecord) -> bool:
        """Whether a part holds the Framework. A change by others that the cache shows must be confirmed.

        The cache may be behind the answer that has shown our own change.
        """
        held = _is_held(self.stored.finalizers)
        if record.resource_version != self._held_version:
            self._held_version = record.resource_version
            cached = _is_held(record.finalizers)
            if cached not in (self._cached_held, held):
                self.stored.confirmed = False
            self._cached_held = cached
        return held

    def _read_labels(self, record: FrameworkRecord, limits: Limits) -> QueueLabels | None:
        """The labels. They have no generation: if the cache shows others than are known, they must be confirmed."""
        if not _reads_labels(limits) or record.resource_version == self._labels_version:
            return self._labels
        if record.queue != self._labels:
            self.stored.confirmed = False
            self._labels = record.queue
        self._labels_version = record.resource_version
        return self._labels

    # --- answers ---

    def is_known(self, live: FrameworkRecord) -> bool:
        """Whether spec and status of a live read are the known ones. Raises StatusError if its status is invalid."""
        known = self.framework
        return self.stored.has_status_of(live) and known is not None and live.generation == known.generation

    def confirm(self, live: FrameworkRecord, limits: Limits) -> bool:
        """Take the version and the metadata of a live read that ``is_known``. Return whether the metadata was known."""
        self.stored.resource_version, self.stored.finalizers = live.resource_version, live.finalizers
        self.stored.confirmed = True
        before = self.framework
        if _reads_labels(limits):
            self._labels = live.queue
        self._set_metadata()
        return self.framework is before

    def finalizers_are(self, now: FinalizersAre) -> bool | None:
        """Take the finalizers of a patch, which has tested the version: the status is as it was.

        Return whether a part holds the Framework; None if another version is known by now.
        """
        if self.stored.resource_version != now.before:
            return None
        self.stored.resource_version, self.stored.finalizers = now.resource_version, now.finalizers
        self._set_metadata()
        return _is_held(now.finalizers)

    def replace(self, live: FrameworkRecord, status: FrameworkStatus | None, digest: bytes) -> None:
        """Another writer has written this status, with this digest.

        The generation may be older: the API server may have been restored from a backup.
        """
        added = added_fields(status)
        self.stored = Stored.in_answer(live.name, live.resource_version, live.finalizers, digest, added)
        self.framework = None

    def _set_metadata(self) -> None:
        known, held = self.framework, _is_held(self.stored.finalizers)
        if known is not None and (known.queue != self._labels or known.held != held):
            self.framework = replace(known, queue=self._labels, held=held)


_FINALIZERS: Final = frozenset(part.finalizer for part in PARTS if part.finalizer)


def _is_held(finalizers: tuple[str, ...]) -> bool:
    return not _FINALIZERS.isdisjoint(finalizers)


def _reads_labels(limits: Limits) -> bool:
    return any(part.reads_labels(limits) for part in PARTS.reads_labels)


@dataclass(slots=True)
class Stored:
    """Version and status of the stored Framework.

    After a failed precondition, they show whether another client changed the status or only the rest.
    """

    name: str
    resource_version: str
    finalizers: tuple[str, ...] = ()
    """At this version."""
    added: AddedFields = field(default_factory=dict)
    """Fields of the status that an older CRD lacks."""
    confirmed: bool = False
    """Whether an answer has shown it, not only the cache."""
    unsure: bytes | None = None
    """Digest of the last write if its answer was lost: it may be stored."""
    _digest: bytes | None = None
    """Of the status; None: not computed from ``_json`` yet. A restart finds many that are never compared."""
    _json: bytes | Parsed | None = None
    """The status in the cache, compressed."""

    @classmethod
    def in_cache(cls, record: FrameworkRecord, status: FrameworkStatus | None) -> Self:
        """The Framework in the cache. ``status``: the record's."""
        json = compressed_json(record.status_json)
        return cls(record.name, record.resource_version, record.finalizers, added_fields(status), _json=json)

    @classmethod
    def in_answer(
        cls, name: str, resource_version: str, finalizers: tuple[str, ...], digest: bytes, added: AddedFields
    ) -> Self:
        """The Framework in an answer of the API server."""
        return cls(name, resource_version, finalizers, added, confirmed=True, _digest=digest)

    @property
    def digest(self) -> bytes:
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
        """Whether a status with this digest is the stored one, or the one of a write without an answer."""
        return digest in (self.digest, self.unsure)

    def changed(self, resource_version: str, digest: bytes) -> None:
        """It has this version now, and a status with this digest."""
        self.resource_version, self._digest, self._json = resource_version, digest, None

    def changed_spec(self, record: FrameworkRecord) -> None:
        """A newer spec has given it another version. Take that over if nothing else has changed."""
        with suppress(StatusError):
            if record.finalizers == self.finalizers and self.has_status_of(record):
                self.resource_version = record.resource_version


def digest_of(name: str, status: FrameworkStatus | None) -> bytes:
    """Digest of the status of the Framework ``name``, which does not depend on compression."""
    return b"" if status is None else EncodedStatus(name, status).digest
