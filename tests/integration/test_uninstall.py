"""All Frameworks and the CRD are removed (docs/operations.md, "Remove")."""

import asyncio
import re
from collections.abc import AsyncIterator

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.workloads import IN_USE_FINALIZER, workload_name
from frameworkcontroller.cli.main import build_parser
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.resources import CRDS, PODS, WORKLOADS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.queues.setup import install
from frameworkcontroller.manager.app import Controller
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, role
from tests.support.objects import is_there, items

pytestmark = pytest.mark.newest

POD_TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}}


@pytest.fixture
async def cli(cluster: Cluster) -> Cli:
    return Cli(cluster, await cluster.client(), parser=build_parser)


@pytest.fixture
async def frameworks(cluster: Cluster) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.fixture(autouse=True)
def only_embedded(cluster: Cluster) -> None:
    if not cluster.embedded:
        pytest.skip("the CRD of a cluster that others use stays")


async def test_uninstall(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, pods: SimulatedRuntime, controller: Controller
) -> None:
    await frameworks.create("f", role(number=2))
    await frameworks.create("g", role(), executionType="Create")
    await frameworks.until_running("f", 2)
    refused = await cli("uninstall", "-n", "default")
    assert (refused.code, refused.out) == (2, "")
    shown = await cli("uninstall")
    assert shown.code == 1
    assert shown.lines == [
        "would delete 2 Frameworks in 1 namespace (2 not completed), with all of their Pods,",
        f"and the CRD {names.CRD_NAME}; nothing is deleted without --yes",
    ]
    assert (await frameworks.get("f"))["metadata"].get("deletionTimestamp") is None
    await frameworks.set_finalizers("f-a-0", "example.com/hold", resource=PODS)
    late = await cli("uninstall", "--yes", "--timeout", "3s")
    assert late.code == 1
    assert late.err.startswith(f"not over within 3s: Pod {cluster.namespace}/f-a-0, ")
    assert await is_there(frameworks.client, CRDS, names.CRD_NAME)

    waiting = asyncio.create_task(cli("uninstall", "--yes"))
    await frameworks.set_finalizers("f-a-0", resource=PODS)
    ended = await asyncio.wait_for(waiting, 300)
    assert ended.code == 0, ended
    assert ended.lines[1] == f"deleted the CRD {names.CRD_NAME}"
    assert not await is_there(frameworks.client, CRDS, names.CRD_NAME)
    assert await items(frameworks.client, PODS, frameworks.namespace) == []
    assert await cli.ok("uninstall", "--yes") == [f"there is no CRD {names.CRD_NAME}"]


