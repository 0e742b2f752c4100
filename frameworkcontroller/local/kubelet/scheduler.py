"""Binds pending Pods to the only node.

Every Pod fits: requests, nodeSelector, affinity and taints are ignored. So are Pods that name their node or another
scheduler.
"""

from __future__ import annotations

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import Conflict, NotFound
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.local.kubelet.pod import PENDING, PodRecord
from frameworkcontroller.local.kubelet.workers import Workers

NAME = "default-scheduler"


class Scheduler:
    """Binds Pods to ``node_name`` while it is open. ``concurrency`` bounds the requests in flight."""

    def __init__(self, client: KubeClient, pods: Informer[PodRecord], *, node_name: str, concurrency: int = 32) -> None:
        self._client = client
        self._pods = pods
        self._node_name = node_name
        self._open = True
        self._workers = Workers("scheduler", self._bind, concurrency=concurrency)
        pods.add_handler(on_add=self._seen, on_update=lambda _, new: self._seen(new))

    def set_open(self, is_open: bool) -> None:
        """Set whether the node takes Pods; Pods that arrive meanwhile are bound once it does."""
        self._open = is_open
        if is_open:
            for record in self._pods.lister.values():
                self._seen(record)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._workers.run()

    def _seen(self, record: PodRecord) -> None:
        if self._open and _waits(record):
            self._workers.add(record.key)

    async def _bind(self, key: str) -> None:
        record = self._pods.lister.get(key)
        if record is None or not self._open or not _waits(record):
            return
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node_name},
        }
        try:
            await self._client.create(
                PODS, orjson.dumps(binding), record.namespace, name=record.name, subresource="binding"
            )
        except (NotFound, Conflict):
            # Deleted, replaced or bound concurrently; the informer will show it.
            return


def _waits(record: PodRecord) -> bool:
    return (
        not record.node_name
        and record.scheduler_name == NAME
        and record.phase == PENDING
        and record.deletion_grace is None
    )
