"""What may happen to a Framework while one of its syncs waits for the API server, and what is told of it."""

import asyncio
import logging
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import JSON_PATCH, MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import NotFound, TransportError
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.integration.test_preconditions import Send, StatusWrites, pod_uids
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, role, states, tasks
from tests.support.virtual_clock import VirtualClockLoop


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> StatusWrites:
    return StatusWrites(monkeypatch, cluster.namespace)


@pytest.fixture
async def frameworks(
    cluster: Cluster, writes: StatusWrites, pods: SimulatedRuntime, controller: Controller
) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


async def test_a_404_for_a_framework_that_is_there_costs_no_running_work(
    frameworks: Frameworks, writes: StatusWrites
) -> None:
    # As an API server says that has not read its CRDs yet, or a proxy that has lost its way.
    async def not_found(_: Send) -> bytes:
        raise NotFound("404 page not found", code=404)

    await frameworks.create("f", role("a", 2))
    before = await frameworks.until_running("f", 2)
    for _ in range(3):
        writes.once(lambda _: True, not_found)
    await frameworks.set("f", taskRoles__0__taskNumber=3)
    after = await frameworks.until_running("f", 3)
    assert writes.done
    assert pod_uids(after)[:2] == pod_uids(before)
    assert after["startTime"] == before["startTime"]


async def test_a_framework_that_is_gone_before_the_cache_says_so_is_left_alone(
    frameworks: Frameworks, writes: StatusWrites
) -> None:
    asked = 0

    async def not_found(_: Send) -> bytes:
        nonlocal asked
        asked += 1
        writes.once(lambda _: True, not_found)
        raise NotFound('frameworks "f" not found', code=404)

    await frameworks.create("f", role("a", 2))
    await frameworks.until_running("f", 2)
    writes.once(lambda _: True, not_found)
    await frameworks.set("f", taskRoles__0__taskNumber=3)
    await asyncio.sleep(10)
    assert asked < 15

    async def is_asked() -> bool:
        return asked > 0

    await eventually(is_asked)


async def test_a_namesake_starts_anew(frameworks: Frameworks, writes: StatusWrites) -> None:
    replaced = asyncio.Event()

    async def replace_it_first(send: Send) -> bytes:
        await frameworks.delete("f", "Background")
        await frameworks.create("f", role("a", 1))
        replaced.set()
        return await send()

    old = await frameworks.create("f", role("a", 2), executionType="Create")
    await frameworks.until_state("f", "AttemptCreationPending")
    writes.once(lambda _: True, replace_it_first)
    await frameworks.set("f", executionType="Start")
    # For a moment there is neither.
    await asyncio.wait_for(replaced.wait(), 300)
    status = await frameworks.until_running("f", 1)
    new = await frameworks.get("f")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert len(status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]) == 1


async def test_a_status_that_is_always_changed_by_others_is_not_fought_for(
    frameworks: Frameworks, writes: StatusWrites
) -> None:
    asked = 0

    async def change_it_first(send: Send) -> bytes:
        nonlocal asked
        asked += 1
        writes.once(lambda _: True, change_it_first)
        body = orjson.dumps({"metadata": {"annotations": {"n": str(asked)}}})
        await frameworks.client.patch(FRAMEWORKS, "f", body, frameworks.namespace, content_type=MERGE_PATCH)
        return await send()

    writes.once(lambda _: True, change_it_first)
    await frameworks.create("f", role("a", 2))
    await asyncio.sleep(10)
    assert asked < 20

    async def is_asked() -> bool:
        return asked > 3

    await eventually(is_asked)


def told(caplog: pytest.LogCaptureFixture, reason: str) -> int:
    """How many lines tell of it."""
    return sum(f": {reason}: " in record.getMessage() for record in caplog.records)


async def test_that_a_framework_is_deleted_after_its_retention_is_told(
    cluster: Cluster, pods: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(framework_completed_retain_sec=2), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role("a", 1, simulate={"run-seconds": 0.1}))
        await frameworks.until_gone("f")

        async def is_told() -> None:
            # The answer to the deletion may come after all others see it.
            assert told(caplog, "FrameworkDeleted") == 1

        await eventually(is_told)


