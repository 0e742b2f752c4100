"""Fairness across namespaces, then across the flows (Frameworks) of a namespace: a queue, and a semaphore."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from frameworkcontroller.kube.turns import NamespaceTurns

LATE_SEC: Final = 2.0
"""A request that takes longer is slow for its own reasons, such as an admission webhook of its namespace."""

_MOST_LATE: Final = 2
"""The maximum of late holders, as a multiple of the number of slots: all are late when the API server is slow."""


def namespace_of(flow: str) -> str:
    """Return the namespace of a flow, whose key is ``namespace/name``."""
    return flow.partition("/")[0]


class FairQueue:
    """Namespaces take turns, in each namespace its flows do, and the tasks of a flow are served in order of arrival.

    A flow with a thousand waiting tasks delays another flow by one task, not by a thousand. Flows with less work go
    first, within the bound of `NamespaceTurns`.
    """

    def __init__(self) -> None:
        self._turns: NamespaceTurns[str] = NamespaceTurns()
        # By flow, the waiters with the work of the flow. It has no empty lines.
        self._lines: dict[str, deque[tuple[asyncio.Future[None], int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __len__(self) -> int:
        return sum(not waiter.done() for line in self._lines.values() for waiter, _ in line)

    async def wait(self, flow: str, give_back: Callable[[], None], work: int = 0) -> None:
        """Wait until `grant` chooses this task. If it is cancelled after that, ``give_back`` is called."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(flow, deque()).append((waiter, work))
        self._turns.add(namespace_of(flow), flow, work)
        try:
            await waiter
        except asyncio.CancelledError:
            # A cancelled waiter stays in its line until its turn comes.
            if not waiter.cancelled():
                give_back()
            raise

    def grant(self, may: Callable[[str], bool] | None = None) -> str | None:
        """Let the next task continue, of the namespaces for which ``may``, and return its namespace; None if none."""
        while (turn := self._turns.pop(may)) is not None:
            namespace, flow = turn
            waiter = self._pop(flow)
            if (line := self._lines.get(flow)) is not None:
                self._turns.add(namespace, flow, line[0][1])
            if waiter is not None:
                waiter.set_result(None)
                return namespace
        return None

    def _pop(self, flow: str) -> asyncio.Future[None] | None:
        """Remove and return the next waiter of the flow; None if all were cancelled."""
        line, found = self._lines[flow], None
        while line and found is None:
            waiter, _ = line.popleft()
            if not waiter.done():
                found = waiter
        if not line:
            del self._lines[flow]
        return found


@dataclass(slots=True)
class _Slot:
    namespace: str
    late: bool = False


class FairSemaphore:
    """A semaphore of ``number`` slots. Taking a free slot does not suspend; otherwise requests wait in a `FairQueue`.

    A holder that takes longer than ``LATE_SEC`` frees its slot, but still counts towards the limit of its namespace,
    also ``number``. So a namespace with slow requests is as fast as it would be alone, and delays others by seconds at
    most. Cancellation never loses a slot.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._free = number
        self._late = 0
        self._taken: Counter[str] = Counter()
        # While slots are free, it has only namespaces that have taken all they may.
        self._queue = FairQueue()

    @asynccontextmanager
    async def taken(self, flow: str, work: int = 0) -> AsyncIterator[None]:
        """Take a slot for ``flow``, whose key is ``namespace/name`` and which has ``work`` left."""
        slot = _Slot(namespace_of(flow))
        if self._may_take(slot.namespace):
            self._count(slot.namespace)
        else:
            await self._queue.wait(flow, lambda: self._release(slot), work)
        timer = asyncio.get_running_loop().call_later(LATE_SEC, self._is_late, slot)
        try:
            yield
        finally:
            timer.cancel()
            self._release(slot)

    def _may_take(self, namespace: str) -> bool:
        return self._free > 0 and self._taken[namespace] < self._number

    def _count(self, namespace: str) -> None:
        self._free -= 1
        self._taken[namespace] += 1

    def _is_late(self, slot: _Slot) -> None:
        if self._late < _MOST_LATE * self._number:
            slot.late = True
            self._late += 1
            self._free += 1
            self._grant()

    def _release(self, slot: _Slot) -> None:
        if slot.late:
            self._late -= 1
        else:
            self._free += 1
        self._taken[slot.namespace] -= 1
        if not self._taken[slot.namespace]:
            del self._taken[slot.namespace]
        self._grant()

    def _grant(self) -> None:
        while self._free and (namespace := self._queue.grant(self._may_take)) is not None:
            self._count(namespace)
