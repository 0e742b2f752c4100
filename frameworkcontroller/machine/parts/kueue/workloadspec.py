"""The spec of the Workload of a Framework: its podSets, and the digests of the fields that an admission rests on.

Source: the API ``kueue.x-k8s.io/v1beta2``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import dumps_to_keep
from frameworkcontroller.api.objects import Framework, QueueLabels
from frameworkcontroller.api.problems import KeyPath, Problem
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import AdmittedPodSet
from frameworkcontroller.machine.kernel.manifests import filled, filled_size, with_entries
from frameworkcontroller.machine.kernel.requests import MAX_BODY_BYTES, Kind

API_VERSION: Final = "kueue.x-k8s.io/v1beta2"

MAX_POD_SETS: Final = 18
"""The number of podSets that a Workload may have."""

_DIGEST_VERSION: Final = "1"
"""Changes with the inputs of digests: digests of two versions cannot be compared."""

UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"

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

_SECONDS_PATTERN: Final = re.compile(r"[1-9][0-9]{0,8}")

_SIZE_PATTERN: Final = re.compile(r"[0-9]{1,9}")
"""A number that fits the Workload's int32."""


@dataclass(frozen=True)
class WorkloadSpec:
    """The spec that the Workload of a Framework is to have, without its priority, which is read."""

    queue_name: str
    pod_sets_json: bytes
    """Text, because it is kept while the Framework is queued."""
    counts: Mapping[str, int]
    """The numbers of Tasks by role."""
    digests: Mapping[str, str]
    """By role, of the fields that an admission rests on: other changes of a template have no effect on it."""
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
    return f"{_DIGEST_VERSION}:{hashlib.blake2b(_sorted_json(value), digest_size=10).hexdigest()}"


def _counting(pod_set: Mapping[str, Any]) -> list[Any]:
    """The fields that an admission rests on: not labels, annotations and images."""
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
    metadata, spec = object_in(template.get("metadata")), object_in(template.get("spec"))
    labels, annotations = object_in(metadata.get("labels")), object_in(metadata.get("annotations"))
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
    metadata, spec = object_in(template.get("metadata")), object_in(template.get("spec"))
    yield from _keys((), template)
    yield from _keys(("metadata",), metadata)
    yield from _keys(("spec",), spec)
    for name in _KEPT_OF_POD:
        yield from _texts(("spec", name), spec.get(name))
    for listed in ("initContainers", "containers"):
        containers = spec.get(listed)
        for position, container in enumerate(containers if isinstance(containers, list) else ()):
            path = ("spec", listed, position)
            yield from _keys(path, object_in(container))
            for name in ("resources", "restartPolicy"):
                yield from _texts((*path, name), object_in(container).get(name))
    annotations = object_in(metadata.get("annotations"))
    for name in (*_TOPOLOGY_TEXTS, UNCONSTRAINED, _SLICE_SIZE):
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


def object_in(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _reduced_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    return {name: container[name] for name in _KEPT_OF_CONTAINER if container.get(name) is not None}


def _topology_request(annotations: Mapping[str, Any]) -> dict[str, Any]:
    request = {key: annotations[name] for name, key in _TOPOLOGY_TEXTS.items() if annotations.get(name)}
    if annotations.get(UNCONSTRAINED) == "true":
        request["unconstrained"] = True
    size = annotations.get(_SLICE_SIZE)
    if isinstance(size, str) and _SIZE_PATTERN.fullmatch(size):
        request["podSetSliceSize"] = int(size)
    return {**request, "podIndexLabel": names.TASK_INDEX} if request else {}


@dataclass(frozen=True, slots=True)
class AdmittedPods:
    """The fields for the Pods of a role. Nothing contradicts its template: ``ReadAdmission`` has compared them."""

    pod_set: AdmittedPodSet

    def apply(self, metadata: dict[str, Any], spec: dict[str, Any], pod_name: str) -> None:
        admitted = self.pod_set
        for owner, name, ours in (
            (metadata, "labels", admitted.labels),
            (metadata, "annotations", admitted.annotations),
            (spec, "nodeSelector", admitted.node_selector),
        ):
            if ours:
                owner[name] = with_entries(owner.get(name), ours)
        gates = [{"name": name} for name in admitted.scheduling_gates]
        for name, added in (("tolerations", admitted.tolerations), ("schedulingGates", gates)):
            own = spec.get(name)
            if added and (own is None or isinstance(own, list)):
                known = set(map(_sorted_json, own or ()))
                spec[name] = [*(own or []), *(one for one in added if _sorted_json(one) not in known)]


def _sorted_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
