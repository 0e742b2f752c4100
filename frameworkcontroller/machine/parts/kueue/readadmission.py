"""The live read of an admission by Kueue, and what it adds to the Pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.status import AdmissionStatus, AdmittedPodSet
from frameworkcontroller.api.workloads import ADMITTED, REQUEUED, WorkloadRecord
from frameworkcontroller.machine.kernel.actions import PartAction
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.results import Exchange, Gone, PartResult
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    Body,
    Seen,
    Unmet,
    admission_in,
    is_admitted,
    read_spec_of,
    read_workload,
    time_in,
    true_since,
)
from frameworkcontroller.machine.parts.kueue.workloadspec import UNCONSTRAINED, WorkloadSpec, object_in

TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"


_POD_SET: Final = "kueue.x-k8s.io/podset"


_WORKLOAD: Final = "kueue.x-k8s.io/workload"


_LOCAL_QUEUE: Final = "kueue.x-k8s.io/local-queue-name"


_CLUSTER_QUEUE: Final = "kueue.x-k8s.io/cluster-queue-name"


_LABEL_PATTERN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
"""Names of ClusterQueues that Kueue puts into a label of Pods."""


@dataclass(frozen=True, slots=True)
class WasAdmitted(PartResult):
    """Kueue has admitted the Framework. ``waited_sec``: its time in the queue, None if Kueue does not say."""

    admission: AdmissionStatus
    waited_sec: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class ReadAdmission(PartAction):
    """Read the admission, and what it adds to the Pods. ``queue_name`` and ``digest``: what is to be admitted."""

    framework: Framework
    queue_name: str
    spec: WorkloadSpec
    uid: str

    def exchange(self) -> Exchange:
        found = yield from read_workload(self.target)
        if found is None:
            return Gone()
        record, body = found
        if not is_admitted(record) or record.uid != self.uid or not self._is_asked_for(record):
            return Seen(record)
        assigned = {one.get("name"): one for one in admission_in(body).get("podSetAssignments") or ()}
        flavors: dict[str, dict[str, Any]] = {}
        for one in assigned.values():
            for flavor in (one.get("flavors") or {}).values():
                if flavor not in flavors:
                    read = yield from read_spec_of(Kind.RESOURCE_FLAVOR, flavor)
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
        return WasAdmitted(admission, _seconds_in_queue(body))

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
        """What the Pods of a role get: of its flavors, and of the admission checks."""
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
            gates.append(TOPOLOGY_GATE)
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


def _seconds_in_queue(body: Body) -> int | None:
    """Seconds until a Workload was admitted: since it was created, or queued again after an eviction."""
    status = object_in(body.get("status"))
    until, since = true_since(status, ADMITTED), true_since(status, REQUEUED)
    if since is None:
        since = time_in(body["metadata"].get("creationTimestamp"))
    return None if until is None or since is None else max(0, until - since)
