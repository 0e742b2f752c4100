"""Runs syncs: takes keys from the queue, bounds how many are synced at once, and takes in how each went."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, Protocol

from frameworkcontroller.controller.requeue import RequeueError
from frameworkcontroller.controller.slots import LATE_SEC, namespace_of
from frameworkcontroller.kube.errors import ApiError, KubeError
from frameworkcontroller.kube.workqueue import ShutDown, WorkQueue

_log: Final = logging.getLogger(__name__)

_WORTH_A_WARNING: Final = 3
"""Failures in a row: a conflict or a lost connection is an everyday thing, one that stays is not."""


_SHORTEST_SEC: Final = 0.001
"""Timers fire early by a hair, and a sync that is a hair too early asks for that hair: it would come in a tight circle
until the clock has moved on."""


SyncResult = Literal["done", "retry", "failed", "cancelled"]
"""How a sync ended: as it should, to be tried again, by an error nobody foresaw, by being stopped."""


class Syncer(Protocol):
    """What the workers run."""

    async def sync(self, key: str) -> float | None:
        """Bring the world of that key closer to what it should be.

        Returns the seconds after which something is due by itself, None if nothing is.

        Raises:
            RequeueError, KubeError: something transient is in the way.
        """


class Workers:
    """At most ``number`` syncs at once, each a task of its own that exists only while it has something to do.

    One that takes longer than ``LATE_SEC`` gives its place to others, but still counts for its namespace, which never
    has more than ``number`` under way: those whose API server answers slowly do not keep the others waiting.
    A sync that raises harms nothing but its own key, whatever it raises: that key is tried again after a back-off.
    """

    def __init__(
        self,
        queue: WorkQueue[str],
        syncer: Syncer,
        *,
        number: int,
        synced: Callable[[str, SyncResult, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``synced(key, result, seconds)`` is told how each sync ended, for metrics; ``clock``: monotonic seconds."""
        self._queue = queue
        self._syncer = syncer
        self._number = number
        self._free = asyncio.Semaphore(number)
        self._synced = synced
        self._clock = clock
        self._running: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._under_way: Counter[str] = Counter()
        # By namespace, what waits until fewer of its own are under way, in the order in which it came.
        self._parked: dict[str, dict[str, None]] = {}
        self._stopping = asyncio.Event()

    @property
    def busy(self) -> int:
        """How many syncs are under way."""
        return len(self._running)

    async def run(self) -> None:
        """Run syncs until ``stop``; cancelled, it cancels those under way."""
        try:
            while not self._stopping.is_set():
                await self._free.acquire()
                try:
                    key = await self._queue.get()
                except BaseException:
                    self._free.release()
                    raise
                if self._stopping.is_set():
                    # Handed out in the moment of the stop: whoever starts next looks at every key anyway.
                    self._queue.done(key)
                    self._free.release()
                    return
                self._start(key)
        except ShutDown:
            pass
        except asyncio.CancelledError:
            await self._cancel_all()
            raise

    async def stop(self, seconds: float) -> bool:
        """Start no sync any more, and wait for those under way, but no longer than so many seconds; then cancel them.

        What is cancelled is as after a crash: the next controller finds out. Returns whether none had to be.
        """
        self._stopping.set()
        self._queue.shut_down()
        if self._running:
            _log.info("Stopping: waiting for %d syncs, for at most %g s", len(self._running), seconds)
            await asyncio.wait(self._running, timeout=seconds)
        if not self._running:
            return True
        _log.warning("Stopping: %d syncs did not end in time and are cancelled", len(self._running))
        await self._cancel_all()
        return False

    async def _cancel_all(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _start(self, key: str) -> None:
        namespace = namespace_of(key)
        parked = self._parked.setdefault(namespace, {})
        if self._under_way[namespace] >= self._number:
            parked[key] = None
            self._queue.done(key)
            self._free.release()
            return
        parked.pop(key, None)
        self._under_way[namespace] += 1
        task = asyncio.create_task(self._work(key), name=f"sync {key}")
        self._running.add(task)
        timer = asyncio.get_running_loop().call_later(LATE_SEC, self._is_late, task)
        task.add_done_callback(partial(self._ended, namespace, timer))

    def _is_late(self, task: asyncio.Task[None]) -> None:
        self._late.add(task)
        self._free.release()

    def _ended(self, namespace: str, timer: asyncio.TimerHandle, task: asyncio.Task[None]) -> None:
        timer.cancel()
        self._running.discard(task)
        if task in self._late:
            self._late.discard(task)
        else:
            self._free.release()
        self._under_way[namespace] -= 1
        parked = self._parked[namespace]
        if parked:
            key = next(iter(parked))
            del parked[key]
            self._queue.add(key)
        elif not self._under_way[namespace]:
            del self._under_way[namespace], self._parked[namespace]

    async def _work(self, key: str) -> None:
        result: SyncResult = "cancelled"
        began = self._clock()
        try:
            delay = await self._syncer.sync(key)
            result = "done"
            self._queue.forget(key)
            if delay is not None:
                self._queue.add_after(key, max(delay, _SHORTEST_SEC) if delay > 0 else 0.0)
        except (RequeueError, KubeError) as transient:
            result = "retry"
            self._queue.add_rate_limited(key, at_least=_asked_to_wait(transient))
            failures = self._queue.failures(key)
            level = logging.WARNING if failures >= _WORTH_A_WARNING else logging.INFO
            _log.log(level, "[%s]: Sync is tried again (failure %d in a row): %s", key, failures, transient)
        except Exception:  # noqa: BLE001 - whatever it is, it is this key's trouble, and must not end the others' syncs
            result = "failed"
            self._queue.add_rate_limited(key)
            _log.exception("[%s]: Sync failed (failure %d in a row)", key, self._queue.failures(key))
        finally:
            self._queue.done(key)
            if self._synced is not None:
                self._synced(key, result, self._clock() - began)


def _asked_to_wait(error: Exception) -> float:
    """Seconds that the API server asked to be left alone for, if it was it that refused."""
    refusal = error.__cause__ if isinstance(error, RequeueError) else error
    return (refusal.retry_after or 0.0) if isinstance(refusal, ApiError) else 0.0
