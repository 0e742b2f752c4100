"""The Node object that Pods are bound to: its registration, its heartbeats, and its users' changes."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from frameworkcontroller import __version__
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.kube.client import MERGE_PATCH, STRATEGIC_PATCH, KubeClient
from frameworkcontroller.kube.errors import AlreadyExists, KubeError, NotFound
from frameworkcontroller.kube.resources import LEASES, NODES
from frameworkcontroller.local.kubelet.podstatus import HOST_IP
from frameworkcontroller.local.readycondition import is_ready
from frameworkcontroller.local.taints import NOT_READY, Taint

DISCONNECTED: Final = "sim.frameworkcontroller.dev/disconnected"
"""Annotation of a Node. While it is "true", the kubelet behaves as if the node had lost its network."""

HEARTBEAT_SECONDS: Final = 60.0
LEASE_SECONDS: Final = 10.0
_LEASE_NAMESPACE: Final = "kube-node-lease"
_RETRY_SECONDS: Final = 1.0
_PODS: Final = 20_000
"""The node's Pod capacity; more than any test uses."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The fields of a Node that scheduler and kubelet read."""

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    unschedulable: bool
    taints: tuple[Taint, ...]
    disconnected: bool
    ready: bool


def decode_node(body: dict[str, Any]) -> NodeRecord:
    """Decode a Node as the API server sent it."""
    metadata, spec, ready = body["metadata"], body.get("spec") or {}, is_ready(body)
    return NodeRecord(
        key=metadata["name"],
        namespace="",
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion") or "",
        labels=metadata.get("labels") or {},
        unschedulable=bool(spec.get("unschedulable")),
        # A real API server adds NOT_READY to every new Node, and where no node controller runs, it stays.
        taints=tuple(one for one in spec.get("taints") or () if not (ready and one.get("key") == NOT_READY)),
        disconnected=(metadata.get("annotations") or {}).get(DISCONNECTED) == "true",
        ready=ready,
    )


class NodeRegistration:
    """Creates or adopts the Node, and keeps its Ready condition fresh.

    ``lease``: renew the node's Lease as well, so that silence is noticed soon. ``capacity``: resources in place of the
    machine's.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        node_name: str,
        runtime_name: str,
        lease: bool = False,
        capacity: Mapping[str, str] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._reachable = asyncio.Event()
        self._reachable.set()
        self._due = asyncio.Event()
        self._status_due = -math.inf
        self._client = client
        self._lease = lease
        self._node_name = node_name
        self._resources = resources_of(capacity)
        self._runtime_name = runtime_name
        self._wall = wall
        self._ready_since = ""
        self._registered = asyncio.Event()

    async def wait_registered(self) -> None:
        """Wait until the Node exists."""
        await self._registered.wait()

    def set_reachable(self, reachable: bool) -> None:
        """Set whether the node reaches the API server. Once it does again, it reports itself at once."""
        if reachable and not self._reachable.is_set():
            self._reachable.set()
            self.report()
        elif not reachable:
            self._reachable.clear()

    def report(self) -> None:
        """Report the status soon, as the cluster has another one."""
        self._ready_since = ""
        self._status_due = -math.inf
        self._due.set()

    async def run(self) -> None:
        """Register, then send heartbeats until cancelled. A deleted Node is created again."""
        loop = asyncio.get_running_loop()
        while True:
            await self._reachable.wait()
            self._due.clear()
            pause = LEASE_SECONDS if self._lease else HEARTBEAT_SECONDS
            try:
                if loop.time() >= self._status_due:
                    await self._write()
                    self._registered.set()
                    self._status_due = loop.time() + HEARTBEAT_SECONDS
                if self._lease:
                    await self._renew()
            except KubeError as error:
                log.warning("node %s: %s", self._node_name, error)
                pause = _RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._due.wait()

    async def _renew(self) -> None:
        renewed = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._node_name},
            "spec": {"holderIdentity": self._node_name, "leaseDurationSeconds": 40, "renewTime": renewed},
        }
        try:
            await self._client.patch(
                LEASES, self._node_name, orjson.dumps(body), _LEASE_NAMESPACE, content_type=MERGE_PATCH
            )
        except NotFound:
            await self._client.create(LEASES, orjson.dumps(body), _LEASE_NAMESPACE)

    async def _write(self) -> None:
        now = format_time(int(self._wall()))
        self._ready_since = self._ready_since or now
        status = self._status(now)
        if self._registered.is_set():
            try:
                await self._patch({"status": status}, subresource="status")
                return
            except NotFound:
                pass
        node = {"apiVersion": "v1", "kind": "Node", "metadata": self._metadata(), "spec": {}, "status": status}
        try:
            await self._client.create(NODES, orjson.dumps(node))
        except AlreadyExists:
            await self._patch({"metadata": {"labels": self._metadata()["labels"]}})
            await self._patch({"status": status}, subresource="status")

    async def _patch(self, change: dict[str, Any], *, subresource: str | None = None) -> None:
        await self._client.patch(
            NODES,
            self._node_name,
            orjson.dumps(change),
            content_type=STRATEGIC_PATCH,
            subresource=subresource,
            metadata_only=True,
        )

    def _metadata(self) -> dict[str, Any]:
        return {
            "name": self._node_name,
            "labels": {
                "kubernetes.io/hostname": self._node_name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": _architecture(),
            },
        }

    def _status(self, now: str) -> dict[str, Any]:
        return {
            "capacity": self._resources,
            "allocatable": self._resources,
            "addresses": [
                {"type": "InternalIP", "address": HOST_IP},
                {"type": "Hostname", "address": self._node_name},
            ],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": f"Pods run on the runtime {self._runtime_name!r}",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": self._ready_since,
                }
            ],
            "nodeInfo": {
                "architecture": _architecture(),
                "bootID": "",
                "containerRuntimeVersion": f"{self._runtime_name}://{__version__}",
                "kernelVersion": platform.release(),
                "kubeProxyVersion": "",
                "kubeletVersion": f"frameworkcontroller/{__version__}",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": platform.system(),
                "systemUUID": "",
            },
        }


def resources_of(capacity: Mapping[str, str] | None = None) -> dict[str, str]:
    """The node's resources: the machine's, replaced by ``capacity``."""
    machine = {"cpu": str(cpus()), "memory": f"{memory_bytes() // 1024}Ki", "pods": str(_PODS)}
    return {**machine, **(capacity or {})}


def cpus() -> int:
    """The number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
