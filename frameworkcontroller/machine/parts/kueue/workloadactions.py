"""Kueue's Workload of a Framework: its body, and the actions on it.

The actions read it live, and decide by what they read: the cache may be behind. kueue.py says when which one is due,
and folds their results. Source: the API ``kueue.x-k8s.io/v1beta2``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import dumps_to_keep
from frameworkcontroller.api.objects import Framework, ObjectError, QueueLabels
from frameworkcontroller.api.problems import KeyPath, Problem
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import AdmissionStatus, AdmittedPodSet
from frameworkcontroller.api.timestamps import format_time, parse_time
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
from frameworkcontroller.machine.kernel.actions import (
    Create,
    Exchange,
    Gone,
    NotDoneError,
    Outdated,
    PartAction,
    PartResult,
    Target,
    patched,
)
from frameworkcontroller.machine.kernel.manifests import filled, filled_size, framework_reference
from frameworkcontroller.machine.kernel.requests import (
    LARGE_BYTES,
    MAX_BODY_BYTES,
    Answer,
    Answered,
    Get,
    Kind,
    Refusal,
    Refused,
    Request,
    Unanswered,
)

API_VERSION: Final = "kueue.x-k8s.io/v1beta2"

MAX_POD_SETS: Final = 18
"""The number of podSets that a Workload may have."""

_DIGEST_VERSION: Final = "1"
"""Changes with the inputs of digests: digests of two versions cannot be compared."""

TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
_POD_SET: Final = "kueue.x-k8s.io/podset"
_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_LOCAL_QUEUE: Final = "kueue.x-k8s.io/local-queue-name"
_CLUSTER_QUEUE: Final = "kueue.x-k8s.io/cluster-queue-name"
_UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"

_TOPOLOGY_TEXTS: Final = {
    "kueue.x-k8s.io/podset-required-topology": "required",
    "kueue.x-k8s.io/podset-preferred-topology": "preferred",
    "kueue.x-k8s.io/podset-group-name": "podSetGroupName",
    "kueue.x-k8s.io/podset-slice-required-topology": "podSetSliceRequiredTopology",
}
"""Annotations of Pod templates, and the fields of a topologyRequest that they stand for."""
_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"

_KEPT_OF_POD: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "schedulerName",
    "runtimeClassName",
    "overhead",
    "resourceClaims",
    "resources",
)
"""Fields of Pods that scheduling and quota depend on."""
_KEPT_OF_CONTAINER: Final = ("name", "image", "resources", "restartPolicy")
_AMOUNTS: Final = ("resources", "overhead")
"""Fields of Pods and containers that are sums of quota."""


def _pattern(*placeholders: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(one) for one in placeholders))


_OF_TASKS: Final = _pattern(*map(names.placeholder, (names.TASK_INDEX, names.POD_NAME)))
_OF_TASKS_IN_NETWORKS: Final = _pattern(
    *map(names.placeholder, (names.TASK_INDEX, names.POD_NAME, *names.NETWORK_PLACEHOLDERS)), "{{FC_HOSTS"
)

_REQUEUED_AT_ONCE: Final = frozenset({"Preempted", "NodeFailures"})
"""Reasons of evictions after which the owner says that the Workload may be queued again. After others, Kueue does."""

_DEACTIVATED: Final = "Deactivated"
"""Reason of the eviction of a deactivated Workload, and the beginning of it if Kueue has deactivated it."""

_MAX_MESSAGE: Final = 32768

_LABEL_PATTERN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
"""Names of ClusterQueues that Kueue puts into a label of Pods."""

_SECONDS_PATTERN: Final = re.compile(r"[1-9][0-9]{0,8}")
_SIZE_PATTERN: Final = re.compile(r"[0-9]{1,9}")
"""A number that fits the Workload's int32."""


# --- the spec of the Workload -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkloadSpec:
    """The spec that the Workload of a Framework is to have, without its priority, which is read."""

    queue_name: str
    pod_sets_json: bytes
    """Text, because it is kept while the Framework is queued."""
    counts: Mapping[str, int]
    """The numbers of Tasks by role."""
    digests: Mapping[str, str]
    """By role, of what counts for an admission: other changes of a template have no effect on it."""
    priority_class: str
    """A WorkloadPriorityClass, "" for none."""
    pod_priority_class: str
    """The priority class of the Pods of the first role, "" for none."""
    max_execution_seconds: int | None
    problem: Problem | None = None
    """A placeholder in a field that counts: the Pods could need something else than Kueue admits."""

    @property
    def pod_sets(self) -> list[dict[str, Any]]:
        """The podSets, decoded at each call."""
        decoded: list[dict[str, Any]] = orjson.loads(self.pod_sets_json)
        return decoded

    @cached_property
    def digest(self) -> str:
        """Digest of all podSets."""
        return _digest([[role, count, self.digests[role]] for role, count in self.counts.items()])

    @property
    def priority_source(self) -> tuple[str, str]:
        """Kind and name of the priority class, "" for none."""
        if self.priority_class:
            return Kind.WORKLOAD_PRIORITY_CLASS, self.priority_class
        return (Kind.PRIORITY_CLASS, self.pod_priority_class) if self.pod_priority_class else ("", "")

    def count(self, role: str) -> int:
        """The number of Tasks of the role."""
        return self.counts.get(role, 0)


