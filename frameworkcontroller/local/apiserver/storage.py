"""The store: all objects of the cluster with one resourceVersion counter, and the recent changes of each resource.

It knows keys, versions and changes, but not the meaning of objects. It is synchronous: a read and a write without an
await in between are a transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frameworkcontroller.local.apiserver.object_records import Change, ChangeType, ObjectRecord, Origin, make_record
from frameworkcontroller.local.apiserver.watch_cache import Cursor, WatchCache

_NO_FIELDS: Final[Mapping[str, str]] = {}
_AFTER_ALL: Final = "\U0010ffff"

MAX_OBJECT_BYTES: Final = 1_572_864
"""etcd's default request limit."""


class KeyTakenError(Exception):
    """An object with this key exists."""


class ObjectTooLargeError(Exception):
    """The object's JSON exceeds the limit."""


class StaleRecordError(Exception):
    """The record to replace or remove is not the current one of its key."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a resource's objects at one revision."""

    records: list[ObjectRecord]
    revision: int
    """The revision of this state."""
    last: str = ""
    """The key after which the next page starts; empty for the last page."""
    remaining: int = 0
    """The number of following keys, matching or not."""


@dataclass(slots=True)
class _Keyspace:
    history: WatchCache
    records: dict[str, ObjectRecord] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    """Sorted: lists are ordered by key, and a page may start anywhere."""


class ObjectStorage:
    """Objects by resource and key, their changes, and observers."""

    def __init__(self, *, history: int = 10_000, history_bytes: int = 128 << 20, audit: bool = False) -> None:
        """``history`` and ``history_bytes`` bound the kept changes of each resource.

        ``audit`` keeps every accepted change in :attr:`audit`, for checkers.
        """
        self.revision = 1
        """resourceVersion of the latest write; never 0, which clients use for "any"."""
        self.audit: list[Change] | None = [] if audit else None
        self._history = history
        self._history_bytes = history_bytes
        self._keyspaces: dict[str, _Keyspace] = {}
        self._observers: list[Callable[[Change], None]] = []
        self._floor = 0
        self._publishing = False

    def get(self, resource: str, key: str) -> ObjectRecord | None:
        """The object with this key, or None."""
        space = self._keyspaces.get(resource)
        return space.records.get(key) if space is not None else None

    def records(self, resource: str, prefix: str = "") -> list[ObjectRecord]:
        """All current objects, ordered by key; ``prefix`` is ``namespace/`` or empty."""
        space = self._keyspaces.get(resource)
        if space is None:
            return []
        return [space.records[key] for key in _slice(space.keys, prefix, "")]

    def count(self, resource: str, prefix: str = "") -> int:
        """The number of objects."""
        space = self._keyspaces.get(resource)
        return len(_slice(space.keys, prefix, "")) if space is not None else 0

    def resources(self) -> list[str]:
        """Every resource with objects."""
        return [resource for resource, space in self._keyspaces.items() if space.records]

    def page(
        self,
        resource: str,
        prefix: str = "",
        *,
        after: str = "",
        limit: int = 0,
        revision: int | None = None,
        matches: Callable[[ObjectRecord], bool] | None = None,
    ) -> ListPage:
        """Objects ordered by key, after the key ``after``, at most ``limit`` (0: all).

        ``revision`` None is the current one. Raises CompactedError if it is no longer kept.
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
        found: list[ObjectRecord] = []
        for index, key in enumerate(keys):
            record = then.get(key) or space.records[key]
            if matches is not None and not matches(record):
                continue
            found.append(record)
            if limit and len(found) == limit:
                remaining = len(keys) - index - 1
                return ListPage(found, at, key if remaining else "", remaining)
        return ListPage(found, at)

    def create(
        self, resource: str, key: str, obj: Mapping[str, Any], origin: Origin, fields: Mapping[str, str] = _NO_FIELDS
    ) -> ObjectRecord:
        """Store a new object. Raises KeyTakenError or ObjectTooLargeError."""
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
        self, current: ObjectRecord, obj: Mapping[str, Any], origin: Origin, fields: Mapping[str, str] = _NO_FIELDS
    ) -> ObjectRecord:
        """Store a new version of ``current``.

        Raises StaleRecordError if ``current`` is not the stored version, or ObjectTooLargeError.
        """
        space = self._current(current)
        record = _sized(make_record(current.resource, current.key, self.revision + 1, obj, fields))
        space.records[current.key] = record
        self._commit(space, "MODIFIED", current, record, origin)
        return record

    def delete(self, current: ObjectRecord, origin: Origin) -> ObjectRecord:
        """Remove ``current``; return it at the revision of its deletion. Raises StaleRecordError as :meth:`update`."""
        space = self._current(current)
        del space.records[current.key]
        del space.keys[bisect_left(space.keys, current.key)]
        record = current.at(self.revision + 1)
        self._commit(space, "DELETED", current, record, origin)
        return record

    def follow(self, resource: str, revision: int, notify: Callable[[], None]) -> Cursor:
        """A cursor over the changes of ``resource`` after ``revision``. Raises CompactedError if they are no longer
        kept.

        ``notify`` is called when there may be more changes. Close the cursor when done.
        """
        return self._keyspace(resource).history.follow(revision, notify)

    def wake(self, resource: str) -> None:
        """Notify all cursors of ``resource``, which may no longer be served."""
        self._keyspace(resource).history.wake()

    def reread(self, resource: str, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Replace stored objects by the results of ``convert`` at the same revisions, without a write or a change.

        For a new schema, which reads the same objects differently.
        """
        space = self._keyspace(resource)
        for key, record in space.records.items():
            obj = record.document()
            converted = convert(obj)
            if converted is not obj:
                space.records[key] = make_record(resource, key, record.revision, converted, record.fields)

    def compact(self, revision: int | None = None) -> None:
        """Drop the changes before ``revision`` (None: all), as etcd's compaction does."""
        self._floor = max(self._floor, self.revision if revision is None else min(revision, self.revision))
        for space in self._keyspaces.values():
            space.history.compact(self._floor)

    def observe(self, observer: Callable[[Change], None]) -> Callable[[], None]:
        """Call ``observer`` with each future change, right after it is made; return a function that ends this.

        An observer must not write: others would see effects before their causes. Such writes are refused.
        """
        self._observers.append(observer)

        def end() -> None:
            if observer in self._observers:
                self._observers.remove(observer)

        return end

    def _keyspace(self, resource: str) -> _Keyspace:
        space = self._keyspaces.get(resource)
        if space is None:
            space = self._keyspaces[resource] = _Keyspace(WatchCache(self._history, self._history_bytes))
            space.history.compact(self._floor)
        return space

    def _refuse_observers(self) -> None:
        if self._publishing:
            raise RuntimeError("a write from within an observer")

    def _current(self, record: ObjectRecord) -> _Keyspace:
        self._refuse_observers()
        space = self._keyspaces.get(record.resource)
        if space is None or space.records.get(record.key) is not record:
            raise StaleRecordError(record.key)
        return space

    def _commit(
        self, space: _Keyspace, kind: ChangeType, old: ObjectRecord | None, record: ObjectRecord, origin: Origin
    ) -> None:
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


def _sized(record: ObjectRecord) -> ObjectRecord:
    if len(record.body) > MAX_OBJECT_BYTES:
        raise ObjectTooLargeError(record.key)
    return record


def _slice(keys: list[str], prefix: str, after: str) -> list[str]:
    if not prefix and not after:
        return list(keys)
    start = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
    return keys[start : bisect_left(keys, prefix + _AFTER_ALL, start) if prefix else len(keys)]
