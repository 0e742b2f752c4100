"""A rate-limiting work queue without duplicates, after client-go's util/workqueue.

A key is *dirty* from ``add`` to ``get``, and *processing* from ``get`` to ``done``. Adding a dirty key again has no
effect. A key that is added while it is processing becomes ready when it is done, which loses no event and never gives
one key to two workers.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.deadlines import Deadlines
from frameworkcontroller.kube.turns import NamespaceTurns

K = TypeVar("K", bound=Hashable)

RETRY: Final = Backoff(base=0.05, maximum=15.0)
"""The back-off of a failed key. The maximum is how late a recovery may be noticed."""

_TIMER_SLACK: Final = 1e-6
"""Event loops may fire a timer one clock tick early."""


class ShutDown(Exception):
    """The queue is shut down and empty."""


class WorkQueue(Generic[K]):
    """Dirty, processing, ready, delayed and failed keys.

    Invariant: ready = dirty - processing. All times are seconds of ``clock``.
    """

    def __init__(
        self,
        clock: Callable[[], float] | None = None,
        *,
        retry: Backoff = RETRY,
        rng: random.Random | None = None,
        namespace: Callable[[K], str] = lambda _: "",
        work: Callable[[K], int] = lambda _: 0,
    ) -> None:
        """``namespace`` and ``work`` decide the turn of a ready key; without them, the order of becoming ready does.

        ``clock`` returns monotonic seconds, and its owner promotes due keys; None: the clock and timers of the running
        event loop.
        """
        self._loop = asyncio.get_running_loop() if clock is None else None
        self._clock = clock or asyncio.get_running_loop().time
        self._retry = retry
        self._rng = random.Random() if rng is None else rng
        self.namespace = namespace
        self._work = work
        self._ready: NamespaceTurns[K] = NamespaceTurns()
        self._dirty: dict[K, float] = {}
        self._processing: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._due: Deadlines[K] = Deadlines()
        self._changed = asyncio.Event()
        self._timer: asyncio.Handle | None = None
        self._timer_due: float | None = None
        """uvloop's handle of a timer that is due at once has no ``when``."""
        self.is_shut_down = False
        """Whether ``shut_down`` was called."""
        self.adds = 0
        """Number of times that a key became dirty."""
        self.retries = 0
        """Number of failures."""
        self.on_get: Callable[[float], None] | None = None
        """Called with the seconds for which a key was dirty, when it is got."""
        self.on_done: Callable[[float], None] | None = None
        """Called by ``done`` with the seconds for which the key was processing."""

    # --- figures ---

    def __len__(self) -> int:
        """The number of ready keys (the depth)."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        return len(self._due)

    @property
    def unfinished_seconds(self) -> float:
        """The sum of the seconds for which keys are processing. It grows while a worker hangs."""
        now = self._clock()
        return sum(now - since for since in self._processing.values())

    @property
    def longest_running_seconds(self) -> float:
        """The seconds for which the oldest key is processing."""
        # In the order of get, so the first is the oldest.
        since = next(iter(self._processing.values()), None)
        return 0.0 if since is None else self._clock() - since

    def snapshot(self, most: int) -> dict[str, Any]:
        """The state of the queue for people: up to ``most`` keys of each kind, with times in seconds from now."""
        now = self._clock()
        return {
            "ready": list(itertools.islice(self._ready, most)),
            "processing": {str(key): now - since for key, since in itertools.islice(self._processing.items(), most)},
            "delayed": {str(key): when - now for key, when in self._due.items()[:most]},
            "failures": {str(key): failures for key, failures in itertools.islice(self._failures.items(), most)},
            "counts": {
                "ready": len(self._ready),
                "processing": len(self._processing),
                "delayed": len(self._due),
                "failing": len(self._failures),
            },
        }

    # --- intake ---

    def add(self, key: K) -> None:
        """Add a key. A ready key keeps its age, and its turn follows its present work."""
        if self.is_shut_down:
            return
        if key in self._dirty:
            if key not in self._processing:
                self._ready.add(self.namespace(key), key, self._work(key))
            return
        self._dirty[key] = self._clock()
        self.adds += 1
        if key not in self._processing:
            self._make_ready(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key in ``seconds``; the earliest of several delays counts."""
        if seconds <= 0:
            self.add(key)
        elif not self.is_shut_down:
            when = self._clock() + seconds
            current = self._due.get(key)
            if current is None or when < current:
                self._due.set(key, when)
                self._rearm()

    def add_rate_limited(self, key: K, *, at_least: float = 0.0) -> int:
        """Add a failed key after its back-off or ``at_least`` seconds, whichever is longer.

        Return the number of its failures since ``forget``.
        """
        self.retries += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, max(at_least, self._retry.delay(failures, self._rng)))
        return failures

    def forget(self, key: K) -> None:
        """Reset the failures of the key."""
        self._failures.pop(key, None)

    def shut_down(self) -> None:
        """Drop delayed keys and ignore new ones. Once no key is ready, ``get`` raises ShutDown."""
        self.is_shut_down = True
        self._due.clear()
        self._rearm()
        self._changed.set()

    # --- processing ---

    async def get(self, may: Callable[[str], bool] | None = None) -> K:
        """Wait for the next key, of the namespaces for which ``may``. It is processing until ``done``.

        Call ``recheck`` when a namespace may again. Raises ShutDown if the queue is shut down and there is no such key.
        """
        while (key := self.get_nowait(may)) is None:
            if self.is_shut_down:
                raise ShutDown
            self._changed.clear()
            await self._changed.wait()
        return key

    def recheck(self) -> None:
        """Let a waiting ``get`` check the ready keys again."""
        self._changed.set()

    def get_nowait(self, may: Callable[[str], bool] | None = None) -> K | None:
        """Return the next key, now processing, of the namespaces for which ``may``; None if none is ready."""
        turn = self._ready.pop(may)
        if turn is None:
            return None
        _, key = turn
        now = self._clock()
        since = self._dirty.pop(key)
        self._processing[key] = now
        if self.on_get is not None:
            self.on_get(now - since)
        return key

    def done(self, key: K) -> None:
        """End the processing of a key. Raises KeyError if it is not processing."""
        since = self._processing.pop(key)
        if self.on_done is not None:
            self.on_done(self._clock() - since)
        if key in self._dirty:
            self._make_ready(key)

    def _make_ready(self, key: K) -> None:
        self._ready.add(self.namespace(key), key, self._work(key))
        self._changed.set()

    # --- time ---

    @property
    def next_due(self) -> float | None:
        """The time at which the next delayed key is due, None if none is delayed."""
        return self._due.next()

    def promote_due(self) -> None:
        """Add the delayed keys that are due."""
        until = self._clock() + _TIMER_SLACK
        while (key := self._due.pop_due(until)) is not None:
            self.add(key)

    def _rearm(self) -> None:
        due = self.next_due
        if self._timer is not None and self._timer_due != due:
            self._timer.cancel()
            self._timer = None
        if self._loop is not None and self._timer is None and due is not None:
            self._timer, self._timer_due = self._loop.call_at(due, self._on_timer), due

    def _on_timer(self) -> None:
        self._timer = None
        self.promote_due()
        self._rearm()
