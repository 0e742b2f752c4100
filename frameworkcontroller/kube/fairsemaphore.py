"""A semaphore that is fair across namespaces, then across the flows (Frameworks) of a namespace."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from frameworkcontroller.kube.fairqueue import FairQueue, namespace_of

LATE_SEC: Final = 2.0
"""A request that takes longer is slow for its own reasons, such as an admission webhook of its namespace."""

_MOST_LATE: Final = 2
"""The maximum of late holders, as a multiple of the number of slots: all are late when the API server is slow."""


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
    async def taken(self, flow: str) -> AsyncIterator[None]:
        """Take a slot for ``flow``, whose key is ``namespace/name``."""
        slot = _Slot(namespace_of(flow))
        if self._may_take(slot.namespace):
            self._count(slot.namespace)
        else:
            await self._queue.wait(flow, lambda: self._release(slot))
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
