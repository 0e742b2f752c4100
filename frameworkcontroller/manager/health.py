"""Whether a controller is alive, and whether it is ready: what the probes of its Pod ask.

Alive: a restart would not help. That an API server is away, refuses or throttles is no reason for one, so nothing of
that kind counts. Ready: its caches are filled, so that it acts, or (a replica that stands by) could act at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.workqueue import QueueCore

INFORMER_STUCK_SEC: Final = 600.0
"""An informer that did nothing for so long hangs: every watch is closed, and every request given up, long before."""

SYNC_STUCK_SEC: Final = 1800.0
"""A sync that takes so long hangs: it starts no more actions after minutes, and so does each request end."""


class Check(NamedTuple):
    """One thing looked at. ``problem``: what is wrong, in words; None if nothing is."""

    name: str
    problem: str | None


class Health:
    """Looks at the parts of one controller when it is asked."""

    def __init__(
        self,
        informers: Iterable[Informer[Any]],
        queue: QueueCore[str],
        *,
        clock: Callable[[], float],
        required: Iterable[Informer[Any]] | None = None,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        """``clock``: monotonic seconds. ``required``: the informers whose caches a replica fills before it leads; all.
        ``may_act``: whether syncs may go on; those of a leader wait for as long as its lease cannot be renewed.
        """
        self._informers = tuple(informers)
        self._required = self._informers if required is None else tuple(required)
        self._queue = queue
        self._clock = clock
        self._may_act = may_act
        self._waited_until = float("-inf")
        self._active: dict[str, tuple[int, float]] = {}

    def live(self) -> list[Check]:
        """Whether anything hangs that a restart would free. Who gets an answer knows that the event loop runs."""
        checks = [Check(f"informer-{one.resource.plural}", self._stuck(one)) for one in self._informers]
        if not self._may_act():
            self._waited_until = self._clock()
        longest = min(self._queue.longest_running_seconds, self._clock() - self._waited_until)
        hangs = f"a sync has been under way for {longest:.0f} s" if longest > SYNC_STUCK_SEC else None
        return [*checks, Check("workers", hangs)]

    def ready(self) -> list[Check]:
        """Whether the caches are filled, and the controller has not been told to stop."""
        checks = [
            Check(f"cache-{one.resource.plural}", None if one.synced else "is not filled yet") for one in self._required
        ]
        return [*checks, Check("running", "is stopping" if self._queue.is_shut_down else None)]

    def _stuck(self, informer: Informer[Any]) -> str | None:
        name, now = informer.resource.plural, self._clock()
        activity = informer.counters.total
        before, since = self._active.get(name, (-1, now))
        if activity != before or not informer.running or informer.pausing:
            self._active[name] = (activity, now)
            return None
        idle = now - since
        return f"has done nothing for {idle:.0f} s" if idle > INFORMER_STUCK_SEC else None