def workload_spec(framework: Framework, queue: QueueLabels) -> WorkloadSpec:
    """The spec of the Workload of a Framework with these labels. One that is not valid counts as absent."""
    roles = framework.spec.task_roles
    pod_sets, digests, found = [], {}, None
    for position, role in enumerate(roles):
        pod_set, counted = _pod_set(framework, role), []
        if problem := _uncountable(framework, role):
            counted.append(str(problem))
            found = found or replace(problem, path=("spec", "taskRoles", position, "task", "pod", *problem.path))
        pod_sets.append(pod_set)
        digests[role.name] = _digest(_counting(pod_set) + counted)
    first = next((one["template"]["spec"].get("priorityClassName") for one in pod_sets), None)
    return WorkloadSpec(
        queue.queue_name,
        dumps_to_keep(pod_sets),
        {role.name: role.task_number for role in roles},
        digests,
        queue.priority_class,
        first if isinstance(first, str) else "",
        seconds_in(queue.max_execution_seconds),
        found,
    )


def seconds_in(label: str) -> int | None:
    """The number of seconds above 0 that a label says, None if it says none."""
    return int(label) if _SECONDS_PATTERN.fullmatch(label) else None


def is_same(digest: str, other: str) -> bool:
    """Whether two digests of podSets are equal, or cannot be compared, as another version of this program made one."""
    return digest == other or digest.partition(":")[0] != other.partition(":")[0]


def _digest(value: Any) -> str:
    encoded = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return f"{_DIGEST_VERSION}:{hashlib.blake2b(encoded, digest_size=10).hexdigest()}"


def _counting(pod_set: Mapping[str, Any]) -> list[Any]:
    """What counts for an admission: not labels, annotations and images."""
    spec = dict(pod_set["template"]["spec"])
    for listed in ("initContainers", "containers"):
        if isinstance(containers := spec.get(listed), list):
            spec[listed] = [
                {key: value for key, value in one.items() if key != "image"} if isinstance(one, dict) else one
                for one in containers
            ]
    return [spec, pod_set.get("topologyRequest")]


def _pod_set(framework: Framework, role: TaskRoleSpec) -> dict[str, Any]:
    template = _rendered(framework, role)
    metadata, spec = _object(template.get("metadata")), _object(template.get("spec"))
    labels, annotations = _object(metadata.get("labels")), _object(metadata.get("annotations"))
    reduced = {name: spec[name] for name in _KEPT_OF_POD if spec.get(name) is not None}
    for listed in ("initContainers", "containers"):
        if isinstance(containers := spec.get(listed), list):
            reduced[listed] = [_reduced_container(one) for one in containers]
    body: dict[str, Any] = {
        "name": role.name,
        "count": role.task_number,
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": reduced},
    }
    if request := _topology_request(annotations):
        body["topologyRequest"] = request
    return body


def _names_of(framework: Framework, role: TaskRoleSpec) -> dict[str, str]:
    """The values of placeholders that are the same in all Pods of a role, in every attempt."""
    return {
        names.FRAMEWORK_NAMESPACE: framework.namespace,
        names.CONFIGMAP_NAME: names.configmap_name(framework.name),
        names.FRAMEWORK_NAME: framework.name,
        names.TASKROLE_NAME: role.name,
    }


def _rendered(framework: Framework, role: TaskRoleSpec) -> dict[str, Any]:
    """The Pod template of the role with the values of its first Task: an API server refuses placeholders in labels."""
    raw = role.task.pod.text
    values = _names_of(framework, role)
    values |= {names.POD_NAME: names.pod_name(framework.name, role.name, 0), names.TASK_INDEX: "0"}
    if framework.spec.has_network_placeholders:
        values |= dict.fromkeys(names.NETWORK_PLACEHOLDERS, "0")
    words = {names.placeholder(name).encode(): value.encode() for name, value in values.items()}
    # If it becomes too large for a Workload, it stays as it is: an API server refuses placeholders in labels, too.
    rendered: dict[str, Any] = orjson.loads(filled(raw, words) if filled_size(raw, words) <= MAX_BODY_BYTES else raw)
    return rendered


