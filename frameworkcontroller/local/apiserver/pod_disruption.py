"""Deletes the Pods of tainted and of removed nodes, as Kubernetes' taint manager and Pod garbage collector do."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Final

from frameworkcontroller.local import taints
from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.deletion import DeleteOptions
from frameworkcontroller.local.apiserver.object_records import Change, Json, ObjectRecord
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.pod_strategy import TERMINAL, disrupted, set_condition
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.worker import ObjectController
from frameworkcontroller.local.readycondition import is_ready
from frameworkcontroller.local.timers import Timers

QUARANTINE_SECONDS: Final = 40.0
"""How long a Node must be gone before its Pods are deleted by force."""

_NODES: Final = builtin_resources.NODES.resource
_PODS: Final = builtin_resources.PODS.resource
_TAINT_MANAGER: Final = disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
_POD_GC: Final = disrupted("DeletionByPodGC", "PodGC: node no longer exists")


class _PodController(ObjectController[str]):
    """A controller of bound Pods, by key."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(self._sync_key)
        self._registry = registry
        self._timers: Timers[str] = Timers(self.add)

    def stop(self) -> None:
        """Stop."""
        super().stop()
        self._timers.clear()

    def _pods_of(self, node: str) -> list[ObjectRecord]:
        return [one for one in self._registry.storage.records(_PODS) if one.fields["spec.nodeName"] == node]

    def _sync_key(self, key: str) -> None:
        record = self._registry.storage.get(_PODS, key)
        due = None if record is None else self._sync(record)
        self._timers.set(key, due)

    def _sync(self, record: ObjectRecord) -> float | None:
        """Process a bound Pod; return the loop's time at which to look again."""
        raise NotImplementedError

    def _disrupt(
        self, record: ObjectRecord, agent: str, condition: Json | None, *, fail: bool = False, grace: int | None = None
    ) -> None:
        """Set the condition, and the phase Failed if asked for; then delete the Pod."""
        endpoint = self._registry.endpoints.of_resource(_PODS)
        if endpoint is None:
            return
        pod = endpoint.document(record)
        if fail:
            pod.setdefault("status", {})["phase"] = "Failed"
        if condition is not None:
            set_condition(pod, condition, self._registry.wall())
        call = Call("patch", agent, agent)
        if pod != endpoint.document(record):
            record = self._registry.store(endpoint, record, pod, call, subresource="status")
        options = DeleteOptions(grace_period_seconds=grace)
        self._registry.delete_record(endpoint, record, options, replace(call, verb="delete"))


class TaintEviction(_PodController):
    """Deletes the Pods that do not, or no longer, tolerate a NoExecute taint of their node."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self._tainted: dict[str, list[Json]] = {}
        self._since: dict[str, tuple[str, float]] = {}
        """By key: the uid of a Pod that tolerates a taint for some time, and when that time began."""
        for record in registry.storage.records(_NODES):
            self._note(record)
        self._unobserve = registry.storage.observe(self._observe)

    def _observe(self, change: Change) -> None:
        record = change.record
        if record.resource == _NODES:
            if change.new is not None:
                self._note(record)
            elif self._tainted.pop(record.name, None):
                self._add_pods_of(record.name)
        elif record.resource == _PODS and (
            record.key in self._since or record.fields["spec.nodeName"] in self._tainted
        ):
            self.add(record.key)

    def _note(self, node: ObjectRecord) -> None:
        given: list[Json] = (node.document().get("spec") or {}).get("taints") or []
        found = [one for one in given if one.get("effect") == taints.NO_EXECUTE]
        if found != self._tainted.get(node.name, []):
            self._tainted[node.name] = found
            if not found:
                del self._tainted[node.name]
            self._add_pods_of(node.name)

    def _add_pods_of(self, node: str) -> None:
        for record in self._pods_of(node):
            self.add(record.key)

    def _sync_key(self, key: str) -> None:
        super()._sync_key(key)
        if self._registry.storage.get(_PODS, key) is None:
            self._since.pop(key, None)

    def _sync(self, record: ObjectRecord) -> float | None:
        found = self._tainted.get(record.fields["spec.nodeName"], ())
        tolerations = (record.document().get("spec") or {}).get("tolerations") or ()
        seconds = taints.seconds_tolerated(tolerations, found)
        if seconds == math.inf:
            self._since.pop(record.key, None)
            return None
        now = asyncio.get_running_loop().time()
        uid, since = self._since.get(record.key, ("", now))
        if uid != record.uid:
            self._since[record.key] = record.uid, now
            since = now
        if now < since + seconds:
            return since + seconds
        self._disrupt(record, "taint-eviction-controller", _TAINT_MANAGER)
        return None


class PodGc(_PodController):
    """Deletes by force the Pods of a Node that does not exist, and those in deletion on one that is out of service."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self._missing: dict[str, float] = {}
        """By name: when a Node was first missed."""
        for record in registry.storage.records(_PODS):
            self.add(record.key)
        self._unobserve = registry.storage.observe(self._observe)

    def _observe(self, change: Change) -> None:
        record = change.record
        if record.resource == _PODS:
            self.add(record.key)
        elif record.resource == _NODES:
            self._missing.pop(record.name, None)
            if change.new is None or taints.OUT_OF_SERVICE.encode() in record.body:
                for pod in self._pods_of(record.name):
                    self.add(pod.key)

    def _sync(self, record: ObjectRecord) -> float | None:
        name = record.fields["spec.nodeName"]
        if not name:
            return None
        node = self._registry.storage.get(_NODES, name)
        if node is not None:
            if record.deleting and _is_out_of_service(node.document()):
                self._delete(record, None)
            return None
        now = asyncio.get_running_loop().time()
        due = self._missing.setdefault(name, now) + QUARANTINE_SECONDS
        if now < due:
            return due
        self._delete(record, _POD_GC)
        return None

    def _delete(self, record: ObjectRecord, condition: Json | None) -> None:
        running = record.fields["status.phase"] not in TERMINAL
        self._disrupt(record, "pod-garbage-collector", condition if running else None, fail=running, grace=0)


def _is_out_of_service(node: Json) -> bool:
    given: list[Json] = (node.get("spec") or {}).get("taints") or []
    return not is_ready(node) and any(one.get("key") == taints.OUT_OF_SERVICE for one in given)
