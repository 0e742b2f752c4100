"""Actions that take long, and what happens meanwhile: it is looked at, persisted, and may put an end to them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import TransportError
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.integration.test_preconditions import Send, StatusWrites
from tests.support.clusters import Cluster
from tests.support.exposure import Exposure
from tests.support.frameworks import Frameworks, Json, codes, policy, role, states, tasks
from tests.support.virtual_clock import VirtualClockLoop

TASKS = 500


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> StatusWrites:
    return StatusWrites(monkeypatch, cluster.namespace)


@pytest.fixture
async def seen(cluster: Cluster, pods: SimulatedRuntime) -> AsyncIterator[Exposure]:
    """What clients saw until the end of the test, and it is checked that it was as promised."""
    exposure = Exposure(await cluster.client(), cluster.namespace)
    async with exposure.following():
        yield exposure
        await asyncio.sleep(1)
    exposure.check()


@pytest.fixture(autouse=True)
def slow_creations(clock: VirtualClockLoop, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    """Each takes four seconds of virtual time; with 50 at once, all of them take three quarters of a minute."""
    original = KubeClient.create

    async def create(client: KubeClient, resource: Any, *args: Any, **kwargs: Any) -> bytes:
        if resource is PODS and cluster.namespace in args:
            await asyncio.sleep(4)
        return await original(client, resource, *args, **kwargs)

    monkeypatch.setattr(KubeClient, "create", create)


@pytest.fixture
async def frameworks(cluster: Cluster, writes: StatusWrites, seen: Exposure, controller: Controller) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


def being_created(status: Json) -> bool:
    """Some Pods are recorded, others are still to be created."""
    return 0 < len(recorded(status)) < TASKS


def all_running(status: Json) -> bool:
    return states(status) == ["AttemptRunning"] * TASKS


def recorded(status: Json) -> list[str]:
    return [task["attemptStatus"]["podUID"] for task in tasks(status) if task["attemptStatus"].get("podUID")]


async def test_statuses_are_written_while_pods_are_created(frameworks: Frameworks, seen: Exposure) -> None:
    await frameworks.create("f", role("a", TASKS))
    status = await frameworks.until("f", being_created)
    # They are created while it is written, too.
    await frameworks.until("f", all_running, within=120)
    assert len(recorded(status)) < len(await frameworks.pods()) == TASKS
    assert all(len(uids) == 1 for uids in seen.pods.values())


async def test_what_ends_meanwhile_is_retried_meanwhile(frameworks: Frameworks, pods: SimulatedRuntime) -> None:
    await frameworks.create("f", role("a", TASKS, task={"retryPolicy": {"maxRetryCount": 1}}))
    await frameworks.until("f", lambda status: "AttemptRunning" in states(status))
    pods.fail(f"{frameworks.namespace}/f-a-0")

    def retried(status: Json) -> bool:
        return bool(tasks(status)[0]["retryPolicyStatus"]["totalRetriedCount"] == 1)

    status = await frameworks.until("f", retried)
    assert "AttemptCreationPending" in states(status)[1:]
    await frameworks.until("f", all_running, within=120)


async def test_a_pod_that_ends_before_its_creation_is_answered_is_deleted(
    monkeypatch: pytest.MonkeyPatch, frameworks: Frameworks
) -> None:
    original = KubeClient.create

    async def answer_late(client: KubeClient, *args: Any, **kwargs: Any) -> bytes:
        answer = await original(client, *args, **kwargs)
        if b'"f-a-1"' in args[1]:
            await asyncio.sleep(20)
        return answer

    monkeypatch.setattr(KubeClient, "create", answer_late)
    await frameworks.create("f", role("a", 2, simulate={"run-seconds": 1}))
    await frameworks.until_state("f", "Completed", within=40)


async def test_none_is_created_for_an_attempt_that_is_over(
    frameworks: Frameworks, pods: SimulatedRuntime, seen: Exposure
) -> None:
    await frameworks.create("f", role("a", TASKS, frameworkAttemptCompletionPolicy=policy(1)))
    await frameworks.until("f", lambda status: "AttemptRunning" in states(status))
    pods.fail(f"{frameworks.namespace}/f-a-0")
    status = await frameworks.until_state("f", "Completed")
    assert len(seen.pods) == len(recorded(status)) < TASKS


async def test_none_is_created_once_others_deleted_the_configmap(frameworks: Frameworks, seen: Exposure) -> None:
    await frameworks.create("f", role("a", TASKS))
    await frameworks.until("f", being_created)
    await frameworks.client.delete(CONFIGMAPS, "f-attempt", frameworks.namespace, propagation="Background")
    await frameworks.until_state("f", "Completed", within=30)
    assert len(seen.pods) < TASKS / 2


async def test_stop_ends_them(frameworks: Frameworks, seen: Exposure) -> None:
    await frameworks.create("f", role("a", TASKS))
    await frameworks.until("f", being_created)
    await frameworks.set("f", executionType="Stop")
    status = await frameworks.until_state("f", "Completed")
    assert len(seen.pods) < TASKS
    assert set(codes(tasks(status))) == {-220}
    await frameworks.assert_nothing_left("f")


async def test_a_rescale_takes_effect_at_once(frameworks: Frameworks, seen: Exposure) -> None:
    await frameworks.create("f", role("a", TASKS))
    await frameworks.until("f", being_created)
    await frameworks.set("f", taskRoles__0__taskNumber=2)
    await frameworks.until_running("f", 2)
    assert len(seen.pods) < TASKS


async def test_a_lost_answer_meanwhile_loses_nothing(
    frameworks: Frameworks, writes: StatusWrites, seen: Exposure, caplog: pytest.LogCaptureFixture
) -> None:
    async def lose_the_answer(send: Send) -> bytes:
        await send()
        raise TransportError("the connection broke")

    writes.once(being_created, lose_the_answer)
    await frameworks.create("f", role("a", TASKS))
    await frameworks.until("f", all_running, within=120)
    assert writes.done
    assert all(len(uids) == 1 for uids in seen.pods.values())
    assert "written by somebody else" not in caplog.text


async def test_what_became_of_actions_while_a_write_was_lost_is_not(
    monkeypatch: pytest.MonkeyPatch, frameworks: Frameworks, writes: StatusWrites, seen: Exposure
) -> None:
    """Whatever was under way has ended by the time that the write has failed."""
    failed = False
    original = KubeClient.create

    async def fail_the_last(client: KubeClient, *args: Any, **kwargs: Any) -> bytes:
        nonlocal failed
        if b'"f-a-499"' in args[1] and not failed:
            failed = True
            raise TransportError("the connection broke")
        return await original(client, *args, **kwargs)

    async def lose_it(_: Send) -> bytes:
        await asyncio.sleep(60)
        raise TransportError("no answer")

    monkeypatch.setattr(KubeClient, "create", fail_the_last)
    writes.once(being_created, lose_it)
    await frameworks.create("f", role("a", TASKS))
    await frameworks.until("f", all_running, within=120)
    assert writes.done
    assert failed


async def test_a_pod_that_came_and_went_while_its_creation_waited_is_not_created_again(
    monkeypatch: pytest.MonkeyPatch, frameworks: Frameworks, seen: Exposure
) -> None:
    """A creation that was given up is executed late, when the next try waits behind five hundred others."""
    original = KubeClient.create
    sent: tuple[Any, ...] = ()
    losing = True

    async def lose_it(client: KubeClient, *args: Any, **kwargs: Any) -> bytes:
        nonlocal sent
        if b'"f-z-0"' in args[1] and losing:
            sent = args
            raise TransportError("the connection broke")
        return await original(client, *args, **kwargs)

    monkeypatch.setattr(KubeClient, "create", lose_it)
    await frameworks.create("f", role("z", 1, simulate={"stop-seconds": 0}))
    await frameworks.until_state("f", "AttemptPreparing")
    await frameworks.set("f", taskRoles=[role("a", TASKS), role("z", 1)])
    await frameworks.until("f", lambda status: len(tasks(status)) == TASKS)
    losing = False
    await original(frameworks.client, *sent)
    await frameworks.until("f", lambda status: states(status)[0] == "AttemptRunning")
    await frameworks.delete_pod("f-z-0")
    await frameworks.until("f", lambda status: states(status)[0] == "Completed")
    await frameworks.until("f", lambda status: states(status)[1:] == ["AttemptRunning"] * TASKS, within=120)
    assert all(len(uids) == 1 for uids in seen.pods.values())


async def test_a_change_of_metadata_meanwhile_loses_nothing(
    frameworks: Frameworks, writes: StatusWrites, seen: Exposure
) -> None:
    async def change_it_first(send: Send) -> bytes:
        body = orjson.dumps({"metadata": {"annotations": {"n": "1"}}})
        await frameworks.client.patch(FRAMEWORKS, "f", body, frameworks.namespace, content_type=MERGE_PATCH)
        return await send()

    writes.once(being_created, change_it_first)
    await frameworks.create("f", role("a", TASKS))
    await frameworks.until("f", all_running, within=120)
    assert writes.done
    assert all(len(uids) == 1 for uids in seen.pods.values())


async def test_a_stop_of_the_controller_does_not_wait_for_all(cluster: Cluster, pods: SimulatedRuntime) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall) as controller:
        await frameworks.create("f", role("a", TASKS))
        await frameworks.until("f", lambda _: len(controller.informers.pods.lister) >= 20)
    # What it did is persisted, and it created no more than were under way.
    status = await frameworks.status("f")
    created = await frameworks.pods()
    assert sorted(recorded(status)) == sorted(pod["metadata"]["uid"] for pod in created.values())
    assert len(created) < TASKS
