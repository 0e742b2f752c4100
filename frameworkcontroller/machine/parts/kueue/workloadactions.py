"""The actions on Kueue's Workload of a Framework.

They read it live and decide by the result, as the cache may be behind.
Source: the API ``kueue.x-k8s.io/v1beta2``.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework, ObjectError
from frameworkcontroller.api.status import AdmissionStatus, AdmittedPodSet
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.api.workloads import (
    ADMITTED,
    DEACTIVATION_TARGET,
    IN_USE_FINALIZER,
    JOB_UID,
    PODS_READY,
    QUEUED_INPUTS,
    QUOTA_RESERVED,
    REQUEUED,
    WorkloadRecord,
    workload_record,
)
from frameworkcontroller.machine.kernel.actions import Create, PartAction
from frameworkcontroller.machine.kernel.exchanges import (
    ActionResult,
    Exchange,
    Gone,
    NotDoneError,
    Outdated,
    patched,
    read,
)
from frameworkcontroller.machine.kernel.manifests import framework_reference
from frameworkcontroller.machine.kernel.requests import (
    LARGE_BYTES,
    Answer,
    Answered,
    Get,
    Kind,
    Refusal,
    Refused,
    Request,
    Target,
    Unanswered,
)
from frameworkcontroller.machine.parts.kueue.workloadbodies import (
    Body,
    ConditionChange,
    admission_in,
    seconds_in_queue,
    true_since,
    with_changes,
)
from frameworkcontroller.machine.parts.kueue.workloadspec import API_VERSION, UNCONSTRAINED, WorkloadSpec, object_in

_REQUEUED_AT_ONCE: Final = frozenset({"Preempted", "NodeFailures"})
"""Reasons of evictions after which the owner says that the Workload may be queued again. After others, Kueue does."""

_DEACTIVATED: Final = "Deactivated"
"""Reason of the eviction of a deactivated Workload, and the beginning of it if Kueue has deactivated it."""


_TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"

_POD_SET: Final = "kueue.x-k8s.io/podset"

_WORKLOAD: Final = "kueue.x-k8s.io/workload"

_LOCAL_QUEUE: Final = "kueue.x-k8s.io/local-queue-name"

_CLUSTER_QUEUE: Final = "kueue.x-k8s.io/cluster-queue-name"

_LABEL_PATTERN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
"""Names of ClusterQueues that Kueue puts into a label of Pods."""


# --- results ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen(ActionResult):
    """The Workload is as ``record`` says, and nothing was done."""

    record: WorkloadRecord


@dataclass(frozen=True, slots=True)
class Unmet(ActionResult):
    """Nothing was done: something that the action needs is missing, or contradicts the spec."""

    message: str


@dataclass(frozen=True, slots=True)
class WasAdmitted(ActionResult):
    """Kueue has admitted the Framework. ``waited_sec``: its time in the queue, None if Kueue does not say."""

    admission: AdmissionStatus
    waited_sec: int | None = field(default=None, compare=False)


# --- actions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CreateWorkload(PartAction):
    """Create the Workload, with the priority of its class."""

    framework: Framework
    spec: WorkloadSpec

    @property
    def is_large(self) -> bool:
        return len(self.spec.pod_sets_json) > LARGE_BYTES

    def exchange(self) -> Exchange:
        priority = yield from _priority(self.spec)
        if isinstance(priority, Unmet):
            return priority
        framework, target = self.framework, self.target
        body = {
            "apiVersion": API_VERSION,
            "kind": "Workload",
            "metadata": {
                "name": target.name,
                "namespace": framework.namespace,
                "labels": {names.FRAMEWORK_NAME: framework.name, JOB_UID: framework.uid},
                "annotations": {QUEUED_INPUTS: self.spec.digest},
                "finalizers": [IN_USE_FINALIZER],
                "ownerReferences": [framework_reference(framework)],
            },
            "spec": _without_nulls(_spec_body(self.spec, priority)),
        }
        return (yield from Create(target, orjson.dumps(body), framework.uid).exchange())


@dataclass(frozen=True, slots=True, eq=False)
class UpdateWorkload(PartAction):
    """Update the spec of a Workload without quota; with ``priority_only``, the priority of any Workload.

    ``resource_version``: as the cache has shown it.
    """

    spec: WorkloadSpec
    uid: str
    resource_version: str
    priority_only: bool = False

    @property
    def is_large(self) -> bool:
        return len(self.spec.pod_sets_json) > LARGE_BYTES

    def exchange(self) -> Exchange:
        priority = yield from _priority(self.spec)
        if isinstance(priority, Unmet):
            return priority
        spec, change = _spec_body(self.spec, priority), {}
        if self.priority_only:
            change = {"spec": {key: spec[key] for key in ("priorityClassRef", "priority")}}
        else:
            change = {"metadata": {"annotations": {QUEUED_INPUTS: self.spec.digest}}, "spec": spec}
        return (yield from patched(self.target, self.uid, change, self.resource_version))


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadAction(PartAction):
    """An action on the Workload of that UID, which is read first."""

    uid: str

    def exchange(self) -> Exchange:
        found = yield from _read_workload(self.target)
        if found is None or found[0].uid != self.uid:
            return Gone()
        return (yield from self.change(*found))

    def change(self, record: WorkloadRecord, body: Body) -> Exchange:
        """The requests after the read."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Reclaim(WorkloadAction):
    """Release the quota of Tasks that need no Pod again. ``admission``: persisted, with their numbers.

    A webhook of Kueue refuses lower numbers while there is quota.
    """

    admission: AdmissionStatus

    def change(self, record: WorkloadRecord, body: Body) -> Exchange:
        before, numbers = dict(record.reclaimed), {}
        for name, count in record.counts:
            admitted = self.admission.pod_set(name)
            reclaimed = 0 if admitted is None else min(count, admitted.reclaimed)
            numbers[name] = max(reclaimed, before.get(name, 0))
        reclaimable = [{"name": name, "count": number} for name, number in numbers.items() if number]
        if dict(record.reclaimed) == {one["name"]: one["count"] for one in reclaimable}:
            return Seen(record)
        change = {"status": {"reclaimablePods": reclaimable}}
        return (yield from patched(self.target, record.uid, change, record.resource_version, "status"))


