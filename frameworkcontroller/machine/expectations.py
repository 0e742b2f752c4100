"""What this process has learnt about recorded objects from its caches and live reads.

The cache of a process that starts, or takes over, may be older than the status. So an absent object is known to be gone
only if this very cache has shown it, and its end.
"""

from __future__ import annotations

import math

from frameworkcontroller.machine.model import Env


class Expectations:
    """Recorded Pods, by UID."""

    __slots__ = ("_hidden", "_lost", "_seen")

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._lost: set[str] = set()
        self._hidden: dict[str, float] = {}

    def see(self, uid: str) -> None:
        """Note that the cache has shown the object, or its end: once absent, it is gone."""
        self.forget(uid)
        self._seen.add(uid)

    def lose(self, uid: str) -> None:
        """Note that the cache has dropped the object, which does not say that it is gone."""
        self._seen.discard(uid)
        self._lost.add(uid)

    def has_seen(self, uid: str) -> bool:
        """Whether the cache has shown the object to this process."""
        return uid in self._seen

    def has_lost(self, uid: str) -> bool:
        """Whether the cache has dropped the object, which does not say that it is gone."""
        return uid in self._lost

    def hide(self, uid: str, env: Env) -> bool:
        """Note that a live read has shown the object, and the cache does not; False if that is known."""
        if uid in self._hidden:
            return False
        self._hidden[uid] = env.clock
        return True

    def is_hidden(self, uid: str, listed: float) -> bool:
        """Whether a list made since then, at ``listed`` (monotonic seconds), has not brought it into the cache."""
        return listed >= self._hidden.get(uid, math.inf)

    def forget(self, uid: str | None) -> None:
        """Forget the object: it is of no interest any more."""
        if uid is not None:
            self._seen.discard(uid)
            self._lost.discard(uid)
            self._hidden.pop(uid, None)

    def forget_all(self) -> None:
        """Forget all objects."""
        self._seen.clear()
        self._lost.clear()
        self._hidden.clear()
