"""The API server of a cluster, as bare HTTP."""

from collections.abc import AsyncIterator

import pytest

from tests.support.api import Api, open_api
from tests.support.clusters import Cluster


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    async with open_api(cluster.kubeconfig, cluster.namespace) as api:
        yield api
