"""Pods: write rules, graceful deletion, binding, and eviction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.local.apiserver import api_errors, deletion
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.deletion import DeleteOptions, Verdict
from frameworkcontroller.local.apiserver.disruption_budgets import check_eviction
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.metadata import rfc3339
from frameworkcontroller.local.apiserver.object_records import ObjectRecord
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.registry import Deleted, Registry
from frameworkcontroller.local.apiserver.strategy import Strategy

_DEFAULT_GRACE: Final = 30
TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_COMPUTE: Final = ("cpu", "memory")


def disrupted(reason: str, message: str) -> dict[str, Any]:
    """The condition of a Pod that is about to be deleted for a cause outside of it."""
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}


_EVICTED: Final = disrupted("EvictionByEvictionAPI", "Eviction API: evicting")


class PodStrategy(Strategy):
    """Pods on a node are deleted gracefully; a DELETE returns the Pod."""

    returns_deleted = True
    field_labels = (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    )

    def prepare_create(self, t: ApiResource, obj: dict[str, Any]) -> None:
        """Set the phase Pending, regardless of the request."""
        super().prepare_create(t, obj)
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(obj.get("spec") or {})}

    def prepare_update(self, t: ApiResource, new: dict[str, Any], old: Mapping[str, Any], subresource: str) -> None:
        """Keep the owner references on a status write."""
        super().prepare_update(t, new, old, subresource)
        if subresource == "status":
            owners = old["metadata"].get("ownerReferences")
            new["metadata"].pop("ownerReferences", None)
            if owners is not None:
                new["metadata"]["ownerReferences"] = owners
            before = (old.get("status") or {}).get("qosClass")
            if before:
                new.setdefault("status", {}).setdefault("qosClass", before)

    def fields(self, obj: Mapping[str, Any]) -> Mapping[str, str]:
        spec, state = obj.get("spec") or {}, obj.get("status") or {}
        return {
            "spec.nodeName": spec.get("nodeName") or "",
            "spec.restartPolicy": spec.get("restartPolicy") or "",
            "spec.schedulerName": spec.get("schedulerName") or "",
            "spec.serviceAccountName": spec.get("serviceAccountName") or "",
            "status.phase": state.get("phase") or "",
            "status.podIP": state.get("podIP") or "",
            "status.nominatedNodeName": state.get("nominatedNodeName") or "",
        }

    def judge(self, obj: dict[str, Any], options: DeleteOptions, now: float) -> Verdict:
        """Decide without a grace period for a Pod that has no node or has ended."""
        return deletion.judge(obj["metadata"], options, _grace(obj, options), now)


def _grace(pod: Mapping[str, Any], options: DeleteOptions) -> int:
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in TERMINAL:
        return 0
    period: int | None = options.grace_period_seconds
    if period is None:
        period = spec.get("terminationGracePeriodSeconds")
    if period is None:
        return _DEFAULT_GRACE
    return period if period >= 0 else 1


def qos_class(spec: Mapping[str, Any]) -> str:
    """``Guaranteed`` if all containers have equal limits and requests of cpu and memory, ``BestEffort`` if none has
    any.
    """
    asked = False
    guaranteed = True
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in _COMPUTE:
            limit, request = limits.get(name), requests.get(name)
            asked = asked or _positive(limit) or _positive(request)
            if not _positive(limit) or (request is not None and parse_quantity(request) != parse_quantity(limit)):
                guaranteed = False
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(quantity: Any) -> bool:
    return quantity is not None and parse_quantity(quantity) > 0


def bind(
    registry: Registry, endpoint: Endpoint, namespace: str, binding: Mapping[str, Any], call: Call
) -> ObjectRecord:
    """Assign a Pod to the node of a Binding."""
    name = (binding.get("metadata") or {}).get("name") or ""
    target = binding.get("target") or {}
    kind, node = target.get("kind") or "Node", target.get("name") or ""
    # The real server answers 500 here, although these are faults of the request.
    if kind != "Node":
        raise ApiStatusError(500, "", f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not node:
        raise ApiStatusError(500, "", "target.name: Required value")
    record = registry.get(endpoint, namespace, name)
    pod = endpoint.document(record)
    metadata = pod["metadata"]
    uid = (binding.get("metadata") or {}).get("uid")
    if uid and uid != record.uid:
        raise api_errors.uid_mismatch(endpoint.type, name, uid, record.uid)
    if record.deleting:
        raise _binding_conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    assigned = pod["spec"].get("nodeName")
    if assigned:
        raise _binding_conflict(name, f'pod {name} is already assigned to node "{assigned}"')
    pod["spec"]["nodeName"] = node
    annotations = (binding.get("metadata") or {}).get("annotations")
    if annotations:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    set_condition(pod, {"type": "PodScheduled", "status": "True"}, registry.wall())
    return registry.store(endpoint, record, pod, call, subresource="binding")


def set_condition(pod: dict[str, Any], condition: Mapping[str, str], now: float) -> None:
    """Set one of a Pod's conditions; its transition follows its status."""
    conditions: list[dict[str, Any]] = pod.setdefault("status", {}).setdefault("conditions", [])
    before = next((one for one in conditions if one.get("type") == condition["type"]), None)
    after = {**condition, "lastTransitionTime": rfc3339(now)}
    if before is None:
        conditions.append(after)
        return
    if before.get("status") == condition["status"] and "lastTransitionTime" in before:
        after["lastTransitionTime"] = before["lastTransitionTime"]
    conditions[conditions.index(before)] = after


def _binding_conflict(name: str, why: str) -> ApiStatusError:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return ApiStatusError(409, "Conflict", message, {"name": name, "kind": "pods/binding"})


def evict(
    registry: Registry, endpoint: Endpoint, namespace: str, name: str, options: DeleteOptions, call: Call
) -> Deleted:
    """Delete a Pod for a drain. Raises ApiStatusError if a disruption budget refuses it."""
    record = registry.get(endpoint, namespace, name)
    check_eviction(registry, record)
    version = str(record.revision)
    if not call.dry_run and options.uid in (None, record.uid) and options.resource_version in (None, version):
        pod = endpoint.document(record)
        set_condition(pod, _EVICTED, registry.wall())
        record = registry.store(endpoint, record, pod, call, subresource="eviction")
        if options.resource_version is not None:
            options = replace(options, resource_version=str(record.revision))
    return registry.delete(endpoint, namespace, name, options, call)
