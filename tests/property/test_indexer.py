"""The store against a plain dict, through any history of puts and removes."""

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
    broken: bool = False


def by_owner(thing: Thing) -> str:
    if thing.broken:
        raise ValueError("cannot be filed")
    return thing.owner


KEYS = st.sampled_from(["ns/a", "ns/b", "ns/c", "d"])
OWNERS = st.sampled_from(["o1", "o2", "o3"])
THINGS = st.builds(Thing, key=KEYS, resource_version=st.sampled_from("123"), owner=OWNERS)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store: Indexer[Thing] = Indexer(by_owner)
        self.model: dict[str, Thing] = {}

    @rule(thing=THINGS)
    def put(self, thing: Thing) -> None:
        self.store.put(thing)
        self.model[thing.key] = thing

    @rule(key=KEYS)
    def put_what_cannot_be_filed(self, key: str) -> None:
        with pytest.raises(ValueError, match="cannot be filed"):
            self.store.put(Thing(key, broken=True))

    @rule()
    def clear(self) -> None:
        self.store.clear()
        self.model.clear()

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        assert self.store.remove(key) is self.model.pop(key, None)

    @invariant()
    def same_by_key(self) -> None:
        assert {key: self.store.get(key) for key in self.store} == self.model
        assert len(self.store) == len(self.model)
        assert list(self.store.values()) == [self.store.get(key) for key in self.store]
        assert all((key in self.store) == (key in self.model) for key in ("ns/a", "ns/b", "ns/c", "d"))

    @invariant()
    def same_by_index(self) -> None:
        for owner in ("o1", "o2", "o3"):
            view = self.store.by_index(owner)
            expected = {key: thing for key, thing in self.model.items() if thing.owner == owner}
            assert dict(view) == expected
            assert all(view.get(key) is expected.get(key) for key in self.model)

    @invariant()
    def nothing_stays_behind(self) -> None:
        assert set(self.store._buckets) == {thing.owner for thing in self.model.values()}


TestStore = StoreMachine.TestCase


def test_an_unknown_value_has_no_objects() -> None:
    store: Indexer[Thing] = Indexer(by_owner)
    assert not store.by_index("nobody")
    with pytest.raises(KeyError):
        store.by_index("nobody")["ns/a"]


def test_without_an_index_objects_are_found_by_key() -> None:
    store: Indexer[Thing] = Indexer()
    store.put(Thing("a"))
    assert store.get("a") == store.remove("a") == Thing("a")
    assert len(store) == 0


def test_an_unhashable_index_value_changes_nothing() -> None:
    store: Indexer[Thing] = Indexer(lambda _: [])  # type: ignore[arg-type, return-value]  # it must survive this
    with pytest.raises(TypeError):
        store.put(Thing("a"))
    assert len(store) == 0