async def test_a_status_that_somebody_removed_is_not_taken_for_one_s_own(
    frameworks: Frameworks, writes: StatusWrites, caplog: pytest.LogCaptureFixture
) -> None:
    async def remove_it_first(send: Send) -> bytes:
        body = orjson.dumps([{"op": "remove", "path": "/status"}])
        path = FRAMEWORKS.path(frameworks.namespace, "f", "status")
        await frameworks.client.raw("PATCH", path, body=body, headers={"Content-Type": JSON_PATCH})
        return await send()

    await frameworks.create("f", role("a", 2))
    await frameworks.until_running("f", 2)
    writes.once(lambda _: True, remove_it_first)
    await frameworks.set("f", taskRoles__0__taskNumber=3)
    await frameworks.until_running("f", 3)
    assert writes.done
    assert "status changed by another writer; continuing from the stored version" in caplog.text


async def test_the_last_task_to_run_is_shown_at_once(
    clock: VirtualClockLoop, frameworks: Frameworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is to be expected then that could be gathered with it."""
    original = KubeClient.patch

    async def patch(client: KubeClient, *args: Any, **kwargs: Any) -> bytes:
        await asyncio.sleep(1 if kwargs.get("subresource") == "status" and args[0] is FRAMEWORKS else 0)
        return await original(client, *args, **kwargs)

    monkeypatch.setattr(KubeClient, "patch", patch)
    slow = {"prepare-seconds": 4}
    slower = {"prepare-seconds": 4.5}
    await frameworks.create("f", role("a", 3, simulate=slow), role("b", 1, simulate=slower))

    async def runs() -> None:
        assert [pod["status"]["phase"] for pod in (await frameworks.pods()).values()] == ["Running"] * 4

    await eventually(runs)
    began = clock.time()
    await frameworks.until("f", lambda status: states(status)[0] == tasks(status, "b")[0]["state"] == "AttemptRunning")
    # The write that showed the others was under way for half a second more.
    assert clock.time() - began < 0.5 + 1 + 0.2


async def test_what_could_not_be_confirmed_is_not_forgotten(
    cluster: Cluster, pods: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    create, get = KubeClient.create, KubeClient.get

    async def refuse_pods(client: KubeClient, resource: Any, *args: Any, **kwargs: Any) -> bytes:
        if resource is PODS and cluster.namespace in args:
            raise TransportError("the connection broke")
        return await create(client, resource, *args, **kwargs)

    with monkeypatch.context() as broken:
        broken.setattr(KubeClient, "create", refuse_pods)
        async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
            await frameworks.create("f", role("a", 3))
            await frameworks.until_state("f", "AttemptPreparing")
    asked = 0

    async def fail_once(client: KubeClient, resource: Any, *args: Any, **kwargs: Any) -> bytes:
        nonlocal asked
        if resource is FRAMEWORKS and kwargs.get("flow") is not None:
            asked += 1
            if asked == 1:
                raise TransportError("the connection broke")
        return await get(client, resource, *args, **kwargs)

    monkeypatch.setattr(KubeClient, "get", fail_once)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.until_running("f", 3)
    assert asked > 1


async def test_the_order_of_completions_is_still_known_after_a_write_that_met_another_spec(
    cluster: Cluster, frameworks: Frameworks, writes: StatusWrites
) -> None:
    async def describe_it_first(send: Send) -> bytes:
        await frameworks.set("f", description="changed")
        return await send()

    await frameworks.create("f", role("p", 1), role("q", 1), role("z", 1))
    await frameworks.until_running("f", 3)
    # Both complete within one second where time is virtual.
    await asyncio.sleep(1.001 - cluster.wall() % 1)
    for number, name in enumerate("pq", 1):

        def have_completed(status: Json, number: int = number) -> bool:
            return states(status).count("Completed") == number

        await frameworks.delete_pod(f"f-{name}-0", grace=0)
        await frameworks.until("f", have_completed, every=0.02)
    writes.once(lambda status: tasks(status, "z")[0]["deletionPending"], describe_it_first)
    await frameworks.set("f", taskRoles__2__taskNumber=0)
    status = await frameworks.until_state("f", "Completed")
    assert writes.done
    ended = {name: tasks(status, name)[0]["completionTime"] for name in "pq"}
    assert ended["p"] == ended["q"] or not cluster.embedded
    trigger = status["attemptStatus"]["completionStatus"]["trigger"]
    assert (trigger["taskRoleName"], trigger["taskIndex"]) == ("q", 0)