class Workloads:
    """Workloads of Frameworks as the controller makes them."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def create(self, framework: Json, *finalizers: str) -> str:
        """Create the Workload of a Framework with the controller's finalizer, and others'. Return its name."""
        metadata = framework["metadata"]
        name = workload_name(metadata["name"], metadata["uid"])
        owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": metadata["name"], "uid": metadata["uid"]}
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": name,
                "labels": {names.FRAMEWORK_NAME: metadata["name"]},
                "finalizers": [IN_USE_FINALIZER, *finalizers],
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {"queueName": "team-a", "podSets": [{"name": "a", "count": 1, "template": POD_TEMPLATE}]},
        }
        await self.client.create(WORKLOADS, orjson.dumps(body), self.namespace)
        return name

    async def found(self) -> dict[str, list[str]]:
        """The finalizers of each."""
        listed = await items(self.client, WORKLOADS, self.namespace) or ()
        return {one["metadata"]["name"]: one["metadata"].get("finalizers") or [] for one in listed}

    async def set(self, name: str, body: Json) -> None:
        patch = orjson.dumps(body)
        await self.client.patch(WORKLOADS, name, patch, self.namespace, content_type=MERGE_PATCH)


@pytest.fixture
async def workloads(cluster: Cluster) -> AsyncIterator[Workloads]:
    """Workloads of Kueue, without Kueue."""
    client = await cluster.client()
    await install(client)
    workloads = Workloads(client, cluster.namespace)
    yield workloads
    for name in await workloads.found():
        await workloads.set(name, {"metadata": {"finalizers": []}})


async def test_uninstall_releases_workloads(
    cluster: Cluster,
    frameworks: Frameworks,
    cli: Cli,
    pods: SimulatedRuntime,
    controller: Controller,
    workloads: Workloads,
) -> None:
    """Also if Kueue is not enabled in the controller's configuration: the Framework would stay forever."""
    await frameworks.create("f", role())
    await frameworks.until_running("f", 1)
    held = await workloads.create(await frameworks.get("f"), "example.com/other")
    await frameworks.set_finalizers("f-a-0", "example.com/hold", resource=PODS)
    # Its Pod still uses the quota.
    late = await cli("uninstall", "--yes", "--timeout", "3s")
    assert late.code == 1
    assert late.err.startswith(f"not over within 3s: Pod {cluster.namespace}/f-a-0")
    assert IN_USE_FINALIZER in (await workloads.found())[held]
    await frameworks.set_finalizers("f-a-0", resource=PODS)
    late = await cli("uninstall", "--yes", "--timeout", "3s")
    assert late.code == 1
    assert late.err.startswith(f"not over within 3s: Framework {cluster.namespace}/f")
    # Other clients remove their own finalizers.
    assert await workloads.found() == {
        held: ["example.com/other", "foregroundDeletion"]
    } or await workloads.found() == {held: ["example.com/other"]}
    await workloads.set(held, {"metadata": {"finalizers": []}})
    ended = await cli("uninstall", "--yes")
    assert ended.code == 0, ended
    assert await workloads.found() == {}
    assert not await is_there(frameworks.client, CRDS, names.CRD_NAME)


async def test_uninstall_without_a_controller_leaves_nothing_that_the_history_holds(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, pods: SimulatedRuntime
) -> None:
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role(number=2))
        await frameworks.create("g", role())
        await frameworks.until_running("f", 2)
        await frameworks.until_running("g", 1)
    for name in ("f", "g"):
        await frameworks.set_finalizers(name, names.HISTORY_FINALIZER)
    await frameworks.delete("f", "Background")
    began = asyncio.get_running_loop().time()
    late = await cli("uninstall", "--yes", "--timeout", "50s")
    assert late.code == 1
    assert re.match(r"not over within 50s: Framework \S+/f, Framework \S+/g$", late.err.strip()), late.err
    # Its Pods are gone, and a controller could still archive it.
    assert await frameworks.pods() == {}
    assert await frameworks.finalizers("f") == [names.HISTORY_FINALIZER]
    ended = await cli("uninstall", "--yes", "--archive-within", "5s")
    assert ended.code == 0, ended
    assert ended.lines[:2] == [
        "deleted 2 Frameworks in 1 namespace",
        "the last attempts of 2 Frameworks may not be in the archive",
    ]
    assert asyncio.get_running_loop().time() - began < 60
    assert not await is_there(frameworks.client, CRDS, names.CRD_NAME)


async def test_uninstall_waits_for_a_controller_that_archives(
    cluster: Cluster, frameworks: Frameworks, cli: Cli
) -> None:
    """While it makes progress: not each Framework has its turn at once."""
    last = 6
    for number in range(last + 1):
        await frameworks.create(f"f{number}", role(), metadata={"finalizers": [names.HISTORY_FINALIZER]})

    async def archive() -> None:
        for number in range(last):
            await asyncio.sleep(7)
            assert await frameworks.finalizers(f"f{number}") == [names.HISTORY_FINALIZER]
            await frameworks.set_finalizers(f"f{number}")

    archiving = asyncio.create_task(archive())
    ended = await cli("uninstall", "--yes", "--archive-within", "10s")
    await archiving
    assert (ended.code, ended.lines[1]) == (0, "the last attempts of 1 Framework may not be in the archive")
