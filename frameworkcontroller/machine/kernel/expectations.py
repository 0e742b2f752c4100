"""Which recorded objects the caches and live reads of this process have shown.

The cache of a process that starts or takes over may be older than the status. So absence from the cache proves that an
object is gone only if this cache has shown the object before.
"""

from __future__ import annotations

import math

from frameworkcontroller.machine.kernel.model import Env


class Expectations:
    """Observations of recorded Pods and ConfigMaps, by UID."""

    __slots__ = ("_hidden", "_lost", "_seen")

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._lost: set[str] = set()
        self._hidden: dict[str, float] = {}

    def see(self, uid: str) -> None:
        """The cache has shown the object, or its end: absence from now on means that it is gone."""
        self.forget(uid)
        self._seen.add(uid)

    def lose(self, uid: str) -> None:
        """The cache has dropped the object, which may still exist without its label."""
        self._seen.discard(uid)
        self._lost.add(uid)

    def has_seen(self, uid: str) -> bool:
        """Whether absence from the cache means that the object is gone."""
        return uid in self._seen

    def has_lost(self, uid: str) -> bool:
        """Whether the cache has dropped the object without showing its end."""
        return uid in self._lost

    def hide(self, uid: str, env: Env) -> bool:
        """A live read has shown the object, the cache does not. Return False if that was noted before."""
        if uid in self._hidden:
            return False
        self._hidden[uid] = env.clock
        return True

    def is_hidden(self, uid: str, listed: float) -> bool:
        """Whether a list at ``listed`` (monotonic seconds), after ``hide``, has not brought it into the cache."""
        return listed >= self._hidden.get(uid, math.inf)

    def forget(self, uid: str | None) -> None:
        """Forget the object."""
        if uid is not None:
            self._seen.discard(uid)
            self._lost.discard(uid)
            self._hidden.pop(uid, None)

    def forget_all(self) -> None:
        """Forget all objects."""
        self._seen.clear()
        self._lost.clear()
        self._hidden.clear()