@dataclass(frozen=True, slots=True, eq=False)
class ShowCheckpoint(PartAction):
    """Show on the Workload of that UID when the last checkpoint was reported. ``time``: as text."""

    uid: str
    time: str

    def exchange(self) -> Exchange:
        change = {"metadata": {"annotations": {names.LAST_CHECKPOINT: self.time}}}
        return (yield from patched(self.target, self.uid, change))


@dataclass(frozen=True, slots=True, eq=False)
class ReadWorkload(PartAction):
    """Read the Workload live. ``seen``: the resourceVersion in the cache, "" if it shows none."""

    seen: str

    def exchange(self) -> Exchange:
        found = yield from _read_workload(self.target)
        return Gone() if found is None else Seen(found[0])


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseQuota(WorkloadAction):
    """Clear the reservation of an evicted Workload, or of one with reclaimed quota. Nothing of it runs.

    ``now``: seconds since the epoch. The Workload keeps its place in the queue.
    """

    now: int
    needs_live: ClassVar[bool] = True

    def change(self, record: WorkloadRecord, body: Body) -> Exchange:
        evicted = bool(record.evicted and record.reserves)
        if not (evicted or record.reclaimed) or record.identity.deleting:
            return Seen(record)
        status = body.get("status") or {}
        why = record.evicted.message if evicted else "The next attempt needs the quota of completed Tasks again"
        changes = [
            ConditionChange(QUOTA_RESERVED, False, "Pending", why),
            ConditionChange(ADMITTED, False, "NoReservation", "The workload has no reservation"),
        ]
        if evicted:
            found_reason = record.evicted.reason
            requeued = found_reason in _REQUEUED_AT_ONCE
            # Kueue 0.19 queues a reactivated Workload again only after this very reason, and deactivates it again while
            # it has the condition DeactivationTarget, which Kueue sets a second time after the longest execution time.
            reason = _DEACTIVATED if found_reason.startswith(_DEACTIVATED) else found_reason or "Evicted"
            changes.append(ConditionChange(REQUEUED, requeued, reason, why))
        if record.pods_ready.status:
            # Its Pods have their own time after the next admission.
            changes.append(ConditionChange(PODS_READY, False, "WaitForStart", "The Framework has no quota"))
        conditions = with_changes(body, changes, self.now)
        conditions = [one for one in conditions if one.get("type") != DEACTIVATION_TARGET]
        change: dict[str, Any] = {"admission": None, "conditions": conditions}
        if record.reclaimed:
            change["reclaimablePods"] = None
        if not evicted and (checks := status.get("admissionChecks")):
            # After an eviction, Kueue does it.
            change["admissionChecks"] = [_pending_check(one, self.now) for one in checks]
        if (since := true_since(body, ADMITTED)) is not None:
            before = status.get("accumulatedPastExecutionTimeSeconds") or 0
            change["accumulatedPastExecutionTimeSeconds"] = before + max(0, self.now - since)
        return (yield from patched(self.target, self.uid, {"status": change}, record.resource_version, "status"))


