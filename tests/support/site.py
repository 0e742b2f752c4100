"""Sites: a cluster on virtual time, with a node, the API server's door, a controller and a user."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from frameworkcontroller.config.config import Config, shipped_config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.local.cluster import LocalCluster
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster, embedded_cluster, simulated_node
from tests.support.frameworks import Frameworks
from tests.support.frontdoor import FrontDoor, front_door
from tests.support.kubectl import Kubectl, find_kubectl
from tests.support.virtual_clock import wall


@dataclass
class Site:
    """The embedded cluster, with a simulated node, and a controller behind a door."""

    cluster: Cluster
    client: KubeClient
    pods: SimulatedRuntime
    door: FrontDoor
    controller: Controller
    frameworks: Frameworks


S = TypeVar("S", bound=Site)


@asynccontextmanager
async def site(path: Path, kind: type[S], config: Config | None = None) -> AsyncIterator[S]:
    """A site of that kind, whose random choices are the same on every run."""
    async with (
        embedded_cluster(path) as cluster,
        simulated_node(cluster) as pods,
        front_door(await cluster.connection()) as door,
        Controller(config or Config(), door.connection, wall=cluster.wall, rng=random.Random(3)) as controller,
    ):
        client = await cluster.client()
        yield kind(cluster, client, pods, door, controller, Frameworks(client, cluster.namespace))


@dataclass
class LocalSite:
    """A local cluster, as `local up` starts it, with simulated Pods."""

    cluster: LocalCluster
    client: KubeClient
    frameworks: Frameworks

    @property
    def pods(self) -> SimulatedRuntime:
        """The node's Pods."""
        assert isinstance(self.cluster.server.logs, SimulatedRuntime)
        return self.cluster.server.logs


L = TypeVar("L", bound=LocalSite)


@asynccontextmanager
async def local_site(path: Path, kind: type[L], config: Config | None = None, **options: Any) -> AsyncIterator[L]:
    """A site of that kind; ``options``: of `LocalCluster`."""
    rng = random.Random(1)
    async with (
        LocalCluster(path, runtime="simulated", wall=wall, rng=rng, **options) as cluster,
        Controller(config or shipped_config(), cluster.connect(), wall=wall),
        KubeClient(cluster.connect()) as client,
    ):
        yield kind(cluster, client, Frameworks(client, "default"))


def kubectl_on(cluster: LocalCluster, folder: Path) -> Kubectl:
    """Return kubectl on the cluster, with its files in the folder. Skip the test if there is none."""
    program = find_kubectl()
    if isinstance(program, str):
        pytest.skip(program)
    kubeconfig = folder / "kubeconfig"
    cluster.server.write_kubeconfig(kubeconfig)
    return Kubectl(program, kubeconfig, "default", folder)
