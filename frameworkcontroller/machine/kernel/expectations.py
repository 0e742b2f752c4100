"""The objects that this process has sent, or knows to exist, and what its caches have shown of them.

The cache of a process that starts or takes over may be older than the status. So absence from the cache proves that a
recorded object is gone only if this cache has shown the object before (``Expectations``). Objects that no status
records are known by the answer to their creation until the cache drops them (``OwnedObjects``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from frameworkcontroller.api.objects import CompanionRecord
from frameworkcontroller.machine.kernel.model import Env
from frameworkcontroller.machine.kernel.requests import Kind, Target


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
        if uid is not None:
            self._seen.discard(uid)
            self._lost.discard(uid)
            self._hidden.pop(uid, None)

    def forget_all(self) -> None:
        self._seen.clear()
        self._lost.clear()
        self._hidden.clear()


class Confirmed(NamedTuple):
    """An object that a response has confirmed.

    ``since``: when (monotonic seconds) its creation was first wanted; an earlier list is older than the response.
    """

    uid: str
    since: float


class OwnedObjects:
    """Objects that no status records: sent and not answered, or confirmed by a response and not yet seen deleted."""

    __slots__ = ("_ended", "_listed", "_sent", "confirmed")

    def __init__(self) -> None:
        self.confirmed: dict[Target, Confirmed] = {}
        self._sent: dict[Target, float] = {}
        self._ended: set[str] = set()
        self._listed: set[Target] = set()

    def send(self, target: Target, clock: float) -> None:
        """The object is to be created. From now on, its end may be seen before the answer."""
        self._sent.setdefault(target, clock)

    def answer(self, target: Target, uid: str | None) -> None:
        """The creation was answered. ``uid``: of one that exists and is ours, None if none does."""
        if uid is not None:
            if uid in self._ended or target in self._listed:
                # The answer may be from before that end or list. The next one counts: the object has lost its label.
                self._ended.discard(uid)
            else:
                self.confirmed[target] = Confirmed(uid, self._sent.get(target, -math.inf))
        self._sent.pop(target, None)
        self._listed.discard(target)
        if not self._sent:
            self._ended.clear()

    def drop(self, target: Target, uid: str) -> None:
        """The cache has dropped the object: it is gone, or has lost its label."""
        known = self.confirmed.get(target)
        if known is not None and known.uid == uid:
            del self.confirmed[target]
        if self._sent:
            self._ended.add(uid)

    def listed(self, kind: Kind, at: float, find: Callable[[str], CompanionRecord | None]) -> list[tuple[Target, str]]:
        """The cache has all objects of the kind that existed at ``at`` (monotonic seconds). ``find``: one by its name.

        Return target and UID of the confirmed objects that it lacks: they are gone, or have lost their label.
        """
        self._listed.update(target for target, since in self._sent.items() if target.kind is kind and since <= at)
        return [
            (target, known.uid)
            for target, known in self.confirmed.items()
            if target.kind is kind
            and known.since <= at
            and ((found := find(target.name)) is None or found.uid != known.uid)
        ]

    def forget(self, kinds: frozenset[Kind]) -> None:
        for target in [target for target in self.confirmed if target.kind in kinds]:
            del self.confirmed[target]
