"""A cluster in this process: an API server on loopback, and nodes that run Pods."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

import orjson

from frameworkcontroller.api.names import GPU
from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.resources import CRDS
from frameworkcontroller.local import podgroup_crd
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.kubelet.agent import DEFAULT_NODE_NAME, NodeAgent
from frameworkcontroller.local.kubelet.images import LocalImage
from frameworkcontroller.local.kubelet.podaccess import ApiAccess
from frameworkcontroller.local.kubelet.process import Printed, ProcessRuntime
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.kubelet.supervisor import SupervisorError
from frameworkcontroller.local.queues.kueue_crds import definitions
from frameworkcontroller.local.queues.queue_controller import QueueController
from frameworkcontroller.local.queues.setup import provide_queue
from frameworkcontroller.local.serviceproxy import ServiceProxy

RuntimeName = Literal["process", "simulated"]

_PACKAGES: Final = Path(__file__).resolve().parents[2]

IMAGES: Final = {
    "frameworkcontroller/frameworkbarrier": LocalImage(
        (
            "sh",
            "-c",
            # Writes to the image's output directory if the Pod has a volume there. -P: no imports from it.
            'cd "$0" 2>/dev/null || :; exec env PYTHONPATH="$1" "$2" -P -m frameworkcontroller.barrier',
            "/mnt/frameworkbarrier",
            str(_PACKAGES),
            sys.executable,
        )
    ),
}
"""Local commands for this project's images."""


class ClusterError(Exception):
    """The cluster cannot be started; the text says why."""


class LocalCluster:
    """An async context manager that runs the cluster; on exit no process and no file of a Pod remains.

    ``directory`` holds the files of its Pods. Clusters may reuse it one after another.
    """

    def __init__(
        self,
        directory: Path,
        *,
        runtime: RuntimeName = "process",
        port: int = 0,
        printed: Printed | None = None,
        quota: Mapping[str, str] | None = None,
        nodes: int = 1,
        capacity: Mapping[str, str] | None = None,
        gpus: Sequence[object] | None = None,
        volumes: Mapping[str, Path] | None = None,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        """``port``: of the API server on 127.0.0.1; 0 for any free one. ``wall``: seconds since the epoch.

        ``printed`` gets each line that a container prints; the runtime "simulated" prints nothing. ``quota``: of a
        queue, by resource; None for a cluster without queues. ``capacity``: resources of each node, by which Pods are
        then bound; None to ignore their requests. ``gpus``: the machine's GPUs that the nodes share; by default each
        has as many as in ``capacity``. ``volumes``: directories in place of network volumes.
        """
        self._directory = directory
        self._runtime_name = runtime
        self._printed = printed
        self._quota = quota
        self._nodes = nodes
        self._capacity = capacity
        self._gpus = gpus
        self._volumes = volumes
        self._wall = wall
        self._rng = rng
        self.server = ApiServer(wall=wall, port=port, rng=rng, node_lifecycle=True)
        self._client: KubeClient | None = None
        self._parts: list[asyncio.Task[None]] = []
        """In the order of their start."""

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return self.server.url

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes: ``local`` if there is one, else ``local-0`` and so on."""
        return [DEFAULT_NODE_NAME] if self._nodes == 1 else [f"{DEFAULT_NODE_NAME}-{i}" for i in range(self._nodes)]

    @property
    def limitation(self) -> str:
        """Features that do not work on this machine, for its user."""
        return self.server.logs.limitation if isinstance(self.server.logs, ProcessRuntime) else ""

    def connect(self) -> Connection:
        """Return a new connection to the API server."""
        return Connection.to_address(self.server.url, token=self.server.authenticator.token)

    async def __aenter__(self) -> Self:
        """Start; return once Pods can be created.

        Raises:
            ClusterError: the node cannot run containers on this machine.
            OSError: the port is taken, or the directory is unusable.
        """
        await self.server.start()
        self._client = client = KubeClient(self.connect(), wall=self._wall)
        try:
            await self._start_node(client)
            if self._runtime_name == "process":
                proxy = ServiceProxy(self.server.storage)
                self._parts.append(asyncio.create_task(proxy.run(), name="addresses of Services"))
            if self._quota is not None:
                await self._start_queue(client, self._quota)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stop()

    async def all_printed(self) -> None:
        """Wait until ``printed`` has got all output of Pods without running containers."""
        if isinstance(self.server.logs, ProcessRuntime):
            await self.server.logs.all_printed()

    async def wait(self) -> None:
        """Wait until the cluster fails, and raise its error."""
        ended, _ = await asyncio.wait(self._parts, return_when=asyncio.FIRST_COMPLETED)
        for part in ended:
            part.result()

    async def _define(self, client: KubeClient, *resources: Mapping[str, Any]) -> None:
        """Have the API server serve the resources: this one does at once."""
        for definition in resources:
            await client.create(CRDS, orjson.dumps(definition))

    async def _start_queue(self, client: KubeClient, quota: Mapping[str, str]) -> None:
        await self._define(client, *definitions())
        await provide_queue(client, quota)
        queue = QueueController(client, wall=self._wall, rng=self._rng)
        self._parts.append(asyncio.create_task(queue.run(), name="queue"))
        await queue.wait_ready()

    async def _start_node(self, client: KubeClient) -> None:
        runtime: ProcessRuntime | SimulatedRuntime
        gpus = self._share_gpus()
        if self._runtime_name == "process":
            access = ApiAccess(self.server.url, self.server.authenticator.token)
            runtime = ProcessRuntime(
                client,
                access,
                self._directory,
                images=IMAGES,
                printed=self._printed,
                volumes=self._volumes,
                gpus=gpus,
                wall=self._wall,
                rng=self._rng,
            )
        else:
            runtime = SimulatedRuntime(wall=self._wall)
        self.server.logs = runtime
        await self._define(client, podgroup_crd.definition())
        nodes = dict.fromkeys(self.node_names, self._capacity)
        if self._capacity is not None:
            nodes |= {name: {**self._capacity, GPU: str(len(own))} for name, own in gpus.items()}
        agent = NodeAgent(client, runtime, nodes=nodes, lease=True, gangs=True, wall=self._wall, rng=self._rng)
        node = asyncio.create_task(agent.run(), name="node")
        self._parts.append(node)
        ready = asyncio.create_task(agent.wait_ready(), name="node is ready")
        try:
            await asyncio.wait([node, ready], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if node.done():
            try:
                node.result()
            except SupervisorError as error:
                raise ClusterError(str(error)) from error

    def _share_gpus(self) -> dict[str, Sequence[object]]:
        """The GPUs of each node, if they are counted."""
        names = self.node_names
        if self._capacity is None or GPU not in self._capacity:
            return {}
        gpus = self._gpus
        if gpus is None:
            gpus = range(len(names) * int(parse_quantity(self._capacity[GPU])))
        # Neighbors stay together: they are often connected.
        bounds = [len(gpus) * i // len(names) for i in range(len(names) + 1)]
        return {name: gpus[bounds[i] : bounds[i + 1]] for i, name in enumerate(names)}

    async def _stop(self) -> None:
        # Before the API server: the node needs it while it ends its Pods.
        for part in reversed(self._parts):
            part.cancel()
            await asyncio.wait([part])
        if self._client is not None:
            await self._client.close()
        await self.server.stop()
