"""One sync of one Framework: observe, plan, act, fold, persist.

Nothing is decided here: what is here is the order in which things happen.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import (
    ConfigMapRecord,
    Framework,
    FrameworkRecord,
    PodRecord,
)
from frameworkcontroller.api.status import State
from frameworkcontroller.controller.executor import SLICE_SEC, Executor
from frameworkcontroller.controller.ledger import Entry, Ledger
from frameworkcontroller.controller.narrator import Narrator
from frameworkcontroller.controller.quarantine import Quarantine
from frameworkcontroller.controller.retry import Retry
from frameworkcontroller.controller.statuswriter import StatusWriter, WriteResult
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.store import Store
from frameworkcontroller.machine.model import Delete, Env, Limits, Observed, Plan, Tally, Urgency
from frameworkcontroller.machine.plan import fold, plan, reject

_log = logging.getLogger(__name__)

BY_FRAMEWORK: Final = "framework"
"""Index of the cache's Pods by the key of the Framework whose label they bear."""

_SLICE_FACTOR: Final = 10.0
_SLICE_MAX_SEC: Final = 5.0
"""Actions go on for this many times as long as a write of the status, during which they pause, takes."""

_EARLY_SEC: Final = 0.001
"""By so much timers may ring early: what is due by that is due."""

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
        self._writer = StatusWriter(client, ledger, narrator, env=self._env, clock=clock, wrote=wrote, tallied=tallied)
        self._quarantine = Quarantine(self._writer, ledger, narrator, env=self._env, clock=clock, rng=rng)

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
            entry = self._ledger.quarantined(record)
            if entry is None:
                entry = self._ledger.open(record)
            else:
                left = await self._quarantine.hold(record, entry)
                if left:
                    return left
                record = await self._writer.look(key, record.name, record.namespace)
                entry = self._ledger.restore(record)
            return await self._sync(key, record, entry)
        except (KubeError, Retry):
            raise
        except Exception as error:  # noqa: BLE001 - one Framework's trouble, whatever it is, must not touch the others
            return await self._quarantine.admit(record, error)

    async def _sync(self, key: str, record: FrameworkRecord, entry: Entry) -> float | None:
        framework = entry.read(record)
        if entry.persist_first:
            too_early = entry.not_before - self._clock()
            if too_early > 0 and entry.tracker.generation == framework.generation:
                return too_early
            if not await self._writer.write(key, entry):
                return 0.0
            framework = entry.read(record)
        tracker = entry.tracker
        env = self._env()
        wake_after = await self._step(record, entry, framework, env)
        if entry.tracker is not tracker:
            return 0.0
        if tracker.urgency is not Urgency.NONE:
            early = self._writer.due(entry) - self._clock()
            if early > _EARLY_SEC:
                # What is settled need not wait for what is not: Pods that are still to be created, say.
                return (
                    0.0
                    if tracker.is_busy and entry.spec_error is None
                    else min(early, early if wake_after is None else wake_after)
                )
            if not await self._writer.write(key, entry):
                return 0.0
        else:
            # No status will show it: the first failure of a request, or a deletion of the Framework itself.
            self._writer.tell_all(key, entry, entry.resource_version)
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
            if entry.spec_error is None:
                step = plan(framework, tracker, observed, env)
            else:
                step = reject(framework, tracker, entry.spec_error, env)
            entry.records.extend(step.records)
            if step.actions or entry.spec_error is not None or tracker.urgency is Urgency.NOW or not tracker.is_busy:
                break
        if not step.actions:
            return step.wake_after
        # What no status records may be recorded by one that another controller has just written.
        strays = any(isinstance(action, Delete) and action.stray for action in step.actions)
        if (strays or not entry.confirmed) and not await self._writer.confirm(record.key, entry):
            return 0.0
        outcomes = await self._executor.execute(
            framework,
            step.actions,
            ramp=entry.ramp,
            # As long as writing costs little of it.
            slice_sec=min(_SLICE_MAX_SEC, max(SLICE_SEC, _SLICE_FACTOR * entry.write_sec)),
            interrupted=lambda: self._is_outdated(framework),
        )
        entry.learn(outcomes)
        folded = fold(framework, tracker, outcomes, self._env())
        entry.records.extend(folded.records)
        waits = [wait for wait in (step.wake_after, folded.wake_after) if wait is not None]
        return min(waits, default=None)

    def _is_outdated(self, framework: Framework) -> bool:
        """Whether the Framework is gone, or its user wants something else by now."""
        record = self._frameworks.get(framework.key)
        if record is None or record.uid != framework.uid:
            return True
        return record.generation > framework.generation or (record.deletion_time is not None) > framework.deleting

    @staticmethod
    def _shrink(entry: Entry) -> None:
        """Most Frameworks of a big cluster are completed: keep of them what their retention needs."""
        status = entry.tracker.status
        if status is not None and status.state is State.COMPLETED and entry.tracker.is_clean:
            entry.framework = None
            for _, task in entry.tracker.tasks():
                task.encoded = None

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
