"""The workers: sync the keys of the work queue, a bounded number at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal

from frameworkcontroller.kube.concurrency import ConcurrencyLimit
from frameworkcontroller.kube.fairness import LATE_SEC
from frameworkcontroller.kube.workqueue import ShutDown, WorkQueue
from frameworkcontroller.machine.kernel.protocol import RequeueError

_log: Final = logging.getLogger(__name__)

_FAILURES_TO_WARN: Final = 3
"""Single conflicts and lost connections are normal."""

_BURST: Final = 8
"""Syncs to start before others get the event loop. After a restart the first step of each takes about a millisecond."""

_MIN_DELAY_SEC: Final = 0.001
"""Timers may fire slightly early. A sync that is slightly early would otherwise spin until the time has come."""

SyncResult = Literal["done", "retry", "failed", "cancelled"]
"""The result of a sync: success, an error that is retried, an unexpected error, or cancellation."""


class SyncWorkers:
    """Run up to ``number`` syncs at once, each in an asyncio task, as far as ``limit`` allows.

    A sync that takes longer than ``LATE_SEC`` frees its slot and no longer counts for ``limit``, but a namespace has at
    most ``number`` syncs with those. So a namespace with slow requests does not block others. A key whose sync raises
    is retried after a back-off; other keys are not affected.
    """

    def __init__(
        self,
        queue: WorkQueue[str],
        reconcile: Callable[[str], Awaitable[float | None]],
        *,
        number: int,
        limit: ConcurrencyLimit | None = None,
        synced: Callable[[str, SyncResult, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``reconcile(key)`` syncs one key, and returns the seconds until it is due without an event, None for never.

        It raises RequeueError for a transient failure. ``synced(key, result, seconds)`` is called after each sync.
        ``clock`` returns monotonic seconds.
        """
        self._queue = queue
        self._reconcile = reconcile
        self._number = number
        self._limit = ConcurrencyLimit(number) if limit is None else limit
        self._free = asyncio.Semaphore(number)
        self._synced = synced
        self._clock = clock
        self._running: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        # By namespace: with those that are late, and without them.
        self._under_way: Counter[str] = Counter()
        self._prompt: Counter[str] = Counter()
        self._stopping = asyncio.Event()

    @property
    def busy(self) -> int:
        return len(self._running)

    async def run(self) -> None:
        """Run syncs until ``stop``. Cancellation cancels them."""
        started = 0
        try:
            while not self._stopping.is_set():
                await self._free.acquire()
                try:
                    key = await self._queue.get(self._may_start)
                except BaseException:
                    self._free.release()
                    raise
                if self._stopping.is_set():
                    # The next controller syncs every key.
                    self._queue.done(key)
                    self._free.release()
                    return
                self._start(key)
                started += 1
                if started % _BURST == 0:
                    await asyncio.sleep(0)
        except ShutDown:
            pass
        except asyncio.CancelledError:
            await self._cancel_all()
            raise

    async def stop(self, seconds: float) -> bool:
        """Stop starting syncs, wait for the running ones up to ``seconds``, then cancel the rest.

        A cancelled sync is like a crash, from which the next controller recovers. Return whether none was cancelled.
        """
        self._stopping.set()
        self._queue.shut_down()
        if self._running:
            _log.info("Stopping: waiting up to %g s for %d syncs", seconds, len(self._running))
            await asyncio.wait(self._running, timeout=seconds)
        if not self._running:
            return True
        _log.warning("Stopping: cancelling %d syncs that did not end in time", len(self._running))
        await self._cancel_all()
        return False

    async def _cancel_all(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _may_start(self, namespace: str) -> bool:
        if self._under_way[namespace] >= self._number:
            return False
        running = self._prompt[namespace]
        return self._limit.allows(running, len(self._running) - len(self._late), len(self._prompt) + (not running))

    def _start(self, key: str) -> None:
        namespace = self._queue.namespace(key)
        self._under_way[namespace] += 1
        self._prompt[namespace] += 1
        task = asyncio.create_task(self._work(key), name=f"reconcile {key}")
        self._running.add(task)
        timer = asyncio.get_running_loop().call_later(LATE_SEC, self._is_late, namespace, task)
        task.add_done_callback(partial(self._ended, namespace, timer))

    def _is_late(self, namespace: str, task: asyncio.Task[None]) -> None:
        self._late.add(task)
        self._no_longer_prompt(namespace)

    def _no_longer_prompt(self, namespace: str) -> None:
        self._free.release()
        self._prompt[namespace] -= 1
        if not self._prompt[namespace]:
            del self._prompt[namespace]
        self._queue.recheck()

    def _ended(self, namespace: str, timer: asyncio.TimerHandle, task: asyncio.Task[None]) -> None:
        timer.cancel()
        self._running.discard(task)
        self._under_way[namespace] -= 1
        if not self._under_way[namespace]:
            del self._under_way[namespace]
        if task in self._late:
            self._late.discard(task)
            self._queue.recheck()
        else:
            self._no_longer_prompt(namespace)

    async def _work(self, key: str) -> None:
        result: SyncResult = "cancelled"
        began = self._clock()
        try:
            delay = await self._reconcile(key)
            result = "done"
            self._queue.forget(key)
            if delay is not None:
                self._queue.add_after(key, max(delay, _MIN_DELAY_SEC) if delay > 0 else 0.0)
        except RequeueError as transient:
            result = "retry"
            failures = self._queue.add_rate_limited(key, at_least=transient.retry_after_sec)
            level = logging.WARNING if failures >= _FAILURES_TO_WARN else logging.INFO
            _log.log(level, "[%s]: Retrying the sync after failure %d in a row: %s", key, failures, transient)
        except Exception:  # noqa: BLE001 - must not end the syncs of other keys
            result = "failed"
            failures = self._queue.add_rate_limited(key)
            _log.exception("[%s]: Sync failed (failure %d in a row)", key, failures)
        finally:
            self._queue.done(key)
            if self._synced is not None:
                self._synced(key, result, self._clock() - began)
