"""Every watcher sees exactly the writes, from any revision; and the past never changes."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from frameworkcontroller.local.apiserver.object_records import ObjectRecord, Origin
from frameworkcontroller.local.apiserver.storage import ObjectStorage
from frameworkcontroller.local.apiserver.watch_cache import CompactedError, Cursor

RESOURCE = "configmaps"
KEYS = [f"{namespace}/{name}" for namespace in ("a", "a-b", "b") for name in ("x", "x-y", "y")]
PREFIXES = ["", "a/", "a-b/", "b/", "c/"]
HISTORY = 8

View = dict[str, tuple[int, int]]
"""By key: revision and value."""

origin = Origin("test")


@dataclass
class Watcher:
    prefix: str
    cursor: Cursor
    view: View
    last: int
    rings: list[None] = field(default_factory=list)


def value_of(record: ObjectRecord) -> int:
    value: int = record.document()["data"]
    return value


def view_of(records: list[ObjectRecord]) -> View:
    return {record.key: (record.revision, value_of(record)) for record in records}


def within(view: View, prefix: str) -> View:
    return {key: value for key, value in view.items() if key.startswith(prefix)}


class StorageMachine(RuleBasedStateMachine):
    watchers = Bundle("watchers")

    def __init__(self) -> None:
        super().__init__()
        self.value = 0
        self.live: list[Watcher] = []

    @initialize(audit=st.booleans())
    def begin(self, audit: bool) -> None:
        self.storage = ObjectStorage(history=HISTORY, audit=audit)
        self.past: dict[int, View] = {self.storage.revision: {}}
        self.observed: list[int] = []
        self.storage.observe(lambda change: self.observed.append(change.revision))

    # --- writes -----------------------------------------------------------------------------------------------------

    def body(self) -> dict[str, object]:
        self.value += 1
        return {"metadata": {"name": "n", "uid": str(self.value)}, "data": self.value}

    def wrote(self, *, elsewhere: bool = False) -> None:
        # Another resource's write is a revision of this one, too, without an event.
        self.past[self.storage.revision] = view_of(self.storage.records(RESOURCE))
        for watcher in self.live:
            assert len(watcher.rings) == (0 if elsewhere else 1)
            watcher.rings.clear()

    @rule(key=st.sampled_from(KEYS))
    def write(self, key: str) -> None:
        current = self.storage.get(RESOURCE, key)
        if current is None:
            record = self.storage.create(RESOURCE, key, self.body(), origin)
        else:
            record = self.storage.update(current, self.body(), origin)
        assert record.revision == self.storage.revision
        self.wrote()

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: str) -> None:
        current = self.storage.get(RESOURCE, key)
        if current is not None:
            last = self.storage.delete(current, origin)
            assert last.revision == self.storage.revision
            assert last.document()["metadata"]["resourceVersion"] == str(last.revision)
            self.wrote()

    @rule()
    def write_elsewhere(self) -> None:
        self.storage.create("others", str(self.storage.revision), {"metadata": {}}, origin)
        self.wrote(elsewhere=True)

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        self.storage.compact(data.draw(st.sampled_from(sorted(self.past))))

    # --- reads ------------------------------------------------------------------------------------------------------

    @rule(target=watchers, prefix=st.sampled_from(PREFIXES), data=st.data())
    def watch(self, prefix: str, data: st.DataObject) -> Watcher | None:
        """From any moment: either it is refused, or nothing since then is missed."""
        revision = data.draw(st.sampled_from(sorted(self.past)))
        rings: list[None] = []
        try:
            cursor = self.storage.follow(RESOURCE, revision, lambda: rings.append(None))
        except CompactedError:
            return None
        watcher = Watcher(prefix, cursor, within(self.past[revision], prefix), revision, rings)
        self.live.append(watcher)
        return watcher

    @rule(target=watchers, prefix=st.sampled_from(PREFIXES))
    def list_then_watch(self, prefix: str) -> Watcher:
        page = self.storage.page(RESOURCE, prefix)
        rings: list[None] = []
        cursor = self.storage.follow(RESOURCE, page.revision, lambda: rings.append(None))
        watcher = Watcher(prefix, cursor, view_of(page.records), page.revision, rings)
        self.live.append(watcher)
        return watcher

    @rule(watcher=watchers, limit=st.integers(1, 4))
    def follow(self, watcher: Watcher | None, limit: int) -> None:
        if watcher is not None and watcher in self.live:
            self.take(watcher, limit)

    def take(self, watcher: Watcher, limit: int) -> None:
        changes = watcher.cursor.take(limit)
        if changes is None:
            self.end(watcher)
            return
        for change in changes:
            assert change.revision > watcher.last, "an event came twice, or out of order"
            watcher.last = change.revision
            key = change.record.key
            if not key.startswith(watcher.prefix):
                continue
            known = watcher.view.get(key)
            assert (change.old is None) == (known is None)
            assert change.old is None or (change.old.revision, value_of(change.old)) == known
            if change.type == "DELETED":
                del watcher.view[key]
            else:
                assert (change.type == "ADDED") == (known is None)
                watcher.view[key] = (change.revision, value_of(change.record))
        assert watcher.view == within(self.past[watcher.last], watcher.prefix)

    @rule(watcher=watchers)
    def stop_watching(self, watcher: Watcher | None) -> None:
        if watcher is not None and watcher in self.live:
            self.end(watcher)
            self.write(KEYS[0])
            assert not watcher.rings

    def end(self, watcher: Watcher) -> None:
        watcher.cursor.close()
        self.live.remove(watcher)

    @rule(prefix=st.sampled_from(PREFIXES), limit=st.integers(1, 4), data=st.data())
    def read_the_past(self, prefix: str, limit: int, data: st.DataObject) -> None:
        """The pages of a revision, joined, are its objects in order."""
        revision = data.draw(st.sampled_from(sorted(self.past)))
        found: list[ObjectRecord] = []
        after = ""
        try:
            while True:
                page = self.storage.page(RESOURCE, prefix, after=after, limit=limit, revision=revision)
                assert len(page.records) <= limit
                assert page.revision == revision
                found += page.records
                assert bool(page.last) == bool(page.remaining)
                if not page.last:
                    break
                after = page.last
        except CompactedError:
            assert not found
            return
        assert view_of(found) == within(self.past[revision], prefix)
        assert [record.key for record in found] == sorted(record.key for record in found)

    # --- always -----------------------------------------------------------------------------------------------------

    @invariant()
    def revisions_only_grow(self) -> None:
        assert self.observed == sorted(set(self.observed))
        assert self.observed == list(range(2, self.storage.revision + 1))
        if self.storage.audit is not None:
            assert [change.revision for change in self.storage.audit] == self.observed

    @precondition(lambda self: bool(self.live))
    @rule()
    def catch_up(self) -> None:
        for watcher in list(self.live):
            self.take(watcher, 1_000)
            if watcher in self.live:
                assert watcher.view == within(view_of(self.storage.records(RESOURCE)), watcher.prefix)


StorageMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestStorage = StorageMachine.TestCase
