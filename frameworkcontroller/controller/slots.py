"""A semaphore that is fair across namespaces, then across Frameworks."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

LATE_SEC: Final = 2.0
"""A request that takes longer is slow for its own reasons, such as an admission webhook of its namespace."""

_MOST_LATE: Final = 2
"""The maximum of late holders, as a multiple of the number of slots: all are late when the API server is slow."""


def namespace_of(key: str) -> str:
    """Return the namespace of a Framework's key."""
    return key.partition("/")[0]


@dataclass(slots=True)
class _Hold:
    namespace: str
    late: bool = False


class Slots:
    """A semaphore of ``number`` slots. Taking a free slot does not suspend.

    Namespaces take turns to get a freed slot, and so do the flows (Frameworks) of a namespace: a thousand waiters of
    one flow delay the next flow by one slot.

    A holder that takes longer than ``LATE_SEC`` frees its slot, but still counts towards the limit of its namespace,
    also ``number``. So a namespace with slow requests is as fast as it would be alone, and delays others by seconds at
    most. Cancellation never loses a slot.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._free = number
        self._late = 0
        self._under_way: Counter[str] = Counter()
        # Namespaces, and the flows of each, in the order of their turns. While there are free slots, each of these
        # namespaces has as many under way as it may.
        self._lines: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def taken(self, flow: str) -> AsyncIterator[None]:
        """Hold a slot for ``flow``, a Framework's key."""
        hold = _Hold(namespace_of(flow))
        await self._take(hold.namespace, flow)
        timer = asyncio.get_running_loop().call_later(LATE_SEC, self._is_late, hold)
        try:
            yield
        finally:
            timer.cancel()
            self._give(hold)

    def _may_take(self, namespace: str) -> bool:
        return self._free > 0 and self._under_way[namespace] < self._number

    async def _take(self, namespace: str, flow: str) -> None:
        if self._may_take(namespace):
            self._count(namespace)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(namespace, {}).setdefault(flow, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                # The slot came in the same moment as the cancellation: it is the next one's.
                self._give(_Hold(namespace))
            # Otherwise it stays in its line as cancelled, and is passed over when its turn comes.
            raise

    def _count(self, namespace: str) -> None:
        self._free -= 1
        self._under_way[namespace] += 1

    def _is_late(self, hold: _Hold) -> None:
        if self._late < _MOST_LATE * self._number:
            hold.late = True
            self._late += 1
            self._free += 1
            self._grant()

    def _give(self, hold: _Hold) -> None:
        if hold.late:
            self._late -= 1
        else:
            self._free += 1
        self._under_way[hold.namespace] -= 1
        if not self._under_way[hold.namespace]:
            del self._under_way[hold.namespace]
        self._grant()

    def _grant(self) -> None:
        """Give free slots to those whose turn it is."""
        while (namespace := next(filter(self._may_take, self._lines), None)) is not None:
            flows = self._lines.pop(namespace)
            future = _next(flows)
            if flows:
                self._lines[namespace] = flows
            if future is not None:
                self._count(namespace)
                future.set_result(None)


def _next(flows: dict[str, deque[asyncio.Future[None]]]) -> asyncio.Future[None] | None:
    """Whoever of them is next, taken out of its line; None if all that waited were cancelled."""
    while flows:
        flow, line = next(iter(flows.items()))
        del flows[flow]
        while line:
            future = line.popleft()
            if not future.done():
                if line:
                    flows[flow] = line
                return future
    return None
