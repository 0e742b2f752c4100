"""Workers that process the keys of a work queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.kube.errors import ApiError, KubeError
from frameworkcontroller.kube.workqueue import WorkQueue

_RETRY: Final = Backoff(0.2, 10.0, jitter=0.0)
_FAILURES_TO_WARN: Final = 4

log = logging.getLogger(__name__)


class QueueWorkers:
    """Call ``work`` with each added key: ``concurrency`` keys at once, but never one key twice at once.

    A key is retried after a back-off if ``work`` raises. Anything but a `KubeError` is a bug, and is logged with its
    traceback.
    """

    def __init__(self, name: str, work: Callable[[str], Awaitable[None]], *, concurrency: int) -> None:
        """``name`` is for the log. Create it on its loop."""
        self._name = name
        self._work = work
        self._concurrency = concurrency
        self._queue: WorkQueue[str] = WorkQueue(retry=_RETRY)

    def add(self, key: str) -> None:
        """Have the key processed."""
        self._queue.add(key)

    async def run(self) -> None:
        """Process keys until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(self._run_worker())
        finally:
            self._queue.shut_down()

    async def _run_worker(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._work(key)
            except KubeError as error:
                retry_after = error.retry_after if isinstance(error, ApiError) else None
                failures = self._queue.add_rate_limited(key, at_least=retry_after or 0.0)
                if failures >= _FAILURES_TO_WARN:
                    log.warning("%s: %s failed %d times in a row: %s", self._name, key, failures, error)
            except Exception:
                log.exception("%s: unexpected failure of %s", self._name, key)
                self._queue.add_rate_limited(key)
            else:
                self._queue.forget(key)
            finally:
                self._queue.done(key)
