"""Actions that take long, and what happens meanwhile: it is looked at, persisted, and may put an end to them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.exposure import Exposure
from tests.support.frameworks import Frameworks, Json, role, states, tasks
from tests.support.virtual_clock import VirtualClockLoop

TASKS = 500


@pytest.fixture
async def seen(cluster: Cluster, pods: SimulatedRuntime) -> AsyncIterator[Exposure]:
    """The states that clients saw until the end of the test, checked against the promises."""
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
async def frameworks(cluster: Cluster, seen: Exposure, controller: Controller) -> Frameworks:
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


async def test_none_is_created_once_others_deleted_the_configmap(frameworks: Frameworks, seen: Exposure) -> None:
    await frameworks.create("f", role("a", TASKS))
    await frameworks.until("f", being_created)
    await frameworks.client.delete(CONFIGMAPS, "f-attempt", frameworks.namespace, propagation="Background")
    await frameworks.until_state("f", "Completed", within=30)
    assert len(seen.pods) < TASKS / 2


async def test_a_stop_of_the_controller_does_not_wait_for_all(cluster: Cluster, pods: SimulatedRuntime) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall) as controller:
        await frameworks.create("f", role("a", TASKS))
        await frameworks.until("f", lambda _: len(controller.informers.pods.lister) >= 20)
    # Its actions are persisted, and it created no more Pods than were in flight.
    status = await frameworks.status("f")
    created = await frameworks.pods()
    assert sorted(recorded(status)) == sorted(pod["metadata"]["uid"] for pod in created.values())
    assert len(created) < TASKS
