"""A cluster with a node, its Frameworks, and the requests of a controller."""

from collections.abc import AsyncIterator

import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.archiveserver import ArchiveServer, archive_server
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks
from tests.support.frontdoor import FrontDoor, front_door


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime) -> Frameworks:
    """Frameworks of the test's namespace, whose Pods a node runs."""
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.fixture
async def cli(cluster: Cluster) -> Cli:
    """The commands, on the cluster."""
    return Cli(cluster, await cluster.client())


@pytest.fixture
async def unattended(cluster: Cluster) -> Frameworks:
    """Frameworks that no controller looks at."""
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.fixture
async def door(cluster: Cluster) -> AsyncIterator[FrontDoor]:
    """The API server as a controller sees it."""
    async with front_door(await cluster.connection()) as door:
        yield door


@pytest.fixture
async def watched(cluster: Cluster, door: FrontDoor) -> AsyncIterator[Controller]:
    """A controller whose requests are recorded."""
    async with Controller(Config(), door.connection, wall=cluster.wall) as controller:
        yield controller


@pytest.fixture
async def archive() -> AsyncIterator[ArchiveServer]:
    """A stand-in for the archive's server."""
    async with archive_server() as server:
        yield server
