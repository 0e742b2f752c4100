"""The work queue: which keys are to be worked on, never one of them by two at a time.

A key is *dirty* from the moment it is added until it is handed out, and *processing* from then until it is done. One
that is added while it is processing becomes ready again when it is done, so nothing that happened meanwhile is missed
and no two workers ever hold it at once. However often it is added while dirty, it is handed out once.

``QueueCore`` is the whole of it, without an event loop; ``WorkQueue`` adds waiting and the one timer.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from frameworkcontroller.backoff import Backoff

K = TypeVar("K", bound=Hashable)

RETRY: Final = Backoff(base=0.05, maximum=15.0)
"""How long a key that failed waits: long enough not to hammer, and recovery is seen within a quarter of a minute."""

_TIMER_SLACK: Final = 1e-6
"""Event loops fire timers up to a clock tick early: what is due by a hair is due."""

_STALE_ALLOWANCE: Final = 64


class ShutDown(Exception):
    """The queue takes nothing any more, and nothing is left to hand out."""


class QueueCore(Generic[K]):
    """Dirty and processing sets, the line of ready keys, the heap of delayed ones and the count of failures.

    Invariant: ready = dirty - processing. Nothing here waits; all times are seconds of ``clock``.
    """

    __slots__ = (
        "_clock",
        "_delays",
        "_dirty",
        "_due",
        "_failures",
        "_order",
        "_processing",
        "_ready",
        "_retry",
        "_rng",
        "_shut_down",
        "adds",
        "on_done",
        "on_get",
        "retries",
    )

    def __init__(self, clock: Callable[[], float], *, retry: Backoff = RETRY, rng: random.Random | None = None) -> None:
        """``clock`` gives monotonic seconds."""
        self._clock = clock
        self._retry = retry
        self._rng = random.Random() if rng is None else rng
        self._ready: deque[K] = deque()
        self._dirty: dict[K, float] = {}
        self._processing: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        # An entry of the heap counts only while _due has it: a delay that became shorter leaves its old entry behind.
        self._delays: list[tuple[float, int, K]] = []
        self._due: dict[K, tuple[float, int]] = {}
        self._order = 0
        self._shut_down = False
        self.adds = 0
        """How often a key became dirty."""
        self.retries = 0
        """How often a key was added after a failure."""
        self.on_get: Callable[[float], None] | None = None
        """Told, at each hand-out, how many seconds the key had been dirty for."""
        self.on_done: Callable[[float], None] | None = None
        """Told, at each ``done``, how many seconds the key had been processing for."""

    # --- figures ---

    def __len__(self) -> int:
        """How many keys are ready (the depth)."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many keys wait for their time."""
        return len(self._due)

    @property
    def processing(self) -> int:
        """How many keys are handed out."""
        return len(self._processing)

    @property
    def unfinished_seconds(self) -> float:
        """Seconds for which the keys handed out have been processing, added up: it grows while something hangs."""
        now = self._clock()
        return sum(now - since for since in self._processing.values())

    @property
    def longest_running_seconds(self) -> float:
        """Seconds for which the longest-held key has been processing."""
        # In order of hand-out, so the first is the oldest.
        since = next(iter(self._processing.values()), None)
        return 0.0 if since is None else self._clock() - since

    @property
    def is_shut_down(self) -> bool:
        """Whether intake is closed."""
        return self._shut_down

    def failures(self, key: K) -> int:
        """How often the key has failed in a row."""
        return self._failures.get(key, 0)

    def snapshot(self, most: int) -> dict[str, Any]:
        """What is in the queue, for people: at most so many keys of each kind, and seconds from now."""
        now = self._clock()
        delays = sorted((due[0], key) for key, due in self._due.items())
        return {
            "ready": list(itertools.islice(self._ready, most)),
            "processing": {str(key): now - since for key, since in itertools.islice(self._processing.items(), most)},
            "delayed": {str(key): when - now for when, key in delays[:most]},
            "failures": {str(key): failures for key, failures in itertools.islice(self._failures.items(), most)},
            "counts": {
                "ready": len(self._ready),
                "processing": len(self._processing),
                "delayed": len(self._due),
                "failing": len(self._failures),
            },
        }

    # --- intake ---

    def add(self, key: K) -> bool:
        """Have the key handed out. Returns whether it became ready by this."""
        if key in self._dirty or self._shut_down:
            return False
        self._dirty[key] = self._clock()
        self.adds += 1
        if key in self._processing:
            return False
        self._ready.append(key)
        return True

    def add_after(self, key: K, seconds: float) -> bool:
        """Have the key added in so many seconds; of several delays of one key the earliest counts.

        Returns whether the next due time became earlier by this.
        """
        if self._shut_down:
            return False
        when = self._clock() + seconds
        current = self._due.get(key)
        if current is not None and current[0] <= when:
            return False
        self._order += 1
        self._due[key] = (when, self._order)
        if len(self._delays) > 2 * len(self._due) + _STALE_ALLOWANCE:
            # A key that keeps getting shorter delays, and later a long one again, would pile up stale entries.
            self._delays = [(due, order, waiting) for waiting, (due, order) in self._due.items()]
            heapq.heapify(self._delays)
        else:
            heapq.heappush(self._delays, (when, self._order, key))
        return self._first()[1] == self._order

    def fail(self, key: K) -> float:
        """Count a failure of the key. Returns for how many seconds it is to be left alone."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        self.retries += 1
        return self._retry.delay(failures, self._rng)

    def forget(self, key: K) -> None:
        """It worked: the key's next failure is its first."""
        self._failures.pop(key, None)

    def shut_down(self) -> None:
        """Take nothing any more, delayed keys included. What is ready is still handed out."""
        self._shut_down = True
        self._delays.clear()
        self._due.clear()

    # --- hand-out ---

    def get(self) -> K | None:
        """The key that has been ready longest, now processing; None if none is ready."""
        if not self._ready:
            return None
        key = self._ready.popleft()
        now = self._clock()
        since = self._dirty.pop(key)
        self._processing[key] = now
        if self.on_get is not None:
            self.on_get(now - since)
        return key

    def done(self, key: K) -> bool:
        """The key is worked on no more. Returns whether it became ready again by this.

        Raises:
            KeyError: it was not handed out.
        """
        since = self._processing.pop(key)
        if self.on_done is not None:
            self.on_done(self._clock() - since)
        if key not in self._dirty:
            return False
        self._ready.append(key)
        return True

    # --- time ---

    @property
    def next_due(self) -> float | None:
        """When (by the clock) the next delayed key is due."""
        return self._first()[0] if self._due else None

    def promote_due(self) -> int:
        """Add the delayed keys that are due by now. Returns how many became ready."""
        ready = len(self._ready)
        until = self._clock() + _TIMER_SLACK
        while (due := self.next_due) is not None and due <= until:
            key = heapq.heappop(self._delays)[2]
            del self._due[key]
            self.add(key)
        return len(self._ready) - ready

    def _first(self) -> tuple[float, int, K]:
        """The delay that is over next. There must be one."""
        delays = self._delays
        while self._due.get(delays[0][2]) != delays[0][:2]:
            heapq.heappop(delays)
        return delays[0]


