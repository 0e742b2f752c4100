"""Namespaces: admission of their content, and its deletion with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from frameworkcontroller.local.apiserver import api_errors, builtin_resources
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.deletion import DeleteOptions, Fate, Verdict
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.metadata import rfc3339
from frameworkcontroller.local.apiserver.object_records import Change, ObjectRecord
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.strategy import Strategy
from frameworkcontroller.local.apiserver.worker import ObjectController

INITIAL_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")

_FINALIZER: Final = "kubernetes"
_NAMESPACES: Final = builtin_resources.NAMESPACES.resource
_ACCOUNTS: Final = builtin_resources.SERVICEACCOUNTS.resource
_DEFAULT_ACCOUNT: Final = "default"


class NamespaceStrategy(Strategy):
    """``spec.finalizers`` hold a namespace until its content is gone."""

    returns_deleted = True
    marks_on_delete = True
    field_labels = ("status.phase",)
    reserved_names: ClassVar[frozenset[str]] = frozenset({"default", "kube-system", "kube-public"})

    def prepare_create(self, t: ApiResource, obj: dict[str, Any]) -> None:
        """Set the phase Active and the finalizer."""
        super().prepare_create(t, obj)
        spec = obj["spec"] = dict(obj.get("spec") or {})
        held = list(spec.get("finalizers") or ())
        spec["finalizers"] = held if _FINALIZER in held else [*held, _FINALIZER]
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, t: ApiResource, new: dict[str, Any], old: Mapping[str, Any], subresource: str) -> None:
        """Allow only ``finalize`` to write the spec's finalizers."""
        if subresource == "finalize":
            new["status"] = old.get("status") or {}
            return
        super().prepare_update(t, new, old, subresource)
        new["spec"] = {**(new.get("spec") or {}), "finalizers": (old.get("spec") or {}).get("finalizers") or []}
        if not new["spec"]["finalizers"]:
            del new["spec"]["finalizers"]

    def fields(self, obj: Mapping[str, Any]) -> Mapping[str, str]:
        return {"status.phase": (obj.get("status") or {}).get("phase") or ""}

    def judge(self, obj: dict[str, Any], options: DeleteOptions, now: float) -> Verdict:
        """Mark the namespace for deletion; its content goes first."""
        if not (obj.get("spec") or {}).get("finalizers"):
            return super().judge(obj, options, now)
        if obj["metadata"].get("deletionTimestamp"):
            return Verdict(Fate.KEPT, None)
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return Verdict(Fate.KEPT, {**obj["metadata"], "deletionTimestamp": rfc3339(now)})

    def released(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        """Release it when both kinds of finalizers are gone."""
        return super().released(new, old) and not (new.get("spec") or {}).get("finalizers")


class NamespaceLifecycle:
    """Admission: objects need an existing namespace that is not being deleted."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def before_create(self, endpoint: Endpoint, namespace: str, obj: Mapping[str, Any]) -> None:
        """404 without the namespace, 403 if it is being deleted."""
        if not endpoint.type.namespaced:
            return
        record = self._registry.storage.get(_NAMESPACES, namespace)
        if record is None:
            raise api_errors.not_found(builtin_resources.NAMESPACES, namespace)
        if record.deleting:
            metadata = obj.get("metadata") or {}
            raise api_errors.namespace_terminating(endpoint.type, metadata.get("name") or "", namespace)

    def before_store(self, endpoint: Endpoint, namespace: str, obj: Mapping[str, Any]) -> None:
        """Do nothing."""


class NamespaceController(ObjectController[str]):
    """Creates each namespace's default ServiceAccount, and empties namespaces in deletion."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(self._sync)
        self._registry = registry
        self._terminating: set[str] = set()
        for record in registry.storage.records(_NAMESPACES):
            self._note(record)
        self._unobserve = registry.storage.observe(self._observe)

    def _observe(self, change: Change) -> None:
        record = change.record
        if record.resource == _NAMESPACES:
            if change.new is None:
                self._terminating.discard(record.key)
            else:
                self._note(record)
        elif change.new is None:
            namespace = record.namespace
            if namespace in self._terminating or (record.resource == _ACCOUNTS and record.name == _DEFAULT_ACCOUNT):
                self.add(namespace)

    def _note(self, record: ObjectRecord) -> None:
        if record.deleting:
            self._terminating.add(record.key)
        self.add(record.key)

    def _sync(self, namespace: str) -> None:
        record = self._registry.storage.get(_NAMESPACES, namespace)
        if record is None:
            return
        if record.deleting:
            self._empty(record)
        else:
            self._provide_account(namespace)

    def _provide_account(self, namespace: str) -> None:
        if self._registry.storage.get(_ACCOUNTS, f"{namespace}/{_DEFAULT_ACCOUNT}") is None:
            endpoint = self._registry.endpoints.of_resource(_ACCOUNTS)
            if endpoint is not None:
                account = {"metadata": {"name": _DEFAULT_ACCOUNT}}
                call = Call("create", "service-account-controller", "service-account-controller")
                self._registry.create(endpoint, namespace, account, call)

    def _empty(self, record: ObjectRecord) -> None:
        registry, namespace = self._registry, record.key
        call = Call("delete", "namespace-controller", "namespace-controller")
        left: dict[str, list[ObjectRecord]] = {}
        for endpoint in registry.endpoints.resources():
            if not endpoint.type.namespaced:
                continue
            for found in registry.storage.records(endpoint.resource, f"{namespace}/"):
                if not found.deleting:
                    registry.delete_record(endpoint, found, DeleteOptions(propagation="Background"), call)
            remaining = registry.storage.records(endpoint.resource, f"{namespace}/")
            if remaining:
                left[endpoint.resource] = remaining
        namespaces = registry.endpoints.of_resource(_NAMESPACES)
        if namespaces is None:
            return
        obj = namespaces.document(record)
        obj["status"] = {"phase": "Terminating", "conditions": _conditions(left, obj, rfc3339(registry.wall()))}
        if obj["status"] != namespaces.document(record)["status"]:
            record = registry.store(namespaces, record, obj, call, subresource="status")
        if not left:
            obj = namespaces.document(record)
            obj["spec"].pop("finalizers", None)
            registry.store(namespaces, record, obj, call, subresource="finalize")


def _conditions(left: Mapping[str, list[ObjectRecord]], namespace: Mapping[str, Any], now: str) -> list[dict[str, Any]]:
    counts = ", ".join(f"{resource} has {len(left[resource])} resource instances" for resource in sorted(left))
    holders: dict[str, int] = {}
    for records in left.values():
        for record in records:
            for finalizer in record.finalizers:
                holders[finalizer] = holders.get(finalizer, 0) + 1
    held = ", ".join(f"{name} in {holders[name]} resource instances" for name in sorted(holders))
    facts = [
        ("NamespaceDeletionDiscoveryFailure", False, "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            False,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            False,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("NamespaceContentRemaining", True, "SomeResourcesRemain", f"Some resources are remaining: {counts}")
        if left
        else ("NamespaceContentRemaining", False, "ContentRemoved", "All content successfully removed"),
        (
            "NamespaceFinalizersRemaining",
            True,
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {held}",
        )
        if held
        else (
            "NamespaceFinalizersRemaining",
            False,
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ]
    before = {one["type"]: one for one in (namespace.get("status") or {}).get("conditions") or ()}
    conditions = []
    for kind, holds, reason, message in facts:
        state = "True" if holds else "False"
        old = before.get(kind)
        since = old["lastTransitionTime"] if old is not None and old["status"] == state else now
        conditions.append(
            {"type": kind, "status": state, "lastTransitionTime": since, "reason": reason, "message": message}
        )
    return conditions
