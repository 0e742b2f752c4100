"""One sync of one Framework: observe, plan, act, fold, persist.

Nothing is decided here: what is here is the order in which things happen.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import (
    ConfigMapRecord,
    Framework,
    FrameworkRecord,
    PodRecord,
)
from frameworkcontroller.api.status import State
from frameworkcontroller.controller.executor import Batch, Executor
from frameworkcontroller.controller.ledger import Entry, Ledger
from frameworkcontroller.controller.quarantine import Quarantine
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.requeue import RequeueError
from frameworkcontroller.controller.statuswriter import StatusWriter, WriteResult
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.indexer import Lister
from frameworkcontroller.machine.model import (
    Action,
    AttemptCounters,
    Create,
    Delete,
    Env,
    Kind,
    Limits,
    NotAttempted,
    Observed,
    Outcome,
    Plan,
    Refresh,
    Urgency,
)
from frameworkcontroller.machine.plan import fold, plan, reject
from frameworkcontroller.machine.tracker import Tracker

_log = logging.getLogger(__name__)

BY_FRAMEWORK: Final = "framework"
"""Index of the cache's Pods by the key of the Framework that their names belong to."""

_TICK_SEC: Final = 1.0
"""While actions are under way, what happens meanwhile is looked at so often."""

_SHOW_SEC: Final = 5.0
"""And the status is written so often: each write takes from the API server what the actions need."""

