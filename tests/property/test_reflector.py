"""The reflector and the delta processor against a model API server that fails in every way it can think of."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from frameworkcontroller.kube.deltaprocessor import DeltaProcessor, ObjectState, identify
from frameworkcontroller.kube.indexer import Indexer
from frameworkcontroller.kube.reflector import (
    STALE_LISTS_BELIEVED,
    STEADY_SECONDS,
    Failure,
    Listing,
    Reflector,
    Waiting,
    Watching,
    is_older,
)

NAMES = ("a", "b", "c", "d")
# Answers of a faulty server to a list or a watch.
LIST_TROUBLE = st.sampled_from(
    [
        Failure.BROKEN,
        Failure.FAILED,
        Failure.THROTTLED,
        Failure.DENIED,
        Failure.ABSENT,
        Failure.REJECTED,
        Failure.MALFORMED,
    ]
)
WATCH_TROUBLE = st.sampled_from(
    [
        Failure.BROKEN,
        Failure.FAILED,
        Failure.THROTTLED,
        Failure.DENIED,
        Failure.ABSENT,
        Failure.REJECTED,
        Failure.MALFORMED,
        Failure.UNTOLD,
        Failure.SILENT,
        Failure.CLOSED,
        Failure.EXPIRED,
        Failure.RELIST,
    ]
)


@dataclass(frozen=True)
class Thing:
    key: str
    uid: str
    resource_version: str


def decode(obj: dict[str, Any]) -> Thing:
    if obj.get("poison"):
        raise ValueError("poisoned")
    return Thing(*identify(obj))


@dataclass
class Server:
    """A collection with its history, as etcd and the watch cache have it."""

    version: int = 1
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    oldest: int = 0
    uids: int = 0

    def put(self, name: str, *, poison: bool) -> None:
        self.version += 1
        old = self.objects.get(name)
        if old is None:
            self.uids += 1
        uid = f"u{self.uids}" if old is None else old["metadata"]["uid"]
        obj = {"metadata": {"name": name, "uid": uid, "resourceVersion": str(self.version)}, "poison": poison}
        self.objects[name] = obj
        self.history.append((self.version, "ADDED" if old is None else "MODIFIED", obj))

    def delete(self, name: str) -> None:
        old = self.objects.pop(name, None)
        if old is not None:
            self.version += 1
            metadata = {**old["metadata"], "resourceVersion": str(self.version)}
            self.history.append((self.version, "DELETED", {**old, "metadata": metadata}))

    def compact(self) -> None:
        self.oldest = self.version
        self.history.clear()

    def copy(self) -> "Server":
        return Server(self.version, dict(self.objects), list(self.history), self.oldest, self.uids)


class ReflectorTest(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.past = Server()
        self.backup: Server | None = None
        self.snapshots: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self.sent = 0
        self.indexer: Indexer[Thing] = Indexer(lambda thing: thing.uid)
        self.processor = DeltaProcessor(decode, self.indexer, self.unreadable)
        self.reported: set[str] = set()
        self.told: dict[str, Thing] = {}
        self.processor.on_add.append(self.added)
        self.processor.on_update.append(self.updated)
        self.processor.on_delete.append(self.deleted)
        self.went_back = False
        self.stale_lists = 0
        self.at_once: set[Failure] = set()
        self.brought_news = False

    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.reflector = Reflector(random.Random(seed))

    # The handlers keep a copy by their calls alone, and check that each call fits the earlier ones.

    def added(self, new: Thing) -> None:
        assert new.key not in self.told
        assert self.indexer.get(new.key) is new
        self.told[new.key] = new

    def updated(self, old: Thing, new: Thing) -> None:
        assert self.told[new.key] is old
        assert (old.key, old.uid) == (new.key, new.uid)
        assert old.resource_version != new.resource_version
        if not self.went_back:
            assert not is_older(new.resource_version, old.resource_version)
        self.told[new.key] = new

    def deleted(self, old: Thing, final: Thing | None) -> None:
        assert self.told.pop(old.key) is old
        assert final is None or (final.key, final.uid) == (old.key, old.uid)

    def unreadable(self, key: str, error: Exception, obj: dict[str, Any]) -> None:
        assert obj["poison"]
        self.reported.add(key)

    @property
    def poisoned(self) -> set[str]:
        return set(self.processor.undecodable)

    # The world. A server that was restored from a backup gives out versions a second time: a client that has not
    # read it before it catches up cannot know (etcd's own advice is to raise its revision), so no write comes before.

    def noticed(self) -> bool:
        return self.reflector.last_version is None or int(self.reflector.last_version) <= self.server.version

    @precondition(noticed)
    @rule(name=st.sampled_from(NAMES), poison=st.sampled_from([False, False, False, True]))
    def put(self, name: str, *, poison: bool) -> None:
        self.server.put(name, poison=poison)

    @precondition(noticed)
    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.server.delete(name)

    @precondition(noticed)
    @rule(name=st.sampled_from(NAMES))
    def recreate(self, name: str) -> None:
        self.server.delete(name)
        self.server.put(name, poison=False)

    @precondition(noticed)
    @rule()
    def others_write(self) -> None:
        self.server.version += 3

    @rule()
    def compact(self) -> None:
        self.server.compact()

    @rule()
    def back_up(self) -> None:
        self.backup = self.server.copy()

    @precondition(lambda self: self.backup is not None)
    @rule()
    def restore_from_backup(self) -> None:
        assert self.backup is not None
        uids = self.server.uids
        self.server = self.backup.copy()
        self.server.uids = uids
        self.went_back = True
        self.snapshots.clear()

    # Events of the machine's driver.

    @rule(amount=st.integers(0, 4))
    def step(self, amount: int) -> None:
        self.go_on(None, amount, 0.0)

    # Once more under other names: hypothesis picks rules evenly, and without steps nothing happens.

    @rule(amount=st.integers(1, 4))
    def another_step(self, amount: int) -> None:
        self.go_on(None, amount, 0.0)

    @rule()
    def steps(self) -> None:
        for _ in range(4):
            self.go_on(None, 4, 0.0)

    @rule(outcome=LIST_TROUBLE | WATCH_TROUBLE, amount=st.integers(0, 4), lived=st.sampled_from([0.0, 1.0, 60.0]))
    def step_with_trouble(self, outcome: Failure, amount: int, lived: float) -> None:
        self.go_on(outcome, amount, lived)

    def go_on(self, outcome: Failure | None, amount: int, lived: float) -> None:
        match self.reflector.state:
            case Waiting(seconds=seconds):
                assert seconds > 0
                self.reflector.on_wait_over()
            case Listing(token=token, paged=paged):
                if outcome is not None and outcome not in (Failure.SILENT, Failure.CLOSED, Failure.RELIST):
                    self.fail(outcome, 0.0)
                else:
                    self.answer_list(token, paged=paged, size=max(amount, 1))
            case Watching(resource_version=version):
                self.answer_watch(int(version), amount, outcome, lived)

    @rule()
    def remember(self) -> None:
        self.past = self.server.copy()

    @precondition(lambda self: isinstance(self.reflector.state, Listing) and self.reflector.state.token is None)
    @rule()
    def a_server_that_is_behind_answers_the_list(self) -> None:
        present, self.server = self.server, self.past
        self.answer_list(None, paged=False, size=1)
        self.server = present

    @precondition(lambda self: bool(isinstance(self.reflector.state, Listing) and self.reflector.state.token))
    @rule()
    def page_of_another_version(self) -> None:
        told = dict(self.told)
        assert not self.reflector.on_page(["x"], "999999", None).accept
        pause = self.pause()
        assert pause is not None
        assert pause.then == Listing(paged=False)
        assert self.told == told

    @precondition(lambda self: not isinstance(self.reflector.state, Waiting))
    @rule(retry_after=st.sampled_from([0.5, 30.0, 120.0]))
    def throttled(self, retry_after: float) -> None:
        self.reflector.on_failure(Failure.THROTTLED, retry_after=retry_after)
        pause = self.pause()
        assert pause is not None
        assert pause.seconds >= retry_after

    @precondition(lambda self: isinstance(self.reflector.state, Watching) and bool(self.server.history))
    @rule()
    def replay(self) -> None:
        state = self.reflector.state
        assert isinstance(state, Watching)
        version = self.server.history[0][0]
        if version < int(state.resource_version):
            assert not self.reflector.on_event(str(version))
            self.fail(Failure.REPLAYED, 0.0)
            pause = self.pause()
            assert pause is not None
            assert pause.then == Listing()

    def pause(self) -> Waiting | None:
        state = self.reflector.state
        return state if isinstance(state, Waiting) else None

    def fail(self, failure: Failure, lived: float) -> None:
        self.reflector.on_failure(failure, lived=lived)
        assert self.reflector.last_failure is failure
        if lived >= STEADY_SECONDS:
            self.at_once.clear()
        brought_news, self.brought_news = self.brought_news, False
        if failure is Failure.CLOSED and brought_news:
            # Any number of times: each time fewer objects are unknown.
            assert isinstance(self.reflector.state, Watching)
        elif isinstance(self.reflector.state, Waiting):
            assert 0 < self.reflector.state.seconds <= 5.0
        else:
            # The same way a second time without a pause is how a tight circle begins.
            assert failure not in self.at_once
            self.at_once.add(failure)

    def answer_list(self, token: str | None, *, paged: bool, size: int) -> None:
        if token is None:
            version, rest = self.server.version, [self.server.objects[name] for name in sorted(self.server.objects)]
        elif token not in self.snapshots or self.snapshots[token][0] < self.server.oldest:
            self.fail(Failure.EXPIRED, 0.0)
            return
        else:
            version, rest = self.snapshots[token]
        page, rest = (rest[:size], rest[size:]) if paged else (rest, [])
        following = None
        if rest:
            self.sent += 1
            following = f"t{self.sent}"
            self.snapshots[following] = (version, rest)
        identities = [identify(obj) for obj in page]
        stale = token is None and is_older(str(version), self.reflector.last_version)
        verdict = self.reflector.on_page([identity.key for identity in identities], str(version), following)
        if stale:
            self.stale_lists += 1
            assert verdict.accept == (self.stale_lists >= STALE_LISTS_BELIEVED)
            self.went_back |= verdict.accept
        if verdict.complete is not None:
            self.stale_lists = 0
        if verdict.accept:
            for identity, obj in zip(identities, page, strict=True):
                self.processor.upsert(identity, obj)
            if verdict.complete is not None:
                self.processor.delete_except(verdict.complete)
                self.check_equal_at(version)

    def answer_watch(self, version: int, amount: int, end: Failure | None, lived: float) -> None:
        if version > self.server.version:
            self.fail(Failure.AHEAD, 0.0)
            return
        if version < self.server.oldest:
            self.fail(Failure.EXPIRED, 0.0)
            return
        pending = [event for event in self.server.history if event[0] > version]
        for happened_at, kind, obj in pending[:amount]:
            assert self.reflector.on_event(str(happened_at))
            self.brought_news = True
            identity: ObjectState = identify(obj)
            if kind == "DELETED":
                self.processor.delete(identity, obj)
            else:
                self.processor.upsert(identity, obj)
        if amount >= len(pending):
            assert self.reflector.on_event(str(self.server.version))  # a bookmark
            self.brought_news |= self.server.version > version
            self.check_equal_at(self.server.version)
        if end is not None:
            self.fail(end, lived)

    def check_equal_at(self, version: int) -> None:
        """Everything up to this version is known; if it is the present, copy and original are the same."""
        if version != self.server.version:
            return
        readable = {k: Thing(*identify(obj)) for k, obj in self.server.objects.items() if not obj["poison"]}
        assert {key: thing for key, thing in self.told.items() if key not in self.poisoned} == readable
        assert self.poisoned == {key for key, obj in self.server.objects.items() if obj["poison"]}
        # The last readable state of an unreadable object stays, if it is the same object.
        for key in self.poisoned & self.told.keys():
            assert self.told[key].uid == self.server.objects[key]["metadata"]["uid"]

    @invariant()
    def handlers_and_store_agree(self) -> None:
        assert {key: self.indexer.get(key) for key in self.indexer} == self.told
        assert self.poisoned <= self.reported

    def teardown(self) -> None:
        """Once the server behaves, the copy becomes right within a few requests."""
        if not hasattr(self, "reflector"):
            return
        steps: Counter[str] = Counter()
        for _ in range(100):
            match self.reflector.state:
                case Waiting():
                    self.reflector.on_wait_over()
                case Listing(token=token, paged=paged):
                    steps["page"] += 1
                    self.at_once.clear()
                    self.answer_list(token, paged=paged, size=2)
                case Watching(resource_version=version):
                    steps["watch"] += 1
                    self.at_once.clear()
                    self.answer_watch(int(version), 1000, None, 0.0)
                    if version == str(self.server.version) and self.pause() is None:
                        break
        else:
            raise AssertionError(f"no end: {self.reflector.state}")
        self.check_equal_at(self.server.version)
        assert isinstance(self.reflector.state, Watching)
        assert steps["page"] <= 12


ReflectorTest.TestCase.settings = settings(max_examples=300, stateful_step_count=60)
TestWatch = ReflectorTest.TestCase
