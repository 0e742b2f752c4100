"""Clusters for tests, all used alike: the embedded one, on virtual time, and real control planes, on real time.

Fixtures (in tests/conftest.py): `cluster`, which runs a test once on each cluster that `--cluster` names, with a
namespace of the test's own; and `pods`, a simulated node of that cluster on which Pods run without processes.
"""

import asyncio
import itertools
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import STRATEGIC_PATCH, KubeClient
from frameworkcontroller.kube.connection import Connection, connect
from frameworkcontroller.kube.elector import ClockReading
from frameworkcontroller.kube.errors import NotFound, TooManyRequests
from frameworkcontroller.kube.resources import CRDS, NAMESPACES, PODS, WORKLOADS
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.eventually import eventually
from tests.support.framework_crd import crd_json, crd_manifest
from tests.support.realcluster import ControlPlane, find_assets
from tests.support.virtual_clock import wall

EMBEDDED: Final = "embedded"

_namespace_numbers = itertools.count(1)


@dataclass
class Cluster:
    """One cluster as a test sees it."""

    name: str
    """What `--cluster` calls it."""
    url: str
    kubeconfig: Path
    """A kubeconfig file of a user who may do everything."""
    namespace: str
    """A namespace that only this test uses."""
    wall: Callable[[], float]
    """The wall clock by which time passes on this cluster."""
    kubeconfig_of: Callable[[str], Path] | None = None
    """The kubeconfig file of one of realcluster.USERS; None if this cluster lets everybody do everything."""
    server: ApiServer | None = None
    """The embedded API server, to look inside or to stop; None for a real one."""
    _clients: list[KubeClient] = field(default_factory=list)

    @property
    def embedded(self) -> bool:
        """Whether this is the embedded cluster, on virtual time."""
        return self.name == EMBEDDED

    @property
    def evaluates_rules(self) -> bool:
        """Whether it knows the CEL rules of a CRD, which Kubernetes has since 1.25."""
        return self.name not in (EMBEDDED, "1.20")

    @property
    def tells_disruptions(self) -> bool:
        """Whether Pods that are evicted have the condition DisruptionTarget, as since Kubernetes 1.26."""
        return self.name != "1.20"

    def instant(self) -> ClockReading:
        """The clocks of leader elections."""
        if not self.embedded:
            return ClockReading.now()
        now = asyncio.get_running_loop().time()
        return ClockReading(now, now, self.wall())

    def skip_without_tokens(self) -> None:
        """Skip the test if service accounts get no tokens here."""
        if self.name == "1.36":
            pytest.skip("this build serves no TokenReview, and gives no tokens to service accounts")

    async def evict(self, pod: str) -> None:
        """Evict a Pod by the eviction API."""
        client = await self.client()
        if self.name == "1.36":
            # This API server does not set it.
            await self.disrupt(pod, "EvictionByEvictionAPI", "Eviction API: evicting")
        version = "policy/v1beta1" if self.name == "1.20" else "policy/v1"
        body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": pod, "namespace": self.namespace}}
        await client.create(PODS, orjson.dumps(body), self.namespace, name=pod, subresource="eviction")

    async def disrupt(self, pod: str, reason: str, message: str, **status: Any) -> None:
        """Say that the Pod is about to be disrupted for that reason, as Kubernetes does before it deletes it."""
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        body = orjson.dumps({"status": {"conditions": [condition], **status}})
        client = await self.client()
        await client.patch(PODS, pod, body, self.namespace, content_type=STRATEGIC_PATCH, subresource="status")

    async def connection(self, user: str = "admin") -> Connection:
        """Where the cluster is and how `user` proves who it is."""
        kubeconfig = self.kubeconfig
        if user != "admin":
            assert self.kubeconfig_of is not None, "this cluster tells no users apart"
            kubeconfig = self.kubeconfig_of(user)
        return await connect(kubeconfig=str(kubeconfig), environ={})

    async def client(self, user: str = "admin") -> KubeClient:
        """A client of the cluster, closed when the test ends."""
        client = KubeClient(await self.connection(user))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Remove Frameworks, Pods and Workloads, since later controllers see all namespaces, and close all clients.

        The namespace of a real cluster stays: its deletion costs more requests than most tests.
        """
        try:
            if not self.embedded:
                client = await self.client()
                await eventually(lambda: self._remove_all(client))
        finally:
            for client in self._clients:
                await client.close()

    async def _remove_all(self, client: KubeClient) -> None:
        for resource in (FRAMEWORKS, WORKLOADS, PODS):
            try:
                items = orjson.loads(await client.list(resource, self.namespace))["items"]
            except NotFound:
                continue
            except TooManyRequests as error:
                # For a moment after its CRD was replaced.
                raise AssertionError(error) from error
            for item in items:
                with suppress(NotFound):
                    name = item["metadata"]["name"]
                    await client.delete(resource, name, self.namespace, grace_period_seconds=0)


class ControlPlanes:
    """The real control planes of a test session: each is started when first asked for, and serves until its end."""

    def __init__(self) -> None:
        self._running: dict[str, ControlPlane] = {}

    def get(self, name: str) -> ControlPlane:
        """The running control plane `name`, one that `find_assets` finds."""
        if name not in self._running:
            assets = find_assets(name)
            assert assets is not None, f"no control plane {name}"
            plane = ControlPlane(assets)
            plane.start()
            self._running[name] = plane
        return self._running[name]

    def stop(self) -> None:
        """Stop them all."""
        for plane in self._running.values():
            plane.stop()


@asynccontextmanager
async def embedded_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """A new embedded API server on the running loop, whose time is virtual; `folder` gets its kubeconfig."""
    async with ApiServer(wall=wall, rng=random.Random(1)) as server:
        kubeconfig = folder / "kubeconfig.yaml"
        server.write_kubeconfig(kubeconfig)
        cluster = Cluster(
            name=EMBEDDED, url=server.url, kubeconfig=kubeconfig, namespace=_new_namespace(), wall=wall, server=server
        )
        client = await cluster.client()
        await client.create(CRDS, crd_json())
        name = crd_manifest()["metadata"]["name"]

        async def established() -> None:
            body = orjson.loads(await client.get(CRDS, name))
            conditions = {one["type"]: one["status"] for one in body.get("status", {}).get("conditions", [])}
            assert conditions.get("Established") == "True"

        await eventually(established)
        await _create_namespace(cluster)
        try:
            yield cluster
        finally:
            await cluster.close()


@asynccontextmanager
async def real_cluster(name: str, plane: ControlPlane) -> AsyncIterator[Cluster]:
    """The cluster of a running control plane, with a new namespace."""
    cluster = Cluster(
        name=name,
        url=plane.url,
        kubeconfig=plane.kubeconfig,
        namespace=_new_namespace(),
        wall=time.time,
        kubeconfig_of=plane.user_kubeconfig,
    )
    await _create_namespace(cluster)
    try:
        yield cluster
    finally:
        await cluster.close()


@asynccontextmanager
async def simulated_node(cluster: Cluster) -> AsyncIterator[SimulatedRuntime]:
    """A node of `cluster` that schedules its Pods and runs them without processes, as their annotations say."""
    runtime = SimulatedRuntime(wall=cluster.wall)
    if cluster.server is not None:
        cluster.server.logs = runtime
    agent = NodeAgent(await cluster.client(), runtime, wall=cluster.wall)
    running = asyncio.create_task(agent.run(), name="node agent")
    try:
        ready = asyncio.create_task(agent.wait_ready(), name="node agent is ready")
        await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if running.done():
            running.result()
        yield runtime
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _create_namespace(cluster: Cluster) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}}
    await (await cluster.client()).create(NAMESPACES, orjson.dumps(body))


def _new_namespace() -> str:
    return f"test-{os.getpid()}-{next(_namespace_numbers)}"
