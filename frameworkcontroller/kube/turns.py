"""Turns: namespaces alternate, and in each the key with the least work goes first, but none starves. Pure."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from frameworkcontroller.deadlines import Deadlines

K = TypeVar("K", bound=Hashable)

AGED_TURN: Final = 8
"""In each eighth turn of a namespace, the key that has waited longest is served."""


class _Line(Generic[K]):
    """The waiting keys of a namespace."""

    __slots__ = ("by_age", "by_work", "turns")

    def __init__(self) -> None:
        self.by_age: OrderedDict[K, None] = OrderedDict()
        self.by_work: Deadlines[K] = Deadlines()
        self.turns = 0
        """Since it was empty."""

    def pop(self) -> K:
        self.turns += 1
        key = self.by_work.pop_due(math.inf) if self.turns % AGED_TURN else None
        if key is None:
            key, _ = self.by_age.popitem(last=False)
            self.by_work.discard(key)
        else:
            del self.by_age[key]
        return key


class NamespaceTurns(Generic[K]):
    """Waiting keys, each once.

    Keys of the same work take turns. A key that begins to wait behind ``n`` others of its namespace is served within
    ``(n + 1) * AGED_TURN`` turns of the namespace, even if keys with less work keep coming. A turn costs O(log n).
    """

    def __init__(self) -> None:
        # In the order of the namespaces' turns. It has no empty lines.
        self._lines: OrderedDict[str, _Line[K]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        """The keys by namespace, those that have waited longest first."""
        for line in self._lines.values():
            yield from line.by_age

    def add(self, namespace: str, key: K, work: int) -> None:
        """Let ``key`` wait. One that waits already keeps its age, but not its work."""
        line = self._lines.get(namespace)
        if line is None:
            line = self._lines[namespace] = _Line()
        if key not in line.by_age:
            line.by_age[key] = None
            self._length += 1
        elif line.by_work.get(key) == work:
            return
        line.by_work.set(key, work)

    def pop(self, may: Callable[[str], bool] | None = None) -> tuple[str, K] | None:
        """Remove the key whose turn it is, of the namespaces for which ``may``, and return it after its namespace."""
        namespace = next(iter(self._lines) if may is None else filter(may, self._lines), None)
        if namespace is None:
            return None
        line = self._lines[namespace]
        key = line.pop()
        self._length -= 1
        if line.by_age:
            self._lines.move_to_end(namespace)
        else:
            del self._lines[namespace]
        return namespace, key
