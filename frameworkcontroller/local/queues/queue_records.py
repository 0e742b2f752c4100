"""The fields of Workloads and queues that the queue reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.local.resource_lists import parse_resources, requests_of

Condition = Mapping[str, Any]
"""An entry of ``status.conditions``, as it is stored."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """A set of equal Pods, without those that need no quota again. ``requests``: of one of them."""

    name: str
    count: int
    requests: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The quota of an admitted set: ``usage`` for ``count`` Pods."""

    name: str
    count: int
    usage: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class QueuedWorkload:
    """A Workload.

    Times are in seconds since the epoch. ``reserved_in``: the ClusterQueue whose quota it holds, None if it holds none.
    ``past_seconds``: of its earlier admissions. ``max_seconds``: of all of them, None for no bound.
    """

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    created: int
    deleting: bool
    active: bool
    queue: str
    priority: int
    pod_sets: tuple[PodSet, ...]
    reserved_in: str | None
    assignments: tuple[Assignment, ...]
    conditions: tuple[Condition, ...]
    max_seconds: int | None = None
    past_seconds: int = 0

    def condition(self, kind: str) -> Condition:
        """The condition of that type; empty if there is none."""
        return next((one for one in self.conditions if one.get("type") == kind), {})

    def has(self, kind: str) -> bool:
        """Whether the condition of that type is True."""
        return self.condition(kind).get("status") == "True"

    @property
    def queue_key(self) -> str:
        """The key of its LocalQueue."""
        return f"{self.namespace}/{self.queue}"


@dataclass(frozen=True, slots=True)
class LocalQueueRecord:
    """A LocalQueue."""

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    cluster_queue: str
    stop_policy: str
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterQueueRecord:
    """A ClusterQueue with a single flavor. ``quota``: by resource. ``fault``: why it cannot be read, "" if it can."""

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    flavor: str
    quota: Mapping[str, Decimal]
    strict: bool
    preemption: str
    stop_policy: str
    fault: str
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FlavorRecord:
    """A ResourceFlavor. The owners of Workloads read its labels and tolerations."""

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str


def decode_workload(body: Mapping[str, Any]) -> QueuedWorkload:
    """Decode a Workload as the API server sent it."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    admission = status.get("admission")
    conditions = tuple(status.get("conditions") or ())
    reclaimed = {item.get("name"): item.get("count") or 0 for item in status.get("reclaimablePods") or ()}
    reserves = any(one.get("type") == "QuotaReserved" and one.get("status") == "True" for one in conditions)
    return QueuedWorkload(
        **_identity(body),
        generation=metadata.get("generation") or 0,
        created=parse_time(metadata["creationTimestamp"]),
        deleting=metadata.get("deletionTimestamp") is not None,
        active=spec.get("active") is not False,
        queue=spec.get("queueName") or "",
        priority=spec.get("priority") or 0,
        pod_sets=tuple(_pod_set(item, reclaimed) for item in spec.get("podSets") or ()),
        reserved_in=(admission or {}).get("clusterQueue") or "" if admission or reserves else None,
        assignments=tuple(_assignment(item) for item in (admission or {}).get("podSetAssignments") or ()),
        conditions=conditions,
        max_seconds=spec.get("maximumExecutionTimeSeconds"),
        past_seconds=status.get("accumulatedPastExecutionTimeSeconds") or 0,
    )


def decode_local_queue(body: Mapping[str, Any]) -> LocalQueueRecord:
    """Decode a LocalQueue as the API server sent it."""
    spec = body.get("spec") or {}
    return LocalQueueRecord(
        **_identity(body),
        cluster_queue=spec.get("clusterQueue") or "",
        stop_policy=spec.get("stopPolicy") or "None",
        status=body.get("status") or {},
    )


def decode_cluster_queue(body: Mapping[str, Any]) -> ClusterQueueRecord:
    """Decode a ClusterQueue as the API server sent it."""
    spec = body.get("spec") or {}
    flavor: Mapping[str, Any] = {}
    for group in spec.get("resourceGroups") or ():
        flavor = next(iter(group.get("flavors") or ()), {})
    quota: dict[str, Decimal] = {}
    fault = ""
    try:
        quota = parse_resources({item["name"]: item["nominalQuota"] for item in flavor.get("resources") or ()})
    except ValueError as error:
        fault = str(error)
    return ClusterQueueRecord(
        **_identity(body),
        flavor=flavor.get("name") or "",
        quota=quota,
        strict=spec.get("queueingStrategy") == "StrictFIFO",
        preemption=(spec.get("preemption") or {}).get("withinClusterQueue") or "Never",
        stop_policy=spec.get("stopPolicy") or "None",
        fault=fault,
        status=body.get("status") or {},
    )


def decode_flavor(body: Mapping[str, Any]) -> FlavorRecord:
    """Decode a ResourceFlavor as the API server sent it."""
    return FlavorRecord(**_identity(body))


def _identity(body: Mapping[str, Any]) -> dict[str, str]:
    metadata = body["metadata"]
    namespace, name = metadata.get("namespace") or "", metadata["name"]
    return {
        "key": f"{namespace}/{name}" if namespace else name,
        "namespace": namespace,
        "name": name,
        "uid": metadata["uid"],
        "resource_version": metadata.get("resourceVersion") or "",
    }


def _pod_set(item: Mapping[str, Any], reclaimed: Mapping[Any, int]) -> PodSet:
    template, name, count = item.get("template") or {}, item.get("name") or "main", item.get("count")
    left = max(0, (1 if count is None else count) - reclaimed.get(name, 0))
    return PodSet(name, left, requests_of(template.get("spec")))


def _assignment(item: Mapping[str, Any]) -> Assignment:
    return Assignment(item.get("name") or "main", item.get("count") or 0, parse_resources(item.get("resourceUsage")))


def admitted_usage(workload: QueuedWorkload) -> dict[str, Decimal]:
    """The quota that a workload holds. A set that has given some back, or has become smaller, holds less."""
    counts = {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
    usage: dict[str, Decimal] = {}
    for given in workload.assignments:
        count = min(counts.get(given.name, given.count), given.count)
        for name, amount in given.usage.items():
            share = amount if count == given.count else amount * count / given.count
            usage[name] = usage.get(name, Decimal(0)) + share
    return usage
