"""One sync of one Framework: observe, plan, act, fold, persist.

Nothing is decided here. What is here is the order in which things happen, and the guards of the one write that matters,
the status (docs/guarantees.md says why they are enough):

- ``metadata.uid``: it lands on the Framework that it is about, not on a namesake;
- ``metadata.generation``: it lands on the spec that it was computed from;
- ``metadata.resourceVersion``: it overwrites only the status that this controller knows.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError
from frameworkcontroller.api.objects import (
    ConfigMapRecord,
    Framework,
    FrameworkRecord,
    ObjectError,
    PodRecord,
    decode_framework,
)
from frameworkcontroller.api.spec import FrameworkSpec, SpecError, parse_spec
from frameworkcontroller.api.status import State
from frameworkcontroller.controller.executor import FRAMEWORKS, SLICE_SEC, Executor
from frameworkcontroller.controller.ledger import Encoded, Entry, Ledger
from frameworkcontroller.controller.narrator import Narrator
from frameworkcontroller.controller.retry import Retry
from frameworkcontroller.kube.client import JSON_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, Invalid, KubeError, NotFound, TransportError, is_too_large
from frameworkcontroller.kube.store import Store
from frameworkcontroller.machine.model import Created, Env, Exists, Limits, Observed, Plan, Tally, Urgency
from frameworkcontroller.machine.plan import fold, plan, reject
from frameworkcontroller.machine.reasons import Reason

_log = logging.getLogger(__name__)

BY_FRAMEWORK: Final = "framework"
"""Index of the cache's Pods by the key of the Framework whose label they bear."""

BREATH_FACTOR: Final = 2.0
BREATH_MAX_SEC: Final = 2.0
"""A status that can wait is not written again before this many times as long as its last write took has passed, so
that a large one cannot keep the API server busy."""

_SLICE_FACTOR: Final = 10.0
_SLICE_MAX_SEC: Final = 5.0
"""Actions go on for this many times as long as a write of the status, during which they pause, takes."""

RIDE_SEC: Final = 1.0
"""For so long a step that the next one is expected to follow at once waits to be written together with that."""

_EARLY_SEC: Final = 0.001
"""By so much timers may ring early: what is due by that is due."""

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

_PLANS_PER_SYNC: Final = 8
"""Plans in a row that need nothing but each other; what is left then goes on in the next sync."""


