"""Binds pending Pods to the only node, unless it is cordoned or has a taint that they do not tolerate.

A Pod also waits until its claims are bound. Requests, nodeSelector and affinity are ignored. So are Pods that name
their node or another scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import orjson

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.kube.client import STRATEGIC_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, NotFound
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import PERSISTENTVOLUMECLAIMS, PODS
from frameworkcontroller.local import taints
from frameworkcontroller.local.kubelet.claims import ClaimRecord, decode_claim
from frameworkcontroller.local.kubelet.node import NodeRecord
from frameworkcontroller.local.kubelet.nodeevents import NodeEvents
from frameworkcontroller.local.kubelet.pod import PENDING, PodRecord
from frameworkcontroller.local.kubelet.workers import Workers

NAME = "default-scheduler"
_CORDON: Final = {"key": taints.UNSCHEDULABLE, "effect": taints.NO_SCHEDULE}


class Scheduler:
    """Binds Pods to ``node_name`` while it is open. ``concurrency`` bounds the requests in flight."""

    def __init__(
        self,
        client: KubeClient,
        pods: Informer[PodRecord],
        nodes: Informer[NodeRecord],
        claims: Informer[ClaimRecord],
        *,
        node_name: str,
        concurrency: int = 32,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._claims = claims
        self._of_claim: dict[str, set[str]] = {}
        """By claim: the Pods that wait for it."""
        self._events = NodeEvents(client, NAME, wall=wall)
        self._node_name = node_name
        self._wall = wall
        self._open = True
        self._workers = Workers("scheduler", self._bind, concurrency=concurrency)
        pods.add_handler(on_add=self._seen, on_update=lambda _, new: self._seen(new))
        claims.add_handler(
            on_add=self._claim_changed,
            on_update=lambda _, new: self._claim_changed(new),
            on_delete=lambda old, _: self._claim_changed(old),
        )
        nodes.add_handler(on_add=lambda _: self._look_again(), on_update=self._node_updated)

    def set_open(self, is_open: bool) -> None:
        """Set whether the node takes Pods; Pods that arrive meanwhile are bound once it does."""
        self._open = is_open
        self._look_again()

    async def run(self) -> None:
        """Run until cancelled."""
        await self._workers.run()

    def _node_updated(self, old: NodeRecord, new: NodeRecord) -> None:
        if (old.taints, old.unschedulable) != (new.taints, new.unschedulable):
            self._look_again()

    def _claim_changed(self, claim: ClaimRecord) -> None:
        for key in self._of_claim.pop(claim.key, ()):
            self._workers.add(key)

    def _look_again(self) -> None:
        for record in self._pods.lister.values():
            self._seen(record)

    def _seen(self, record: PodRecord) -> None:
        if _waits(record):
            self._workers.add(record.key)

    async def _bind(self, key: str) -> None:
        record = self._pods.lister.get(key)
        if record is None or not _waits(record):
            return
        why = self._why_not(record)
        for name in record.claims:
            if why is None:
                why = await self._claim_obstacle(record, name)
        if why:
            await self._report(record, why)
        if why is not None or not self._open:
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

    async def _claim_obstacle(self, record: PodRecord, name: str) -> str | None:
        """Why a claim of the Pod cannot be used; None if it can, empty if it is about to be bound."""
        claim = self._claims.lister.get(f"{record.namespace}/{name}")
        if claim is not None and claim.bound and not claim.deleting:
            return None
        self._of_claim.setdefault(f"{record.namespace}/{name}", set()).add(record.key)
        if claim is None:
            # The informer may be behind: the claim is often created just before the Pod.
            try:
                claim = decode_claim(
                    orjson.loads(await self._client.get(PERSISTENTVOLUMECLAIMS, name, record.namespace))
                )
            except NotFound:
                return f'0/1 nodes are available: persistentvolumeclaim "{name}" not found.'
        if claim.deleting:
            return f'0/1 nodes are available: persistentvolumeclaim "{name}" is being deleted.'
        if claim.bound:
            return None  # newer than what the informer has shown
        unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims"
        return f'{unbound}: "{name}": {claim.obstacle}.' if claim.obstacle else ""

    def _why_not(self, record: PodRecord) -> str | None:
        """Why the Pod does not fit; None if it does. In the words of kube-scheduler."""
        node = self._nodes.lister.get(self._node_name)
        if node is None:
            return "no nodes available to schedule pods"
        if node.unschedulable and taints.first_untolerated(record.tolerations, [_CORDON]) is not None:
            return "0/1 nodes are available: 1 node(s) were unschedulable."
        taint = taints.first_untolerated(record.tolerations, node.taints)
        if taint is not None:
            label = f"{taint.get('key')}: {taint.get('value') or ''}"
            return f"0/1 nodes are available: 1 node(s) had untolerated taint {{{label}}}."
        return None

    async def _report(self, record: PodRecord, why: str) -> None:
        if record.unschedulable == why:
            return
        about = {"apiVersion": "v1", "kind": "Pod", "name": record.name, "uid": record.uid}
        await self._events.warn(record.namespace, about, "FailedScheduling", why)
        now = format_time(int(self._wall()))
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        body = {
            "metadata": {"uid": record.uid},
            "status": {"conditions": [{**condition, "lastTransitionTime": now}]},
        }
        with suppress(NotFound, Conflict):
            await self._client.patch(
                PODS,
                record.name,
                orjson.dumps(body),
                record.namespace,
                content_type=STRATEGIC_PATCH,
                subresource="status",
                metadata_only=True,
            )


def _waits(record: PodRecord) -> bool:
    return (
        not record.node_name
        and record.scheduler_name == NAME
        and record.phase == PENDING
        and record.deletion_grace is None
    )
