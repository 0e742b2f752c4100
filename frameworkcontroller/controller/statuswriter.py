"""The one write that matters, that of a Framework's status, and its guards (docs/guarantees.md: why they are enough).

- ``metadata.uid``: it lands on the Framework that it is about, not on a namesake;
- ``metadata.generation``: it lands on the spec that it was computed from;
- ``metadata.resourceVersion``: it overwrites only the status that this controller knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

import orjson

from frameworkcontroller.api.objects import Framework, FrameworkRecord, ObjectError, decode_framework
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.controller.ledger import Encoded, Entry, Ledger
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.requeue import RequeueError
from frameworkcontroller.kube.client import JSON_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, Invalid, KubeError, NotFound, TransportError, is_too_large
from frameworkcontroller.kube.fairsemaphore import FairSemaphore
from frameworkcontroller.machine.model import AttemptCounters, Env, Urgency
from frameworkcontroller.machine.plan import fold, reject
from frameworkcontroller.machine.reasons import Reason

_log = logging.getLogger(__name__)

BREATH_FACTOR: Final = 1.0
BREATH_MAX_SEC: Final = 2.0
"""A status that can wait is not written again before this many times as long as its last write took has passed, so
that a large one keeps the API server busy for at most half of the time."""

QUIET_SEC: Final = 1.0
"""What happens to several Tasks at once is seen one by one, so that it is gathered for as long as a write takes; but
not after so long a quiet: that it is the first of many is not to be expected then."""

RIDE_SEC: Final = 1.0
RIDE_FACTOR: Final = 10.0
RIDE_MAX_SEC: Final = 10.0
"""For so long a step that the next one is expected to follow at once waits to be written together with that: the
slower the API server answers, the longer the next one takes to come."""

TOO_LARGE_RETRY_SEC: Final = 300.0
"""A status that was too large is sent again, unchanged, only in case that the API server's limit was raised: each try
costs it seconds."""

_COMPRESS: Final = "set largeFrameworkCompression: true in the controller's configuration, or run fewer Tasks"
_FEWER: Final = "it is compressed already: run fewer Tasks, or let them end with shorter messages"

_GUARDS_FAILED_AT_ONCE: Final = 3
"""Guards that fail in a row before the next write waits: somebody else writes as often, or the cache is from another
time (an API server that was restored from a backup)."""

_NOT_THERE: Final = "the API server does not find the Framework, which the cache still shows"
"""Only the cache ends a Framework: a 404 is also what a proxy, or an API server that is starting, may say. What is
known of the Framework must outlive that, since the cache's copy of the status was given up for it."""

WriteResult = Literal["accepted", "landed", "conflict", "not_found", "too_large", "error"]
"""What became of a write of a status. ``landed``: accepted, as a live read told after its answer was lost."""


