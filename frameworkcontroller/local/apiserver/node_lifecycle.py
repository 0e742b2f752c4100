"""Marks and taints nodes that stop sending heartbeats, as the node lifecycle controller of Kubernetes does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.local import taints
from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.metadata import rfc3339
from frameworkcontroller.local.apiserver.object_records import Change, Json, ObjectRecord
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.pod_strategy import set_condition
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.worker import ObjectController
from frameworkcontroller.local.taints import NO_EXECUTE, NO_SCHEDULE
from frameworkcontroller.local.timers import Timers

GRACE_SECONDS: Final = 50.0
"""How long a node may be silent: the default of Kubernetes 1.32."""

LEASE_NAMESPACE: Final = "kube-node-lease"

_AGENT: Final = "node-controller"
_NODES: Final = builtin_resources.NODES.resource
_PODS: Final = builtin_resources.PODS.resource
_LEASES: Final = builtin_resources.LEASES.resource
_MANAGED: Final = frozenset({taints.NOT_READY, taints.UNREACHABLE, taints.UNSCHEDULABLE})


@dataclass(slots=True)
class _Heard:
    """The last heartbeat of a node, and the loop's time at which it came."""

    heartbeat: tuple[Any, Any]
    at: float


class NodeLifecycle(ObjectController[str]):
    """By node name: the condition Ready becomes Unknown after ``GRACE_SECONDS`` without a heartbeat; taints follow the
    condition and ``spec.unschedulable``.

    A heartbeat is a change of the condition's ``lastHeartbeatTime``, or of the ``renewTime`` of the node's Lease.
    """

    def __init__(self, registry: Registry) -> None:
        super().__init__(self._sync)
        self._registry = registry
        self._heard: dict[str, _Heard] = {}
        self._timers: Timers[str] = Timers(self.add)
        for record in registry.storage.records(_NODES):
            self.add(record.name)
        self._unobserve = registry.storage.observe(self._observe)

    def stop(self) -> None:
        """Stop."""
        super().stop()
        self._timers.clear()

    def _observe(self, change: Change) -> None:
        record = change.record
        if record.resource == _NODES or (record.resource == _LEASES and record.namespace == LEASE_NAMESPACE):
            self.add(record.name)

    def _sync(self, name: str) -> None:
        record = self._registry.storage.get(_NODES, name)
        if record is None:
            self._heard.pop(name, None)
            self._timers.set(name, None)
            return
        node = record.document()
        silent = self._is_silent(name, node)
        if silent and _ready(node) != "Unknown":
            record = self._mark_unknown(record, node)
        self._taint(record)

    def _is_silent(self, name: str, node: Json) -> bool:
        lease = self._registry.storage.get(_LEASES, f"{LEASE_NAMESPACE}/{name}")
        ready = _condition(node, "Ready") or {}
        heartbeat = (
            ready.get("lastHeartbeatTime"),
            None if lease is None else (lease.document().get("spec") or {}).get("renewTime"),
        )
        now = asyncio.get_running_loop().time()
        heard = self._heard.get(name)
        if heard is None or heard.heartbeat != heartbeat:
            heard = self._heard[name] = _Heard(heartbeat, now)
        due = heard.at + GRACE_SECONDS
        self._timers.set(name, due if now < due else None)
        return now >= due

    def _mark_unknown(self, record: ObjectRecord, node: Json) -> ObjectRecord:
        endpoint = self._registry.endpoints.of_resource(_NODES)
        if endpoint is None:
            return record
        obj, now = endpoint.document(record), rfc3339(self._registry.wall())
        conditions = obj.setdefault("status", {}).setdefault("conditions", [])
        if _condition(node, "Ready") is None:
            never = {"reason": "NodeStatusNeverUpdated", "message": "Kubelet never posted node status."}
            conditions.append({"type": "Ready", "status": "Unknown", "lastTransitionTime": now, **never})
        for condition in conditions:
            if condition.get("status") != "Unknown":
                stopped = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
                condition |= {"status": "Unknown", "lastTransitionTime": now, **stopped}
        self._mark_pods(record.name)
        return self._registry.store(endpoint, record, obj, Call("patch", _AGENT, _AGENT), subresource="status")

    def _mark_pods(self, node: str) -> None:
        """Set the Pods of a silent node to not ready."""
        endpoint = self._registry.endpoints.of_resource(_PODS)
        for record in self._registry.storage.records(_PODS):
            if endpoint is None or record.fields["spec.nodeName"] != node:
                continue
            pod = endpoint.document(record)
            ready = _condition(pod, "Ready")
            if ready is not None and ready["status"] == "True":
                set_condition(pod, {"type": "Ready", "status": "False"}, self._registry.wall())
                self._registry.store(endpoint, record, pod, Call("patch", _AGENT, _AGENT), subresource="status")

    def _taint(self, record: ObjectRecord) -> None:
        endpoint = self._registry.endpoints.of_resource(_NODES)
        if endpoint is None:
            return
        obj = endpoint.document(record)
        spec = obj.setdefault("spec", {})
        wanted = _wanted_taints(obj)
        before = spec.get("taints") or []
        after = [one for one in before if one.get("key") not in _MANAGED or (one["key"], one.get("effect")) in wanted]
        present = {(one.get("key"), one.get("effect")) for one in after}
        now = rfc3339(self._registry.wall())
        after += [
            {"key": key, "effect": effect, "timeAdded": now} for key, effect in wanted if (key, effect) not in present
        ]
        if after != before:
            spec["taints"] = after
            if not after:
                del spec["taints"]
            self._registry.store(endpoint, record, obj, Call("patch", _AGENT, _AGENT))


def _wanted_taints(node: Json) -> list[tuple[str, str]]:
    wanted: list[tuple[str, str]] = []
    key = {"Unknown": taints.UNREACHABLE, "False": taints.NOT_READY}.get(_ready(node))
    if key is not None:
        wanted += [(key, NO_SCHEDULE), (key, NO_EXECUTE)]
    if node["spec"].get("unschedulable"):
        wanted.append((taints.UNSCHEDULABLE, NO_SCHEDULE))
    return wanted


def _ready(node: Json) -> str:
    return str((_condition(node, "Ready") or {}).get("status") or "")


def _condition(obj: Json, kind: str) -> Json | None:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), None)
