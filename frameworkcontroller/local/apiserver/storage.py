"""The store: every object of the cluster, under one resourceVersion counter, with the recent past of each resource.

It knows keys, versions and changes, and nothing of what the objects mean. All of it is synchronous: whoever reads and
then writes without awaiting in between has a transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frameworkcontroller.local.apiserver.records import Change, ChangeType, Origin, Record, make_record
from frameworkcontroller.local.apiserver.watch_cache import Cursor, History

_NO_FIELDS: Final[Mapping[str, str]] = {}
_AFTER_ALL: Final = "\U0010ffff"

MAX_OBJECT_BYTES: Final = 1_572_864
"""As much as etcd takes in one request by default."""


class KeyTakenError(Exception):
    """There is already an object under the key."""


class ObjectTooLargeError(Exception):
    """The object's JSON is longer than the store takes."""


class StaleRecordError(Exception):
    """The record to be replaced or removed is not, or no longer, the current one of its key."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a resource's objects, as they were at one revision."""

    records: list[Record]
    revision: int
    """The revision at which this is the state."""
    last: str = ""
    """The key after which the next page starts; empty if this was the last page."""
    remaining: int = 0
    """How many keys follow, whether or not they match."""


@dataclass(slots=True)
class _Keyspace:
    history: History
    records: dict[str, Record] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    """Sorted: lists are in the order of keys, and a page starts anywhere among them."""