class WorkQueue(Generic[K]):
    """The queue on an event loop: ``get`` waits, and delayed keys come by themselves. Create it on its loop."""

    __slots__ = ("_clock", "_getters", "_loop", "_timer", "core")

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        retry: Backoff = RETRY,
        rng: random.Random | None = None,
    ) -> None:
        """``clock`` gives monotonic seconds, by default those of the loop."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self.core: QueueCore[K] = QueueCore(clock or self._loop.time, retry=retry, rng=rng)
        """The queue itself, for its figures."""
        self._getters: deque[asyncio.Future[None]] = deque()
        self._timer: tuple[float, asyncio.TimerHandle] | None = None

    def __len__(self) -> int:
        """How many keys are ready."""
        return len(self.core)

    def add(self, key: K) -> None:
        """Have the key handed out as soon as somebody asks."""
        if self.core.add(key):
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Have the key added in so many seconds; of several delays of one key the earliest counts."""
        if seconds <= 0:
            self.add(key)
        elif self.core.add_after(key, seconds):
            self._rearm()

    def add_rate_limited(self, key: K, *, at_least: float = 0.0) -> None:
        """Count a failure of the key, and have it added after a back-off, but not within ``at_least`` seconds."""
        self.add_after(key, max(at_least, self.core.fail(key)))

    def forget(self, key: K) -> None:
        """It worked: the key's next failure is its first."""
        self.core.forget(key)

    def failures(self, key: K) -> int:
        """How often the key has failed in a row."""
        return self.core.failures(key)

    def done(self, key: K) -> None:
        """The key is worked on no more.

        Raises:
            KeyError: it was not handed out.
        """
        if self.core.done(key):
            self._wake()

    async def get(self) -> K:
        """Wait for the next key; it is processing until ``done``.

        Raises:
            ShutDown: the queue is shut down and nothing is ready.
        """
        while (key := self.core.get()) is None:
            if self.core.is_shut_down:
                raise ShutDown
            getter: asyncio.Future[None] = self._loop.create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.cancelled():
                    with suppress(ValueError):
                        self._getters.remove(getter)
                elif len(self.core):
                    # Woken and cancelled in the same moment: the key that it was woken for is the next one's.
                    self._wake()
                raise
        return key

    def shut_down(self) -> None:
        """Take nothing any more. What is ready is still handed out; then ``get`` raises ShutDown."""
        self.core.shut_down()
        self._rearm()
        while self._getters:
            self._wake()

    def _wake(self) -> None:
        """Let the getter that has waited longest look again."""
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _rearm(self) -> None:
        due = self.core.next_due
        if self._timer is not None:
            if self._timer[0] == due:
                return
            self._timer[1].cancel()
            self._timer = None
        if due is not None:
            # On the loop's own clock exactly: a difference added to a later "now" may round down and fire early.
            when = due if self._clock is None else self._loop.time() + (due - self._clock())
            self._timer = (due, self._loop.call_at(when, self._on_timer))

    def _on_timer(self) -> None:
        self._timer = None
        for _ in range(self.core.promote_due()):
            self._wake()
        self._rearm()
