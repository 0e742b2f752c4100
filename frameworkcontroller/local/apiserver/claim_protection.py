"""PersistentVolumeClaims, and the finalizer that keeps a claim while a Pod uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.object_records import Change, ObjectRecord
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.strategies import ReturnedStrategy
from frameworkcontroller.local.apiserver.worker import ObjectController

PROTECTION: Final = "kubernetes.io/pvc-protection"
"""Finalizer: no Pod that runs may lose its volume."""

_CLAIMS: Final = builtin_resources.PERSISTENTVOLUMECLAIMS.resource
_PODS: Final = builtin_resources.PODS.resource
_AGENT: Final = "pvc-protection-controller"


class ClaimStrategy(ReturnedStrategy):
    """Claims are protected from the start; a DELETE returns the claim."""

    initial_status: ClassVar[Mapping[str, Any] | None] = {"phase": "Pending"}

    def prepare_create(self, t: ApiResource, obj: dict[str, Any]) -> None:
        """Add the finalizer, as admission does on a real server."""
        super().prepare_create(t, obj)
        finalizers = list(obj["metadata"].get("finalizers") or ())
        if PROTECTION not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, PROTECTION]


class ClaimProtection(ObjectController[str]):
    """Removes the finalizer of a claim in deletion once no Pod on a node uses it."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(self._release)
        self._registry = registry
        for record in registry.storage.records(_CLAIMS):
            self._look_at(record)
        self._unobserve = registry.storage.observe(self._observe)

    def _observe(self, change: Change) -> None:
        if change.record.resource == _CLAIMS:
            if change.new is not None:
                self._look_at(change.new)
        elif change.record.resource == _PODS and change.new is None:
            prefix = f"{change.record.namespace}/"
            for record in self._registry.storage.records(_CLAIMS, prefix):
                self._look_at(record)

    def _look_at(self, claim: ObjectRecord) -> None:
        if claim.deleting and PROTECTION in claim.finalizers:
            self.add(claim.key)

    def _release(self, key: str) -> None:
        storage = self._registry.storage
        claim, endpoint = storage.get(_CLAIMS, key), self._registry.endpoints.of_resource(_CLAIMS)
        if claim is None or endpoint is None or not claim.deleting or PROTECTION not in claim.finalizers:
            return
        if any(_uses(pod, claim.name) for pod in storage.records(_PODS, f"{claim.namespace}/")):
            return
        obj = endpoint.document(claim)
        left = [one for one in obj["metadata"]["finalizers"] if one != PROTECTION]
        obj["metadata"]["finalizers"] = left
        if not left:
            del obj["metadata"]["finalizers"]
        self._registry.store(endpoint, claim, obj, Call("update", _AGENT, _AGENT))


def _uses(pod: ObjectRecord, claim: str) -> bool:
    if not pod.fields["spec.nodeName"] or b'"persistentVolumeClaim"' not in pod.body:
        return False
    volumes = (pod.document().get("spec") or {}).get("volumes") or ()
    return any((one.get("persistentVolumeClaim") or {}).get("claimName") == claim for one in volumes)
