"""The embedded API server's inside, without sockets and without an event loop: for tests of its effects on objects."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.apiserver.deletion import DeleteOptions, Propagation
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.object_records import Change, ObjectRecord
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.pod_strategy import bind
from frameworkcontroller.local.apiserver.restserver import ApiServer

NOW = 1_767_225_600.0


class Inside:
    """A server that is not started, with users' requests; by kind and name, in the namespace default."""

    def __init__(self, server: ApiServer | None = None) -> None:
        self.now = NOW
        self.server = server or ApiServer(wall=lambda: self.now, rng=random.Random(1))
        self.registry = self.server.registry
        self.storage = self.server.storage
        self.server.settle()

    def endpoint(self, kind: str) -> Endpoint:
        found = next(one for one in self.registry.endpoints.resources() if one.type.kind == kind)
        assert isinstance(found, Endpoint)
        return found

    def create(
        self, kind: str, name: str, namespace: str = "default", *, call: Call | None = None, **body: Any
    ) -> ObjectRecord:
        """Creates an object; ``metadata`` in ``body`` is added to its name."""
        endpoint = self.endpoint(kind)
        document = {
            "apiVersion": endpoint.type.group_version,
            "kind": kind,
            **body,
            "metadata": {"name": name, **body.get("metadata", {})},
        }
        if kind == "Pod":
            document.setdefault("spec", {"containers": [{"name": "main", "image": "none"}]})
        return self.registry.create(endpoint, namespace, document, Call("create", "test", "test"))

    def find(self, kind: str, name: str, namespace: str = "default") -> ObjectRecord | None:
        endpoint = self.endpoint(kind)
        return self.storage.get(endpoint.resource, endpoint.key(namespace, name))

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.registry.get(self.endpoint(kind), namespace, name).document()

    def change(
        self, kind: str, name: str, change: Mapping[str, Any], namespace: str = "default", *, subresource: str = ""
    ) -> ObjectRecord:
        """Merges ``change`` into an object, one level deep for ``metadata``, ``spec`` and ``status``."""
        endpoint = self.endpoint(kind)
        record = self.registry.get(endpoint, namespace, name)
        obj = endpoint.document(record)
        for key, value in change.items():
            obj[key] = {**obj.get(key, {}), **value} if isinstance(value, dict) else value
        return self.registry.write(endpoint, record, obj, Call("update", "test", "test"), subresource=subresource)

    def delete(
        self,
        kind: str,
        name: str,
        propagation: Propagation | None = None,
        namespace: str = "default",
        *,
        grace: int | None = None,
    ) -> bool:
        """Deletes an object; whether it is gone at once."""
        options = DeleteOptions(propagation=propagation, grace_period_seconds=grace)
        call = Call("delete", "test")
        return self.registry.delete(self.endpoint(kind), namespace, name, options, call).gone

    def bind(self, name: str, namespace: str = "default") -> None:
        """Assigns a Pod to a node."""
        binding = {"metadata": {"name": name}, "target": {"name": "n1"}}
        bind(self.registry, self.endpoint("Pod"), namespace, binding, Call("create", "scheduler"))

    def settle(self) -> None:
        """Runs the server's controllers until they have no work."""
        self.server.settle()

    def changes(self) -> list[Change]:
        """A list to which every change from now on is appended."""
        found: list[Change] = []
        self.storage.observe(found.append)
        return found


def owner_reference(record: ObjectRecord, kind: str, *, block: bool = True) -> dict[str, Any]:
    """A reference to ``record``, an object of a core kind."""
    return {"apiVersion": "v1", "kind": kind, "name": record.name, "uid": record.uid, "blockOwnerDeletion": block}
