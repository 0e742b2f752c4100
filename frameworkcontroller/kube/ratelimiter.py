"""A client-wide request rate, shared fairly between those on whose behalf requests are sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class RateLimiter:
    """Token bucket: ``burst`` requests at once, ``qps`` a second on average.

    While there are tokens, taking one costs nothing and never suspends. When they have run out, requests wait in one
    line per flow (a Framework, say) and flows take turns: one with a thousand requests waiting delays the next flow
    by one request, not by a thousand. Cancelling a waiting ``acquire`` never loses a token.

    Not thread-safe; belongs to the event loop that first waits on it.
    """

    def __init__(self, qps: float, burst: int) -> None:
        """Raise ValueError unless ``qps`` > 0 and ``burst`` ≥ 0. A burst of 0 works as 1: one request is the least."""
        if not qps > 0:
            raise ValueError(f"qps must be above 0: {qps}")
        if burst < 0:
            raise ValueError(f"burst must not be negative: {burst}")
        self._qps = qps
        self._capacity = float(max(burst, 1))
        self._tokens = self._capacity
        self._counted_at: float | None = None
        # Flows in the order of their turns: a dict, since it is ordered and an flow's line is looked up by its name.
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.waited: Callable[[float], None] | None = None
        """Told, for each request that was let through, how many seconds it waited; for metrics."""

    @property
    def waiting(self) -> int:
        """How many requests wait for a token."""
        return sum(sum(not future.done() for future in line) for line in self._lines.values())

    async def acquire(self, flow: str = "") -> None:
        """Return once a token was taken for ``flow``."""
        loop = asyncio.get_running_loop()
        self._refill(loop.time())
        if not self._lines and self._tokens >= 1.0:
            self._tokens -= 1.0
            if self.waited is not None:
                self.waited(0.0)
            return
        began = loop.time()
        future: asyncio.Future[None] = loop.create_future()
        self._lines.setdefault(flow, deque()).append(future)
        if self._timer is None:
            self._arm(loop)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                # The token came in the same moment as the cancellation: it is the next one's.
                self._tokens = min(self._capacity, self._tokens + 1.0)
                self._grant(loop)
            # Otherwise the future stays in its line as cancelled, and its turn is passed over when it comes.
            raise
        if self.waited is not None:
            self.waited(loop.time() - began)

    def _refill(self, now: float) -> None:
        if self._counted_at is not None and now > self._counted_at:
            self._tokens = min(self._capacity, self._tokens + (now - self._counted_at) * self._qps)
        self._counted_at = now

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the tokens that there are to those whose turn it is; wake up again for the rest."""
        while self._lines and self._tokens >= 1.0:
            flow, line = next(iter(self._lines.items()))
            del self._lines[flow]
            while line:
                future = line.popleft()
                if not future.done():
                    future.set_result(None)
                    self._tokens -= 1.0
                    break
            if line:
                self._lines[flow] = line
        if self._lines and self._timer is None:
            self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(max(0.0, 1.0 - self._tokens) / self._qps, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._refill(loop.time())
        # A timer may fire a hair early (clock resolution). The missing sliver would cost another round for nothing.
        if 1.0 - 1e-6 < self._tokens < 1.0:
            self._tokens = 1.0
        self._grant(loop)
