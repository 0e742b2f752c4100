"""Frameworks on a local cluster that loses its node, drains it, or evicts a Pod."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import EVENTS, NODES
from frameworkcontroller.local.kubelet.node import DISCONNECTED
from tests.support.eventually import eventually, read_until
from tests.support.frameworks import codes, condition, role, tasks
from tests.support.kubectl import Kubectl
from tests.support.site import LocalSite, kubectl_on, local_site
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock

Json = dict[str, Any]

NODE = "local"
FREE: Json = {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 0}}


class World(LocalSite):
    """A local cluster with its controller."""

    async def node(self) -> Json | None:
        with suppress(NotFound):
            found: Json = orjson.loads(await self.client.get(NODES, NODE))
            return found
        return None

    async def patch_node(self, change: Json) -> None:
        await self.client.patch(NODES, NODE, orjson.dumps(change), content_type=MERGE_PATCH)

    async def disconnect(self) -> None:
        await self.patch_node({"metadata": {"annotations": {DISCONNECTED: "true"}}})

    async def reconnect(self) -> None:
        await self.patch_node({"metadata": {"annotations": {DISCONNECTED: None}}})

    async def until_ready(self, status: str) -> None:
        async def probe() -> None:
            node = await self.node()
            assert node is not None
            assert condition(node["status"], "Ready")["status"] == status

        await eventually(probe, within=120, every=1)

    async def pod(self) -> Json:
        pods = await self.frameworks.pods()
        assert "f-a-0" in pods
        return pods["f-a-0"]

    async def until_pod(self, holds: Callable[[Json], bool], *, within: float = 600) -> Json:
        return await read_until(self.pod, holds, within=within, every=1)

    async def run(self, task: Json | None = None, **simulate: Any) -> Json:
        """Run a Framework with one Task; its Pod."""
        simulation = {key.replace("_", "-"): value for key, value in simulate.items()}
        await self.frameworks.create("f", role("a", 1, task={**FREE, **(task or {})}, simulate=simulation))
        await self.frameworks.until_running("f", 1)
        return await self.pod()

    async def until_retried(self, attempt: int = 1) -> Json:
        """Wait until the Task runs in this attempt; it must not have been charged for the ones before."""
        status = await self.frameworks.until(
            "f",
            lambda status: (
                (tasks(status)[0]["attemptStatus"]["id"], tasks(status)[0]["state"]) == (attempt, "AttemptRunning")
            ),
            within=1200,
            every=1,
        )
        retries = tasks(status)[0]["retryPolicyStatus"]
        assert (retries["totalRetriedCount"], retries["accountableRetriedCount"]) == (attempt, 0)
        return status

    async def until_code(self, code: int) -> Json:
        return await self.frameworks.until("f", lambda status: codes(tasks(status)) == [code], within=600, every=0.2)

    async def until_told(self, reason: str, text: str) -> None:
        """Wait for an Event."""

        async def probe() -> None:
            items = orjson.loads(await self.client.list(EVENTS, "default"))["items"]
            assert any(text in item["message"] for item in items if item["reason"] == reason), items

        await eventually(probe, within=120, every=1)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with local_site(tmp_path, World) as world:
        yield world


@pytest.fixture
def kubectl(world: World, tmp_path: Path) -> Kubectl:
    return kubectl_on(world.cluster, tmp_path)


def uid(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def created(pod: Json) -> int:
    return parse_time(pod["metadata"]["creationTimestamp"])


def disruption(pod: Json) -> str | None:
    found = condition(pod["status"], "DisruptionTarget")
    return found["reason"] if found.get("status") == "True" else None


def is_deleting(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_stalled(status: Json) -> bool:
    found = condition(status, "Stalled")
    return (found.get("status"), found.get("reason")) == ("True", "PodNotGone")


# --- evictions ---


async def test_a_drained_node_stays_empty(world: World, kubectl: Kubectl) -> None:
    before = await world.run()
    said = await kubectl.ok("drain", NODE)
    assert "pod/f-a-0 evicted" in said
    assert f"node/{NODE} drained" in said
    after = await world.until_pod(lambda pod: bool(condition(pod["status"], "PodScheduled")))
    assert uid(after) != uid(before)
    why = condition(after["status"], "PodScheduled")
    assert (why["status"], why["reason"]) == ("False", "Unschedulable")
    assert why["message"] == "0/1 nodes are available: 1 node(s) were unschedulable."
    assert "nodeName" not in after["spec"]
    # It is reported once, in spite of later changes of the Pod.
    await asyncio.sleep(60)
    await kubectl.ok("annotate", "pod", "f-a-0", "looked=at")
    await asyncio.sleep(1)
    assert condition((await world.pod())["status"], "PodScheduled") == why
    await kubectl.ok("uncordon", NODE)
    await world.until_retried()


async def test_a_taint_evicts_at_once_and_keeps_others_away(world: World, kubectl: Kubectl) -> None:
    await world.run(stop_seconds=3)
    await kubectl.ok("taint", "node", NODE, "team=blue:NoExecute")
    await world.until_code(-1009)
    after = await world.until_pod(lambda pod: bool(condition(pod["status"], "PodScheduled").get("message")))
    assert "untolerated taint {team: blue}" in condition(after["status"], "PodScheduled")["message"]
    await kubectl.ok("taint", "node", NODE, "team-")
    await world.until_retried()


# --- a lost node ---


async def test_a_lost_node_keeps_its_task_waiting_until_it_is_back(world: World) -> None:
    before = await world.run()
    await world.disconnect()
    await world.until_ready("Unknown")
    evicted = await world.until_pod(is_deleting)
    assert disruption(evicted) == "DeletionByTaintManager"
    # The 300 s that every Pod tolerates.
    assert evicted["metadata"]["deletionTimestamp"] >= "2026-01-01T00:06:00Z"
    await world.until_code(-1009)
    status = await world.frameworks.until("f", is_stalled, within=1200, every=5)
    assert "Pod f-a-0 was to be deleted by" in condition(status, "Stalled")["message"]
    assert f"still exists (node {NODE})" in condition(status, "Stalled")["message"]
    assert uid(await world.pod()) == uid(before)
    assert world.pods.running() == ["default/f-a-0"]
    await world.reconnect()
    status = await world.until_retried()
    assert uid(await world.pod()) != uid(before)
    assert not is_stalled(status)
    await world.until_ready("True")
    node = await world.node()
    assert node is not None
    assert "taints" not in node["spec"]


async def test_a_lost_node_that_is_removed_frees_its_task(world: World) -> None:
    before = await world.run()
    await world.disconnect()
    await world.until_pod(is_deleting)
    await world.client.delete(NODES, NODE)
    await world.until_pod(lambda pod: uid(pod) != uid(before), within=60)
    # The next attempt waits for a node, and the unreachable containers continue to run.
    assert tasks(await world.frameworks.status("f"))[0]["attemptStatus"]["id"] == 1
    assert world.pods.running() == ["default/f-a-0"]
    assert "nodeName" not in (await world.pod())["spec"]
    await world.client.create(NODES, orjson.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}))
    await world.until_retried()


async def test_a_pod_of_a_removed_node_is_not_waited_for(world: World) -> None:
    before = await world.run()
    await world.disconnect()
    removed = int(wall())
    await world.client.delete(NODES, NODE)
    after = await world.until_pod(lambda pod: uid(pod) != uid(before), within=120)
    assert 40 <= created(after) - removed <= 45
    await world.until_told("TaskFailed", "-1011 PodDeletedByPodGC")
    status = await world.frameworks.status("f")
    assert tasks(status)[0]["retryPolicyStatus"]["accountableRetriedCount"] == 0


@pytest.mark.parametrize("policy", ["Always", "NodeUnreachable"])
async def test_a_lost_nodes_pod_is_given_up_after_the_timeout(world: World, policy: str) -> None:
    before = await world.run({"podGracefulDeletionTimeoutSec": 20, "podForceDeletionPolicy": policy})
    await world.disconnect()
    evicted = await world.until_pod(is_deleting)
    after = await world.until_pod(lambda pod: uid(pod) != uid(before), within=60)
    asked = parse_time(evicted["metadata"]["deletionTimestamp"]) - 30
    assert 20 <= created(after) - asked <= 25
    # The old instance runs until its node hears of the deletion.
    assert world.pods.running() == ["default/f-a-0"]
    await world.reconnect()
    await world.until_retried()


@pytest.mark.parametrize(("policy", "seconds"), [("Always", 5), ("NodeUnreachable", 200)])
async def test_a_slow_pod_of_a_healthy_node(world: World, policy: str, seconds: int) -> None:
    """It is spared under NodeUnreachable."""
    forced = {"podGracefulDeletionTimeoutSec": 5, "podForceDeletionPolicy": policy}
    before = await world.run(forced, stop_seconds=200)
    asked = int(wall())
    await world.frameworks.delete_pod("f-a-0", grace=600)
    after = await world.until_pod(lambda pod: uid(pod) != uid(before))
    assert seconds <= created(after) - asked <= seconds + 5
    await world.until_retried()
