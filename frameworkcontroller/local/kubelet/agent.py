"""The nodes: the informers, the scheduler, the provisioner of volumes, and each node's Node object and kubelet."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import NODES, PERSISTENTVOLUMECLAIMS, PODS, SERVICES
from frameworkcontroller.local.kubelet.container import Termination
from frameworkcontroller.local.kubelet.kubelet import Kubelet
from frameworkcontroller.local.kubelet.node import NodeRecord, NodeRegistration, decode_node, resources_of
from frameworkcontroller.local.kubelet.placement import PlacedPodGroup, decode_pod_group
from frameworkcontroller.local.kubelet.pod import NodePod, decode_pod
from frameworkcontroller.local.kubelet.podhosts import ServiceRecord, decode_service
from frameworkcontroller.local.kubelet.runtime import Runtime, RuntimeEvents
from frameworkcontroller.local.kubelet.scheduler import Scheduler
from frameworkcontroller.local.kubelet.volumebinder import Provisioner, VolumeClaim, decode_claim
from frameworkcontroller.local.podgroup_crd import PODGROUPS
from frameworkcontroller.local.resource_lists import parse_resources

DEFAULT_NODE_NAME: Final = "local"

Capacity = Mapping[str, str]


class NodeAgent:
    """Registers nodes at the cluster behind ``client`` (any API server), binds Pods and claims, and runs the Pods.

    ``runtime`` runs the Pods of all nodes. ``nodes``: by name the resources, by which Pods are then bound, or None.
    ``schedule=False`` leaves binding to another scheduler. ``concurrency`` bounds the requests in flight of each
    kubelet and of the scheduler. ``lease``: renew the nodes' Leases, by which a cluster notices soon that one is lost.
    ``gangs``: bind the Pods of a PodGroup (`podgroups`) as it says.
    """

    def __init__(
        self,
        client: KubeClient,
        runtime: Runtime,
        *,
        nodes: Mapping[str, Capacity | None] | None = None,
        schedule: bool = True,
        lease: bool = False,
        gangs: bool = False,
        concurrency: int = 32,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        capacities = nodes or {DEFAULT_NODE_NAME: None}
        counts = any(capacity is not None for capacity in capacities.values())
        self._runtime = runtime
        self.pods: Informer[NodePod] = Informer(
            client,
            PODS,
            partial(decode_pod, keep_manifest=runtime.needs_manifest, keep_requests=counts),
            index=(lambda pod: pod.group) if gangs else None,
            rng=rng,
        )
        self.groups: Informer[PlacedPodGroup] | None = (
            Informer(client, PODGROUPS, decode_pod_group, rng=rng) if gangs else None
        )
        selector = f"metadata.name={next(iter(capacities))}" if len(capacities) == 1 else ""
        self.nodes: Informer[NodeRecord] = Informer(client, NODES, decode_node, field_selector=selector, rng=rng)
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
        self._unknown = set(capacities)
        """The nodes whose Node the informer has not shown yet."""
        self._known = asyncio.Event()
        self.nodes.add_handler(on_add=self._node_added, on_update=self._node_updated)
        self.registrations = {
            name: NodeRegistration(
                client, node_name=name, runtime_name=runtime.name, lease=lease, capacity=capacity, wall=wall
            )
            for name, capacity in capacities.items()
        }
        self.scheduler = (
            Scheduler(
                client,
                self.pods,
                self.nodes,
                self.claims,
                self.groups,
                capacities={
                    name: None if capacity is None else parse_resources(resources_of(capacity))
                    for name, capacity in capacities.items()
                },
                concurrency=concurrency,
                wall=wall,
            )
            if schedule
            else None
        )
        self.kubelets = {
            name: Kubelet(
                client,
                self.pods,
                runtime,
                node_name=name,
                concurrency=concurrency,
                on_reachable=partial(self._set_reachable, name),
                wall=wall,
            )
            for name in capacities
        }
        if len(self.kubelets) > 1:
            runtime.attach(_AllNodes([kubelet.pod_workers for kubelet in self.kubelets.values()]))

    async def run(self) -> None:
        """Run until cancelled; then end all containers and remove everything of them from this machine."""
        await self._runtime.open()
        try:
            async with asyncio.TaskGroup() as group:
                for name, registration in self.registrations.items():
                    group.create_task(registration.run(), name=f"node {name}")
                if self.scheduler is not None:
                    group.create_task(self.scheduler.run(), name="scheduler")
                for name, kubelet in self.kubelets.items():
                    group.create_task(kubelet.run(), name=f"kubelet {name}")
                group.create_task(self.provisioner.run(), name="provisioner")
                group.create_task(self.nodes.run(), name="nodes")
                group.create_task(self.claims.run(), name="claims")
                group.create_task(self.pods.run(), name="pods")
                if self.groups is not None:
                    group.create_task(self.groups.run(), name="PodGroups")
                if self.services is not None:
                    group.create_task(self.services.run(), name="services")
        finally:
            for kubelet in self.kubelets.values():
                kubelet.pod_workers.close()
            await self._runtime.close()

    async def wait_ready(self) -> None:
        """Wait until the Nodes are registered and the existing Pods are known."""
        for registration in self.registrations.values():
            await registration.wait_registered()
        await self._known.wait()
        await self.pods.wait_synced()

    def _node_added(self, record: NodeRecord) -> None:
        if (kubelet := self.kubelets.get(record.name)) is None:
            return
        self._unknown.discard(record.name)
        if not self._unknown:
            self._known.set()
        kubelet.set_reachable(not record.disconnected)

    def _node_updated(self, old: NodeRecord, new: NodeRecord) -> None:
        if (kubelet := self.kubelets.get(new.name)) is None:
            return
        if old.disconnected != new.disconnected:
            kubelet.set_reachable(not new.disconnected)
        elif old.ready and not new.ready and not new.disconnected:
            # As after this process was suspended: its silence was noticed before it could speak.
            self.registrations[new.name].report()

    def _set_reachable(self, node: str, reachable: bool) -> None:
        self.registrations[node].set_reachable(reachable)
        if self.scheduler is not None:
            self.scheduler.set_open(node, reachable)


class _AllNodes:
    """Passes the events of a runtime to all of its kubelets. Each ignores the Pods of other nodes."""

    def __init__(self, kubelets: Sequence[RuntimeEvents]) -> None:
        self._kubelets = kubelets

    def prepared(self, uid: str, address: str) -> None:
        for kubelet in self._kubelets:
            kubelet.prepared(uid, address)

    def unprepared(self, uid: str, reason: str, message: str) -> None:
        for kubelet in self._kubelets:
            kubelet.unprepared(uid, reason, message)

    def started(self, uid: str, container: str) -> None:
        for kubelet in self._kubelets:
            kubelet.started(uid, container)

    def refused(self, uid: str, container: str, reason: str, message: str) -> None:
        for kubelet in self._kubelets:
            kubelet.refused(uid, container, reason, message)

    def exited(self, uid: str, container: str, termination: Termination) -> None:
        for kubelet in self._kubelets:
            kubelet.exited(uid, container, termination)

    def fail_pod(self, uid: str, reason: str, message: str, culprit: tuple[str, Termination] | None = None) -> None:
        for kubelet in self._kubelets:
            kubelet.fail_pod(uid, reason, message, culprit)

    def override_phase(self, uid: str, phase: str | None, reason: str = "", message: str = "") -> None:
        for kubelet in self._kubelets:
            kubelet.override_phase(uid, phase, reason, message)

    def node_reachable(self, reachable: bool) -> None:
        for kubelet in self._kubelets:
            kubelet.node_reachable(reachable)
