"""The decisions of the queue: which Workloads are admitted, which are evicted, and why the others wait.

Pure: records and a time in, writes out. The rules follow Kueue 0.19.2 (kueue.x-k8s.io/v1beta2) for a ClusterQueue
with one flavor and without a cohort:

- Workloads are considered by priority, then by age.
- One that fits into the unused quota gets it, as a whole.
- One that does not may preempt others, as the ClusterQueue permits. Their quota is free only once their owners have
  removed ``status.admission``, after their Pods have ended. Until then it is kept for the one that preempted them.
- The quota of a deactivated Workload is free at once, though its Pods still run. Once activated, it is queued again if
  its owner has given the quota back with the reason Deactivated, and without the condition DeactivationTarget.
- BestEffortFIFO: others may pass one that waits. StrictFIFO: they may not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from frameworkcontroller.api.timestamps import format_time, parse_time
from frameworkcontroller.local.queues.queue_records import (
    ClusterQueueRecord,
    Condition,
    LocalQueueRecord,
    QueuedWorkload,
    admitted_usage,
)
from frameworkcontroller.local.resource_lists import ResourceList, larger, minus, plus, shown, times

ADMITTED: Final = "Admitted"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
EVICTED: Final = "Evicted"
FINISHED: Final = "Finished"
PREEMPTED: Final = "Preempted"
QUOTA_RESERVED: Final = "QuotaReserved"
REQUEUED: Final = "Requeued"

_PENDING: Final = "Pending"
_INADMISSIBLE: Final = "Inadmissible"
_DEACTIVATED: Final = "Deactivated"
_DUE_TO: Final = "DeactivatedDueTo"
_RUNS_TOO_LONG: Final = "MaximumExecutionTimeExceeded"
_LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
_CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
_REQUEUED_AFTER: Final = {
    _DEACTIVATED: "Reactivated",
    _LOCAL_QUEUE_STOPPED: "LocalQueueRestarted",
    _CLUSTER_QUEUE_STOPPED: "ClusterQueueRestarted",
}
_DRAINS: Final = "HoldAndDrain"


@dataclass(frozen=True, slots=True)
class QueueView:
    """The objects that decisions are made from. Queues are by key, flavors by name."""

    workloads: Sequence[QueuedWorkload]
    local_queues: Mapping[str, LocalQueueRecord]
    cluster_queues: Mapping[str, ClusterQueueRecord]
    flavors: frozenset[str]

    def fault_of(self, queue: ClusterQueueRecord) -> tuple[str, str] | None:
        """Reason and message why a ClusterQueue admits nothing; None if it does."""
        if queue.fault:
            return "InvalidQuota", queue.fault
        if queue.flavor and queue.flavor not in self.flavors:
            return "FlavorNotFound", f"ResourceFlavor {queue.flavor} does not exist"
        if queue.stop_policy != "None":
            return "Stopped", "it is stopped"
        return None


@dataclass(frozen=True, slots=True)
class Write:
    """A change of a Workload, as a JSON merge patch, of ``status`` or, with ``deactivates``, of ``spec``."""

    workload: QueuedWorkload
    patch: Mapping[str, Any]
    deactivates: bool = False


def decide(view: QueueView, now: int) -> list[Write]:
    """Return the changes that are due at ``now``, in seconds since the epoch."""
    writes: list[Write] = []
    pending: dict[str, list[QueuedWorkload]] = defaultdict(list)
    holding: dict[str, list[QueuedWorkload]] = defaultdict(list)
    leaving: set[str] = set()
    for workload in view.workloads:
        if workload.has(FINISHED):
            continue
        deactivation = _deactivation(workload, now)
        if deactivation is not None:
            writes.append(deactivation)
        if workload.reserved_in is not None:
            if workload.active:
                holding[workload.reserved_in].append(workload)
            eviction = _must_leave(workload, view)
            if workload.has(EVICTED) or workload.deleting:
                leaving.add(workload.key)
            elif deactivation is None and eviction is not None:
                leaving.add(workload.key)
                writes.append(_eviction(workload, *eviction, now))
        elif deactivation is None and not workload.deleting and not _stays_out(workload):
            obstacle = _obstacle(workload, view)
            if obstacle:
                writes += _waiting(workload, _INADMISSIBLE, obstacle, now)
            else:
                pending[view.local_queues[workload.queue_key].cluster_queue].append(workload)
    for name, waiting in pending.items():
        cycle = _Cycle(view.cluster_queues[name], holding[name], leaving, now)
        writes += cycle.run(sorted(waiting, key=_rank))
    return writes


def next_due(workloads: Iterable[QueuedWorkload]) -> int | None:
    """The time at which a workload will have run for as long as it may, in seconds since the epoch; None if none."""
    return min((due for workload in workloads if (due := _deadline(workload)) is not None), default=None)


def _rank(workload: QueuedWorkload) -> tuple[int, int, str]:
    return -workload.priority, workload.created, workload.key


def _deadline(workload: QueuedWorkload) -> int | None:
    admitted = workload.condition(ADMITTED)
    if workload.max_seconds is None or admitted.get("status") != "True" or workload.has(DEACTIVATION_TARGET):
        return None
    since = parse_time(admitted["lastTransitionTime"])
    return since + max(workload.max_seconds - workload.past_seconds, 0)


def _deactivation(workload: QueuedWorkload, now: int) -> Write | None:
    """The next step to deactivate a workload: the condition, which is set again while it is Admitted, then the spec."""
    if workload.active and workload.has(DEACTIVATION_TARGET):
        return Write(workload, {"spec": {"active": False}}, deactivates=True)
    due = _deadline(workload)
    if due is None or due > now:
        return None
    conditions = _Conditions(workload, now)
    conditions.set(DEACTIVATION_TARGET, True, _RUNS_TOO_LONG, "exceeding the maximum execution time")
    return Write(workload, {"status": {"accumulatedPastExecutionTimeSeconds": None, "conditions": conditions.all}})


def _stays_out(workload: QueuedWorkload) -> bool:
    """Whether it is never queued again, as its owner has said that Kueue has deactivated it."""
    requeued = workload.condition(REQUEUED)
    return requeued.get("status") == "False" and requeued.get("reason", "").startswith(_DUE_TO)


def _must_leave(workload: QueuedWorkload, view: QueueView) -> tuple[str, str] | None:
    """Reason and message why a workload loses its quota, other than for another one."""
    if not workload.active:
        target = workload.condition(DEACTIVATION_TARGET)
        if target.get("status") == "True":
            return f"{_DUE_TO}{target['reason']}", f"The workload is deactivated due to {target['message']}"
        return _DEACTIVATED, "The workload is deactivated"
    local = view.local_queues.get(workload.queue_key)
    if local is not None and local.stop_policy == _DRAINS:
        return _LOCAL_QUEUE_STOPPED, f"LocalQueue {local.name} is stopped"
    queue = view.cluster_queues.get(workload.reserved_in or "")
    if queue is not None and queue.stop_policy == _DRAINS:
        return _CLUSTER_QUEUE_STOPPED, f"ClusterQueue {queue.name} is stopped"
    return None


def _obstacle(workload: QueuedWorkload, view: QueueView) -> str:
    """Why a workload cannot be considered; empty if it can."""
    if not workload.active:
        return "The workload is deactivated"
    local = view.local_queues.get(workload.queue_key)
    if local is None:
        return f"LocalQueue {workload.queue} does not exist"
    if local.stop_policy != "None":
        return f"LocalQueue {local.name} is stopped"
    queue = view.cluster_queues.get(local.cluster_queue)
    if queue is None:
        return f"ClusterQueue {local.cluster_queue} does not exist"
    fault = view.fault_of(queue)
    return f"ClusterQueue {queue.name} is inactive: {fault[1]}" if fault else ""


@dataclass(slots=True)
class _Assigned:
    """A workload's need of a queue: by set, and in all. ``excess``: why it can never get it, "" if it can."""

    by_set: list[tuple[str, int, ResourceList]]
    total: dict[str, Decimal]
    excess: str


