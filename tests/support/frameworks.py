"""Frameworks in tests: made, changed and looked at as users do, through the API."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson
import pytest

from frameworkcontroller import depths
from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import JSON_PATCH, MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import ApiError, NotFound, TooManyRequests, TransportError
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, Resource
from frameworkcontroller.local.kubelet.simulation import PREFIX
from tests.support.eventually import eventually
from tests.support.virtual_clock import VirtualClockLoop

Json = dict[str, Any]


def role(
    name: str = "a", number: int = 1, *, task: Json | None = None, simulate: Json | None = None, **spec: Any
) -> Json:
    """A TaskRole whose Pods behave as `simulate` says (see local.kubelet.simulation); other fields as given."""
    annotations = {PREFIX + key: str(value) for key, value in (simulate or {}).items()}
    pod = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "command": ["work"]}]},
    }
    return {"name": name, "taskNumber": number, "task": {"pod": pod, **(task or {})}, **spec}


def policy(failed: int = -1, succeeded: int = -1) -> Json:
    """A completion policy."""
    return {"minFailedTaskCount": failed, "minSucceededTaskCount": succeeded}


def manifest(name: str, *roles: Json, metadata: Json | None = None, **spec: Any) -> Json:
    """A Framework as a user writes it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"taskRoles": list(roles), **spec},
    }


class Frameworks:
    """The Frameworks of one namespace."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def create(self, name: str, *roles: Json, metadata: Json | None = None, **spec: Any) -> Json:
        """Create one."""
        body = manifest(name, *roles, metadata=metadata, **spec)
        return await _served(lambda: self.client.create(FRAMEWORKS, orjson.dumps(body), self.namespace))

    async def get(self, name: str) -> Json:
        """The object."""
        return await _served(lambda: self.client.get(FRAMEWORKS, name, self.namespace))

    async def status(self, name: str) -> Json:
        """Its status; empty while it has none."""
        return (await self.get(name)).get("status") or {}

    async def set(self, name: str, **values: Any) -> Json:
        """Set fields of the spec, named by their paths with `__` for `/`: ``taskRoles__0__taskNumber=2``."""
        ops = [
            {"op": "add", "path": "/spec/" + path.replace("__", "/"), "value": value} for path, value in values.items()
        ]
        return await _served(
            lambda: self.client.patch(FRAMEWORKS, name, orjson.dumps(ops), self.namespace, content_type=JSON_PATCH)
        )

    async def merge(self, resource: Resource, name: str, change: Json, *, subresource: str | None = None) -> None:
        """Change an object of the namespace by a merge patch, as another client does."""
        body = orjson.dumps(change)
        await self.client.patch(resource, name, body, self.namespace, content_type=MERGE_PATCH, subresource=subresource)

    async def set_finalizers(self, name: str, *finalizers: str, resource: Resource = FRAMEWORKS) -> None:
        """Replace the finalizers of a Framework, or of an object of another kind."""
        await self.merge(resource, name, {"metadata": {"finalizers": finalizers}})

    async def finalizers(self, name: str) -> list[str]:
        """The finalizers of a Framework."""
        return (await self.get(name))["metadata"].get("finalizers") or []

    async def nest(self, name: str, levels: int) -> None:
        """Nest the Pod of its first role this number of levels; skip the test where the API server refuses that."""
        deep = json.dumps([{"op": "add", "path": "/spec/taskRoles/0/task/pod", "value": {"spec": 7}}])
        deep = deep.replace("7", '{"a":' * levels + "1" + "}" * levels)
        try:
            await self.client.patch(FRAMEWORKS, name, deep.encode(), self.namespace, content_type=JSON_PATCH)
        except ApiError as refused:
            pytest.skip(f"the API server keeps no such object: {refused}")

    async def delete(self, name: str, propagation: str | None = "Foreground") -> None:
        """Ask for its deletion."""
        await self.client.delete(FRAMEWORKS, name, self.namespace, propagation=propagation)

    async def pods(self) -> dict[str, Json]:
        """The namespace's Pods by name."""
        items = _parse(await self.client.list(PODS, self.namespace))["items"]
        return {item["metadata"]["name"]: item for item in items}

    async def delete_pod(self, name: str, grace: int | None = None) -> None:
        """Ask for a Pod's deletion, as another client would."""
        await self.client.delete(PODS, name, self.namespace, grace_period_seconds=grace)

    async def until(
        self, name: str, holds: Callable[[Json], bool], *, within: float = 60.0, every: float = 0.05
    ) -> Json:
        """Wait until the status meets the condition, checked every ``every`` seconds. Return the status.

        On real time also look at each status that was stored in between: one that lasts a second may be over before a
        busy machine looks again.
        """
        stored: list[Json] = []

        def check(status: Json) -> Json:
            assert status, "no status yet"
            try:
                assert holds(status), status
            except (LookupError, TypeError) as error:
                # It lacks the field, such as a Task that is yet to come.
                raise AssertionError(status) from error
            return status

        async def probe() -> Json:
            now = await self.status(name)
            between, stored[:] = stored[:], []
            for status in between:
                with suppress(AssertionError):
                    return check(status)
            return check(now)

        if isinstance(asyncio.get_running_loop(), VirtualClockLoop):
            return await eventually(probe, within=within, every=every)
        recording = asyncio.create_task(self._record(name, stored))
        try:
            return await eventually(probe, within=within, every=every)
        finally:
            recording.cancel()
            await asyncio.wait([recording])

    async def _record(self, name: str, stored: list[Json]) -> None:
        """Append each status that is stored from now on."""
        while True:
            with suppress(ApiError, TransportError):
                version = (await self.get(name))["metadata"]["resourceVersion"]
                field = f"metadata.name={name}"
                async with self.client.watch(
                    FRAMEWORKS, self.namespace, resource_version=version, field_selector=field
                ) as events:
                    async for line in events:
                        event = orjson.loads(line)
                        if event["type"] == "MODIFIED":
                            stored.append(event["object"].get("status") or {})
            await asyncio.sleep(0.1)

    async def until_state(self, name: str, state: str, *, within: float = 60.0, every: float = 0.05) -> Json:
        """Wait for the Framework's state; the status then."""
        return await self.until(name, lambda status: bool(status["state"] == state), within=within, every=every)

    async def until_running(self, name: str, count: int) -> Json:
        """Wait until this number of Tasks are running. Return the status."""
        return await self.until(name, lambda status: states(status).count("AttemptRunning") == count)

    async def until_gone(self, name: str) -> None:
        """Wait until the Framework is gone, and with it all that was made for it.

        A real garbage collector rests up to 30 s whenever a test before has installed or removed a CRD, and again if
        it lists the removed one meanwhile.
        """

        async def probe() -> None:
            try:
                found = await self.get(name)
            except NotFound:
                pass
            else:
                raise AssertionError(f"{name} is still there: {found['metadata'].get('finalizers')}")
            await self.assert_nothing_left(name)

        await eventually(probe, within=180)

    async def assert_nothing_left(self, name: str) -> None:
        """No Pod and no ConfigMap of the Framework is there."""
        selector = f"{names.FRAMEWORK_NAME}={name}"
        for resource in (PODS, CONFIGMAPS):
            items = _parse(await self.client.list(resource, self.namespace, label_selector=selector))["items"]
            assert [item["metadata"]["name"] for item in items] == []


