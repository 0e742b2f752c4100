"""A bound on what is under way at once, shared fairly between those on whose behalf it is done."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

LATE_SEC: Final = 2.0
"""What takes longer waits for something else than its turn: for a webhook that one namespace has, say."""

_MOST_LATE: Final = 2
"""So many times the number of slots may be late and not count: all are, if it is the API server that is slow."""


def namespace_of(key: str) -> str:
    """Of a Framework's key."""
    return key.partition("/")[0]


@dataclass(slots=True)
class _Hold:
    namespace: str
    late: bool = False


class Slots:
    """So many at once. While there are free ones, taking one costs nothing and never suspends.

    When there are none, namespaces take turns in getting those that become free, and in each its flows (Frameworks)
    do: one with a thousand waiting delays the next flow by one, not by a thousand.

    What is held for longer than ``LATE_SEC`` gives its slot to others, but still counts for its namespace, which never
    has more under way than there are slots. So a namespace in which every answer takes its time is as fast as it would
    be alone, and delays the others by seconds at most. Cancelling never loses a slot.
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