class Storage:
    """Objects by resource and key, their changes, and who wants to know of them."""

    def __init__(self, *, history: int = 10_000, history_bytes: int = 128 << 20, audit: bool = False) -> None:
        """``history`` and ``history_bytes`` bound the past that is kept for each resource.

        With ``audit`` every change that is ever accepted is kept in :attr:`audit`, for a checker to read afterwards.
        """
        self.revision = 1
        """resourceVersion of the latest write; 0 is never one, since clients mean "any" by it."""
        self.audit: list[Change] | None = [] if audit else None
        self._history = history
        self._history_bytes = history_bytes
        self._keyspaces: dict[str, _Keyspace] = {}
        self._observers: list[Callable[[Change], None]] = []
        self._floor = 0
        self._publishing = False

    def get(self, resource: str, key: str) -> Record | None:
        """The object under the key, if there is one."""
        space = self._keyspaces.get(resource)
        return space.records.get(key) if space is not None else None

    def records(self, resource: str, prefix: str = "") -> list[Record]:
        """All objects now, in the order of their keys; ``prefix`` is ``namespace/`` or empty."""
        space = self._keyspaces.get(resource)
        if space is None:
            return []
        return [space.records[key] for key in _slice(space.keys, prefix, "")]

    def count(self, resource: str, prefix: str = "") -> int:
        """How many objects there are."""
        space = self._keyspaces.get(resource)
        return len(_slice(space.keys, prefix, "")) if space is not None else 0

    def resources(self) -> list[str]:
        """Every resource that holds an object."""
        return [resource for resource, space in self._keyspaces.items() if space.records]

    def page(
        self,
        resource: str,
        prefix: str = "",
        *,
        after: str = "",
        limit: int = 0,
        revision: int | None = None,
        matches: Callable[[Record], bool] | None = None,
    ) -> Page:
        """Objects in the order of their keys, from behind the key ``after``, at most ``limit`` (0: all of them).

        ``revision`` is the moment that is meant, now if it is None; CompactedError if that is forgotten.
        """
        space = self._keyspace(resource)
        at = self.revision if revision is None else revision
        then = space.history.before(at) if at < self.revision else {}
        keys = _slice(space.keys, prefix, after)
        if then:
            known = set(keys)
            changed = {key: old for key, old in then.items() if key.startswith(prefix) and key > after}
            known.update(key for key, old in changed.items() if old is not None)
            known.difference_update(key for key, old in changed.items() if old is None)
            keys = sorted(known)
        found: list[Record] = []
        for index, key in enumerate(keys):
            record = then.get(key) or space.records[key]
            if matches is not None and not matches(record):
                continue
            found.append(record)
            if limit and len(found) == limit:
                remaining = len(keys) - index - 1
                return Page(found, at, key if remaining else "", remaining)
        return Page(found, at)

    def create(
        self, resource: str, key: str, obj: Mapping[str, Any], origin: Origin, fields: Mapping[str, str] = _NO_FIELDS
    ) -> Record:
        """Stores a new object; KeyTakenError if the key is in use, ObjectTooLargeError."""
        self._refuse_observers()
        space = self._keyspace(resource)
        if key in space.records:
            raise KeyTakenError(key)
        record = _sized(make_record(resource, key, self.revision + 1, obj, fields))
        space.records[key] = record
        insort(space.keys, key)
        self._commit(space, "ADDED", None, record, origin)
        return record

    def update(
        self, current: Record, obj: Mapping[str, Any], origin: Origin, fields: Mapping[str, str] = _NO_FIELDS
    ) -> Record:
        """Stores a new version of ``current``; StaleRecordError if that is not what is stored.

        ObjectTooLargeError as in :meth:`create`.
        """
        space = self._current(current)
        record = _sized(make_record(current.resource, current.key, self.revision + 1, obj, fields))
        space.records[current.key] = record
        self._commit(space, "MODIFIED", current, record, origin)
        return record

    def delete(self, current: Record, origin: Origin) -> Record:
        """Removes ``current`` and returns it under the revision of its end; StaleRecordError as in :meth:`update`."""
        space = self._current(current)
        del space.records[current.key]
        del space.keys[bisect_left(space.keys, current.key)]
        record = current.at(self.revision + 1)
        self._commit(space, "DELETED", current, record, origin)
        return record

    def follow(self, resource: str, revision: int, notify: Callable[[], None]) -> Cursor:
        """A cursor over the changes of ``resource`` after ``revision``, CompactedError if they are forgotten.

        ``notify`` is called, without arguments, whenever there may be more to take. Close the cursor when done.
        """
        return self._keyspace(resource).history.follow(revision, notify)

    def wake(self, resource: str) -> None:
        """Makes all who follow ``resource`` look up: what they watch may be served no longer."""
        self._keyspace(resource).history.wake()

    def reread(self, resource: str, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Replaces what is stored by what ``convert`` makes of it, under the same revisions: no write, no change.

        For a schema by which the same stored objects read differently.
        """
        space = self._keyspace(resource)
        for key, record in space.records.items():
            obj = record.document()
            converted = convert(obj)
            if converted is not obj:
                space.records[key] = make_record(resource, key, record.revision, converted, record.fields)

    def compact(self, revision: int | None = None) -> None:
        """Forgets all that was before ``revision`` (None: before now), as etcd's compaction does."""
        self._floor = max(self._floor, self.revision if revision is None else min(revision, self.revision))
        for space in self._keyspaces.values():
            space.history.compact(self._floor)

    def observe(self, observer: Callable[[Change], None]) -> Callable[[], None]:
        """Calls ``observer`` with every change from now on, right after it was made; returns how to end that.

        An observer only takes note: writing from within one would let others see effects before causes, and is refused.
        """
        self._observers.append(observer)

        def end() -> None:
            if observer in self._observers:
                self._observers.remove(observer)

        return end

    def _keyspace(self, resource: str) -> _Keyspace:
        space = self._keyspaces.get(resource)
        if space is None:
            space = self._keyspaces[resource] = _Keyspace(History(self._history, self._history_bytes))
            space.history.compact(self._floor)
        return space

    def _refuse_observers(self) -> None:
        if self._publishing:
            raise RuntimeError("a write from within an observer")

    def _current(self, record: Record) -> _Keyspace:
        self._refuse_observers()
        space = self._keyspaces.get(record.resource)
        if space is None or space.records.get(record.key) is not record:
            raise StaleRecordError(record.key)
        return space

    def _commit(self, space: _Keyspace, kind: ChangeType, old: Record | None, record: Record, origin: Origin) -> None:
        self.revision = record.revision
        change = Change(record.revision, kind, old, record, origin)
        space.history.append(change)
        if self.audit is not None:
            self.audit.append(change)
        self._publishing = True
        try:
            for observer in self._observers:
                observer(change)
        finally:
            self._publishing = False


def _sized(record: Record) -> Record:
    if len(record.body) > MAX_OBJECT_BYTES:
        raise ObjectTooLargeError(record.key)
    return record


def _slice(keys: list[str], prefix: str, after: str) -> list[str]:
    if not prefix and not after:
        return list(keys)
    start = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
    return keys[start : bisect_left(keys, prefix + _AFTER_ALL, start) if prefix else len(keys)]
