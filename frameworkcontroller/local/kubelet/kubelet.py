"""The kubelet's API side: watches the Pods bound to this node, reports their status, and ends graceful deletions.

A client of any API server. Level-triggered: its actions depend on the Pod in the informer's cache and on the running
containers; an event only names a Pod.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import orjson

from frameworkcontroller.kube.client import STRATEGIC_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, NotFound
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.local.kubelet.pod import TERMINAL, NodePod
from frameworkcontroller.local.kubelet.pod_workers import PodWorker, PodWorkers
from frameworkcontroller.local.kubelet.queueworkers import QueueWorkers
from frameworkcontroller.local.kubelet.runtime import Runtime


class Kubelet:
    """Runs the Pods that are bound to ``node_name``, on ``runtime``.

    The caller runs ``pods``, an informer whose scope includes them. ``concurrency`` bounds the requests in flight.
    """

    def __init__(
        self,
        client: KubeClient,
        pods: Informer[NodePod],
        runtime: Runtime,
        *,
        node_name: str,
        concurrency: int = 32,
        on_reachable: Callable[[bool], None] = lambda _: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.node_name = node_name
        self._client = client
        self._pods = pods
        self._on_reachable = on_reachable
        self._reachable = True
        self._workers = QueueWorkers("kubelet", self._sync, concurrency=concurrency)
        self.pod_workers = PodWorkers(runtime, on_change=self._workers.add, on_reachable=self.set_reachable, wall=wall)
        # Pods of this node with nothing to run: terminal when first seen, or released for deletion.
        self._over: dict[str, NodePod] = {}
        pods.add_handler(on_add=self._seen, on_update=self._updated, on_delete=lambda old, _: self._gone(old.uid))

    async def run(self) -> None:
        """Report statuses and end deletions until cancelled. The runtime must be open before the informer runs."""
        await self._workers.run()

    # --- informer events ----------------------------------------------------------------------------------------------

    def _seen(self, record: NodePod) -> None:
        if record.node_name != self.node_name or not self._reachable:
            return
        uid = record.uid
        if uid in self._over:
            self._over[uid] = record
        elif self.pod_workers.get(uid) is not None:
            self.pod_workers.update(record)
            return
        elif record.phase in TERMINAL:
            self._over[uid] = record
        else:
            self.pod_workers.admit(record)
            return
        if record.deletion_grace is not None:
            self._workers.add(uid)

    def _updated(self, old: NodePod, new: NodePod) -> None:
        if old.uid != new.uid:
            self._gone(old.uid)
        self._seen(new)

    def _gone(self, uid: str) -> None:
        if self._reachable:
            self._over.pop(uid, None)
            self.pod_workers.abandon(uid)

    def set_reachable(self, reachable: bool) -> None:
        """Set whether the node reaches the API server. If not, it keeps running its Pods, and catches up later."""
        if reachable and not self._reachable:
            self._reachable = True
            here = {record.uid: record for record in self._pods.lister.values() if record.node_name == self.node_name}
            for pod in self.pod_workers:
                # Others may have changed its status: the node controller marks the Pods of lost nodes.
                pod.reported = None
            for uid in [*self._over, *(pod.record.uid for pod in self.pod_workers)]:
                if uid not in here:
                    self._gone(uid)
                self._workers.add(uid)
            for record in here.values():
                self._seen(record)
        self._reachable = reachable
        self._on_reachable(reachable)

    # --- writes to the API server -------------------------------------------------------------------------------------

    async def _sync(self, uid: str) -> None:
        if not self._reachable:
            return
        pod = self.pod_workers.get(uid)
        if pod is None:
            over = self._over.get(uid)
            if over is not None and over.deletion_grace is not None:
                await self._delete(over)
        elif pod.abandoned:
            if pod.life.dead:
                await self.pod_workers.forget(uid)
        elif await self._report(pod) and pod.record.deletion_grace is not None and pod.life.dead:
            # Release its directories and address before its name: its successor must not meet them.
            await self.pod_workers.forget(uid)
            self._over[uid] = pod.record
            await self._delete(pod.record)

    async def _report(self, pod: PodWorker) -> bool:
        """Write the Pod's status if it has changed; False if the Pod no longer exists."""
        status = self.pod_workers.status(pod)
        if status == pod.reported:
            return True
        record = pod.record
        # With the uid: a Pod of the same name may have replaced it.
        body = orjson.dumps({"metadata": {"uid": record.uid}, "status": status})
        try:
            await self._client.patch(
                PODS,
                record.name,
                body,
                record.namespace,
                content_type=STRATEGIC_PATCH,
                subresource="status",
                metadata_only=True,
            )
        except (NotFound, Conflict):
            return False
        pod.reported = status
        return True

    async def _delete(self, record: NodePod) -> None:
        """End a graceful deletion, once nothing of the Pod is left on the node."""
        with contextlib.suppress(NotFound, Conflict):
            await self._client.delete(PODS, record.name, record.namespace, uid=record.uid, grace_period_seconds=0)
