"""Objects that were sent or shown, until the caches show them or their end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from frameworkcontroller.api.objects import CompanionRecord
from frameworkcontroller.machine.kernel.model import Env
from frameworkcontroller.machine.kernel.requests import Kind, Target


class Confirmed(NamedTuple):
    """An object that a response has confirmed.

    ``since``: when (monotonic seconds) its creation was first wanted; an earlier list is older than the response.
    """

    uid: str
    since: float


class Expectations:
    """The objects of a Framework between a request and the caches.

    Pods and ConfigMaps, which the status records, are known by UID. The cache of a process that starts or takes over
    may be older than the status: absence from it proves that such an object is gone only if it was seen there before.

    Other objects are known by target, from the response to their creation until the cache drops them. Their changes are
    known by target and verb, until their outcome or another version in the cache.
    """

    __slots__ = ("_changes", "_creations", "_ended", "_hidden", "_listed", "_lost", "_trusted", "confirmed")

    def __init__(self) -> None:
        self._trusted: set[str] = set()
        self._lost: set[str] = set()
        self._hidden: dict[str, float] = {}
        self.confirmed: dict[Target, Confirmed] = {}
        """Objects confirmed by a response and not yet seen deleted."""
        self._creations: dict[Target, float] = {}
        """Creations without a response, and when they were first wanted."""
        self._ended: set[str] = set()
        """UIDs that the cache has dropped since then."""
        self._listed: set[Target] = set()
        """Those that were listed since then."""
        self._changes: dict[tuple[Target, str], str] = {}
        """The resourceVersion in the cache when each change was sent, "" if it does not matter."""

    def successor(self) -> Expectations:
        """The expectations after another writer has written the status."""
        new = Expectations()
        new.confirmed, new._creations = self.confirmed, self._creations
        new._ended, new._listed = self._ended, self._listed
        return new

    # --- recorded objects, by UID ---

    def trust_absence(self, uid: str) -> None:
        """Take absence from the cache for the object's end, as the cache has shown the object or its end."""
        self.forget(uid)
        self._trusted.add(uid)

    def lose(self, uid: str) -> None:
        """Note that the cache has dropped the object, which may still exist without its label."""
        self._trusted.discard(uid)
        self._lost.add(uid)

    def trusts_absence(self, uid: str) -> bool:
        """Whether absence from the cache means that the object is gone."""
        return uid in self._trusted

    def has_lost(self, uid: str) -> bool:
        """Whether the cache has dropped the object without showing its end."""
        return uid in self._lost

    def hide(self, uid: str, env: Env) -> bool:
        """Note that a live read has shown the object, the cache does not. Return False if that was noted before."""
        if uid in self._hidden:
            return False
        self._hidden[uid] = env.clock
        return True

    def is_hidden(self, uid: str, listed: float) -> bool:
        """Whether a list at ``listed`` (monotonic seconds), after ``hide``, has not brought it into the cache."""
        return listed >= self._hidden.get(uid, math.inf)

    def forget(self, uid: str | None) -> None:
        if uid is not None:
            self._trusted.discard(uid)
            self._lost.discard(uid)
            self._hidden.pop(uid, None)

    def forget_recorded(self) -> None:
        """Forget all recorded objects."""
        self._trusted.clear()
        self._lost.clear()
        self._hidden.clear()

    # --- other objects, by target ---

    def send(self, target: Target, clock: float) -> None:
        """The object is to be created. From now on, its end may be seen before the answer."""
        self._creations.setdefault(target, clock)

    def answer(self, target: Target, uid: str | None) -> None:
        """The creation was answered. ``uid``: of one that exists and is ours, None if none does."""
        if uid is not None:
            if uid in self._ended or target in self._listed:
                # The answer may be from before that end or list. The next one counts: the object has lost its label.
                self._ended.discard(uid)
            else:
                self.confirmed[target] = Confirmed(uid, self._creations.get(target, -math.inf))
        self._creations.pop(target, None)
        self._listed.discard(target)
        if not self._creations:
            self._ended.clear()

    def drop(self, target: Target, uid: str) -> None:
        """The cache has dropped the object: it is gone, or has lost its label."""
        known = self.confirmed.get(target)
        if known is not None and known.uid == uid:
            del self.confirmed[target]
        if self._creations:
            self._ended.add(uid)

    def observe_list(
        self, kind: Kind, at: float, find: Callable[[str], CompanionRecord | None]
    ) -> list[tuple[Target, str]]:
        """Note that the cache has all objects of the kind that existed at ``at`` (monotonic seconds).

        ``find``: one by its name. Return target and UID of the confirmed objects that the cache lacks: they are gone or
        have lost their label.
        """
        self._listed.update(target for target, since in self._creations.items() if target.kind is kind and since <= at)
        return [
            (target, known.uid)
            for target, known in self.confirmed.items()
            if target.kind is kind
            and known.since <= at
            and ((found := find(target.name)) is None or found.uid != known.uid)
        ]

    def forget_kinds(self, kinds: frozenset[Kind]) -> None:
        """Forget the confirmed objects of these kinds, which another attempt does not have."""
        for target in [target for target in self.confirmed if target.kind in kinds]:
            del self.confirmed[target]

    # --- changes of other objects ---

    def change(self, target: Target, verb: str, version: str = "") -> None:
        """A change is sent, while the cache has this resourceVersion."""
        self._changes[target, verb] = version

    def awaits_change(self, target: Target, verb: str, version: str = "") -> bool:
        """Whether the change was sent while the cache had this resourceVersion."""
        return self._changes.get((target, verb)) == version

    def end_change(self, target: Target, verb: str) -> None:
        """The change has an outcome, or none that the cache will show."""
        self._changes.pop((target, verb), None)

    def end_changes(self, kinds: frozenset[Kind]) -> None:
        """No change of objects of these kinds is awaited any longer."""
        for change in [change for change in self._changes if change[0].kind in kinds]:
            del self._changes[change]
