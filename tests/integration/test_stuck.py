"""The requests of a stuck controller, and its delay once the cause is gone.

Five Frameworks of three Tasks each, in every situation. Requests are counted before the API server, in the first minute
and in the sixth; the bounds come from docs/high-availability.md. Virtual time, default configuration.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.api.names import FRAMEWORK_NAME
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.resources import CONFIGMAPS, CRDS, NAMESPACES, PODS, RESOURCEQUOTAS, Resource
from tests.support.eventually import eventually
from tests.support.framework_crd import crd_manifest
from tests.support.frameworks import Json, condition, policy, role, states, tasks
from tests.support.frontdoor import Request, refusal
from tests.support.objects import until_missing
from tests.support.pods import pod_manifest
from tests.support.site import Site, site
from tests.support.virtual_clock import VirtualClockLoop

NUMBER: Final = 5
TASKS: Final = 3
ALWAYS: Final = {"maxRetryCount": -2}


class World(Site):
    """Several Frameworks at once."""

    @property
    def names(self) -> list[str]:
        return [f"f{number}" for number in range(NUMBER)]

    async def create(self, *, retry: Json | None = None, **more: Any) -> None:
        for name in self.names:
            await self.frameworks.create(name, role(number=TASKS, **more), retryPolicy=retry or {})

    async def create_retried(self) -> None:
        """Create Frameworks whose Tasks end after 20 s, and are retried. Wait until they run."""
        await self.create(task={"retryPolicy": ALWAYS}, simulate={"run-seconds": "20, 100000"})
        await self.until_running()

    async def until_running(self, *, within: float = 60.0) -> None:
        async def probe() -> None:
            for name in self.names:
                status = await self.frameworks.status(name)
                assert status, name
                assert states(status) == ["AttemptRunning"] * TASKS, name

        await eventually(probe, within=within, every=0.2)

    async def on_second_attempt(self) -> None:
        """Raise AssertionError unless every Task runs for the second time."""
        for name in self.names:
            status = await self.frameworks.status(name)
            assert [(task["state"], task["attemptStatus"]["id"]) for task in tasks(status)] == [
                ("AttemptRunning", 1)
            ] * TASKS, name

    async def count(self, most_at_first: int, most_later: int) -> None:
        """Let six minutes pass; in the first of them, and in the last, there are at most this number of requests."""
        clock = asyncio.get_running_loop().time
        for minute, most in enumerate((most_at_first, None, None, None, None, most_later), 1):
            began = clock()
            await asyncio.sleep(60)
            sent = self.door.count(began)
            if most is not None:
                print(f"minute {minute}: {sent.total()} requests, at most {most}: {_words(sent)}")
                assert sent.total() <= most, _words(sent)

    async def recovers(self, probe: Callable[[], Awaitable[object]], *, within: float) -> None:
        """It continues within ``seconds``."""
        clock = asyncio.get_running_loop().time
        began = clock()
        await eventually(probe, within=within, every=0.1)
        print(f"recovered after {clock() - began:.1f} s, within {within:g}")


def _words(sent: Counter[tuple[str, str]]) -> str:
    return ", ".join(f"{number} {verb} {resource}" for (verb, resource), number in sorted(sent.items()))


def refusing(
    verb: str, resource: str, code: int, reason: str, message: str, headers: Mapping[str, str] | None = None
) -> Any:
    """A rule: requests of that verb (or any, `*`) for that resource are refused."""

    def rule(request: Request) -> web.Response | None:
        if verb in ("*", request.verb) and resource in ("*", request.resource):
            return refusal(code, reason, message, **(headers or {}))
        return None

    return rule


@pytest.fixture
async def world(clock: VirtualClockLoop, tmp_path: Path) -> AsyncIterator[World]:
    async with site(tmp_path, World) as world:
        yield world


async def test_nothing_to_do(world: World) -> None:
    await world.create()
    await world.until_running()
    await asyncio.sleep(60)
    await world.count(3, 3)


async def test_a_name_that_is_taken(world: World) -> None:
    for name in world.names:
        body = orjson.dumps(pod_manifest(name=f"{name}-a-1", namespace=world.cluster.namespace))
        await world.client.create(PODS, body, world.cluster.namespace)
    await world.create()
    await world.count(200, 70)
    assert condition(await world.frameworks.status("f0"), "Stalled")["reason"] == "NamingConflict"
    # Events without news for the caches are no reason to try again.
    began = asyncio.get_running_loop().time()
    for _ in range(30):
        for informer in world.controller.informers:
            informer.relist()
        await asyncio.sleep(2)
    sent = world.door.count(began)
    assert sent["list", "pods"] >= 10
    assert sent["create", "pods"] <= 30, _words(sent)
    for name in world.names:
        await world.frameworks.delete_pod(f"{name}-a-1", grace=0)
    await world.recovers(world.until_running, within=16)


async def test_a_label_that_another_client_changed(world: World) -> None:
    await world.create(simulate={"run-seconds": 30})
    await world.until_running()
    body = orjson.dumps({"metadata": {"labels": {FRAMEWORK_NAME: "other"}}})
    for name in world.names:
        for resource, changed in ((PODS, f"{name}-a-1"), (CONFIGMAPS, f"{name}-attempt")):
            await world.client.patch(resource, changed, body, world.cluster.namespace, content_type=MERGE_PATCH)
    await world.recovers(lambda: all_completed(world), within=40)
    await world.count(3, 3)


async def test_quota(world: World) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    await world.client.create(RESOURCEQUOTAS, orjson.dumps(body), world.cluster.namespace)
    await asyncio.sleep(1)
    await world.create()
    await world.count(120, 40)
    assert condition(await world.frameworks.status("f0"), "Stalled")["reason"] == "QuotaExceeded"
    await world.client.delete(RESOURCEQUOTAS, "none", world.cluster.namespace)
    await world.recovers(world.until_running, within=16)


DENIED: Final = (403, "Forbidden", 'admission webhook "x.example" denied the request: no')
SILENT: Final = (
    500,
    "InternalError",
    'Internal error occurred: failed calling webhook "x.example": context deadline exceeded',
)


@pytest.mark.parametrize(
    ("answer", "wanted", "first", "later"),
    [
        (SILENT, {}, 120, 40),
        (DENIED, {"task": {"retryPolicy": ALWAYS}}, 700, 320),
        (DENIED, {"retry": ALWAYS, "frameworkAttemptCompletionPolicy": policy(1)}, 800, 400),
    ],
    ids=["no answer", "Tasks always retried", "Framework always retried"],
)
async def test_a_webhook(world: World, answer: tuple[int, str, str], wanted: Json, first: int, later: int) -> None:
    with world.door.answering(refusing("create", "pods", *answer)):
        await world.create(**wanted)
        await world.count(first, later)
    await world.recovers(world.until_running, within=16)


async def test_a_finalizer_that_never_leaves(world: World) -> None:
    await world.create()
    await world.until_running()
    for name in world.names:
        await set_finalizers(world, f"{name}-a-1", "example.com/stay")
        await world.frameworks.set(name, executionType="Stop")
    await world.count(60, 3)
    for name in world.names:
        await set_finalizers(world, f"{name}-a-1")
    await world.recovers(lambda: all_completed(world), within=10)


async def test_a_pod_that_never_goes(world: World) -> None:
    await world.create()
    await world.until_running()
    world.pods.lose_node()
    for name in world.names:
        await world.frameworks.set(name, executionType="Stop")
    await world.count(60, 3)
    for name in world.names:
        for index in range(TASKS):
            await world.frameworks.delete_pod(f"{name}-a-{index}", grace=0)
    await world.recovers(lambda: all_completed(world), within=10)


async def test_a_namespace_that_is_terminating(world: World) -> None:
    await world.create(task={"retryPolicy": ALWAYS}, retry=ALWAYS)
    await world.until_running()
    for name in world.names:
        await set_finalizers(world, name, "example.com/stay", resource=FRAMEWORKS)
    await world.client.delete(NAMESPACES, world.cluster.namespace)
    await world.count(80, 3)
    for name in world.names:
        await set_finalizers(world, name, resource=FRAMEWORKS)
    gone = partial(until_missing, world.client, NAMESPACES, world.cluster.namespace, within=20)
    await world.recovers(gone, within=20)


async def test_a_definition_that_was_deleted(world: World) -> None:
    await world.create()
    await world.until_running()
    crd = crd_manifest()
    await world.client.delete(CRDS, crd["metadata"]["name"])
    await world.count(120, 60)
    await world.client.create(CRDS, orjson.dumps(crd))
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    await world.create()
    await world.until_running()
    print(f"recovered after {asyncio.get_running_loop().time() - began:.1f} s")
    assert asyncio.get_running_loop().time() - began < 10


FORBIDDEN: Final = (403, "Forbidden", 'pods is forbidden: User "controller" cannot do that')


@pytest.mark.parametrize(
    ("verb", "resource", "answer", "headers", "first", "later"),
    [
        ("*", "*", FORBIDDEN, {}, 120, 100),
        ("create", "pods", FORBIDDEN, {}, 600, 320),
        ("patch", "frameworks/status", FORBIDDEN, {}, 80, 40),
        ("delete", "pods", FORBIDDEN, {}, 200, 90),
        ("*", "*", (500, "InternalError", "no"), {}, 120, 100),
        ("*", "*", (503, "ServiceUnavailable", "no"), {}, 120, 100),
        ("*", "*", (429, "TooManyRequests", "no"), {}, 120, 100),
        ("*", "*", (429, "TooManyRequests", "no"), {"Retry_After": "10"}, 60, 50),
    ],
)
async def test_requests_that_are_refused(
    world: World,
    verb: str,
    resource: str,
    answer: tuple[int, str, str],
    headers: dict[str, str],
    first: int,
    later: int,
) -> None:
    await world.create_retried()
    with world.door.answering(refusing(verb, resource, *answer, headers)):
        # Each of them, at some time in the first minute, has something to do.
        await world.count(first, later)
    # Where attempts continue to fail, a later one runs.
    await world.recovers(world.until_running if verb == "create" else world.on_second_attempt, within=17)


@pytest.mark.parametrize(
    ("code", "only_creations"),
    [*((code, False) for code in (200, 403, 404)), *((code, True) for code in (400, 403, 413, 422))],
)
async def test_a_gateway_that_answers_in_the_api_servers_place(
    world: World, code: int, *, only_creations: bool
) -> None:
    """Such as a load balancer without a server: it answers requests for Pods."""

    def page(request: Request) -> web.Response | None:
        met = request.verb == "create" if only_creations else request.verb != "watch"
        return web.Response(status=code, text="<html>not here</html>") if met and request.resource == "pods" else None

    await world.create_retried()
    with world.door.answering(page):
        await world.count(250 if only_creations else 200, 100)
    await world.recovers(world.on_second_attempt, within=17)


async def test_connections_that_are_refused(world: World) -> None:
    await world.create_retried()
    await world.door.refuse()
    await asyncio.sleep(60)
    await world.door.accept()
    await world.recovers(world.on_second_attempt, within=17)


async def test_a_status_that_is_too_large(world: World) -> None:
    await world.create()
    await world.until_running()
    with world.door.answering(
        refusing("patch", "frameworks/status", 500, "InternalError", "etcdserver: request is too large")
    ):
        for name in world.names:
            await world.frameworks.set(name, taskRoles__0__taskNumber=2)
        await world.count(60, 30)
    for name in world.names:
        await world.frameworks.set(name, taskRoles__0__taskNumber=TASKS)
    await world.recovers(world.until_running, within=10)


async def set_finalizers(world: World, name: str, *finalizers: str, resource: Resource = PODS) -> None:
    body = orjson.dumps({"metadata": {"finalizers": finalizers}})
    await world.client.patch(resource, name, body, world.cluster.namespace, content_type=MERGE_PATCH)


async def all_completed(world: World) -> None:
    for name in world.names:
        assert (await world.frameworks.status(name))["state"] == "Completed"