@dataclass(slots=True)
class _Cycle:
    """One pass over a ClusterQueue.

    ``taken``: the quota in use, that of leaving workloads included. ``promised``: the quota in use once those have left
    and the workloads they leave for have it.
    """

    queue: ClusterQueueRecord
    holding: Sequence[QueuedWorkload]
    leaving: set[str]
    now: int
    taken: dict[str, Decimal] = field(default_factory=dict)
    promised: dict[str, Decimal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for holder in self.holding:
            usage = admitted_usage(holder)
            self.taken = plus(self.taken, usage)
            if holder.key not in self.leaving:
                self.promised = plus(self.promised, usage)

    def run(self, waiting: Sequence[QueuedWorkload]) -> Iterator[Write]:
        """Consider the workloads in this order."""
        ahead: QueuedWorkload | None = None
        for workload in waiting:
            if ahead is not None and self.queue.strict:
                yield from _waiting(workload, _PENDING, f"waiting behind {ahead.key} in a StrictFIFO queue", self.now)
                continue
            need = _assign(workload, self.queue)
            if need.excess:
                ahead = ahead or workload
                yield from _waiting(workload, _PENDING, need.excess, self.now)
            elif self._fits(need, self.taken) and self._fits(need, self.promised):
                self.taken = plus(self.taken, need.total)
                self.promised = plus(self.promised, need.total)
                yield _admission(workload, self.queue, need, self.now)
            else:
                ahead = ahead or workload
                yield from self._hold(workload, need)

    def _hold(self, workload: QueuedWorkload, need: _Assigned) -> Iterator[Write]:
        lack = self._lack(need)
        victims: list[QueuedWorkload] = []
        if not self._fits(need, self.promised):
            victims = self._victims(workload, need)
            if not victims:
                yield from _waiting(workload, _PENDING, lack, self.now)
                return
        for victim in victims:
            self.leaving.add(victim.key)
            self.promised = minus(self.promised, admitted_usage(victim))
            yield _preemption(victim, workload, self.queue, self.now)
        self.promised = plus(self.promised, need.total)
        count = sum(1 for holder in self.holding if holder.key in self.leaving)
        yield from _waiting(workload, _PENDING, f"{lack}. Pending the preemption of {count} workload(s)", self.now)

    def _fits(self, need: _Assigned, used: ResourceList) -> bool:
        return all(used.get(name, 0) + amount <= self.queue.quota[name] for name, amount in need.total.items())

    def _lack(self, need: _Assigned) -> str:
        used = larger(self.taken, self.promised)
        faults = []
        for name, _, amounts in need.by_set:
            used = plus(used, amounts)
            missing = {resource: used[resource] - self.queue.quota[resource] for resource in amounts}
            reasons = [
                f"insufficient unused quota for {resource} in flavor {self.queue.flavor}, "
                f"{shown(resource, amount)} more needed"
                for resource, amount in sorted(missing.items())
                if amount > 0
            ]
            if reasons:
                faults.append(_about(name, reasons))
        return "; ".join(faults)

    def _victims(self, workload: QueuedWorkload, need: _Assigned) -> list[QueuedWorkload]:
        """The workloads to evict so that this one fits: as few and as unimportant as possible. Empty if none help."""
        scarce = {
            name for name, amount in need.total.items() if self.promised.get(name, 0) + amount > self.queue.quota[name]
        }
        candidates = [
            holder
            for holder in self.holding
            if holder.key not in self.leaving
            and self._may_preempt(workload, holder)
            and not scarce.isdisjoint(name for name, amount in admitted_usage(holder).items() if amount)
        ]
        # The least important first; among equals, the last ones admitted, which lose the least.
        candidates.sort(key=lambda holder: (holder.priority, -_reserved_since(holder), holder.key))
        left = self.promised
        chosen: list[QueuedWorkload] = []
        for candidate in candidates:
            if self._fits(need, left):
                break
            chosen.append(candidate)
            left = minus(left, admitted_usage(candidate))
        if not self._fits(need, left):
            return []
        for candidate in reversed(list(chosen)):
            with_it = plus(left, admitted_usage(candidate))
            if self._fits(need, with_it):
                chosen.remove(candidate)
                left = with_it
        return chosen

    def _may_preempt(self, workload: QueuedWorkload, holder: QueuedWorkload) -> bool:
        if self.queue.preemption == "Never":
            return False
        if holder.priority == workload.priority:
            return self.queue.preemption == "LowerOrNewerEqualPriority" and holder.created > workload.created
        return holder.priority < workload.priority


def _reserved_since(workload: QueuedWorkload) -> int:
    since = workload.condition(QUOTA_RESERVED).get("lastTransitionTime")
    return parse_time(since) if since else 0


def _about(pod_set: str, reasons: Iterable[str]) -> str:
    return f"couldn't assign flavors to pod set {pod_set}: {', '.join(reasons)}"


def _assign(workload: QueuedWorkload, queue: ClusterQueueRecord) -> _Assigned:
    assigned = _Assigned([], {}, "")
    faults = []
    for pod_set in workload.pod_sets:
        needs = {
            name: amount
            for name, amount in times(pod_set.requests, pod_set.count).items()
            # Every Pod is one of "pods", but that counts only if it has a quota.
            if amount and (name in queue.quota or name != "pods")
        }
        missing = [f"resource {name} unavailable in ClusterQueue" for name in sorted(needs) if name not in queue.quota]
        covered = {name: amount for name, amount in needs.items() if name in queue.quota}
        assigned.total = plus(assigned.total, covered)
        assigned.by_set.append((pod_set.name, pod_set.count, covered))
        missing += [
            f"insufficient quota for {name} in flavor {queue.flavor}, request > maximum capacity "
            f"({shown(name, assigned.total[name])} > {shown(name, queue.quota[name])})"
            for name in sorted(covered)
            if assigned.total[name] > queue.quota[name]
        ]
        if missing:
            faults.append(_about(pod_set.name, missing))
    assigned.excess = "; ".join(faults)
    return assigned


# --- writes ---


def _admission(workload: QueuedWorkload, queue: ClusterQueueRecord, need: _Assigned, now: int) -> Write:
    assignments = [
        {
            "name": name,
            "count": count,
            "flavors": dict.fromkeys(sorted(amounts), queue.flavor),
            "resourceUsage": {resource: shown(resource, amount) for resource, amount in sorted(amounts.items())},
        }
        for name, count, amounts in need.by_set
    ]
    conditions = _Conditions(workload, now)
    conditions.set(QUOTA_RESERVED, True, QUOTA_RESERVED, f"Quota reserved in ClusterQueue {queue.name}")
    for kind in (EVICTED, PREEMPTED):
        former = workload.condition(kind)
        if former.get("status") == "True":
            conditions.set(kind, False, QUOTA_RESERVED, f"Previously: {former.get('message', '')}")
    conditions.requeue()
    conditions.set(ADMITTED, True, ADMITTED, "The workload is admitted")
    admission = {"clusterQueue": queue.name, "podSetAssignments": assignments}
    return Write(workload, {"status": {"admission": admission, "conditions": conditions.all}})


def _preemption(victim: QueuedWorkload, workload: QueuedWorkload, queue: ClusterQueueRecord, now: int) -> Write:
    message = (
        f"Preempted for workload {workload.key} (UID: {workload.uid}) of priority {workload.priority} "
        f"in ClusterQueue {queue.name}"
    )
    return _eviction(victim, PREEMPTED, message, now, preempted="InClusterQueue")


def _eviction(workload: QueuedWorkload, reason: str, message: str, now: int, *, preempted: str = "") -> Write:
    conditions = _Conditions(workload, now)
    conditions.set(EVICTED, True, reason, message)
    conditions.all = [one for one in conditions.all if one.get("type") != DEACTIVATION_TARGET]
    if preempted:
        conditions.set(PREEMPTED, True, preempted, message)
    return Write(workload, {"status": {"conditions": conditions.all}})


def _waiting(workload: QueuedWorkload, reason: str, message: str, now: int) -> Iterator[Write]:
    """Say why a workload waits, unless it is said."""
    conditions = _Conditions(workload, now)
    conditions.set(QUOTA_RESERVED, False, reason, message)
    if reason != _INADMISSIBLE:
        conditions.requeue()
    if conditions.changed:
        yield Write(workload, {"status": {"conditions": conditions.all}})


class _Conditions:
    """The conditions of a workload, with changes. A patch has all of them, since it replaces the list."""

    def __init__(self, workload: QueuedWorkload, now: int) -> None:
        self.all: list[Condition] = list(workload.conditions)
        self.changed = False
        self._workload = workload
        self._now = now

    def set(self, kind: str, is_true: bool, reason: str, message: str) -> None:
        """Set a condition; its time changes only with its status."""
        status = "True" if is_true else "False"
        old = self._workload.condition(kind)
        if (old.get("status"), old.get("reason"), old.get("message")) == (status, reason, message):
            return
        since = old["lastTransitionTime"] if old.get("status") == status else format_time(self._now)
        new = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
            "observedGeneration": self._workload.generation,
        }
        self.all = [new if one is old else one for one in self.all] if old else [*self.all, new]
        self.changed = True

    def requeue(self) -> None:
        """Say that a workload is in the queue again whose eviction had taken it out."""
        former = self._workload.condition(REQUEUED)
        if former.get("status") == "False":
            reason = _REQUEUED_AFTER.get(former.get("reason", ""), "BackoffFinished")
            self.set(REQUEUED, True, reason, "The workload is in the queue again")