class StatusWriter:
    """Writes statuses, and finds out what became of them."""

    def __init__(
        self,
        client: KubeClient,
        ledger: Ledger,
        recorder: EventRecorder,
        slots: FairSemaphore,
        *,
        env: Callable[[], Env],
        clock: Callable[[], float],
        wrote: Callable[[WriteResult, int], None] | None = None,
        count_attempts: Callable[[AttemptCounters], None] | None = None,
        status_absent: Callable[[str], None] | None = None,
    ) -> None:
        """``clock``: monotonic seconds. ``slots``: writes take turns with all other requests of syncs.

        For metrics, ``wrote(result, bytes)`` is told of each write of a status, and ``count_attempts`` what an
        accepted write persisted. ``status_absent`` is told of each write of a Framework's status that was answered 404.
        """
        self._client = client
        self._ledger = ledger
        self._recorder = recorder
        self._slots = slots
        self._env = env
        self._clock = clock
        self._wrote = wrote
        self._count_attempts = count_attempts
        self._status_absent = status_absent

    def due(self, entry: Entry) -> float:
        """Not before when (monotonic seconds) the status as it is now is to be written."""
        urgency = entry.tracker.urgency
        if urgency is Urgency.NOW:
            return 0.0
        if entry.unwritten_since is None:
            entry.unwritten_since = self._clock()
        if urgency is Urgency.SOON and entry.tracker.is_at_rest and not entry.rested:
            # The last of what was under way has come: there is nothing to gather this with.
            return 0.0
        wait = 0.0
        if urgency is Urgency.LATER:
            wait = min(RIDE_MAX_SEC, max(RIDE_SEC, RIDE_FACTOR * entry.write_sec))
        elif entry.unwritten_since - entry.next_write < QUIET_SEC:
            wait = min(BREATH_MAX_SEC, entry.write_sec)
        return max(entry.next_write, entry.unwritten_since + wait)

    async def write(self, key: str, entry: Entry, catch_up: Callable[[], None] = lambda: None) -> bool:
        """Write the tracked status; False if a guard failed and the entry was brought up to date instead.

        ``catch_up`` is called when it is this write's turn: what came to pass until then can go with it.

        Raises:
            RequeueError: it may or may not have been accepted; it is to be written before anything else.
        """
        async with self._slots.taken(key):
            catch_up()
            return await self._write(key, entry)

    async def _write(self, key: str, entry: Entry) -> bool:
        framework = entry.framework
        if framework is None:
            raise RequeueError("the Framework is not read yet")
        # What was only learnt, and not decided, goes with any spec.
        decided_on = entry.tracker.generation
        generation = framework.generation if decided_on is None else decided_on
        encoded = await self._ledger.encode(framework.name, entry)
        self.keep_all(key, entry)
        began = self._clock()
        entry.persist_first = True
        try:
            resource_version = await self._patch(framework, entry, generation, encoded.body)
        except NotFound as error:
            self._count_write("not_found", encoded)
            raise RequeueError(_NOT_THERE) from error
        except (Invalid, Conflict) as error:
            if await self._resolve(key, entry, generation, encoded.digest, str(error)):
                self._count_write("landed", encoded)
                return True
            self._count_write("conflict", encoded)
            entry.guards_failed += 1
            if entry.guards_failed > _GUARDS_FAILED_AT_ONCE:
                raise RequeueError(f"the Framework keeps changing under the writes of its status: {error}") from error
            return False
        except KubeError as error:
            if is_too_large(error):
                self._count_write("too_large", encoded)
                return await self._stall(key, entry, framework, generation, encoded, str(error))
            self._count_write("error", encoded)
            entry.unsure = encoded.digest
            raise RequeueError(f"cannot write the status: {error}") from error
        self._count_write("accepted", encoded)
        self._accepted(key, entry, resource_version, encoded.digest)
        entry.write_sec = self._clock() - began
        entry.next_write = self._clock() + min(BREATH_MAX_SEC, BREATH_FACTOR * entry.write_sec)
        return True

    def _count_write(self, result: WriteResult, encoded: Encoded) -> None:
        if self._wrote is not None:
            self._wrote(result, len(encoded.body))

    async def patch(self, seen: FrameworkRecord, path: str, value: bytes) -> str:
        """Put JSON in that place of a Framework, if it is as it was seen; its new resourceVersion.

        Raises:
            KubeError: it was not, or the API server does not take it.
        """
        return await self._put(seen, seen.uid, seen.generation, seen.resource_version, path, value)

    async def _patch(self, framework: Framework, entry: Entry, generation: int, status: bytes) -> str:
        return await self._put(framework, entry.uid, generation, entry.resource_version, "/status", status)

    async def _put(
        self,
        who: Framework | FrameworkRecord,
        uid: str,
        generation: int,
        resource_version: str,
        path: str,
        value: bytes,
    ) -> str:
        """Write under the guards; the Framework's new resourceVersion."""
        body = orjson.dumps(
            [
                {"op": "test", "path": "/metadata/uid", "value": uid},
                {"op": "test", "path": "/metadata/generation", "value": generation},
                {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version},
                {"op": "add", "path": path, "value": orjson.Fragment(value)},
            ]
        )
        try:
            answer = await self._client.patch(
                FRAMEWORKS,
                who.name,
                body,
                who.namespace,
                content_type=JSON_PATCH,
                subresource="status",
                metadata_only=True,
                flow=who.key,
            )
        except NotFound:
            # The Framework is gone, or there is no status subresource.
            if self._status_absent is not None:
                self._status_absent(who.key)
            raise
        return _resource_version(answer)

    async def _stall(
        self, key: str, entry: Entry, framework: Framework, generation: int, encoded: Encoded, refusal: str
    ) -> bool:
        """The status is larger than what the API server stores: say so in the one that is stored. Always False.

        Nothing else happens: what the tracked status would justify waits for it to be persisted, as ever.
        """
        try:
            live = await self.look(key, framework.name, framework.namespace)
        except NotFound as error:
            raise RequeueError(_NOT_THERE) from error
        if (live.uid, live.generation, live.resource_version) != (entry.uid, generation, entry.resource_version):
            return await self._resolve(key, entry, generation, encoded.digest, refusal)
        stored = self._ledger.entry_of(live)
        # Without a spec, so that one that has no status yet gets one without Tasks, which fits.
        step = reject(
            replace(framework, spec=FrameworkSpec()),
            stored.tracker,
            f"The status, {len(encoded.body)} bytes, does not fit into the API server ({refusal}): "
            f"{_FEWER if self._ledger.compress else _COMPRESS}. Until then nothing more is done for this Framework",
            self._env(),
            reason=Reason.STATUS_TOO_LARGE,
        )
        if stored.tracker.urgency is not Urgency.NONE:
            said = await self._ledger.encode(framework.name, stored)
            try:
                entry.resource_version = await self._patch(framework, entry, generation, said.body)
            except (Invalid, Conflict):
                return False
            except KubeError as error:
                if not is_too_large(error):
                    raise RequeueError(f"cannot say that the status is too large: {error}") from error
                # Not even that fits any more: the log has to do, and once will do.
                told, entry.too_large_told = entry.too_large_told, str(error)
                if told == entry.too_large_told:
                    step.records.clear()
            else:
                entry.digest = said.digest
        entry.not_before = self._clock() + TOO_LARGE_RETRY_SEC
        self._recorder.record(key, entry.uid, step.records)
        return False

    def _accepted(self, key: str, entry: Entry, resource_version: str, digest: bytes) -> None:
        entry.resource_version = resource_version
        entry.digest = digest
        entry.unsure = None
        entry.confirmed = True
        entry.rested = entry.tracker.is_at_rest
        entry.unwritten_since = None
        entry.persist_first = False
        entry.guards_failed = 0
        entry.not_before = 0.0
        entry.too_large_told = ""
        entry.outcomes.clear()
        entry.tracker.persisted()
        attempt_counters, entry.tracker.attempt_counters = entry.tracker.attempt_counters, None
        if attempt_counters is not None and self._count_attempts is not None:
            self._count_attempts(attempt_counters)
        self.tell_all(key, entry)

    async def confirm(self, key: str, entry: Entry) -> bool:
        """Whether the status that the cache gave is the stored one; False if not, and the entry was brought up to date.

        To be asked before the first action that rests on it. Lists are consistent reads, but a server that was restored
        or lags behind, or a proxy, may answer with the past all the same, and the watch then tells all of it once more:
        what was right to do then would undo what was done since.

        Raises:
            KubeError, RequeueError: there is no knowing.
        """
        live = await self._look_again(key, entry)
        stored = self._ledger.entry_of(live)
        known = entry.framework
        if stored.digest == entry.digest and known is not None and live.generation == known.generation:
            entry.resource_version = live.resource_version
            entry.confirmed = True
            return True
        self._take_over(entry, live, stored)
        return False

    async def _resolve(self, key: str, entry: Entry, generation: int, digest: bytes, refusal: str) -> bool:
        """A guard failed: find out by a live read what it was, and what is to be believed from now on.

        True if the write had landed after all (an earlier answer was lost).
        """
        live = await self._look_again(key, entry)
        if live.resource_version == entry.resource_version and live.generation == generation:
            if entry.spec_error is not None:
                # One older than 1.30 takes no status for an object whose spec it would not take now: told without.
                self.tell_all(key, entry)
            raise RequeueError(f"the API server refuses the status: {refusal}")
        stored = self._ledger.entry_of(live)
        if stored.digest == digest:
            self._accepted(key, entry, live.resource_version, digest)
            return True
        if stored.digest in (entry.digest, entry.unsure) and live.generation == generation:
            # Only metadata changed, or the write before this one had landed: what is stored is as known.
            entry.resource_version = live.resource_version
            entry.digest = stored.digest
            return False
        if stored.digest not in (entry.digest, entry.unsure):
            _log.warning("[%s]: its status was written by somebody else: going on from theirs", key)
        self._take_over(entry, live, stored)
        return False

    def _take_over(self, entry: Entry, live: FrameworkRecord, stored: Entry) -> None:
        """Go on from what is stored."""
        # Decisions that were taken on another spec, or another status, are dropped and taken anew. What was learnt from
        # actions is not: without the UID of an object that was created, the object would have no owner.
        stored.tracker.inherit(entry.tracker)
        entry.tracker = stored.tracker
        entry.resource_version = live.resource_version
        entry.digest = stored.digest
        entry.unsure = None
        entry.confirmed = True
        entry.records.clear()
        entry.snapshots.clear()
        # Even an older generation: the API server may have been restored from a backup.
        entry.framework = None
        framework = entry.read(live)
        if entry.tracker.status is not None and entry.outcomes:
            entry.records.extend(fold(framework, entry.tracker, entry.outcomes, self._env()).records)
        entry.persist_first = entry.tracker.urgency is not Urgency.NONE
        entry.not_before = 0.0

    async def _look_again(self, key: str, entry: Entry) -> FrameworkRecord:
        """A live read of the Framework that the cache shows.

        Raises:
            KubeError, RequeueError: no usable answer, or it is not there.
        """
        namespace, _, name = key.partition("/")
        try:
            live = await self.look(key, name, namespace)
        except NotFound as error:
            raise RequeueError(_NOT_THERE) from error
        if live.uid != entry.uid:
            raise RequeueError("the Framework was deleted and another one of its name created")
        return live

    async def look(self, key: str, name: str, namespace: str) -> FrameworkRecord:
        """A live read of the Framework.

        Raises:
            NotFound: there is none.
            KubeError, RequeueError: no usable answer.
        """
        try:
            return decode_framework(await self._client.get(FRAMEWORKS, name, namespace, flow=key))
        except ObjectError as error:
            raise RequeueError(f"cannot read the Framework: {error}") from error

    def tell_all(self, key: str, entry: Entry) -> None:
        """Tell what is to be told: it is certain by now."""
        records, entry.records = entry.records, []
        self._recorder.record(key, entry.uid, records)

    def keep_all(self, key: str, entry: Entry) -> None:
        """Log the snapshots of what the next request may lose. To be called before each such request."""
        snapshots, entry.snapshots = entry.snapshots, []
        self._recorder.log_snapshots(key, entry.uid, entry.resource_version, snapshots)


def _resource_version(answer: bytes) -> str:
    try:
        version: Any = orjson.loads(answer)["metadata"]["resourceVersion"]
        if isinstance(version, str):
            return version
    except (ValueError, KeyError, TypeError):
        pass
    raise TransportError(f"the API server's answer is not an object: {answer[:100]!r}")