def _pending_check(check: Mapping[str, Any], now: int) -> Body:
    """The admission check before its decision on another reservation."""
    kept = {key: value for key, value in check.items() if key != "podSetUpdates"}
    return {**kept, "state": "Pending", "message": "The quota was released", "lastTransitionTime": format_time(now)}


@dataclass(frozen=True, slots=True, eq=False)
class SetCondition(WorkloadAction):
    """Set a condition of the Workload. ``now``: seconds since the epoch."""

    condition: ConditionChange
    now: int

    def change(self, record: WorkloadRecord, body: Body) -> Exchange:
        change = {"status": {"conditions": with_changes(body, [self.condition], self.now)}}
        return (yield from patched(self.target, self.uid, change, record.resource_version, "status"))


@dataclass(frozen=True, slots=True, eq=False)
class Finish(SetCondition):
    """Set the condition Finished, unless it is True, then remove the finalizer."""

    needs_live: ClassVar[bool] = True

    def change(self, record: WorkloadRecord, body: Body) -> Exchange:
        if not record.finished:
            result = yield from SetCondition.change(self, record, body)
            if isinstance(result, Gone | Outdated):
                return result
        return (yield from RemoveFinalizer(self.target, self.uid).exchange())


@dataclass(frozen=True, slots=True, eq=False)
class RemoveFinalizer(WorkloadAction):
    """Remove the finalizer of a Workload that is being deleted. Nothing of it runs.

    ``owner``: the UID of the Framework that it must belong to, "" for any.
    """

    owner: str = ""
    needs_live: ClassVar[bool] = True

    def change(self, record: WorkloadRecord, body: Body) -> Exchange:
        if not record.in_use or (self.owner and record.owner_uid != self.owner):
            return Seen(record)
        others = [one for one in body["metadata"].get("finalizers") or () if one != IN_USE_FINALIZER]
        change = {"metadata": {"finalizers": others}}
        return (yield from patched(self.target, self.uid, change, record.resource_version))


@dataclass(frozen=True, slots=True, eq=False)
class ReadAdmission(WorkloadAction):
    """Read the admission and its additions to the Pods. ``queue_name``, ``spec``: the request."""

    queue_name: str
    spec: WorkloadSpec

    def change(self, record: WorkloadRecord, body: Body) -> Exchange:
        if not is_admitted(record) or not self._is_asked_for(record):
            return Seen(record)
        assigned = {one.get("name"): one for one in admission_in(body).get("podSetAssignments") or ()}
        flavors: dict[str, dict[str, Any]] = {}
        for one in assigned.values():
            for flavor in (one.get("flavors") or {}).values():
                if flavor not in flavors:
                    read = yield from _read_spec_of(Kind.RESOURCE_FLAVOR, flavor)
                    if isinstance(read, Unmet):
                        return read
                    flavors[flavor] = read
        pod_sets = []
        for wanted in self.spec.pod_sets:
            name = str(wanted["name"])
            of_role = assigned.get(name)
            if of_role is None:
                return Seen(record)
            pod_set = self._pod_set(wanted, of_role, flavors, body)
            if isinstance(pod_set, Unmet):
                return pod_set
            pod_sets.append(pod_set)
        cluster_queue = str(admission_in(body).get("clusterQueue") or "")
        admission = AdmissionStatus(self.queue_name, self.target.name, self.uid, cluster_queue, pod_sets)
        return WasAdmitted(admission, seconds_in_queue(body))

    def _is_asked_for(self, record: WorkloadRecord) -> bool:
        found = record.queued_inputs, record.queue_name, dict(record.counts), record.reclaimed
        return found == (self.spec.digest, self.queue_name, self.spec.counts, ())

    def _pod_set(
        self,
        wanted: Mapping[str, Any],
        assigned: Mapping[str, Any],
        flavors: Mapping[str, Mapping[str, Any]],
        body: Mapping[str, Any],
    ) -> AdmittedPodSet | Unmet:
        """The additions of flavors and admission checks to the Pods of a role."""
        name = str(wanted["name"])
        template = wanted["template"]
        used = dict.fromkeys((assigned.get("flavors") or {}).values())
        labels: dict[str, str] = {_POD_SET: name, _LOCAL_QUEUE: self.queue_name}
        if _LABEL_PATTERN.fullmatch(cluster_queue := str(admission_in(body).get("clusterQueue") or "")):
            labels[_CLUSTER_QUEUE] = cluster_queue
        annotations: dict[str, str] = {_WORKLOAD: self.target.name}
        selector: dict[str, str] = {}
        tolerations: list[dict[str, Any]] = []
        sources = [({"nodeSelector": flavors[one].get("nodeLabels")}, f"ResourceFlavor {one}") for one in used]
        for one in used:
            tolerations += flavors[one].get("tolerations") or ()
        for check in (body.get("status") or {}).get("admissionChecks") or ():
            for update in check.get("podSetUpdates") or ():
                if update.get("name") == name:
                    sources.append((update, f"admission check {check.get('name')}"))
                    tolerations += update.get("tolerations") or ()
        own = {"nodeSelector": template["spec"].get("nodeSelector"), **template["metadata"]}
        for source, said_by in sources:
            for kind, merged in (("nodeSelector", selector), ("labels", labels), ("annotations", annotations)):
                for key, value in (source.get(kind) or {}).items():
                    others = {object_in(own.get(kind)).get(key, value), merged.get(key, value)} - {value}
                    if others:
                        where = f"the Pods of TaskRole {name}: {kind} {key}"
                        return Unmet(f"{said_by} asks for {value!r} in {where}, which is {min(others)!r} already")
                    merged[key] = value
        gates = []
        if assigned.get("topologyAssignment") is not None or assigned.get("delayedTopologyRequest"):
            gates.append(_TOPOLOGY_GATE)
            if "topologyRequest" not in wanted:
                annotations.setdefault(UNCONSTRAINED, "true")
        count = int(assigned.get("count", wanted["count"]))
        if count < wanted["count"]:
            text = f"Kueue has admitted {count} of the {wanted['count']} Tasks of TaskRole {name}"
            return Unmet(f"{text}, which is not supported: remove minCount from Workload {self.target.name}")
        return AdmittedPodSet(
            name,
            count,
            self.spec.digests[name],
            selector,
            tolerations,
            labels,
            annotations,
            gates,
        )


