"""The recent changes of one resource, and the cursors over them.

Watchers have a position in one shared history instead of their own queues: slow ones cost no memory, and an event is
stored once. The history is bounded; watches from before its start get 410, as after etcd's compaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter

from frameworkcontroller.local.apiserver.object_records import Change, ObjectRecord


class CompactedError(Exception):
    """The requested revision is older than the kept changes."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"revision {requested} is compacted, the oldest that is kept is {oldest}")
        self.requested = requested
        self.oldest = oldest
        """The lowest revision with a complete history."""


class WatchCache:
    """Changes of one resource, ordered by revision."""

    def __init__(self, max_changes: int, max_bytes: int) -> None:
        """Keep at most ``max_changes``, and about ``max_bytes`` of objects (but always the last change)."""
        self._changes: deque[Change] = deque()
        self._dropped = 0
        self._bytes = 0
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        # Ordered, so that waiters wake in a reproducible order.
        self._cursors: dict[Cursor, None] = {}
        self.floor = 0
        """All changes after this revision are known."""

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def end(self) -> int:
        """The position of the next change."""
        return self._dropped + len(self._changes)

    def append(self, change: Change) -> None:
        """Add the newest change and notify cursors."""
        self._changes.append(change)
        self._bytes += len(change.record.body)
        while len(self._changes) > self._max_changes or (self._bytes > self._max_bytes and len(self._changes) > 1):
            self._drop_oldest()
        self.wake()

    def wake(self) -> None:
        """Notify every cursor."""
        for cursor in self._cursors:
            cursor.notify()

    def compact(self, revision: int) -> None:
        """Drop the changes up to ``revision``, inclusive."""
        while self._changes and self._changes[0].revision <= revision:
            self._drop_oldest()
        self.floor = max(self.floor, revision)

    def changes_after(self, revision: int) -> Iterator[Change]:
        """All changes after ``revision``. Raises CompactedError if some are no longer kept."""
        for position in range(self._position_after(revision), self.end):
            yield self._changes[position - self._dropped]

    def before(self, revision: int) -> dict[str, ObjectRecord | None]:
        """The record at ``revision`` of each key that changed after it."""
        then: dict[str, ObjectRecord | None] = {}
        for change in self.changes_after(revision):
            then.setdefault(change.record.key, change.old)
        return then

    def follow(self, revision: int, notify: Callable[[], None]) -> Cursor:
        """A cursor before the first change after ``revision``. Raises CompactedError.

        ``notify`` is called at each new change; it must only record that.
        """
        cursor = Cursor(self, self._position_after(revision), notify)
        self._cursors[cursor] = None
        return cursor

    def read(self, position: int, limit: int) -> list[Change] | None:
        """Up to ``limit`` changes from ``position``; None if the first is no longer kept."""
        if position < self._dropped:
            return None
        start = position - self._dropped
        return [self._changes[index] for index in range(start, min(start + limit, len(self._changes)))]

    def unfollow(self, cursor: Cursor) -> None:
        """Stop notifying the cursor."""
        self._cursors.pop(cursor, None)

    def _position_after(self, revision: int) -> int:
        if revision < self.floor:
            raise CompactedError(revision, self.floor)
        # Nearly always, the reader is at the end.
        if not self._changes or self._changes[-1].revision <= revision:
            return self.end
        return self._dropped + bisect_right(self._changes, revision, key=attrgetter("revision"))

    def _drop_oldest(self) -> None:
        change = self._changes.popleft()
        self._dropped += 1
        self._bytes -= len(change.record.body)
        self.floor = change.revision


class Cursor:
    """A reader's position in a history."""

    def __init__(self, history: WatchCache, position: int, notify: Callable[[], None]) -> None:
        self._history = history
        self._position = position
        self.notify = notify

    def take(self, limit: int) -> list[Change] | None:
        """The next changes, at most ``limit``; None if the cursor fell behind the kept changes."""
        changes = self._history.read(self._position, limit)
        if changes:
            self._position += len(changes)
        return changes

    def close(self) -> None:
        """Stop the notifications."""
        self._history.unfollow(self)
