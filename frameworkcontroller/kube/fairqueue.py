"""A queue of waiting tasks that is fair across namespaces, then across the flows of a namespace."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


def namespace_of(flow: str) -> str:
    """Return the namespace of a flow, whose key is ``namespace/name``."""
    return flow.partition("/")[0]


class FairQueue:
    """Namespaces take turns, in each namespace its flows do, and the tasks of a flow are served in order of arrival.

    A flow with a thousand waiting tasks delays another flow by one task, not by a thousand.
    """

    __slots__ = ("_namespaces",)

    def __init__(self) -> None:
        # Both dicts are in the order of turns. They have no empty members.
        self._namespaces: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._namespaces)

    def __len__(self) -> int:
        lines = (line for flows in self._namespaces.values() for line in flows.values())
        return sum(not waiter.done() for line in lines for waiter in line)

    async def wait(self, flow: str, give_back: Callable[[], None]) -> None:
        """Wait until `grant` chooses this task. If it is cancelled after that, ``give_back`` is called."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._namespaces.setdefault(namespace_of(flow), {}).setdefault(flow, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # A cancelled waiter stays in its line until its turn comes.
            if not waiter.cancelled():
                give_back()
            raise

    def grant(self, may: Callable[[str], bool] | None = None) -> str | None:
        """Let the next task continue, of the namespaces for which ``may``, and return its namespace; None if none."""
        while self._namespaces:
            namespace = next(iter(self._namespaces) if may is None else filter(may, self._namespaces), None)
            if namespace is None:
                return None
            flows = self._namespaces.pop(namespace)
            waiter = _pop(flows)
            if flows:
                self._namespaces[namespace] = flows
            if waiter is not None:
                waiter.set_result(None)
                return namespace
        return None


def _pop(flows: dict[str, deque[asyncio.Future[None]]]) -> asyncio.Future[None] | None:
    """Remove and return the next waiter; None if all were cancelled."""
    while flows:
        flow, line = next(iter(flows.items()))
        del flows[flow]
        while line:
            waiter = line.popleft()
            if not waiter.done():
                if line:
                    flows[flow] = line
                return waiter
    return None
