"""Rolling updates on API servers: the order, controllers that are killed, a bad template, and a rescale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.frameworks import Frameworks, Json, condition, is_ready, role, tasks
from tests.support.frontdoor import Request, front_door, refusal

IMAGE = "taskRoles__0__task__pod__spec__containers__0__image"
STARTUP = "taskRoles__0__task__pod__metadata__annotations"
NEVER = {"sim.frameworkcontroller.dev/startup-seconds": "1000000"}
SOON = {"sim.frameworkcontroller.dev/startup-seconds": "1"}


def rolled(number: int = 4, **rolling: Any) -> Json:
    """A role with RollingUpdate, whose Pods are ready a second after they got their node."""
    made = role("a", number, simulate={"startup-seconds": 1}, task={"retryPolicy": {"maxRetryCount": -2}})
    return {**made, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}


def is_updated(status: Json) -> bool:
    return bool(condition(status, "Updated")["status"] == "True")


def attempts(status: Json) -> list[int]:
    return [task["attemptStatus"]["id"] for task in tasks(status)]


class Watcher:
    """The Pods of a rollout, as the events of a watch show them."""

    def __init__(self, pods: list[Json]) -> None:
        self.pods = {name_of(pod): pod for pod in pods}
        self.least = self.ready
        """The least number of Pods that were ready at a time."""
        self.order: list[str] = []
        """The Pods in the order in which they first were not ready."""

    @property
    def ready(self) -> int:
        """The number of Pods that are ready."""
        return sum(map(is_ready, self.pods.values()))

    def take(self, kind: str, pod: Json) -> None:
        """Take an event."""
        assert kind in ("ADDED", "MODIFIED", "DELETED"), pod
        name = name_of(pod)
        self.pods[name] = pod
        if kind == "DELETED":
            del self.pods[name]
        elif not is_ready(pod) and name not in self.order:
            self.order.append(name)
        self.least = min(self.least, self.ready)


def name_of(pod: Json) -> str:
    return str(pod["metadata"]["name"])


@asynccontextmanager
async def watching(frameworks: Frameworks) -> AsyncIterator[Watcher]:
    """Watch the Pods, until the end and all events up to it."""
    client, namespace = frameworks.client, frameworks.namespace
    listed = orjson.loads(await client.list(PODS, namespace))
    seen = Watcher(listed["items"])

    async def look() -> None:
        async with client.watch(PODS, namespace, resource_version=listed["metadata"]["resourceVersion"]) as lines:
            async for line in lines:
                event = orjson.loads(line)
                if event["type"] != "BOOKMARK":
                    seen.take(event["type"], event["object"])

    async def sees_all() -> None:
        assert not looking.done(), looking.result()
        assert versions(seen.pods) == versions(await frameworks.pods())

    looking = asyncio.create_task(look())
    try:
        yield seen
        await eventually(sees_all)
    finally:
        looking.cancel()


def versions(pods: dict[str, Json]) -> dict[str, str]:
    return {name: pod["metadata"]["resourceVersion"] for name, pod in pods.items()}


async def images(frameworks: Frameworks) -> list[str]:
    found = await frameworks.pods()
    return [found[name]["spec"]["containers"][0]["image"] for name in sorted(found)]


async def test_one_task_after_the_other(frameworks: Frameworks, controller: Controller) -> None:
    await frameworks.create("f", rolled())
    await frameworks.until("f", is_updated)
    async with watching(frameworks) as seen:
        await frameworks.set("f", **{IMAGE: "v2"})
        await frameworks.until("f", lambda status: attempts(status) == [1] * 4 and is_updated(status))
    assert await images(frameworks) == ["v2"] * 4
    assert seen.order == ["f-a-3", "f-a-2", "f-a-1", "f-a-0"]
    assert seen.least == 3
    status = await frameworks.status("f")
    (found,) = status["attemptStatus"]["taskRoleStatuses"]
    assert (found["readyTaskCount"], found["updatedTaskCount"]) == (4, 4)
    assert [task["retryPolicyStatus"]["totalRetriedCount"] for task in tasks(status)] == [1] * 4


async def test_a_controller_that_is_killed_at_each_write(cluster: Cluster, frameworks: Frameworks) -> None:
    """Each process sends one write, and no further one; the next process continues."""
    if not cluster.embedded:
        pytest.skip("it starts some dozens of controllers")
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", rolled())
        await frameworks.until("f", is_updated)
    await frameworks.set("f", **{IMAGE: "v2"})
    killed = 0
    async with watching(frameworks) as seen:
        while not (attempts(status := await frameworks.status("f")) == [1] * 4 and is_updated(status)):
            assert killed < 100, status
            await one_write(cluster)
            killed += 1
    assert await images(frameworks) == ["v2"] * 4
    assert seen.least == 3
    assert seen.order == ["f-a-3", "f-a-2", "f-a-1", "f-a-0"]
    assert killed >= 12


async def one_write(cluster: Cluster) -> None:
    """Run a controller until it has sent one write."""
    sent: list[Request] = []

    def rule(request: Request) -> web.Response | None:
        if sent:
            return refusal(503, "ServiceUnavailable", "killed")
        if request.plural in ("pods", "frameworks") and request.verb not in ("get", "list", "watch"):
            sent.append(request)
        return None

    async with front_door(await cluster.connection()) as door:
        door.always(rule)
        async with Controller(Config(), door.connection, wall=cluster.wall):
            await until(lambda: bool(sent))


async def test_a_bad_template_stops_and_is_taken_back(frameworks: Frameworks, controller: Controller) -> None:
    await frameworks.create("f", rolled(maxUnavailable="50%"))
    await frameworks.until("f", is_updated)
    async with watching(frameworks) as seen:
        await frameworks.set("f", **{STARTUP: NEVER})
        text = "TaskRole a: 2 of 4 Tasks are updated; a[3] is not ready"
        await frameworks.until("f", lambda status: status["message"] == text)
        await asyncio.sleep(5)
        assert attempts(await frameworks.status("f")) == [0, 0, 1, 1]
        await frameworks.set("f", **{STARTUP: SOON})
        await frameworks.until("f", lambda status: attempts(status) == [0, 0, 2, 2] and is_updated(status))
    assert seen.least == 2


async def test_a_rescale_in_the_midst(frameworks: Frameworks, controller: Controller) -> None:
    await frameworks.create("f", rolled())
    await frameworks.until("f", is_updated)
    await frameworks.set("f", **{IMAGE: "v2"})
    await frameworks.until("f", lambda status: attempts(status) == [0, 0, 0, 1])
    await frameworks.set("f", taskRoles__0__taskNumber=5)
    await frameworks.until("f", lambda status: len(tasks(status)) == 5)
    await frameworks.set("f", taskRoles__0__taskNumber=3)
    await frameworks.until("f", lambda status: attempts(status) == [1] * 3 and is_updated(status))
    assert await images(frameworks) == ["v2"] * 3


async def test_bad_values_are_refused_or_named(unattended: Frameworks) -> None:
    await unattended.create("f", rolled(maxUnavailable=2, partition=1))
    path = "taskRoles__0__updateStrategy__rollingUpdate__maxUnavailable"
    for value in (1, "25%", "100%"):
        made = await unattended.set("f", **{path: value})
        assert made["spec"]["taskRoles"][0]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == value
    for bad in (True, 1.5, "many"):
        with pytest.raises(ApiError, match="maxUnavailable"):
            await unattended.set("f", **{path: bad})
