"""Fixtures of tests that look at what a controller sends."""

from collections.abc import AsyncIterator

import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.frontdoor import FrontDoor, front_door


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