def _uncountable(framework: Framework, role: TaskRoleSpec) -> Problem | None:
    """A placeholder in the role's template where all Tasks need the same value, which Kueue has to know."""
    raw = role.task.pod.text
    if b"{{FC_" not in raw:
        return None
    words = {names.placeholder(name).encode(): value.encode() for name, value in _names_of(framework, role).items()}
    if filled_size(raw, words) > MAX_BODY_BYTES:
        # No Pod of it is created.
        return None
    pattern = _OF_TASKS_IN_NETWORKS if framework.spec.has_network_placeholders else _OF_TASKS
    for path, text in _counting_texts(orjson.loads(filled(raw, words))):
        if pattern.search(text):
            return Problem(
                path,
                "a placeholder has another value in each Pod, and Kueue admits all Pods of a role by one template",
                text,
            )
    for path, text in _counting_texts(role.task.pod.decoded()):
        if "{{FC_" in text and any(field in path for field in _AMOUNTS):
            return Problem(path, "an amount that counts for Kueue's quota must not have a placeholder", text)
    return None


def _counting_texts(template: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield each string that counts for an admission, and the keys of the mappings that have the fields that do."""
    metadata, spec = _object(template.get("metadata")), _object(template.get("spec"))
    yield from _keys((), template)
    yield from _keys(("metadata",), metadata)
    yield from _keys(("spec",), spec)
    for name in _KEPT_OF_POD:
        yield from _texts(("spec", name), spec.get(name))
    for listed in ("initContainers", "containers"):
        containers = spec.get(listed)
        for position, container in enumerate(containers if isinstance(containers, list) else ()):
            path = ("spec", listed, position)
            yield from _keys(path, _object(container))
            for name in ("resources", "restartPolicy"):
                yield from _texts((*path, name), _object(container).get(name))
    annotations = _object(metadata.get("annotations"))
    for name in (*_TOPOLOGY_TEXTS, _UNCONSTRAINED, _SLICE_SIZE):
        yield from _texts(("metadata", "annotations", name), annotations.get(name))


def _keys(path: KeyPath, found: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    return ((path, key) for key in found)


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        yield from _keys(path, value)
        for key, inner in value.items():
            yield from _texts((*path, key), inner)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _texts((*path, position), inner)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _reduced_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    return {name: container[name] for name in _KEPT_OF_CONTAINER if container.get(name) is not None}


def _topology_request(annotations: Mapping[str, Any]) -> dict[str, Any]:
    request = {key: annotations[name] for name, key in _TOPOLOGY_TEXTS.items() if annotations.get(name)}
    if annotations.get(_UNCONSTRAINED) == "true":
        request["unconstrained"] = True
    size = annotations.get(_SLICE_SIZE)
    if isinstance(size, str) and _SIZE_PATTERN.fullmatch(size):
        request["podSetSliceSize"] = int(size)
    return {**request, "podIndexLabel": names.TASK_INDEX} if request else {}


# --- results ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen(PartResult):
    """The Workload is as ``record`` says, and nothing was done."""

    record: WorkloadRecord


@dataclass(frozen=True, slots=True)
class WasAdmitted(PartResult):
    """Kueue has admitted the Framework. ``waited_sec``: its time in the queue, None if Kueue does not say."""

    admission: AdmissionStatus
    waited_sec: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Unmet(PartResult):
    """Nothing was done: something that the action needs is missing, or contradicts the spec."""

    message: str


# --- actions ----------------------------------------------------------------------------------------------------

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class EnterQueue(PartAction):
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
class ChangeRequest(PartAction):
    """Make the spec of a Workload without quota that of the Framework; with ``priority_only``, of any one its priority.

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
class Reclaim(PartAction):
    """Give the quota of Tasks back that need no Pod again. ``admission``: persisted, with their numbers.

    A webhook of Kueue refuses lower numbers while there is quota.
    """

    admission: AdmissionStatus

    def exchange(self) -> Exchange:
        found = yield from _read(self.target)
        if found is None or found[0].uid != self.admission.workload_uid:
            return Gone()
        record, _ = found
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
class Inspect(PartAction):
    """Read the Workload live. ``seen``: the resourceVersion in the cache, "" if it shows none."""

    seen: str

    def exchange(self) -> Exchange:
        found = yield from _read(self.target)
        return Gone() if found is None else Seen(found[0])


@dataclass(frozen=True, slots=True, eq=False)
class ReadAdmission(PartAction):
    """Read the admission, and what it adds to the Pods. ``queue_name`` and ``digest``: what is to be admitted."""

    framework: Framework
    queue_name: str
    spec: WorkloadSpec
    uid: str

    def exchange(self) -> Exchange:
        found = yield from _read(self.target)
        if found is None:
            return Gone()
        record, body = found
        if not is_admitted(record) or record.uid != self.uid or not self._is_asked_for(record):
            return Seen(record)
        assigned = {one.get("name"): one for one in _admission(body).get("podSetAssignments") or ()}
        flavors: dict[str, dict[str, Any]] = {}
        for one in assigned.values():
            for flavor in (one.get("flavors") or {}).values():
                if flavor not in flavors:
                    read = yield from _spec_of(Kind.RESOURCE_FLAVOR, flavor)
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
        cluster_queue = str(_admission(body).get("clusterQueue") or "")
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
        if _LABEL_PATTERN.fullmatch(cluster_queue := str(_admission(body).get("clusterQueue") or "")):
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
                    others = {_object(own.get(kind)).get(key, value), merged.get(key, value)} - {value}
                    if others:
                        where = f"the Pods of TaskRole {name}: {kind} {key}"
                        return Unmet(f"{said_by} asks for {value!r} in {where}, which is {min(others)!r} already")
                    merged[key] = value
        gates = []
        if assigned.get("topologyAssignment") is not None or assigned.get("delayedTopologyRequest"):
            gates.append(TOPOLOGY_GATE)
            if "topologyRequest" not in wanted:
                annotations.setdefault(_UNCONSTRAINED, "true")
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


@dataclass(frozen=True, slots=True, eq=False)
class GiveBack(PartAction):
    """Clear the reservation of a Workload of which nothing runs: of an evicted one, or of one that has reclaimed quota.

    ``now``: seconds since the epoch. The Workload keeps its place in the queue.
    """

    uid: str
    now: int
    needs_live: ClassVar[bool] = True

    def exchange(self) -> Exchange:
        found = yield from _read(self.target)
        if found is None or found[0].uid != self.uid:
            return Gone()
        record, body = found
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
        conditions = _with_changes(body, changes, self.now)
        conditions = [one for one in conditions if one.get("type") != DEACTIVATION_TARGET]
        change: dict[str, Any] = {"admission": None, "conditions": conditions}
        if record.reclaimed:
            change["reclaimablePods"] = None
        if not evicted and (checks := status.get("admissionChecks")):
            # After an eviction, Kueue does it.
            change["admissionChecks"] = [_pending_check(one, self.now) for one in checks]
        if (ran := _seconds_since_admission(status, self.now)) is not None:
            before = status.get("accumulatedPastExecutionTimeSeconds") or 0
            change["accumulatedPastExecutionTimeSeconds"] = before + ran
        return (yield from patched(self.target, self.uid, {"status": change}, record.resource_version, "status"))


def _pending_check(check: Mapping[str, Any], now: int) -> Body:
    """The admission check before its decision on another reservation."""
    kept = {key: value for key, value in check.items() if key != "podSetUpdates"}
    return {**kept, "state": "Pending", "message": "The quota was given back", "lastTransitionTime": format_time(now)}


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """A condition of a Workload to be set."""

    type: str
    is_true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Tell(PartAction):
    """Set a condition of the Workload. ``now``: seconds since the epoch."""

    uid: str
    change: ConditionChange
    now: int

    def exchange(self) -> Exchange:
        found = yield from _read(self.target)
        if found is None or found[0].uid != self.uid:
            return Gone()
        return (yield from _tell(self.target, *found, [self.change], self.now))


@dataclass(frozen=True, slots=True, eq=False)
class Finish(PartAction):
    """Set the condition Finished, unless it is True, then remove the finalizer."""

    uid: str
    change: ConditionChange
    now: int
    needs_live: ClassVar[bool] = True

    def exchange(self) -> Exchange:
        found = yield from _read(self.target)
        if found is None or found[0].uid != self.uid:
            return Gone()
        if not found[0].finished:
            told = yield from _tell(self.target, *found, [self.change], self.now)
            if isinstance(told, Gone | Outdated):
                return told
        return (yield from _let_go(self.target, self.uid))


@dataclass(frozen=True, slots=True, eq=False)
class LetGo(PartAction):
    """Remove the finalizer of a Workload that is being deleted, and of which nothing runs."""

    uid: str
    needs_live: ClassVar[bool] = True

    def exchange(self) -> Exchange:
        return (yield from _let_go(self.target, self.uid))


def is_admitted(record: WorkloadRecord) -> bool:
    """Whether the Workload is admitted, and nothing takes that back."""
    gone = record.identity.deleting or record.evicted or record.finished
    return bool(record.admitted and record.reserves and not gone)


# --- parts of exchanges -----------------------------------------------------------------------------------------


def _read(target: Target) -> Generator[Request, Answer, tuple[WorkloadRecord, Body] | None]:
    """Read the Workload, None if there is none."""
    answer = yield Get(Kind.WORKLOAD, target.name, whole=True)
    match answer:
        case Answered(body=raw):
            try:
                body = orjson.loads(raw)
                return workload_record(body), body
            except (orjson.JSONDecodeError, ObjectError, TypeError) as error:
                raise NotDoneError(Unanswered(f"the API server's answer is not a valid Workload: {error}")) from error
        case Refused(kind=Refusal.OBJECT_NOT_FOUND):
            return None
    raise NotDoneError(answer)


def _spec_of(kind: Kind, name: str) -> Generator[Request, Answer, Body | Unmet]:
    """The spec of a cluster-wide object, or its fields if it has no spec."""
    answer = yield Get(kind, name, whole=True)
    match answer:
        case Answered(body=raw):
            try:
                body = orjson.loads(raw)
                return _object(body.get("spec")) if kind is Kind.RESOURCE_FLAVOR else dict(body)
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
            read = yield from _spec_of(kind, name)
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


def _admission(body: Mapping[str, Any]) -> Body:
    return _object(_object(body.get("status")).get("admission"))


def _conditions(body: Mapping[str, Any]) -> list[Body]:
    return list(_object(body.get("status")).get("conditions") or ())


def _with_changes(body: Mapping[str, Any], changes: Iterable[ConditionChange], now: int) -> list[Body]:
    """All conditions, with the changes: a merge patch replaces lists."""
    conditions = _conditions(body)
    generation = body["metadata"].get("generation") or 0
    for change in changes:
        status = "True" if change.is_true else "False"
        old = next((one for one in conditions if one.get("type") == change.type), None)
        is_new = old is None or old.get("status") != status
        fresh = {
            "type": change.type,
            "status": status,
            "reason": change.reason,
            # It is required, and Kubernetes 1.20 takes an empty text for an absent one.
            "message": change.message[:_MAX_MESSAGE] or change.reason,
            "lastTransitionTime": format_time(now) if is_new else (old or {}).get("lastTransitionTime"),
            "observedGeneration": generation,
        }
        if old is None:
            conditions.append(fresh)
        else:
            conditions[conditions.index(old)] = fresh
    return conditions


def _seconds_since_admission(status: Mapping[str, Any], now: int) -> int | None:
    """Seconds since the Workload was admitted, None if it is not."""
    since = _true_since(status, ADMITTED)
    return None if since is None else max(0, now - since)


def _seconds_in_queue(body: Body) -> int | None:
    """Seconds until a Workload was admitted: since it was created, or queued again after an eviction."""
    status = _object(body.get("status"))
    until, since = _true_since(status, ADMITTED), _true_since(status, REQUEUED)
    if since is None:
        since = _time(body["metadata"].get("creationTimestamp"))
    return None if until is None or since is None else max(0, until - since)


def _true_since(status: Mapping[str, Any], kind: str) -> int | None:
    """Since when the condition is True, None if it is not."""
    for one in status.get("conditions") or ():
        if one.get("type") == kind and one.get("status") == "True":
            return _time(one.get("lastTransitionTime"))
    return None


def _time(text: Any) -> int | None:
    try:
        return parse_time(text)
    except (TypeError, ValueError):
        return None


def _tell(target: Target, record: WorkloadRecord, body: Body, changes: Iterable[ConditionChange], now: int) -> Exchange:
    change = {"status": {"conditions": _with_changes(body, changes, now)}}
    return (yield from patched(target, record.uid, change, record.resource_version, "status"))


def _let_go(target: Target, uid: str) -> Exchange:
    found = yield from _read(target)
    if found is None or found[0].uid != uid:
        return Gone()
    record, body = found
    if not record.in_use:
        return Seen(record)
    others = [one for one in body["metadata"].get("finalizers") or () if one != IN_USE_FINALIZER]
    return (yield from patched(target, uid, {"metadata": {"finalizers": others}}, record.resource_version))
