"""A controller's handling of objects that no status records, on API servers."""

import orjson
import pytest

from frameworkcontroller.kube.resources import CONFIGMAPS
from tests.support.api import config_map
from tests.support.clusters import Cluster
from tests.support.eventually import read_until
from tests.support.frameworks import Frameworks, role

pytestmark = [pytest.mark.usefixtures("controller"), pytest.mark.newest]


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
async def test_owners_in_a_template_do_not_keep_pods(
    cluster: Cluster, frameworks: Frameworks, propagation: str
) -> None:
    """The garbage collector unties an object from an owner that goes, if another one stays."""
    client, namespace = frameworks.client, frameworks.namespace
    stays = orjson.loads(await client.create(CONFIGMAPS, orjson.dumps(config_map("stays")), namespace))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "stays", "uid": stays["metadata"]["uid"]}
    template = {"metadata": {"ownerReferences": [owner]}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    await frameworks.create("f", role("a", 1, task={"pod": template}))
    await frameworks.until_running("f", 1)
    await frameworks.delete("f", propagation)
    await read_until(frameworks.pods, lambda found: found == {})


async def test_a_pod_that_loses_its_owner_ends_with_its_attempt(cluster: Cluster, frameworks: Frameworks) -> None:
    """Its ConfigMap is deleted, and leaves its Pods behind."""
    await frameworks.create("f", role("a", 2), retryPolicy={"maxRetryCount": 1})
    await frameworks.until_running("f", 2)
    before = {pod["metadata"]["uid"] for pod in (await frameworks.pods()).values()}
    await frameworks.client.delete(CONFIGMAPS, "f-attempt", frameworks.namespace, propagation="Orphan")
    await frameworks.until("f", lambda status: status["retryPolicyStatus"]["totalRetriedCount"] == 1)
    await frameworks.until_running("f", 2)
    assert not before & {pod["metadata"]["uid"] for pod in (await frameworks.pods()).values()}
