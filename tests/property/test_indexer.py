"""The store against a plain dict, through any history of puts and removes."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from frameworkcontroller.kube.indexer import Indexer


@dataclass(frozen=True)
class Thing:
    key: str
    resource_version: str = "1"
    uid: str = "u"
    owner: str = "o"
    tags: tuple[str, ...] = ()
    broken: bool = False


def by_tag(thing: Thing) -> Iterable[Hashable]:
    if thing.broken:
        raise ValueError("cannot be filed")
    yield from thing.tags


INDEXERS = {"owner": lambda thing: [thing.owner], "tag": by_tag}
KEYS = st.sampled_from(["ns/a", "ns/b", "ns/c", "d"])
OWNERS = st.sampled_from(["o1", "o2", "o3"])
TAGS = st.sampled_from(["x", "y", "z"])
THINGS = st.builds(
    Thing, key=KEYS, resource_version=st.sampled_from("123"), owner=OWNERS, tags=st.lists(TAGS).map(tuple)
)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store: Indexer[Thing] = Indexer(INDEXERS)
        self.model: dict[str, Thing] = {}

    @rule(thing=THINGS)
    def put(self, thing: Thing) -> None:
        assert self.store.put(thing) is self.model.get(thing.key)
        self.model[thing.key] = thing

    @rule(key=KEYS)
    def put_what_cannot_be_filed(self, key: str) -> None:
        with pytest.raises(ValueError, match="cannot be filed"):
            self.store.put(Thing(key, broken=True))

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        assert self.store.remove(key) is self.model.pop(key, None)

    @invariant()
    def same_by_key(self) -> None:
        assert dict(self.store.items()) == self.model
        assert len(self.store) == len(self.model)
        assert set(self.store) == set(self.store.keys()) == set(self.model)
        assert list(self.store.values()) == [self.store.get(key) for key in self.store]
        assert all((key in self.store) == (key in self.model) for key in ("ns/a", "ns/b", "ns/c", "d"))

    @invariant()
    def same_by_index(self) -> None:
        for owner in ("o1", "o2", "o3"):
            view = self.store.by_index("owner", owner)
            expected = {key: thing for key, thing in self.model.items() if thing.owner == owner}
            assert dict(view) == expected
            assert all(view.get(key) is expected.get(key) for key in self.model)
        for tag in ("x", "y", "z"):
            tagged = {key: thing for key, thing in self.model.items() if tag in thing.tags}
            assert dict(self.store.by_index("tag", tag)) == tagged

    @invariant()
    def nothing_stays_behind(self) -> None:
        assert set(self.store._buckets["owner"]) == {thing.owner for thing in self.model.values()}
        assert set(self.store._buckets["tag"]) == {tag for thing in self.model.values() for tag in thing.tags}


TestStore = StoreMachine.TestCase


def test_an_unknown_index_is_an_error_and_an_unknown_value_is_not() -> None:
    store: Indexer[Thing] = Indexer(INDEXERS)
    with pytest.raises(KeyError):
        store.by_index("color", "red")
    assert not store.by_index("owner", "nobody")
    with pytest.raises(KeyError):
        store.by_index("owner", "nobody")["ns/a"]


def test_an_unhashable_index_value_changes_nothing() -> None:
    store: Indexer[Thing] = Indexer({"bad": lambda _: [[]]})  # type: ignore[list-item]  # what it must survive
    with pytest.raises(TypeError):
        store.put(Thing("a"))
    assert len(store) == 0
