"""The status of LocalQueues and ClusterQueues: how many Workloads wait, and how much quota is in use. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.local.queues.decisions import ADMITTED, FINISHED, QueueView
from frameworkcontroller.local.queues.queue_records import (
    ClusterQueueRecord,
    LocalQueueRecord,
    QueuedWorkload,
    admitted_usage,
)
from frameworkcontroller.local.resource_lists import plus, shown


@dataclass(slots=True)
class _Count:
    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    reserved: dict[str, Decimal] = field(default_factory=dict)
    used: dict[str, Decimal] = field(default_factory=dict)

    def add(self, workload: QueuedWorkload) -> None:
        if workload.reserved_in is None:
            self.pending += workload.active
            return
        if not workload.active:
            return
        usage = admitted_usage(workload)
        self.reserving += 1
        self.reserved = plus(self.reserved, usage)
        if workload.has(ADMITTED):
            self.admitted += 1
            self.used = plus(self.used, usage)


def local_queue_statuses(view: QueueView, now: int) -> list[tuple[LocalQueueRecord, Mapping[str, Any]]]:
    """The LocalQueues whose status is outdated at ``now`` (seconds since the epoch), each with its new status."""
    counts: dict[str, _Count] = {key: _Count() for key in view.local_queues}
    for workload in _unfinished(view.workloads):
        if workload.queue_key in counts:
            counts[workload.queue_key].add(workload)
    found: list[tuple[LocalQueueRecord, Mapping[str, Any]]] = []
    for key, record in view.local_queues.items():
        queue = view.cluster_queues.get(record.cluster_queue)
        status = _status(counts[key], queue, record.status, _local_fault(record, view), now)
        if status != record.status:
            found.append((record, status))
    return found


def cluster_queue_statuses(view: QueueView, now: int) -> list[tuple[ClusterQueueRecord, Mapping[str, Any]]]:
    """The same of the ClusterQueues."""
    counts: dict[str, _Count] = {name: _Count() for name in view.cluster_queues}
    for workload in _unfinished(view.workloads):
        local = view.local_queues.get(workload.queue_key)
        name = workload.reserved_in or (local.cluster_queue if local is not None else "")
        if name in counts:
            counts[name].add(workload)
    found: list[tuple[ClusterQueueRecord, Mapping[str, Any]]] = []
    for name, record in view.cluster_queues.items():
        status = _status(counts[name], record, record.status, view.fault_of(record), now)
        if status != record.status:
            found.append((record, status))
    return found


def _unfinished(workloads: Iterable[QueuedWorkload]) -> Iterable[QueuedWorkload]:
    return (workload for workload in workloads if not workload.has(FINISHED))


def _local_fault(record: LocalQueueRecord, view: QueueView) -> tuple[str, str] | None:
    if record.stop_policy != "None":
        return "Stopped", "it is stopped"
    queue = view.cluster_queues.get(record.cluster_queue)
    if queue is None:
        return "ClusterQueueDoesNotExist", f"ClusterQueue {record.cluster_queue} does not exist"
    fault = view.fault_of(queue)
    return ("ClusterQueueIsInactive", f"ClusterQueue {queue.name} is inactive: {fault[1]}") if fault else None


def _status(
    count: _Count,
    queue: ClusterQueueRecord | None,
    former: Mapping[str, Any],
    fault: tuple[str, str] | None,
    now: int,
) -> dict[str, Any]:
    reason, message = fault or ("Ready", "Can admit new workloads")
    state = "False" if fault else "True"
    old: Mapping[str, Any] = next((one for one in former.get("conditions") or () if one.get("type") == "Active"), {})
    since = old.get("lastTransitionTime") if old.get("status") == state else format_time(now)
    active = {"type": "Active", "status": state, "reason": reason, "message": message, "lastTransitionTime": since}
    status: dict[str, Any] = {
        "admittedWorkloads": count.admitted,
        "conditions": [active],
        "pendingWorkloads": count.pending,
        "reservingWorkloads": count.reserving,
    }
    if queue is not None and queue.flavor:
        status["flavorsReservation"] = _flavors(queue, count.reserved)
        status["flavorsUsage"] = _flavors(queue, count.used)
    return status


def _flavors(queue: ClusterQueueRecord, amounts: Mapping[str, Decimal]) -> list[dict[str, Any]]:
    totals = [{"name": name, "total": shown(name, amounts.get(name, Decimal(0)))} for name in queue.quota]
    return [{"name": queue.flavor, "resources": totals}]
