"""A client-wide request rate that is fair across namespaces, then across the flows of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from frameworkcontroller.kube.fairness import FairQueue
from frameworkcontroller.tokenbucket import TokenBucket


class RateLimiter:
    """Token bucket: ``burst`` requests at once, ``qps`` a second on average.

    Taking an available token does not suspend. Otherwise requests wait in a `FairQueue`. Cancellation never loses a
    token.

    Not thread-safe; belongs to the event loop that first waits on it.
    """

    def __init__(self, qps: float, burst: int) -> None:
        """``qps`` is above 0. A burst of 0 works as 1."""
        self._qps = qps
        self._bucket = TokenBucket(max(burst, 1), qps)
        self._queue = FairQueue()
        self._timer: asyncio.TimerHandle | None = None
        self.waited: Callable[[float], None] | None = None
        """Called with the waiting time, in seconds, of each request."""

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def acquire(self, flow: str = "") -> None:
        """Wait for a token for ``flow``, whose key is ``namespace/name``."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._bucket.refill(began)
        if not self._queue and self._bucket.left >= 1.0:
            self._bucket.left -= 1.0
            if self.waited is not None:
                self.waited(0.0)
            return
        if self._timer is None:
            self._arm(loop)
        await self._queue.wait(flow, self._give_back)
        if self.waited is not None:
            self.waited(loop.time() - began)

    def _give_back(self) -> None:
        self._bucket.put_back()
        self._grant(asyncio.get_running_loop())

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        """Grant the available tokens, and set the timer for the next one."""
        while self._bucket.left >= 1.0 and self._queue.grant() is not None:
            self._bucket.left -= 1.0
        if self._queue and self._timer is None:
            self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(max(0.0, 1.0 - self._bucket.left) / self._qps, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._bucket.refill(loop.time())
        # Timers may fire a clock tick early. Another round for the missing fraction would be a waste.
        if 1.0 - 1e-6 < self._bucket.left < 1.0:
            self._bucket.left = 1.0
        self._grant(loop)