def tasks(status: Mapping[str, Any], name: str = "a") -> list[Json]:
    """The statuses of the Tasks of a role."""
    for item in status["attemptStatus"]["taskRoleStatuses"]:
        if item["name"] == name:
            found: list[Json] = item["taskStatuses"]
            return found
    return []


def states(status: Mapping[str, Any]) -> list[str]:
    """The states of all Tasks."""
    return [task["state"] for item in status["attemptStatus"]["taskRoleStatuses"] for task in item["taskStatuses"]]


def codes(items: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """The completion codes of Tasks."""
    return [(item["attemptStatus"]["completionStatus"] or {}).get("code") for item in items]


def condition(status: Mapping[str, Any], kind: str) -> Json:
    """A condition; empty if there is none of that type."""
    return next((item for item in status.get("conditions") or () if item["type"] == kind), {})


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the Pod gets the requests of a Service: it is ready, and is not being deleted."""
    ready = condition(pod.get("status") or {}, "Ready").get("status") == "True"
    return ready and "deletionTimestamp" not in pod["metadata"]


def stalled(status: Mapping[str, Any]) -> str:
    """Why the Framework is stalled, "" if it is not."""
    found = condition(status, "Stalled")
    return str(found.get("reason")) if found.get("status") == "True" else ""


async def _served(request: Callable[[], Awaitable[bytes]]) -> Json:
    """The answer; after the CRD was replaced, an API server says for a moment that it comes too early."""

    async def answered() -> bytes:
        try:
            return await request()
        except TooManyRequests as error:
            raise AssertionError(error) from error

    return _parse(await eventually(answered))


def _parse(answer: bytes) -> Json:
    body: Json = depths.loads(answer)
    return body