def is_admitted(record: WorkloadRecord) -> bool:
    """Whether the Workload is admitted, and nothing takes that back."""
    gone = record.identity.deleting or record.evicted or record.finished
    return bool(record.admitted and record.reserves and not gone)


# --- parts of exchanges -----------------------------------------------------------------------------------------


def _read_workload(target: Target) -> Generator[Request, Answer, tuple[WorkloadRecord, Body] | None]:
    """Read the Workload, None if there is none."""
    if (raw := (yield from read(Kind.WORKLOAD, target.name, whole=True))) is None:
        return None
    try:
        body = orjson.loads(raw)
        return workload_record(body), body
    except (orjson.JSONDecodeError, ObjectError, TypeError) as error:
        raise NotDoneError(Unanswered(f"the API server's answer is not a valid Workload: {error}")) from error


def _read_spec_of(kind: Kind, name: str) -> Generator[Request, Answer, Body | Unmet]:
    """The spec of a cluster-wide object, or its fields if it has no spec."""
    answer = yield Get(kind, name, whole=True)
    match answer:
        case Answered(body=raw):
            try:
                body = orjson.loads(raw)
                return object_in(body.get("spec")) if kind is Kind.RESOURCE_FLAVOR else dict(body)
            except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError) as error:
                raise NotDoneError(Unanswered(f"the API server's answer is not a valid {kind}: {error}")) from error
        case Refused(kind=Refusal.OBJECT_NOT_FOUND):
            return Unmet(f"{kind} {name} does not exist")
        case Refused(by_api=True, code=403 | 404 as code, message=message):
            return Unmet(f"{kind} {name} cannot be read: {code}: {message}")
    raise NotDoneError(answer)


def _priority(spec: WorkloadSpec) -> Generator[Request, Answer, tuple[Body | None, int | None] | Unmet]:
    """The reference to the priority class of the Workload, and its value."""
    for kind, group, name in (
        (Kind.WORKLOAD_PRIORITY_CLASS, "kueue.x-k8s.io", spec.priority_class),
        (Kind.PRIORITY_CLASS, "scheduling.k8s.io", spec.pod_priority_class),
    ):
        if name:
            read = yield from _read_spec_of(kind, name)
            if isinstance(read, Unmet):
                return read
            value = read.get("value")
            return {"group": group, "kind": str(kind), "name": name}, value if isinstance(value, int) else 0
    return None, None


def _spec_body(spec: WorkloadSpec, priority: tuple[Body | None, int | None]) -> Body:
    return {
        "queueName": spec.queue_name,
        "podSets": spec.pod_sets,
        "maximumExecutionTimeSeconds": spec.max_execution_seconds,
        "priorityClassRef": priority[0],
        "priority": priority[1],
    }


def _without_nulls(body: Body) -> Body:
    return {key: value for key, value in body.items() if value is not None}
