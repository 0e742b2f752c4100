"""A node: the informers, the scheduler, the provisioner of volumes, the Node object and the kubelet."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from functools import partial

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import NODES, PERSISTENTVOLUMECLAIMS, PODS, SERVICES
from frameworkcontroller.local.kubelet.kubelet import Kubelet
from frameworkcontroller.local.kubelet.node import NodeRecord, NodeRegistration, decode_node, resources_of
from frameworkcontroller.local.kubelet.placement import PlacedPodGroup, decode_pod_group
from frameworkcontroller.local.kubelet.pod import NodePod, decode_pod
from frameworkcontroller.local.kubelet.podhosts import ServiceRecord, decode_service
from frameworkcontroller.local.kubelet.runtime import Runtime
from frameworkcontroller.local.kubelet.scheduler import Scheduler
from frameworkcontroller.local.kubelet.volumebinder import Provisioner, VolumeClaim, decode_claim
from frameworkcontroller.local.podgroup_crd import PODGROUPS
from frameworkcontroller.local.resource_lists import parse_resources

DEFAULT_NODE_NAME = "local"


class NodeAgent:
    """Registers ``runtime`` as a node of the cluster behind ``client`` (any API server), and binds Pods and claims.

    ``schedule=False`` leaves binding to another scheduler. ``concurrency`` bounds the requests in flight of the kubelet
    and of the scheduler each. ``lease``: renew the node's Lease, by which a cluster notices soon that it is lost.
    ``capacity``: resources that the node has, which Pods are then bound by. ``gangs``: bind the Pods of a PodGroup
    (`podgroups`) as it says.
    """

    def __init__(
        self,
        client: KubeClient,
        runtime: Runtime,
        *,
        node_name: str = DEFAULT_NODE_NAME,
        schedule: bool = True,
        lease: bool = False,
        capacity: Mapping[str, str] | None = None,
        gangs: bool = False,
        concurrency: int = 32,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self.node_name = node_name
        self._runtime = runtime
        self.pods: Informer[NodePod] = Informer(
            client,
            PODS,
            partial(decode_pod, keep_manifest=runtime.needs_manifest, keep_requests=capacity is not None),
            index=(lambda pod: pod.group) if gangs else None,
            rng=rng,
        )
        self.groups: Informer[PlacedPodGroup] | None = (
            Informer(client, PODGROUPS, decode_pod_group, rng=rng) if gangs else None
        )
        self.nodes: Informer[NodeRecord] = Informer(
            client, NODES, decode_node, field_selector=f"metadata.name={node_name}", rng=rng
        )
        self.claims: Informer[VolumeClaim] = Informer(client, PERSISTENTVOLUMECLAIMS, decode_claim, rng=rng)
        self.provisioner = Provisioner(client, self.claims, runtime.remove_claim, wall=wall)
        self.services: Informer[ServiceRecord] | None = None
        if (names := runtime.names) is not None:
            self.services = Informer(client, SERVICES, decode_service, rng=rng)
            self.services.add_handler(
                on_add=names.set_service,
                on_update=lambda _, new: names.set_service(new),
                on_delete=lambda old, _: names.remove_service(old),
            )
            self.pods.add_handler(
                on_update=lambda _, new: names.update_pod(new), on_delete=lambda old, _: names.remove_pod(old.uid)
            )
        self._known = asyncio.Event()
        self.nodes.add_handler(on_add=self._node_added, on_update=self._node_updated)
        self.node = NodeRegistration(
            client, node_name=node_name, runtime_name=runtime.name, lease=lease, capacity=capacity, wall=wall
        )
        self.scheduler = (
            Scheduler(
                client,
                self.pods,
                self.nodes,
                self.claims,
                self.groups,
                node_name=node_name,
                capacity=None if capacity is None else parse_resources(resources_of(capacity)),
                concurrency=concurrency,
                wall=wall,
            )
            if schedule
            else None
        )
        self.kubelet = Kubelet(
            client,
            self.pods,
            runtime,
            node_name=node_name,
            concurrency=concurrency,
            on_reachable=self._set_reachable,
            wall=wall,
        )

    async def run(self) -> None:
        """Run until cancelled; then end all containers and remove everything of them from this machine."""
        await self._runtime.open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.node.run(), name="node")
                if self.scheduler is not None:
                    group.create_task(self.scheduler.run(), name="scheduler")
                group.create_task(self.kubelet.run(), name="kubelet")
                group.create_task(self.provisioner.run(), name="provisioner")
                group.create_task(self.nodes.run(), name="nodes")
                group.create_task(self.claims.run(), name="claims")
                group.create_task(self.pods.run(), name="pods")
                if self.groups is not None:
                    group.create_task(self.groups.run(), name="PodGroups")
                if self.services is not None:
                    group.create_task(self.services.run(), name="services")
        finally:
            await self.kubelet.close()

    async def wait_ready(self) -> None:
        """Wait until the Node is registered and the existing Pods are known."""
        await self.node.wait_registered()
        await self._known.wait()
        await self.pods.wait_synced()

    def _node_added(self, record: NodeRecord) -> None:
        self._known.set()
        self.kubelet.set_reachable(not record.disconnected)

    def _node_updated(self, old: NodeRecord, new: NodeRecord) -> None:
        if old.disconnected != new.disconnected:
            self.kubelet.set_reachable(not new.disconnected)
        elif old.ready and not new.ready and not new.disconnected:
            # As after this process was suspended: its silence was noticed before it could speak.
            self.node.report()

    def _set_reachable(self, reachable: bool) -> None:
        self.node.set_reachable(reachable)
        if self.scheduler is not None:
            self.scheduler.set_open(reachable)
