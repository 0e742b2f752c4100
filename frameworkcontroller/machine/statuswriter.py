"""The write of the tracked status: its preconditions, its outcomes, and the status that another writer has stored.

Source: docs/guarantees.md.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from frameworkcontroller import depths
from frameworkcontroller.api.codec import AddedFields, EncodedStatus, added_fields, decode_status, dropped_fields
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import FrameworkStatus
from frameworkcontroller.machine.headline import set_headline
from frameworkcontroller.machine.kernel.actions import Outcome
from frameworkcontroller.machine.kernel.model import Env, SnapshotTrigger, Urgency, require
from frameworkcontroller.machine.kernel.pacing import Pacing
from frameworkcontroller.machine.kernel.protocol import (
    NOT_FOUND,
    Emit,
    Outbox,
    Persisted,
    RequeueError,
    StatusWritten,
    View,
    Warn,
    WriteResult,
    failure,
    read_live,
)
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    PatchStatus,
    Refusal,
    Refused,
    Request,
    Unanswered,
    metadata_in,
)
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.knownframework import KnownFramework, Stored, digest_of
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.plan import reject, stall

TOO_LARGE_RETRY_SEC: Final = 300.0
"""Interval of attempts to write an unchanged status that was too large: the limit may have been raised."""

PRUNED_RETRY_SEC: Final = 30.0
"""Interval of attempts to write a status with fields that the API server dropped: its CRD may have been updated."""

_FAILED_PRECONDITIONS_AT_ONCE: Final = 3
"""Failed preconditions in a row before a back-off. Causes: a client that writes as often, or an API server that was
restored from a backup."""

_REFUSALS_TO_IGNORE: Final = 5
"""Refusals in a row of a status, for no precondition, after which a deleted Framework is ignored. Otherwise its
deletion would wait indefinitely for an end that cannot be persisted."""

_COMPRESS_STATUS: Final = "set largeFrameworkCompression: true in the controller's configuration, or run fewer Tasks"
_SHRINK_STATUS: Final = "it is compressed already: run fewer Tasks, or let them end with shorter messages"


class Live(NamedTuple):
    """The stored Framework after another writer has changed its status, and the digest of that.

    ``error``: the pass ends with it, as this has happened too often in a row.
    """

    record: FrameworkRecord
    status: FrameworkStatus | None
    digest: bytes
    error: RequeueError | None = None


Written = Literal["accepted", "landed", "again"] | Live
"""The end of a write. ``landed``: as of ``WriteResult``. ``again``: nothing is decided by this pass any longer."""


class StatusWriter:
    """Writes the tracked status of one Framework. ``must_write``: before the next decision."""

    def __init__(self, known: KnownFramework, outbox: Outbox, *, compress: bool) -> None:
        """``compress``: config largeFrameworkCompression."""
        self.pacing = Pacing()
        self.must_write = False
        self.cannot_store = False
        """Whether the API server has refused the tracked status, or dropped fields of it."""
        self.failed_preconditions = 0
        self.unwritten_creations: list[Outcome] = []
        """Outcomes of creations since the last accepted write, to be folded into another status after a take-over."""
        self._known, self._outbox, self._compress = known, outbox, compress
        self._not_before = 0.0
        """When (monotonic seconds) to retry a status that was too large, or was stored without some fields."""
        self._refusals = 0
        """In a row, of the tracked status, for no precondition."""
        self._too_large_logged = ""

    def wait_sec(self, tracker: Tracker, clock: float) -> float:
        """Seconds until a status of this generation may be written again that could not be stored; <= 0: now."""
        known = self._known.framework
        is_same = known is not None and tracker.process.generation == known.generation
        return self._not_before - clock if is_same else 0.0

    def restart(self, *, must_write: bool) -> None:
        """Continue with the status that another writer has stored."""
        self.must_write, self._not_before = must_write, 0.0

    def write(
        self, tracker: Tracker, view: View, offered: Collection[SnapshotTrigger]
    ) -> Generator[Request, Answer, Written]:
        """Write the tracked status. ``offered``: as of ``Outbox.log_snapshots``.

        Raises:
            RequeueError: a transient failure.
        """
        stored, framework = self._known.stored, require(self._known.framework, "Framework")
        # After a take-over nothing is decided yet: outcomes are valid for any spec.
        generation = framework.generation if tracker.process.generation is None else tracker.process.generation
        encoded = self._encode(tracker)
        self._outbox.log_snapshots(stored.resource_version, offered)
        began = view.env.clock
        self.must_write = True
        whole = encoded.added != stored.added
        answer = yield self._patch(generation, encoded, whole=whole)
        match _version_in(answer):
            case str(version) if whole and (dropped := dropped_fields(encoded.added, _status_in(answer))):
                self._count(encoded, "pruned")
                self._stall_pruned(tracker, version, answer, dropped, view.env)
                return "again"
            case str(version):
                self._count(encoded, "accepted")
                self._accept(tracker, version, encoded.digest, encoded.added)
                self.pacing.wrote(began, view.env.clock, len(encoded.body))
                return "accepted"
            case Refused(kind=Refusal.NOT_FOUND | Refusal.OBJECT_NOT_FOUND) as failed:
                self._count(encoded, "not_found")
                raise failure(NOT_FOUND, failed)
            case Refused(kind=Refusal.INVALID | Refusal.CONFLICT | Refusal.ALREADY_EXISTS) as failed:
                return self._resolve(tracker, (yield from self._read_live()), generation, encoded, failed)
            case Refused(kind=Refusal.TOO_LARGE) as failed:
                live = yield from self._read_live()
                if (live.generation, live.resource_version) != (generation, stored.resource_version):
                    return self._resolve(tracker, live, generation, encoded, failed)
                self._count(encoded, "too_large")
                yield from self._stall_too_large(live, generation, encoded, failed, view)
                return "again"
            case failed:
                self._count(encoded, "error")
                stored.unsure = encoded.digest
                if isinstance(failed, Refused) and failed.kind is Refusal.OTHER and failed.by_api:
                    self._refused_status()
                raise failure(f"cannot write the status: {failed.message}", failed)

    def _encode(self, tracker: Tracker) -> EncodedStatus:
        status = require(tracker.status, "status")
        set_headline(tracker, status, self._known.framework)
        return EncodedStatus(self._known.stored.name, status, compress=self._compress)

    def _patch(self, generation: int, encoded: EncodedStatus, *, whole: bool = False) -> PatchStatus:
        stored = self._known.stored
        return PatchStatus(stored.name, "/status", encoded, self._known.uid, generation, stored.resource_version, whole)

    def _read_live(self) -> Generator[Request, Answer, FrameworkRecord]:
        return read_live((yield Get(Kind.FRAMEWORK, self._known.stored.name)), self._known.uid)

    def _count(self, encoded: EncodedStatus, result: WriteResult) -> None:
        self._outbox.add(StatusWritten(result, len(encoded.body)))

    def _accept(self, tracker: Tracker, version: str, digest: bytes, added: AddedFields) -> None:
        stored = self._known.stored
        self._known.stored = Stored.in_answer(stored.name, version, stored.finalizers, digest, added)
        self.pacing.rested = tracker.task_states.are_at_rest
        self.pacing.unwritten_since = None
        self.must_write = self.cannot_store = False
        self.failed_preconditions = self._refusals = 0
        self._too_large_logged = ""
        self.unwritten_creations.clear()
        tracker.on_persisted()
        if tracker.holds.end_stall(None, LifeReason.FIELDS_DROPPED):
            tracker.agenda.look()
        counters, tracker.process.counters = tracker.process.counters, None
        if counters is not None:
            self._outbox.add(Persisted(counters))
        self._outbox.emit_records()

    # --- failures ---

    def _resolve(
        self, tracker: Tracker, live: FrameworkRecord, generation: int, encoded: EncodedStatus, refused: Refused
    ) -> Written:
        """Handle a failed precondition, by comparison with the live Framework."""
        stored = self._known.stored
        if live.resource_version == stored.resource_version and live.generation == generation:
            if self._known.spec_error:
                # Servers before 1.30 refuse every status of an object with an invalid spec: emit that without a write.
                records = self._outbox.records
                if found := [one for one in records if one.reason is LifeReason.INVALID_SPEC]:
                    self._outbox.records = [one for one in records if one not in found]
                    self._outbox.add(Emit(found))
            self._count(encoded, "conflict")
            self._refused_status()
            raise failure(f"the API server refuses the status: {refused.message}", refused)
        status = decode_status(live.status)
        digest = digest_of(stored.name, status)
        if digest == encoded.digest:
            # The write had been accepted: an earlier answer was lost.
            self._count(encoded, "landed")
            stored.finalizers = live.finalizers
            self._accept(tracker, live.resource_version, digest, encoded.added)
            return "landed"
        self._count(encoded, "conflict")
        error = self._precondition_failed(refused)
        is_known = stored.may_be(digest)
        if is_known and live.generation == generation:
            # Only metadata changed, or the last write had been accepted.
            stored.changed(live.resource_version, digest)
            stored.finalizers, stored.added = live.finalizers, added_fields(status)
            if error is not None:
                raise error
            return "again"
        if not is_known:
            self._outbox.add(Warn("status changed by another writer; continuing from the stored version"))
        return Live(live, status, digest, error)

    def _refused_status(self) -> None:
        self._refusals += 1
        self.cannot_store |= self._refusals >= _REFUSALS_TO_IGNORE

    def _precondition_failed(self, refused: Refused) -> RequeueError | None:
        self.failed_preconditions += 1
        if self.failed_preconditions <= _FAILED_PRECONDITIONS_AT_ONCE:
            return None
        return failure(f"the Framework changes before each write of its status: {refused.message}", refused)

    def _stall_too_large(
        self, live: FrameworkRecord, generation: int, encoded: EncodedStatus, refused: Refused, view: View
    ) -> Generator[Request, Answer, None]:
        """Set the Stalled condition in the stored status, and decide nothing else."""
        text = (
            f"The status, {len(encoded.body)} bytes, does not fit into the API server ({refused.message}): "
            f"{_SHRINK_STATUS if self._compress else _COMPRESS_STATUS}. "
            "Until then the controller does nothing for this Framework"
        )
        tracker = Tracker(decode_status(live.status))
        # Without a spec: a Framework without a status gets one without Tasks, which fits.
        framework = replace(require(self._known.framework, "Framework"), spec=FrameworkSpec(), invalid="")
        step = reject(framework, tracker, text, view.env, reason=LifeReason.STATUS_TOO_LARGE)
        if tracker.urgency is not Urgency.NONE:
            stalled = self._encode(tracker)
            answer = yield self._patch(generation, stalled)
            match _version_in(answer):
                case str(version):
                    self._known.stored.changed(version, stalled.digest)
                case Refused(kind=Refusal.INVALID | Refusal.CONFLICT | Refusal.ALREADY_EXISTS) as failed:
                    if (error := self._precondition_failed(failed)) is not None:
                        raise error
                    return
                case Refused(kind=Refusal.TOO_LARGE, message=message):
                    # Not even the condition fits: log it, once per refusal.
                    if self._too_large_logged == message:
                        step.records.clear()
                    self._too_large_logged = message
                case failed:
                    raise failure("cannot write the condition Stalled of a status that is too large", failed)
        self.cannot_store = True
        self._not_before = view.env.clock + TOO_LARGE_RETRY_SEC
        if step.records:
            self._outbox.add(Emit(step.records))

    def _stall_pruned(self, tracker: Tracker, version: str, answer: Answer, dropped: list[str], env: Env) -> None:
        """Decide nothing while a status is stored without some fields.

        The condition Stalled is part of the same status, which is written again at intervals.
        """
        self.cannot_store = True
        name, finalizers, status = self._known.stored.name, self._known.stored.finalizers, _status_in(answer)
        decoded = decode_status(status)
        self._known.stored = Stored.in_answer(
            name, version, finalizers, digest_of(name, decoded), added_fields(decoded)
        )
        text = (
            f"The API server drops {', '.join(dropped)}: its CustomResourceDefinition is older than this controller. "
            "Until it is updated, the controller does nothing for this Framework"
        )
        before = tracker.holds.stalls.get(None)
        is_new = before is None or before.reason is not LifeReason.FIELDS_DROPPED
        framework = require(self._known.framework, "Framework")
        self._outbox.add(Emit(stall(framework, tracker, LifeReason.FIELDS_DROPPED, text, env).records))
        self._not_before = env.clock + (0.0 if is_new else PRUNED_RETRY_SEC)


def _status_in(answer: Answer) -> Any:
    return depths.loads(answer.body).get("status") if isinstance(answer, Answered) else None


def _version_in(answer: Answer) -> str | Refused | Unanswered:
    """The resourceVersion of the written Framework; the failure if it was not written."""
    if not isinstance(answer, Answered):
        return answer
    metadata = metadata_in(answer.body, "resourceVersion")
    return metadata if isinstance(metadata, Unanswered) else str(metadata["resourceVersion"])
