"""The Node object that Pods are bound to."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
from collections.abc import Callable
from typing import Any, Final

import orjson

from frameworkcontroller import __version__
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.kube.client import STRATEGIC_PATCH, KubeClient
from frameworkcontroller.kube.errors import AlreadyExists, KubeError, NotFound
from frameworkcontroller.kube.resources import NODES
from frameworkcontroller.local.kubelet.podstatus import HOST_IP

HEARTBEAT_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 1.0
_PODS: Final = 20_000
"""The node's Pod capacity; more than any test uses."""

log = logging.getLogger(__name__)


class NodeRegistration:
    """Creates or adopts the Node, and keeps its Ready condition fresh."""

    def __init__(
        self,
        client: KubeClient,
        *,
        node_name: str,
        runtime_name: str,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.reachable = True
        self._client = client
        self._node_name = node_name
        self._runtime_name = runtime_name
        self._wall = wall
        self._ready_since = ""
        self._registered = asyncio.Event()

    async def wait_registered(self) -> None:
        """Wait until the Node exists."""
        await self._registered.wait()

    async def run(self) -> None:
        """Register, then send heartbeats until cancelled. A deleted Node is created again."""
        while True:
            pause = HEARTBEAT_SECONDS
            if self.reachable:
                try:
                    await self._write()
                    self._registered.set()
                except KubeError as error:
                    log.warning("node %s: %s", self._node_name, error)
                    pause = _RETRY_SECONDS
            await asyncio.sleep(pause)

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
        resources = {"cpu": str(cpus()), "memory": f"{memory_bytes() // 1024}Ki", "pods": str(_PODS)}
        return {
            "capacity": resources,
            "allocatable": resources,
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


def cpus() -> int:
    """The number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
