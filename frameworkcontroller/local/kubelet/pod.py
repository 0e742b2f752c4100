"""The fields of a Pod that a kubelet needs, extracted once per event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import orjson

from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.local.kubelet.nodeaffinity import Term, required_terms
from frameworkcontroller.local.kubelet.readiness import TcpProbe, decode_readiness
from frameworkcontroller.local.resource_lists import ResourceList, requests_of

PENDING, RUNNING, SUCCEEDED, FAILED, UNKNOWN = "Pending", "Running", "Succeeded", "Failed", "Unknown"
TERMINAL = frozenset({SUCCEEDED, FAILED})

DEFAULT_GRACE_SECONDS = 30
_NOTHING: Final[ResourceList] = {}


class ContainerKind(Enum):
    """The role of a container in its Pod."""

    INIT = "init"
    """Runs to success before the next container starts."""
    SIDECAR = "sidecar"
    """An init container that is always restarted, and runs until the main containers have ended."""
    MAIN = "main"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container of a Pod, as needed by every runtime. ``readiness`` is None if it is ready while it runs."""

    name: str
    image: str
    kind: ContainerKind
    readiness: TcpProbe | None = None


@dataclass(frozen=True, slots=True)
class NodePod:
    """One version of one Pod.

    ``deletion_grace`` is the grace period, in seconds, of a deletion in progress, else None. ``ran`` is true if the
    stored status shows that a container was ever started, ``running_since`` is the earliest start of a running one
    (epoch seconds). ``unschedulable`` is the scheduler's message, if it found no node. ``gated``: it is not to be
    scheduled yet. ``group`` is the key of its PodGroup, "" for none. ``requests`` are empty unless asked for.
    ``node_terms``: the required node affinity, None for none.
    ``manifest`` is the whole object in JSON, if the runtime asks for it.
    """

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    annotations: Mapping[str, str]
    deletion_grace: int | None
    node_name: str
    scheduler_name: str
    host_network: bool
    restart_policy: str
    active_deadline: float | None
    termination_grace: float
    containers: tuple[ContainerSpec, ...]
    phase: str
    scheduled: bool
    unschedulable: str
    start_time: int | None
    pod_ip: str
    ran: bool
    running_since: int | None
    tolerations: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    subdomain: str = ""
    ready: bool = False
    claims: tuple[str, ...] = ()
    gated: bool = False
    group: str = ""
    requests: ResourceList = field(default_factory=lambda: _NOTHING)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_terms: tuple[Term, ...] | None = None
    manifest: bytes = b""

    def container(self, name: str) -> ContainerSpec:
        """The container with that name. Raises KeyError if there is none."""
        for spec in self.containers:
            if spec.name == name:
                return spec
        raise KeyError(name)


def decode_pod(body: dict[str, Any], *, keep_manifest: bool = False, keep_requests: bool = False) -> NodePod:
    """Decode a Pod as the API server sent it. Raises KeyError or TypeError if it is not one.

    ``keep_manifest`` is for a runtime with processes: with the manifest, and with the probes. ``keep_requests`` is for
    a node with a capacity.
    """
    metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    namespace, name = metadata["namespace"], metadata["name"]
    deletion_grace = None
    if metadata.get("deletionTimestamp") is not None:
        deletion_grace = metadata.get("deletionGracePeriodSeconds") or 0
    grace = spec.get("terminationGracePeriodSeconds")
    start_time = status.get("startTime")
    conditions: Mapping[str, Mapping[str, Any]] = {one.get("type"): one for one in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    ran, running_since = _history(status)
    group = (spec.get("schedulingGroup") or {}).get("podGroupName")
    return NodePod(
        key=f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion") or "",
        annotations=metadata.get("annotations") or {},
        deletion_grace=deletion_grace,
        node_name=spec.get("nodeName") or "",
        scheduler_name=spec.get("schedulerName") or "default-scheduler",
        host_network=bool(spec.get("hostNetwork")),
        restart_policy=spec.get("restartPolicy") or "Always",
        active_deadline=spec.get("activeDeadlineSeconds"),
        termination_grace=DEFAULT_GRACE_SECONDS if grace is None else grace,
        containers=(
            *(
                ContainerSpec(
                    item["name"],
                    item.get("image") or "",
                    ContainerKind.SIDECAR if item.get("restartPolicy") == "Always" else ContainerKind.INIT,
                )
                for item in spec.get("initContainers") or ()
            ),
            *(
                ContainerSpec(
                    item["name"],
                    item.get("image") or "",
                    ContainerKind.MAIN,
                    decode_readiness(item) if keep_manifest else None,
                )
                for item in spec["containers"]
            ),
        ),
        phase=status.get("phase") or PENDING,
        scheduled=scheduled.get("status") == "True",
        unschedulable=(scheduled.get("message") or "") if scheduled.get("status") == "False" else "",
        start_time=None if start_time is None else parse_time(start_time),
        pod_ip=status.get("podIP") or "",
        ran=ran,
        running_since=running_since,
        tolerations=tuple(spec.get("tolerations") or ()),
        labels=metadata.get("labels") or {},
        hostname=spec.get("hostname") or "",
        subdomain=spec.get("subdomain") or "",
        claims=tuple(
            item["persistentVolumeClaim"].get("claimName") or ""
            for item in spec.get("volumes") or ()
            if item.get("persistentVolumeClaim")
        ),
        gated=bool(spec.get("schedulingGates")),
        group=f"{namespace}/{group}" if group else "",
        requests=requests_of(spec) if keep_requests else _NOTHING,
        node_selector=spec.get("nodeSelector") or {},
        node_terms=required_terms(spec),
        ready=conditions.get("Ready", {}).get("status") == "True",
        manifest=orjson.dumps(body) if keep_manifest else b"",
    )


def _history(status: Mapping[str, Any]) -> tuple[bool, int | None]:
    ran = False
    since: int | None = None
    for group in ("initContainerStatuses", "containerStatuses"):
        for item in status.get(group) or ():
            state = item.get("state") or {}
            running = state.get("running")
            if running is not None or state.get("terminated") is not None or item.get("restartCount"):
                ran = True
            if running is not None and running.get("startedAt") is not None and group == "containerStatuses":
                started = parse_time(running["startedAt"])
                since = started if since is None else min(since, started)
    return ran, since
