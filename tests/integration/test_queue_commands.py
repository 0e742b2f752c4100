"""The output of commands about Frameworks in the local cluster's queue, and about gangs."""

from collections.abc import AsyncIterator

import orjson
import pytest

from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.config.config import Config, Kueue, KueueMode
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.resources import CRDS, VOLCANO_PODGROUPS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.queues.setup import LOCAL_QUEUE
from frameworkcontroller.manager.app import Controller
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, role, states
from tests.support.localqueue import in_queue, needing, queue_on
from tests.support.podgroups import serve

pytestmark = pytest.mark.newest


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime) -> AsyncIterator[Frameworks]:
    """A queue with two processors."""
    config = Config(kueue=Kueue(mode=KueueMode.ENABLED))
    async with queue_on(cluster, {"cpu": "2"}), Controller(config, await cluster.connection(), wall=cluster.wall):
        frameworks = Frameworks(await cluster.client(), cluster.namespace)
        yield frameworks
        for name in ("first", "second"):
            await frameworks.delete(name)
            await frameworks.until_gone(name)


async def test_the_state_of_a_queue_is_shown(frameworks: Frameworks, cli: Cli) -> None:
    await frameworks.create("first", needing(1, 2), metadata=in_queue())
    assert (await cli("wait", "first", "--for", "admitted")).out == "first: admitted\n"
    await frameworks.until_running("first", 2)
    assert (await cli.ok("status", "first"))[1].strip(" │├└─").startswith(f"queue {LOCAL_QUEUE}: Admitted by Workload ")

    await frameworks.create("second", needing(1, 1), metadata=in_queue())

    async def kueue_has_said_why() -> None:
        lines = [line.strip(" │├└─") for line in await cli.ok("status", "second")]
        assert len(lines) > 2, lines
        assert lines[0].partition("  ")[2].startswith("Queued  ")
        assert "cpu" in lines[1]
        assert lines[2] == f"queue {LOCAL_QUEUE}: Pending"

    await eventually(kueue_has_said_why)
    listed = {line.split()[0]: line for line in await cli.ok("list")}
    assert listed["second"].split()[1] == "Queued"
    wide = {line.split()[0]: line for line in await cli.ok("list", "-o", "wide")}
    assert LOCAL_QUEUE in wide["first"].split()
    assert "cpu" in wide["second"].partition(LOCAL_QUEUE)[0]

    late = await cli("wait", "second", "--for", "running", "--timeout", "1s")
    assert late.code == 1
    assert late.err.startswith("not running within 1s: second (Queued: ")
    assert "cpu" in late.err


async def test_the_wait_of_a_gang_is_shown(cluster: Cluster, cli: Cli, pods: SimulatedRuntime) -> None:
    """In the words of its scheduler, which this cluster lacks."""
    client = await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)
    await serve(cluster, VOLCANO_PODGROUPS)
    try:
        config = Config(gang_scheduler=GangScheduler.VOLCANO)
        async with Controller(config, await cluster.connection(), wall=cluster.wall):
            await frameworks.create("gang", role("a", 2), scheduling={"schedulingPolicy": {"gang": {}}})
            await frameworks.until("gang", lambda status: states(status) == ["AttemptPreparing"] * 2)
            said = {
                "type": "Unschedulable",
                "status": "True",
                "reason": "NotEnoughResources",
                "message": "no room for 2",
            }
            status = orjson.dumps({"status": {"phase": "Pending", "conditions": [said]}})
            # Volcano's PodGroups have no subresource status.
            await client.patch(VOLCANO_PODGROUPS, "gang", status, cluster.namespace, content_type=MERGE_PATCH)

            async def is_said() -> None:
                lines = [line.strip(" │├└─") for line in await cli.ok("status", "gang")]
                assert any(line == "PodGroup gang is not placed: no room for 2" for line in lines), lines
                assert (await cli.ok("list"))[1].split()[1] == "Pending"

            await eventually(is_said)
            await frameworks.delete("gang")
            await frameworks.until_gone("gang")
    finally:
        await client.delete(CRDS, VOLCANO_PODGROUPS.qualified)
