"""The ``kubectl get`` columns of built-in kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from frameworkcontroller.local.apiserver.ages import age
from frameworkcontroller.local.apiserver.pod_columns import POD_CELLS, completed

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A TableColumnDefinition."""

    name: str
    type: str
    description: str
    priority: int = 0
    """Greater than 0: only in ``-o wide``."""
    format: str = ""

    def body(self) -> dict[str, Any]:
        """Its JSON form."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def _no_conditions(obj: Json) -> list[dict[str, str]]:
    del obj
    return []


@dataclass(frozen=True, slots=True)
class Columns:
    """Turns the objects of a kind into rows."""

    definitions: tuple[TableColumn, ...]
    cells: Callable[[Json, float], list[Any]]
    """From an object and the wall time (epoch seconds)."""
    conditions: Callable[[Json], list[dict[str, str]]] = _no_conditions
    """A row's conditions: whether the object has ended."""


_NAME = TableColumn("Name", "string", "Name of the object.", format="name")
_AGE = TableColumn("Age", "string", "Time since the object was created.")
_CREATED = TableColumn("Created At", "date", "When the object was created.")


def _metadata(obj: Json) -> Json:
    return obj.get("metadata") or {}


def _name(obj: Json) -> str:
    return _metadata(obj).get("name") or ""


def _age(obj: Json, now: float) -> str:
    return age(_metadata(obj).get("creationTimestamp"), now)


def _spec(obj: Json) -> Json:
    return obj.get("spec") or {}


def _status(obj: Json) -> Json:
    return obj.get("status") or {}


def _wide(name: str, description: str, kind: str = "string") -> TableColumn:
    return TableColumn(name, kind, description, 1)


def _text(name: str, description: str) -> TableColumn:
    return TableColumn(name, "string", description)


_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}

_PODS = Columns(
    (
        _NAME,
        _text("Ready", "Containers that are ready, of all."),
        _text("Status", "State of the Pod's containers."),
        _text("Restarts", "How often containers were restarted, and when last."),
        _AGE,
        _wide("IP", "The Pod's address."),
        _wide("Node", "The node the Pod is bound to."),
        _wide("Nominated Node", "The node on which room is being made for the Pod."),
        _wide("Readiness Gates", "Readiness gates that are met, of all."),
    ),
    lambda obj, now: [_name(obj), *POD_CELLS(obj, now)],
    completed,
)


