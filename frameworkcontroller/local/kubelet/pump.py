"""Works off keys, a bounded number at a time, and each key never twice at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from frameworkcontroller.kube.errors import ApiError, KubeError
from frameworkcontroller.local.kubelet.timers import Timers

_FIRST_DELAY_SECONDS: Final = 0.2
_MAX_DELAY_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class Pump:
    """Calls ``work(key)`` for every marked key; one marked again meanwhile is worked again afterwards.

    A `KubeError` out of ``work`` means try again, later each time; anything else is a bug, is logged with its
    traceback, and is tried again likewise, so that one key's bug does not stop the others.
    """

    def __init__(self, name: str, work: Callable[[str], Awaitable[None]], *, concurrency: int) -> None:
        self._name = name
        self._work = work
        self._free = concurrency
        self._group: asyncio.TaskGroup | None = None
        self._ready: deque[str] = deque()
        # Invariant: a key that is marked and not busy is in _ready exactly once.
        self._marked: set[str] = set()
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._retries: Timers[str] = Timers(self.mark)

    @property
    def idle(self) -> bool:
        """Whether nothing is marked, under way or to be tried again."""
        return not self._marked and not self._busy and not self._retries

    def mark(self, key: str) -> None:
        """Have the key worked, soon."""
        if key not in self._marked:
            self._marked.add(key)
            if key not in self._busy:
                self._ready.append(key)
                self._hire()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._hire()
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            self._retries.clear()

    def _hire(self) -> None:
        """Have enough workers for what is ready; each stays as long as there is work."""
        while self._group is not None and self._ready and self._free:
            self._free -= 1
            self._group.create_task(self._worker(self._take()))

    def _take(self) -> str:
        key = self._ready.popleft()
        self._marked.discard(key)
        self._busy.add(key)
        self._retries.set(key, None)
        return key

    async def _worker(self, key: str) -> None:
        try:
            await self._once(key)
            while self._ready:
                await self._once(self._take())
        finally:
            self._free += 1

    async def _once(self, key: str) -> None:
        try:
            await self._work(key)
        except KubeError as error:
            self._retry(key, error)
        except Exception:
            log.exception("%s: unexpected failure of %s", self._name, key)
            self._retry(key, None)
        else:
            self._failures.pop(key, None)
        finally:
            self._busy.discard(key)
            if key in self._marked:
                self._ready.append(key)

    def _retry(self, key: str, error: KubeError | None) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(_FIRST_DELAY_SECONDS * 2 ** min(failures - 1, 10), _MAX_DELAY_SECONDS)
        if isinstance(error, ApiError) and error.retry_after is not None:
            delay = max(delay, error.retry_after)
        if error is not None and failures > 3:
            log.warning("%s: %s: %s; next try in %.1f s", self._name, key, error, delay)
        self._retries.set(key, asyncio.get_running_loop().time() + delay)
