"""PodDisruptionBudgets on a local cluster: the output of kubectl, and drains and evictions that they refuse."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.resources import PODDISRUPTIONBUDGETS, PODS
from tests.support.eventually import eventually
from tests.support.frameworks import role, tasks
from tests.support.kubectl import Kubectl
from tests.support.objects import read
from tests.support.pods import pod_manifest
from tests.support.site import LocalSite, kubectl_on, local_site

pytestmark = pytest.mark.virtual_clock

Json = dict[str, Any]


class World(LocalSite):
    """A local cluster with Pods that run, and budgets."""

    async def pod(self, name: str, **labels: str) -> None:
        body = pod_manifest({"name": "main"}, name=name)
        body["metadata"]["labels"] = labels
        await self.client.create(PODS, orjson.dumps(body), "default")

        async def runs() -> None:
            assert (await read(self.client, PODS, name, "default"))["status"]["phase"] == "Running"

        await eventually(runs)

    async def budget(self, name: str, selector: Json, **spec: Any) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"selector": selector, **spec},
        }
        await self.client.create(PODDISRUPTIONBUDGETS, orjson.dumps(body), "default")

    async def evict(self, name: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        await self.client.create(PODS, orjson.dumps(body), "default", name=name, subresource="eviction")


def attempts(status: Json) -> list[int]:
    return [task["attemptStatus"]["id"] for task in tasks(status)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with local_site(tmp_path, World) as world:
        yield world


@pytest.fixture
def kubectl(world: World, tmp_path: Path) -> Kubectl:
    return kubectl_on(world.cluster, tmp_path)


@pytest.mark.parametrize(
    ("selector", "spec", "permits"),
    [
        ({"matchLabels": {"app": "a"}}, {"minAvailable": 1}, True),
        ({"matchLabels": {"app": "a"}}, {"minAvailable": 2}, False),
        ({"matchLabels": {"app": "b"}}, {"minAvailable": 2}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}, {"minAvailable": 2}, False),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"minAvailable": 2}, True),
        ({}, {"minAvailable": 2}, False),
        # No kind with Pods has a /scale here.
        ({"matchLabels": {"app": "a"}}, {"maxUnavailable": 1}, False),
        ({"matchLabels": {"app": "a"}}, {"minAvailable": "10%"}, False),
    ],
)
async def test_an_eviction(world: World, selector: Json, spec: Json, permits: bool) -> None:
    for name in ("p", "q"):
        await world.pod(name, app="a")
    await world.budget("b", selector, **spec)
    if permits:
        await world.evict("p")
    else:
        with pytest.raises(ApiError, match="Cannot evict pod as it would violate the pod's disruption budget") as error:
            await world.evict("p")
        assert error.value.code == 429


async def test_a_pod_with_two_budgets_cannot_be_evicted(world: World) -> None:
    await world.pod("p", app="a")
    for name in ("b", "c"):
        await world.budget(name, {"matchLabels": {"app": "a"}}, minAvailable=0)
    with pytest.raises(ApiError, match="more than one PodDisruptionBudget"):
        await world.evict("p")


@pytest.mark.parametrize("spec", [{"minAvailable": -1}, {"minAvailable": 1, "maxUnavailable": 1}])
async def test_a_budget_that_is_refused(world: World, spec: Json) -> None:
    with pytest.raises(ApiError) as error:
        await world.budget("b", {}, **spec)
    assert error.value.code == 422


async def test_a_drain_takes_one_task_at_a_time(world: World, kubectl: Kubectl) -> None:
    forever = role("a", 2, task={"retryPolicy": {"maxRetryCount": -2}})
    await world.frameworks.create("f", {**forever, "disruptionBudget": {"maxUnavailable": 1}})
    await world.frameworks.until_running("f", 2)

    async def shown() -> None:
        name, least, most, allowed, _ = (await kubectl.ok("get", "pdb", "--no-headers")).split()
        assert (name, least, most, allowed) == ("f-a", "1", "N/A", "1")

    await eventually(shown, within=60)
    # The cluster has no other node: the second Task would have to wait until the first one is back.
    refused = await kubectl("drain", "local", "--timeout=8s")
    assert refused.code != 0
    assert "Cannot evict pod as it would violate the pod's disruption budget" in refused.err
    status = await world.frameworks.until("f", lambda status: 1 in attempts(status))
    assert sorted(attempts(status)) == [0, 1]
    await kubectl.ok("uncordon", "local")
    await world.frameworks.until_running("f", 2)
