"""Liveness and readiness of a controller, for the probes of its Pod.

It is live unless a restart would help. An API server that is unavailable, denies or throttles requests is no reason for
a restart, so it does not count. A controller is ready when its caches are filled; a standby too, as it could lead then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.workqueue import WorkQueue

INFORMER_STUCK_SEC: Final = 600.0
"""An informer without activity for this time hangs: watches end and requests time out much earlier."""

SYNC_STUCK_SEC: Final = 1800.0
"""A sync that takes this long hangs: it stops starting actions after minutes, and requests time out earlier."""


class Check(NamedTuple):
    """The result of one check. ``problem`` None: passed."""

    name: str
    problem: str | None


class Health:
    """Checks the parts of one controller on request."""

    def __init__(
        self,
        informers: Iterable[Informer[Any]],
        queue: WorkQueue[str],
        *,
        clock: Callable[[], float],
        required: Iterable[Informer[Any]] | None = None,
        may_act: Callable[[], bool] = lambda: True,
        more: Callable[[], Iterable[Check]] = tuple,
    ) -> None:
        """``clock``: monotonic seconds. ``required``: the informers that must sync first; default all.

        ``may_act``: whether syncs can proceed. A leader's syncs wait while its lease cannot be renewed. ``more``:
        further checks of readiness.
        """
        self._informers = tuple(informers)
        self._required = self._informers if required is None else tuple(required)
        self._queue = queue
        self._clock = clock
        self._may_act = may_act
        self._more = more
        self._waited_until = float("-inf")
        self._active: dict[str, tuple[int, float]] = {}

    def live(self) -> list[Check]:
        """Checks for hangs that a restart would end. The response itself shows that the event loop runs."""
        checks = [Check(f"informer-{one.resource.plural}", self._stuck(one)) for one in self._informers]
        if not self._may_act():
            self._waited_until = self._clock()
        longest = min(self._queue.longest_running_seconds, self._clock() - self._waited_until)
        hangs = f"a sync has been running for {longest:.0f} s" if longest > SYNC_STUCK_SEC else None
        return [*checks, Check("workers", hangs)]

    def ready(self) -> list[Check]:
        """Checks that the caches are filled and the controller is not stopping."""
        checks = [
            Check(f"cache-{one.resource.plural}", None if one.synced else "not filled yet") for one in self._required
        ]
        return [*checks, *self._more(), Check("running", "stopping" if self._queue.is_shut_down else None)]

    def _stuck(self, informer: Informer[Any]) -> str | None:
        name, now = informer.resource.plural, self._clock()
        activity = informer.counters.total
        before, since = self._active.get(name, (-1, now))
        if activity != before or not informer.running or informer.backing_off:
            self._active[name] = (activity, now)
            return None
        idle = now - since
        return f"no activity for {idle:.0f} s" if idle > INFORMER_STUCK_SEC else None