def _node_cells(obj: Json, now: float) -> list[Any]:
    spec, state = _spec(obj), _status(obj)
    words = [
        one["type"] if one.get("status") == "True" else f"Not{one['type']}"
        for one in state.get("conditions") or ()
        if one.get("type") == "Ready"
    ] or ["Unknown"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    info = state.get("nodeInfo") or {}
    return [
        _name(obj),
        ",".join(words),
        _roles(_metadata(obj).get("labels") or {}),
        _age(obj, now),
        info.get("kubeletVersion") or "",
        _address(state, "InternalIP"),
        _address(state, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _roles(labels: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = {label.removeprefix(prefix) for label in labels if label.startswith(prefix) and label != prefix}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles)) or "<none>"


def _address(state: Json, kind: str) -> str:
    found = (one.get("address") for one in state.get("addresses") or () if one.get("type") == kind)
    return next(found, None) or "<none>"


def _service_cells(obj: Json, now: float) -> list[Any]:
    spec = _spec(obj)
    kind = spec.get("type") or "ClusterIP"
    external = ",".join(spec.get("externalIPs") or ())
    if kind == "ExternalName":
        external = spec.get("externalName") or ""
    elif kind == "LoadBalancer":
        ingress = (_status(obj).get("loadBalancer") or {}).get("ingress") or ()
        external = ",".join(one.get("ip") or one.get("hostname") or "" for one in ingress) or external or "<pending>"
    ports = ",".join(_port(port) for port in spec.get("ports") or ())
    return [
        _name(obj),
        kind,
        spec.get("clusterIP") or "<none>",
        external or "<none>",
        ports or "<none>",
        _age(obj, now),
        labels_text(spec.get("selector") or {}),
    ]


def _port(port: Json) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol') or 'TCP'}"


def labels_text(labels: Json) -> str:
    """Labels as one string, ordered by key."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or "<none>"


def _event_cells(obj: Json, now: float) -> list[Any]:
    involved, series = obj.get("involvedObject") or {}, obj.get("series") or {}
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    source = obj.get("source") or {}
    by = [source.get("component") or obj.get("reportingComponent") or ""]
    by += [place for place in [source.get("host") or obj.get("reportingInstance")] if place]
    # A series counts repetitions of its first event.
    count = series["count"] + 1 if series.get("count") else obj.get("count") or 1
    return [
        age(last, now),
        obj.get("type") or "",
        obj.get("reason") or "",
        f"{(involved.get('kind') or '').lower()}/{involved.get('name') or ''}",
        involved.get("fieldPath") or "",
        ", ".join(by),
        (obj.get("message") or "").strip(),
        age(first, now),
        count,
        _name(obj),
    ]


def _claim_cells(obj: Json, now: float) -> list[Any]:
    spec, state = _spec(obj), _status(obj)
    phase = "Terminating" if _metadata(obj).get("deletionTimestamp") else state.get("phase") or ""
    bound = bool(spec.get("volumeName"))
    modes = state.get("accessModes") or () if bound else ()
    return [
        _name(obj),
        phase,
        spec.get("volumeName") or "",
        (state.get("capacity") or {}).get("storage") or "0" if bound else "",
        ",".join(short for mode, short in _ACCESS_MODES.items() if mode in modes),
        spec.get("storageClassName") or "",
        _age(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _quota_cells(obj: Json, now: float) -> list[Any]:
    state = _status(obj)
    hard, used = state.get("hard") or {}, state.get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    limits = [text for name, text in shown.items() if name.startswith("limits.")]
    requests = [text for name, text in shown.items() if not name.startswith("limits.")]
    return [_name(obj), _age(obj, now), ", ".join(requests), ", ".join(limits)]


def _binding_cells(obj: Json, now: float) -> list[Any]:
    role = obj.get("roleRef") or {}
    subjects: list[Json] = list(obj.get("subjects") or ())
    return [
        _name(obj),
        f"{role.get('kind')}/{role.get('name')}",
        _age(obj, now),
        _subjects(subjects, "User"),
        _subjects(subjects, "Group"),
        ", ".join(
            f"{one.get('namespace')}/{one.get('name')}" for one in subjects if one.get("kind") == "ServiceAccount"
        ),
    ]


def _subjects(subjects: Iterable[Json], kind: str) -> str:
    return ", ".join(one.get("name") or "" for one in subjects if one.get("kind") == kind)


def _role_cells(obj: Json, now: float) -> list[Any]:
    del now
    return [_name(obj), _metadata(obj).get("creationTimestamp")]


def _config_map_cells(obj: Json, now: float) -> list[Any]:
    return [_name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), _age(obj, now)]


def _priority_cells(obj: Json, now: float) -> list[Any]:
    policy = obj.get("preemptionPolicy") or ""
    return [_name(obj), obj.get("value") or 0, bool(obj.get("globalDefault")), _age(obj, now), policy]


def _budget_cells(obj: Json, now: float) -> list[Any]:
    spec = _spec(obj)
    limits = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [_name(obj), *limits, _status(obj).get("disruptionsAllowed") or 0, _age(obj, now)]


_BINDINGS = Columns(
    (
        _NAME,
        _text("Role", "The role that is granted."),
        _AGE,
        _wide("Users", "Users it is granted to."),
        _wide("Groups", "Groups it is granted to."),
        _wide("ServiceAccounts", "Service accounts it is granted to."),
    ),
    _binding_cells,
)
_ROLES = Columns((_NAME, _CREATED), _role_cells)

BUILTIN_COLUMNS: Mapping[str, Columns] = {
    "ClusterRole": _ROLES,
    "ClusterRoleBinding": _BINDINGS,
    "ConfigMap": Columns((_NAME, _text("Data", "How many keys it has."), _AGE), _config_map_cells),
    "CustomResourceDefinition": _ROLES,
    "Event": Columns(
        (
            _text("Last Seen", "Time since it happened last."),
            _text("Type", "Normal or Warning."),
            _text("Reason", "What happened, in a word."),
            _text("Object", "The object of the event."),
            _wide("Subobject", "The part of the object it happened to."),
            _wide("Source", "Who says so."),
            _text("Message", "What happened."),
            _wide("First Seen", "Time since it happened first."),
            _wide("Count", "How often it happened."),
            TableColumn("Name", "string", "Name of the object.", 1, "name"),
        ),
        _event_cells,
    ),
    "Lease": Columns(
        (_NAME, _text("Holder", "Who holds it."), _AGE),
        lambda obj, now: [_name(obj), _spec(obj).get("holderIdentity") or "", _age(obj, now)],
    ),
    "Namespace": Columns(
        (_NAME, _text("Status", "Active, or Terminating."), _AGE),
        lambda obj, now: [_name(obj), _status(obj).get("phase") or "", _age(obj, now)],
    ),
    "Node": Columns(
        (
            _NAME,
            _text("Status", "Whether the node is ready for Pods."),
            _text("Roles", "Roles of the node."),
            _AGE,
            _text("Version", "Version of the kubelet."),
            _wide("Internal-IP", "The node's address inside the cluster."),
            _wide("External-IP", "The node's address outside the cluster."),
            _wide("OS-Image", "Operating system."),
            _wide("Kernel-Version", "Kernel."),
            _wide("Container-Runtime", "The container runtime."),
        ),
        _node_cells,
    ),
    "PersistentVolumeClaim": Columns(
        (
            _NAME,
            _text("Status", "Whether it is bound to a volume."),
            _text("Volume", "The volume it is bound to."),
            _text("Capacity", "The size of that volume."),
            _text("Access Modes", "How the volume may be mounted."),
            _text("StorageClass", "The kind of storage it asks for."),
            _AGE,
            _wide("VolumeMode", "Whether the volume is a file system or a device."),
        ),
        _claim_cells,
    ),
    "Pod": _PODS,
    "PodDisruptionBudget": Columns(
        (
            _NAME,
            _text("Min Available", "The Pods that must be ready."),
            _text("Max Unavailable", "The Pods that may be not ready."),
            TableColumn("Allowed Disruptions", "integer", "The Pods that may be evicted now."),
            _AGE,
        ),
        _budget_cells,
    ),
    "PriorityClass": Columns(
        (
            _NAME,
            TableColumn("Value", "integer", "The priority that Pods of the class get."),
            TableColumn("Global-Default", "boolean", "Whether it is for Pods that name no class."),
            _AGE,
            _wide("PreemptionPolicy", "Whether its Pods push others out."),
        ),
        _priority_cells,
    ),
    "ResourceQuota": Columns(
        (
            _NAME,
            _AGE,
            _text("Request", "Used and allowed requests."),
            _text("Limit", "Used and allowed limits."),
        ),
        _quota_cells,
    ),
    "Role": _ROLES,
    "RoleBinding": _BINDINGS,
    "Secret": Columns(
        (_NAME, _text("Type", "Type of the secret."), _text("Data", "How many keys it has."), _AGE),
        lambda obj, now: [_name(obj), obj.get("type") or "", len(obj.get("data") or ()), _age(obj, now)],
    ),
    "Service": Columns(
        (
            _NAME,
            _text("Type", "How it is reached."),
            _text("Cluster-IP", "Its address inside the cluster."),
            _text("External-IP", "Its addresses outside the cluster."),
            _text("Port(s)", "Its ports."),
            _AGE,
            _wide("Selector", "The labels of the Pods behind it."),
        ),
        _service_cells,
    ),
    "ServiceAccount": Columns(
        (_NAME, _text("Secrets", "How many secrets it names."), _AGE),
        lambda obj, now: [_name(obj), len(obj.get("secrets") or ()), _age(obj, now)],
    ),
}
"""By kind."""
