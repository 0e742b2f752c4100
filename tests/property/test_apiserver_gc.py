"""The garbage collector: no orphan is left, and nothing that a living owner has is collected."""

import random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.deletion import FOREGROUND, ORPHAN, DeleteOptions, Propagation
from frameworkcontroller.local.apiserver.endpoints import Endpoint, Endpoints
from frameworkcontroller.local.apiserver.gc import GarbageCollector
from frameworkcontroller.local.apiserver.metadata import Identities
from frameworkcontroller.local.apiserver.object_records import Change, ObjectRecord, OwnerReference
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.pod_strategy import PodStrategy, bind
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.storage import ObjectStorage
from frameworkcontroller.local.apiserver.strategy import Strategy

NAMES = [f"o{number}" for number in range(4)]
KINDS = ["ConfigMap", "Pod"]
POLICIES: list[Propagation | None] = [None, "Background", "Foreground", "Orphan"]
COLLECTOR = "garbage-collector"
HELD = "example.com/held"

user = Call("test", "test")


class CollectorMachine(RuleBasedStateMachine):
    """Users create, delete, adopt and release; the collector takes its steps at any time in between."""

    @initialize()
    def begin(self) -> None:
        self.storage = ObjectStorage()
        self.endpoints = {
            "ConfigMap": Endpoint(builtin_resources.CONFIGMAPS, Strategy()),
            "Pod": Endpoint(builtin_resources.PODS, PodStrategy()),
        }
        endpoints = Endpoints(self.endpoints.values())
        self.registry = Registry(self.storage, endpoints, lambda: 1_700_000_000.0, Identities(random.Random(1)))
        self.dead = 0
        self.wrongs: list[str] = []
        """What the collector did without being justified: it goes on whatever an observer says, so this is kept."""
        self.collector = GarbageCollector(self.registry)
        self.storage.observe(self.check)

    # --- users ------------------------------------------------------------------------------------------------------

    def find(self, kind: str, name: str) -> ObjectRecord | None:
        return self.storage.get(self.endpoints[kind].resource, f"ns/{name}")

    def references(self, dependent: str, owners: list[tuple[str, str, bool]]) -> list[dict[str, object]]:
        """References to those owners whose names come before the dependent's.

        So there are no circles: objects that own each other can wait for each other forever, as on a real cluster.
        """
        found: dict[str, dict[str, object]] = {}
        for kind, name, block in owners:
            if name >= dependent:
                continue
            record = self.find(kind, name)
            if record is not None:
                uid = record.uid
            else:
                self.dead += 1
                uid = f"dead-{self.dead}"
            found[uid] = {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": block}
        return list(found.values())

    owner_lists = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES), st.booleans()), max_size=3)

    @rule(
        kind=st.sampled_from(KINDS),
        name=st.sampled_from(NAMES),
        owners=owner_lists,
        finalizers=st.sampled_from([[], [], [HELD], [FOREGROUND], [ORPHAN]]),
        bound=st.booleans(),
    )
    def create(
        self, kind: str, name: str, owners: list[tuple[str, str, bool]], finalizers: list[str], bound: bool
    ) -> None:
        if self.find(kind, name) is not None:
            return
        body: dict[str, object] = {
            "metadata": {"name": name, "ownerReferences": self.references(name, owners), "finalizers": finalizers}
        }
        if kind == "Pod":
            body["spec"] = {"containers": [{"name": "c", "image": "none"}]}
        self.registry.create(self.endpoints[kind], "ns", body, user)
        if kind == "Pod" and bound:
            binding = {"metadata": {"name": name}, "target": {"name": "node"}}
            bind(self.registry, self.endpoints["Pod"], "ns", binding, user)

    @rule(
        kind=st.sampled_from(KINDS),
        name=st.sampled_from(NAMES),
        policy=st.sampled_from(POLICIES),
        grace=st.sampled_from([None, 0, 5]),
    )
    def delete(self, kind: str, name: str, policy: Propagation | None, grace: int | None) -> None:
        if self.find(kind, name) is not None:
            options = DeleteOptions(propagation=policy, grace_period_seconds=grace)
            self.registry.delete(self.endpoints[kind], "ns", name, options, user)

    @rule(kind=st.sampled_from(KINDS), name=st.sampled_from(NAMES), owners=owner_lists)
    def adopt(self, kind: str, name: str, owners: list[tuple[str, str, bool]]) -> None:
        record = self.find(kind, name)
        if record is not None:
            endpoint = self.endpoints[kind]
            obj = endpoint.document(record)
            obj["metadata"]["ownerReferences"] = self.references(name, owners)
            self.registry.write(endpoint, record, obj, user)

    @rule(kind=st.sampled_from(KINDS), name=st.sampled_from(NAMES))
    def let_go(self, kind: str, name: str) -> None:
        """A controller removes its finalizer; a kubelet says that its Pod has ended."""
        record = self.find(kind, name)
        if record is None or not record.deleting:
            return
        endpoint = self.endpoints[kind]
        if HELD in record.finalizers:
            obj = endpoint.document(record)
            obj["metadata"]["finalizers"] = [one for one in record.finalizers if one != HELD]
            self.registry.write(endpoint, record, obj, user)
        elif kind == "Pod":
            self.registry.delete(endpoint, "ns", name, DeleteOptions(grace_period_seconds=0), user)

    @rule(steps=st.integers(1, 5))
    def collect(self, steps: int) -> None:
        self.collector.drain(steps)

    # --- invariants -------------------------------------------------------------------------------------------------

    def living(self, record: ObjectRecord, owner: OwnerReference) -> bool:
        """Whether the owner exists and its deletion does not wait for its dependents."""
        endpoint = self.registry.endpoints.of_kind(owner.api_version, owner.kind)
        assert endpoint is not None
        found = self.storage.get(endpoint.resource, endpoint.key(record.namespace, owner.name))
        return found is not None and found.uid == owner.uid and not (found.deleting and FOREGROUND in found.finalizers)

    def everything(self) -> list[ObjectRecord]:
        return [record for resource in self.storage.resources() for record in self.storage.records(resource)]

    def check(self, change: Change) -> None:
        """Is every single step of the collector justified when it makes it?"""
        old = change.old
        if change.origin.agent != COLLECTOR or old is None:
            return
        if change.new is None:
            begins = not old.deleting
        else:
            begins = change.new.deleting and not old.deleting
        if begins:
            if not old.owners:
                self.wrongs.append(f"{old.key} has no owners and was collected")
            if any(self.living(old, owner) for owner in old.owners):
                self.wrongs.append(f"{old.key} has a living owner and was collected")
        waits = old.deleting and FOREGROUND in old.finalizers
        if waits and (change.new is None or FOREGROUND not in change.new.finalizers):
            blocked = [
                record.key
                for record in self.everything()
                for owner in record.owners
                if owner.uid == old.uid and owner.block_owner_deletion and record is not old
            ]
            if blocked:
                self.wrongs.append(f"foreground deletion of {old.key} did not wait for {blocked}")

    @rule()
    def settle(self) -> None:
        self.collector.drain()
        for record in self.everything():
            if record.owners and not record.deleting:
                assert any(self.living(record, owner) for owner in record.owners), f"{record.key} is an orphan"
                assert all(self.living(record, owner) for owner in record.owners), (
                    f"{record.key} still names an owner that is gone or going"
                )
            if record.deleting:
                assert ORPHAN not in record.finalizers
                if FOREGROUND in record.finalizers:
                    assert any(
                        owner.uid == record.uid and owner.block_owner_deletion
                        for dependent in self.everything()
                        for owner in dependent.owners
                    ), f"the deletion of {record.key} waits for nothing"

    @rule()
    def finish(self) -> None:
        """Without finalizers, all terminating objects go."""
        for _ in range(2 * len(NAMES) * len(KINDS) + 2):
            self.collector.drain()
            for kind in KINDS:
                for name in NAMES:
                    self.let_go(kind, name)
        assert not [record.key for record in self.everything() if record.deleting]

    @invariant()
    def every_step_was_justified(self) -> None:
        assert not self.wrongs

    @invariant()
    def deletions_are_never_taken_back(self) -> None:
        for record in self.everything():
            marked = "deletionTimestamp" in record.document()["metadata"]
            assert marked == record.deleting


CollectorMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestCollector = CollectorMachine.TestCase