BATCH_SEC: Final = 120.0
"""No more actions are started in a sync after so long: the next one goes on. It is by one that takes very long that
one that hangs is told (health.py), and 10,000 creations take more than half an hour where each takes ten seconds."""

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
        frameworks: Lister[FrameworkRecord],
        configmaps: Lister[ConfigMapRecord],
        pods: Lister[PodRecord],
        limits: Limits,
        wall: Callable[[], float],
        clock: Callable[[], float],
        rng: random.Random,
        recorder: EventRecorder,
        relist: Callable[[Kind], None] = lambda _: None,
        listed: Callable[[Kind], float] = lambda _: -math.inf,
        wrote: Callable[[WriteResult, int], None] | None = None,
        count_attempts: Callable[[AttemptCounters], None] | None = None,
        status_absent: Callable[[str], None] | None = None,
    ) -> None:
        """``wall``: seconds since the epoch. ``clock``: monotonic seconds. ``pods`` has the index ``BY_FRAMEWORK``.

        ``relist`` has a store compared with a list; ``listed`` tells when, by ``clock``, that was last asked for.

        For metrics, ``wrote(result, bytes)`` is told of each write of a status, and ``count_attempts`` what an
        accepted write persisted. ``status_absent`` is told of each write of a Framework's status that was answered 404.
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
        self._relist = relist
        self._listed = listed
        self._stopping = False
        self._writer = StatusWriter(
            client,
            ledger,
            recorder,
            executor.slots,
            env=self._env,
            clock=clock,
            wrote=wrote,
            count_attempts=count_attempts,
            status_absent=status_absent,
        )
        self._quarantine = Quarantine(self._writer, ledger, recorder, env=self._env, clock=clock, rng=rng)

    def stop(self) -> None:
        """Start no more actions: a Framework of thousands of Tasks has some for longer than a stop waits."""
        self._stopping = True

    async def sync(self, key: str) -> float | None:
        """Bring one Framework forward; in how many seconds it is due again by itself, None for never.

        Raises:
            RequeueError: something transient stands in the way.
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
        except (KubeError, RequeueError):
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
        wake_after = await self._step(entry, framework, env)
        if entry.tracker is not tracker:
            return 0.0
        if tracker.urgency is not Urgency.NONE:
            early = self._writer.due(entry) - self._clock()
            if early > _EARLY_SEC and not self._stopping:
                # What is settled need not wait for what is not: Pods that are still to be created, say.
                return (
                    0.0
                    if tracker.is_busy and entry.spec_error is None
                    else min(early, early if wake_after is None else wake_after)
                )
            # What was left over is the next sync's; only what comes while this write waits can go with it.
            caught_up, left_over = False, tracker.is_busy

            def catch_up() -> None:
                nonlocal caught_up
                caught_up = not left_over and self._catch_up(record, entry)

            if not await self._writer.write(key, entry, catch_up) or caught_up:
                return 0.0
        else:
            # No status will show it: the first failure of a request, or a deletion of the Framework itself.
            self._writer.tell_all(key, entry)
        if tracker.is_busy and entry.spec_error is None:
            return 0.0
        self._shrink(entry)
        return wake_after

    async def _step(self, entry: Entry, framework: Framework, env: Env) -> float | None:
        """Plan, act and fold, until something is to be persisted or waited for."""
        tracker = entry.tracker
        observed = self._observe(framework)
        step = Plan()
        for _ in range(_PLANS_PER_SYNC):
            if entry.spec_error is None:
                step = plan(framework, tracker, observed, env)
            else:
                step = reject(framework, tracker, entry.spec_error, env)
            entry.take(step)
            if step.actions or entry.spec_error is not None or tracker.urgency is Urgency.NOW or not tracker.is_busy:
                break
        if not step.actions:
            return step.wake_after
        if not await self._is_justified(framework, entry, step.actions):
            return 0.0
        waits = [step.wake_after]
        # The deletion of the Framework itself may be among them.
        self._writer.keep_all(framework.key, entry)
        async with self._executor.begin(
            framework,
            step.actions,
            interrupted=lambda: self._is_interrupted(framework),
            wanted=lambda creation: _is_wanted(entry, creation),
        ) as batch:
            try:
                await self._carry_out(framework, entry, batch, waits)
            except (KubeError, RequeueError):
                # The status could not be written, or read. What becomes of the actions must be known all the same.
                batch.stop()
                while not batch.done:
                    self._take(framework, entry, await batch.news())
                raise
        return min((wait for wait in waits if wait is not None), default=None)

    async def _is_justified(self, framework: Framework, entry: Entry, actions: list[Action]) -> bool:
        """Whether the API server has shown that the actions rest on what it holds; if not, the entry is up to date now.

        Raises:
            KubeError, RequeueError: there is no knowing. The actions are left for later.
        """
        # An object that the known status does not record may be in the one that another controller has just written.
        if entry.confirmed and not any(map(_needs_live_status, actions)):
            return True
        try:
            return await self._writer.confirm(framework.key, entry)
        except (KubeError, RequeueError):
            self._leave(framework, entry, actions)
            raise

    async def _carry_out(self, framework: Framework, entry: Entry, batch: Batch, waits: list[float | None]) -> None:
        """Wait for the actions, and meanwhile plan and persist what else happens.

        Once something is decided on which the whole Framework waits, or its attempt is over, no more are started, and
        that is persisted only when none is under way: nothing is ever created for what the stored status says is over.
        """
        tracker = entry.tracker
        show_at = self._clock() + _SHOW_SEC
        stop_at = self._clock() + BATCH_SEC

        def must_end() -> bool:
            over = entry.tracker is not tracker or _must_end(tracker) or self._clock() >= stop_at
            return over or self._is_interrupted(framework)

        while True:
            waits.append(self._take(framework, entry, await batch.news(_TICK_SEC)))
            if batch.done:
                return
            if not must_end():
                observed = self._observe(framework, creating=batch.is_creating)
                step = plan(framework, tracker, observed, self._env())
                entry.take(step)
                waits.append(step.wake_after)
                known = [action for action in step.actions if action.target in batch]
                # What becomes of a creation is heard of; anything else is asked for again until then.
                self._leave(framework, entry, (action for action in known if not isinstance(action, Create)))
                fresh = [action for action in step.actions if action.target not in batch]
                if await self._is_justified(framework, entry, fresh):
                    batch.add(fresh)
            if must_end():
                batch.stop()
            elif tracker.urgency is not Urgency.NONE and self._clock() >= show_at:
                if self._writer.due(entry) > self._clock():
                    continue
                if not await self._writer.write(framework.key, entry):
                    batch.stop()
                show_at = self._clock() + _SHOW_SEC

    def _take(self, framework: Framework, entry: Entry, outcomes: list[Outcome]) -> float | None:
        """Fold outcomes into the status as it is tracked now."""
        entry.learn(outcomes)
        folded = fold(framework, entry.tracker, outcomes, self._env())
        entry.records.extend(folded.records)
        for kind in folded.relist:
            self._relist(kind)
        return folded.wake_after

    def _leave(self, framework: Framework, entry: Entry, actions: Iterable[Action]) -> None:
        """Have these actions asked for again: they are not carried out now."""
        self._take(framework, entry, [Outcome(action, NotAttempted()) for action in actions])

    def _catch_up(self, record: FrameworkRecord, entry: Entry) -> bool:
        """Plan once more what came to pass while the write of the status waited for its turn; whether anything did.

        The busier the API server is, the longer that is, and the fewer writes it is asked for.
        """
        tracker = entry.tracker
        now = self._frameworks.get(record.key)
        if not tracker.agenda or now is None or now.uid != entry.uid:
            return False
        framework = entry.read(now)
        if entry.spec_error is not None:
            return True
        step = plan(framework, tracker, self._observe(framework), self._env())
        entry.take(step)
        self._leave(framework, entry, step.actions)
        return True

    def _observe(self, framework: Framework, *, creating: bool = False) -> Observed:
        return Observed(
            self._configmaps.get(f"{framework.namespace}/{names.configmap_name(framework.name)}"),
            _Pods(self._pods, framework.namespace),
            lambda: self._pods.by_index(BY_FRAMEWORK, framework.key).values(),
            configmaps_listed=self._listed(Kind.CONFIGMAP),
            pods_listed=self._listed(Kind.POD),
            creating=creating,
        )

    def _is_interrupted(self, framework: Framework) -> bool:
        """Whether the Framework is gone, or its user wants something else by now, or all is to stop."""
        if self._stopping:
            return True
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
        return Env(self._wall(), self._clock(), self._rng, self._limits)


def _must_end(tracker: Tracker) -> bool:
    """Whether what is tracked may only be persisted once no action is under way."""
    return tracker.urgency is Urgency.NOW or tracker.is_completing


def _is_wanted(entry: Entry, creation: Create) -> bool:
    """Whether it is still to be created: one that was given up may have been executed late, and be over by now."""
    return creation.target.kind is not Kind.POD or entry.tracker.awaits_pod(creation.target)


def _needs_live_status(action: Action) -> bool:
    return isinstance(action, Refresh) or (isinstance(action, Delete) and action.stray)


class _Pods:
    """The cache's Pods of one namespace, by name."""

    __slots__ = ("_namespace", "_store")

    def __init__(self, store: Lister[PodRecord], namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def get(self, name: str, /) -> PodRecord | None:
        return self._store.get(f"{self._namespace}/{name}")
