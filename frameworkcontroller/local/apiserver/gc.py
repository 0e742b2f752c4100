"""The garbage collector: deletes dependents of deleted owners according to the propagation policy.

It follows the store and indexes dependents by their owners' uids. Whether an owner exists is looked up each time an
object is processed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from frameworkcontroller.local.apiserver.deletion import FOREGROUND, ORPHAN, DeleteOptions, Propagation
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.object_records import Change, Json, ObjectRecord, OwnerReference
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.worker import ObjectController

_Place = tuple[str, str]
"""Resource and key."""

_AGENT: Final = "garbage-collector"
_REMEMBERED: Final = 10_000


class GarbageCollector(ObjectController[_Place]):
    """Deletes objects whose owners are gone, and finishes foreground and orphaning deletions."""

    def __init__(self, registry: Registry, *, delay: float = 0.0) -> None:
        """``delay``: seconds before it acts on a change, like the real one."""
        super().__init__(self._process, delay=delay)
        self._registry = registry
        self._dependents: dict[str, dict[_Place, None]] = {}
        self._gone: OrderedDict[str, frozenset[tuple[str, str]]] = OrderedDict()
        """By uid, the apiVersions and kinds of deleted objects."""
        for resource in registry.storage.resources():
            for record in registry.storage.records(resource):
                self._link(None, record)
                self._note(None, record)
        self._unobserve = registry.storage.observe(self._observe)

    def _observe(self, change: Change) -> None:
        record = change.record
        if change.new is not None:
            self._link(change.old, record)
            self._note(change.old, record)
            return
        self._link(record, None)
        self._gone[record.uid] = self._registry.endpoints.kinds_of(record.resource)
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)
        for place in self._dependents.get(record.uid, ()):
            self.add(place)
        for owner in record.owners:
            self._note_owner(record, owner)

    def _link(self, old: ObjectRecord | None, new: ObjectRecord | None) -> None:
        before = {owner.uid for owner in old.owners} if old is not None else set()
        after = {owner.uid for owner in new.owners} if new is not None else set()
        present = new or old
        if present is None or before == after:
            return
        place = (present.resource, present.key)
        for uid in before - after:
            places = self._dependents.get(uid, {})
            places.pop(place, None)
            if not places:
                self._dependents.pop(uid, None)
        for uid in after - before:
            self._dependents.setdefault(uid, {})[place] = None

    def _note(self, old: ObjectRecord | None, record: ObjectRecord) -> None:
        """Queue the objects that a write of ``record`` may affect."""
        if record.deleting and (ORPHAN in record.finalizers or FOREGROUND in record.finalizers):
            self.add((record.resource, record.key))
        if old is None or old.owners != record.owners:
            if record.owners:
                self.add((record.resource, record.key))
            for owner in old.owners if old is not None else ():
                self._note_owner(record, owner)

    def _note_owner(self, dependent: ObjectRecord, owner: OwnerReference) -> None:
        found = self._owner(dependent, owner)
        if isinstance(found, ObjectRecord) and found.deleting and FOREGROUND in found.finalizers:
            self.add((found.resource, found.key))

    def _process(self, place: _Place) -> None:
        record = self._registry.storage.get(*place)
        endpoint = self._registry.endpoints.of_resource(place[0])
        if record is None or endpoint is None:
            return
        if record.deleting:
            if ORPHAN in record.finalizers:
                self._orphan(endpoint, record)
            elif FOREGROUND in record.finalizers:
                self._foreground(endpoint, record)
        elif record.owners:
            self._judge(endpoint, record)

    def _orphan(self, endpoint: Endpoint, record: ObjectRecord) -> None:
        for dependent_endpoint, dependent in self._dependents_of(record):
            self._modify(dependent_endpoint, dependent, _without_owners({record.uid}))
        self._drop_finalizer(endpoint, record, ORPHAN)

    def _foreground(self, endpoint: Endpoint, record: ObjectRecord) -> None:
        blocking = [
            dependent
            for _, dependent in self._dependents_of(record)
            if any(owner.uid == record.uid and owner.block_owner_deletion for owner in dependent.owners)
        ]
        if not blocking:
            self._drop_finalizer(endpoint, record, FOREGROUND)
        for dependent in blocking:
            if not dependent.deleting:
                self.add((dependent.resource, dependent.key))

    def _judge(self, endpoint: Endpoint, record: ObjectRecord) -> None:
        solid, waiting, dangling = 0, set[str](), set[str]()
        for owner in record.owners:
            found = self._owner(record, owner)
            if found == "unknown":
                return
            if found == "absent":
                dangling.add(owner.uid)
            elif found.deleting and FOREGROUND in found.finalizers:
                waiting.add(owner.uid)
            else:
                solid += 1
        if solid:
            if waiting or dangling:
                self._modify(endpoint, record, _without_owners(waiting | dangling))
            return
        if waiting and record.uid in self._dependents:
            # Two objects that wait for each other's foreground deletion would wait forever.
            if any(one.deleting and FOREGROUND in one.finalizers for _, one in self._dependents_of(record)):
                self._modify(endpoint, record, _unblock)
            propagation: Propagation = "Foreground"
        elif ORPHAN in record.finalizers:
            propagation = "Orphan"
        elif FOREGROUND in record.finalizers:
            propagation = "Foreground"
        else:
            propagation = "Background"
        current = self._registry.storage.get(record.resource, record.key)
        if current is not None:
            call = Call("delete", _AGENT, _AGENT)
            self._registry.delete_record(endpoint, current, DeleteOptions(propagation=propagation), call)

    def _owner(self, dependent: ObjectRecord, owner: OwnerReference) -> ObjectRecord | Literal["absent", "unknown"]:
        """The owner; "unknown" if its kind or namespace does not allow a decision."""
        endpoint = self._registry.endpoints.of_kind(owner.api_version, owner.kind)
        if endpoint is None:
            names = owner.api_version, owner.kind
            return "absent" if names in self._gone.get(owner.uid, ()) else "unknown"
        if endpoint.type.namespaced and not dependent.namespace:
            return "unknown"
        record = self._registry.storage.get(endpoint.resource, endpoint.key(dependent.namespace, owner.name))
        return record if record is not None and record.uid == owner.uid else "absent"

    def _dependents_of(self, record: ObjectRecord) -> Iterator[tuple[Endpoint, ObjectRecord]]:
        for resource, key in list(self._dependents.get(record.uid, ())):
            endpoint = self._registry.endpoints.of_resource(resource)
            dependent = self._registry.storage.get(resource, key)
            if endpoint is not None and dependent is not None:
                yield endpoint, dependent

    def _drop_finalizer(self, endpoint: Endpoint, record: ObjectRecord, finalizer: str) -> None:
        def drop(metadata: Json) -> None:
            kept = [one for one in metadata.get("finalizers") or () if one != finalizer]
            metadata["finalizers"] = kept
            if not kept:
                del metadata["finalizers"]

        self._modify(endpoint, record, drop)

    def _modify(self, endpoint: Endpoint, record: ObjectRecord, change: Callable[[Json], None]) -> None:
        # An object may be its own dependent, and so may have changed since ``record``.
        current = self._registry.storage.get(record.resource, record.key)
        if current is not None and current.uid == record.uid:
            obj = endpoint.document(current)
            change(obj["metadata"])
            self._registry.store(endpoint, current, obj, Call("patch", _AGENT, _AGENT))


def _without_owners(uids: set[str]) -> Callable[[Json], None]:
    def change(metadata: Json) -> None:
        references: list[dict[str, Any]] = metadata.pop("ownerReferences", [])
        kept = [one for one in references if one.get("uid") not in uids]
        if kept:
            metadata["ownerReferences"] = kept

    return change


def _unblock(metadata: Json) -> None:
    metadata["ownerReferences"] = [{**one, "blockOwnerDeletion": False} for one in metadata["ownerReferences"]]
