"""A cluster in this process: an API server on loopback, and one node that runs Pods."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, Self

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.local.apiserver.server import ApiServer
from frameworkcontroller.local.kubelet.access import ApiAccess
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.images import LocalImage
from frameworkcontroller.local.kubelet.process import Printed, ProcessRuntime
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.kubelet.supervisor import SupervisorError

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
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        """``port``: of the API server on 127.0.0.1; 0 for any free one. ``wall``: seconds since the epoch.

        ``printed`` gets each line that a container prints; the runtime "simulated" prints nothing.
        """
        self._directory = directory
        self._runtime_name = runtime
        self._printed = printed
        self._wall = wall
        self._rng = rng
        self.server = ApiServer(wall=wall, port=port, rng=rng, node_lifecycle=True)
        self._client: KubeClient | None = None
        self._node: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return self.server.url

    @property
    def limitation(self) -> str:
        """What does not work on this machine, for its user; empty if everything does."""
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
        try:
            await self._start_node()
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
        if self._node is not None:
            await asyncio.shield(self._node)

    async def _start_node(self) -> None:
        self._client = client = KubeClient(self.connect(), wall=self._wall)
        runtime: ProcessRuntime | SimulatedRuntime
        if self._runtime_name == "process":
            access = ApiAccess(self.server.url, self.server.authenticator.token)
            runtime = ProcessRuntime(
                client,
                access,
                self._directory,
                images=IMAGES,
                printed=self._printed,
                wall=self._wall,
                rng=self._rng,
            )
        else:
            runtime = SimulatedRuntime(wall=self._wall)
        self.server.logs = runtime
        agent = NodeAgent(client, runtime, lease=True, wall=self._wall, rng=self._rng)
        self._node = asyncio.create_task(agent.run(), name="node")
        ready = asyncio.create_task(agent.wait_ready(), name="node is ready")
        try:
            await asyncio.wait([self._node, ready], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._node.done():
            try:
                self._node.result()
            except SupervisorError as error:
                raise ClusterError(str(error)) from error

    async def _stop(self) -> None:
        # The node first: it needs the API server while it ends its Pods.
        if self._node is not None:
            self._node.cancel()
            await asyncio.wait([self._node])
        if self._client is not None:
            await self._client.close()
        await self.server.stop()