class Syncer:
    """Syncs Frameworks, one key at a time; many keys at once."""

    def __init__(
        self,
        client: KubeClient,
        executor: Executor,
        ledger: Ledger,
        *,
        frameworks: Store[FrameworkRecord],
        configmaps: Store[ConfigMapRecord],
        pods: Store[PodRecord],
        limits: Limits,
        wall: Callable[[], float],
        clock: Callable[[], float],
        rng: random.Random,
        narrator: Narrator,
        wrote: Callable[[WriteResult, int], None] | None = None,
        tallied: Callable[[Tally], None] | None = None,
    ) -> None:
        """``wall``: seconds since the epoch. ``clock``: monotonic seconds. ``pods`` has the index ``BY_FRAMEWORK``.

        For metrics, ``wrote(result, bytes)`` is told of each write of a status, and ``tallied`` what a write that was
        accepted has persisted.
        """
        self._client = client
        self._executor = executor
        self._ledger = ledger
        self._frameworks = frameworks
        self._configmaps = configmaps
        self._pods = pods
        self._limits = limits
        self._wall = wall
        self._clock = clock
        self._rng = rng
        self._narrator = narrator
        self._wrote = wrote
        self._tallied = tallied

    async def sync(self, key: str) -> float | None:
        """Bring one Framework forward; in how many seconds it is due again by itself, None for never.

        Raises:
            Retry: something transient stands in the way.
        """
        record = self._frameworks.get(key)
        if record is None:
            # The garbage collector removes what it owned.
            self._ledger.forget(key)
            return None
        try:
            entry = self._ledger.open(record)
            if entry.quarantine is not None:
                if record.generation <= entry.quarantined_generation:
                    return None
                # The user has changed the spec since: try again, from what is stored.
                entry = self._ledger.restore(await self._look(key, record.name, record.namespace))
        except StatusError as error:
            self._ledger.open_quarantined(record, str(error))
            _log.error("[%s]: quarantined, as its stored status cannot be read: %s", key, error)
            return None
        try:
            return await self._sync(key, record, entry)
        except (KubeError, Retry):
            raise
        except Exception as error:  # noqa: BLE001 - one Framework's trouble, whatever it is, must not touch the others
            entry.quarantine = f"{type(error).__name__}: {error}"
            entry.quarantined_generation = record.generation
            _log.exception("[%s]: quarantined, as its sync found what can never be", key)
            return None

    async def _sync(self, key: str, record: FrameworkRecord, entry: Entry) -> float | None:
        framework = self._read(record, entry)
        if entry.persist_first:
            too_early = entry.not_before - self._clock()
            if too_early > 0 and entry.tracker.generation == framework.generation:
                return too_early
            if not await self._write(key, entry):
                return 0.0
            framework = self._read(record, entry)
        tracker = entry.tracker
        env = self._env()
        if entry.spec_error is not None:
            rejection = reject(framework, tracker, entry.spec_error, env)
            entry.records.extend(rejection.records)
            wake_after = rejection.wake_after
        else:
            wake_after = await self._step(record, entry, framework, env)
        if tracker.urgency is not Urgency.NONE:
            early = self._write_due(entry) - self._clock()
            if early > _EARLY_SEC:
                # What is settled need not wait for what is not: Pods that are still to be created, say.
                return 0.0 if tracker.is_busy else min(early, early if wake_after is None else wake_after)
            if not await self._write(key, entry):
                return 0.0
        else:
            # No status will show it: the first failure of a request, or a deletion of the Framework itself.
            self._tell_all(key, entry, entry.resource_version)
        if tracker.is_busy and entry.spec_error is None:
            return 0.0
        self._shrink(entry)
        return wake_after

    async def _step(self, record: FrameworkRecord, entry: Entry, framework: Framework, env: Env) -> float | None:
        """Plan, act and fold, until something is to be persisted or waited for."""
        tracker = entry.tracker
        observed = Observed(
            self._configmaps.get(f"{record.namespace}/{names.configmap_name(record.name)}"),
            _Pods(self._pods, record.namespace),
            lambda: self._pods.by_index(BY_FRAMEWORK, record.key).values(),
        )
        step = Plan()
        for _ in range(_PLANS_PER_SYNC):
            step = plan(framework, tracker, observed, env)
            entry.records.extend(step.records)
            if step.actions or tracker.urgency is Urgency.NOW or not tracker.is_busy:
                break
        if not step.actions:
            return step.wake_after
        outcomes = await self._executor.execute(
            framework,
            step.actions,
            ramp=entry.ramp,
            # As long as writing costs little of it.
            slice_sec=min(_SLICE_MAX_SEC, max(SLICE_SEC, _SLICE_FACTOR * entry.write_sec)),
            interrupted=lambda: self._is_outdated(framework),
        )
        entry.outcomes.extend(outcome for outcome in outcomes if isinstance(outcome.result, Created | Exists))
        folded = fold(framework, tracker, outcomes, self._env())
        entry.records.extend(folded.records)
        waits = [wait for wait in (step.wake_after, folded.wake_after) if wait is not None]
        return min(waits, default=None)

    # --- the status write ---

    def _write_due(self, entry: Entry) -> float:
        """Not before when (monotonic seconds) the status as it is now is to be written."""
        urgency = entry.tracker.urgency
        if urgency is Urgency.NOW:
            return 0.0
        if entry.unwritten_since is None:
            entry.unwritten_since = self._clock()
        ride = RIDE_SEC if urgency is Urgency.LATER else 0.0
        return max(entry.next_write, entry.unwritten_since + ride)

    async def _write(self, key: str, entry: Entry) -> bool:
        """Write the tracked status; False if a guard failed and the entry was brought up to date instead.

        Raises:
            Retry: it may or may not have been accepted; it is to be written before anything else.
        """
        framework = entry.framework
        if framework is None:
            raise Retry("the Framework is not read yet")
        # What was only learnt, and not decided, goes with any spec.
        decided_on = entry.tracker.generation
        generation = framework.generation if decided_on is None else decided_on
        encoded = await self._ledger.encode(framework.name, entry)
        began = self._clock()
        entry.persist_first = True
        try:
            resource_version = await self._patch(framework, entry, generation, encoded)
        except NotFound as error:
            self._count_write("not_found", encoded)
            raise Retry(_NOT_THERE) from error
        except (Invalid, Conflict) as error:
            if await self._resolve(key, entry, generation, encoded.digest, str(error)):
                self._count_write("landed", encoded)
                return True
            self._count_write("conflict", encoded)
            entry.guards_failed += 1
            if entry.guards_failed > _GUARDS_FAILED_AT_ONCE:
                raise Retry(f"the Framework keeps changing under the writes of its status: {error}") from error
            return False
        except KubeError as error:
            if is_too_large(error):
                self._count_write("too_large", encoded)
                return await self._stall(key, entry, framework, generation, encoded, str(error))
            self._count_write("error", encoded)
            raise Retry(f"cannot write the status: {error}") from error
        self._count_write("accepted", encoded)
        self._accepted(key, entry, resource_version, encoded.digest)
        entry.write_sec = self._clock() - began
        entry.next_write = self._clock() + min(BREATH_MAX_SEC, BREATH_FACTOR * entry.write_sec)
        return True

    def _count_write(self, result: WriteResult, encoded: Encoded) -> None:
        if self._wrote is not None:
            self._wrote(result, len(encoded.body))

    async def _patch(self, framework: Framework, entry: Entry, generation: int, encoded: Encoded) -> str:
        """Write a status under the guards; the Framework's new resourceVersion."""
        body = orjson.dumps(
            [
                {"op": "test", "path": "/metadata/uid", "value": entry.uid},
                {"op": "test", "path": "/metadata/generation", "value": generation},
                {"op": "test", "path": "/metadata/resourceVersion", "value": entry.resource_version},
                {"op": "add", "path": "/status", "value": orjson.Fragment(encoded.body)},
            ]
        )
        answer = await self._client.patch(
            FRAMEWORKS,
            framework.name,
            body,
            framework.namespace,
            content_type=JSON_PATCH,
            subresource="status",
            metadata_only=True,
            owner=framework.key,
        )
        return _resource_version(answer)

    async def _stall(
        self, key: str, entry: Entry, framework: Framework, generation: int, encoded: Encoded, refusal: str
    ) -> bool:
        """The status is larger than what the API server stores: say so in the one that is stored. Always False.

        Nothing else happens: what the tracked status would justify waits for it to be persisted, as ever.
        """
        try:
            live = await self._look(key, framework.name, framework.namespace)
        except NotFound as error:
            raise Retry(_NOT_THERE) from error
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
                entry.resource_version = await self._patch(framework, entry, generation, said)
            except (Invalid, Conflict):
                return False
            except KubeError as error:
                if not is_too_large(error):
                    raise Retry(f"cannot say that the status is too large: {error}") from error
                # Not even that fits any more: the log has to do.
            else:
                entry.digest = said.digest
        entry.not_before = self._clock() + TOO_LARGE_RETRY_SEC
        self._narrator.tell(key, entry.uid, entry.resource_version, step.records)
        return False

    def _accepted(self, key: str, entry: Entry, resource_version: str, digest: bytes) -> None:
        before, entry.resource_version = entry.resource_version, resource_version
        entry.digest = digest
        entry.unwritten_since = None
        entry.persist_first = False
        entry.guards_failed = 0
        entry.not_before = 0.0
        entry.outcomes.clear()
        entry.tracker.persisted()
        tally, entry.tracker.tally = entry.tracker.tally, None
        if tally is not None and self._tallied is not None:
            self._tallied(tally)
        # Snapshots show what was persisted before this.
        self._tell_all(key, entry, before)

    async def _resolve(self, key: str, entry: Entry, generation: int, digest: bytes, refusal: str) -> bool:
        """A guard failed: find out by a live read what it was, and what is to be believed from now on.

        True if the write had landed after all (an earlier answer was lost).
        """
        namespace, _, name = key.partition("/")
        try:
            live = await self._look(key, name, namespace)
        except NotFound as error:
            raise Retry(_NOT_THERE) from error
        if live.uid != entry.uid:
            raise Retry("the Framework was deleted and another one of its name created")
        if live.resource_version == entry.resource_version and live.generation == generation:
            raise Retry(f"the API server refuses the status: {refusal}")
        stored = self._ledger.entry_of(live)
        if stored.digest == digest:
            self._accepted(key, entry, live.resource_version, digest)
            return True
        if stored.digest == entry.digest and live.generation == generation:
            # Only metadata changed: the status is as known, and so is the spec.
            entry.resource_version = live.resource_version
            return False
        if stored.digest != entry.digest:
            _log.warning("[%s]: its status was written by somebody else: going on from theirs", key)
        # Decisions that were taken on another spec, or another status, are dropped and taken anew. What was learnt from
        # actions is not: without the UID of an object that was created, the object would have no owner.
        entry.tracker = stored.tracker
        entry.resource_version = live.resource_version
        entry.digest = stored.digest
        entry.records.clear()
        # Even an older generation: the API server may have been restored from a backup.
        entry.framework = None
        framework = self._read(live, entry)
        if entry.tracker.status is not None and entry.outcomes:
            entry.records.extend(fold(framework, entry.tracker, entry.outcomes, self._env()).records)
        entry.persist_first = entry.tracker.urgency is not Urgency.NONE
        entry.not_before = 0.0
        return False

    # --- the Framework itself ---

    def _is_outdated(self, framework: Framework) -> bool:
        """Whether the Framework is gone, or its user wants something else by now."""
        record = self._frameworks.get(framework.key)
        if record is None or record.uid != framework.uid:
            return True
        return record.generation > framework.generation or (record.deletion_time is not None) > framework.deleting

    def _read(self, record: FrameworkRecord, entry: Entry) -> Framework:
        """The Framework at the newest generation known, and whether its spec can be run (``entry.spec_error``)."""
        known = entry.framework
        deleting = record.deletion_time is not None
        if known is not None and record.generation <= known.generation and deleting <= known.deleting:
            return known
        if known is not None and record.generation < known.generation:
            spec, generation = known.spec, known.generation
        else:
            generation = record.generation
            try:
                spec, entry.spec_error = parse_spec(orjson.loads(record.spec_json)), None
            except SpecError as error:
                spec, entry.spec_error = FrameworkSpec(), str(error)
        entry.framework = Framework(record.namespace, record.name, record.uid, generation, deleting, spec)
        return entry.framework

    @staticmethod
    def _shrink(entry: Entry) -> None:
        """Most Frameworks of a big cluster are completed: keep of them what their retention needs."""
        status = entry.tracker.status
        if status is not None and status.state is State.COMPLETED and entry.tracker.is_clean:
            entry.framework = None
            for _, task in entry.tracker.tasks():
                task.encoded = None

    async def _look(self, key: str, name: str, namespace: str) -> FrameworkRecord:
        """A live read of the Framework.

        Raises:
            NotFound: there is none.
            KubeError, Retry: no usable answer.
        """
        try:
            return decode_framework(await self._client.get(FRAMEWORKS, name, namespace, owner=key))
        except ObjectError as error:
            raise Retry(f"cannot read the Framework: {error}") from error

    def _tell_all(self, key: str, entry: Entry, resource_version: str) -> None:
        records, entry.records = entry.records, []
        self._narrator.tell(key, entry.uid, resource_version, records)

    def _env(self) -> Env:
        return Env(self._wall(), self._rng, self._limits)


class _Pods:
    """The cache's Pods of one namespace, by name."""

    __slots__ = ("_namespace", "_store")

    def __init__(self, store: Store[PodRecord], namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def get(self, name: str, /) -> PodRecord | None:
        return self._store.get(f"{self._namespace}/{name}")


def _resource_version(answer: bytes) -> str:
    try:
        version: Any = orjson.loads(answer)["metadata"]["resourceVersion"]
        if isinstance(version, str):
            return version
    except (ValueError, KeyError, TypeError):
        pass
    raise TransportError(f"the API server's answer is not an object: {answer[:100]!r}")
