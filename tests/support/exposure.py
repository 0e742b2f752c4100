"""The states of Frameworks and their Pods that clients can see, and the promises about them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import PODS
from tests.support.eventually import eventually
from tests.support.frameworks import Json
from tests.support.invariants import check_status, check_step


class Exposure:
    """Every status that a client could see, and every Pod there was, from a watch of its own."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.statuses: dict[str, list[Json]] = {}
        """Of each Framework, by its uid."""
        self.pods: dict[tuple[str, str, str], set[str]] = {}
        """UIDs of the Pods of each Task attempt: Pod name, Task instance, attempt id."""

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """See everything that happens while the block runs, though some of it only after a while."""
        kinds = ((FRAMEWORKS, self._see_framework), (PODS, self._see_pod))
        versions = [await self._list(resource, see) for resource, see in kinds]
        watches = [
            asyncio.create_task(self._watch(resource, see, version))
            for (resource, see), version in zip(kinds, versions, strict=True)
        ]
        try:
            yield
        finally:
            for watch in watches:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch

    async def _list(self, resource: Any, see: Callable[[Json], None]) -> str:
        page = orjson.loads(await self._client.list(resource, self._namespace))
        for item in page["items"]:
            see(item)
        version: str = page["metadata"]["resourceVersion"]
        return version

    async def _watch(self, resource: Any, see: Callable[[Json], None], version: str) -> None:
        while True:  # a busy API server may end a watch early
            async with self._client.watch(resource, self._namespace, resource_version=version) as lines:
                async for line in lines:
                    event = orjson.loads(line)
                    assert event["type"] != "ERROR", event
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        see(event["object"])

    def _see_framework(self, framework: Json) -> None:
        if framework.get("status"):
            self.statuses.setdefault(framework["metadata"]["uid"], []).append(framework["status"])

    def _see_pod(self, pod: Json) -> None:
        annotations = pod["metadata"]["annotations"]
        key = (pod["metadata"]["name"], annotations[names.TASK_UID], annotations[names.TASK_ATTEMPT_ID])
        self.pods.setdefault(key, set()).add(pod["metadata"]["uid"])

    async def until_last(self, state: str) -> None:
        """Wait until the last status seen of each Framework has that state."""

        async def probe() -> None:
            assert self.statuses
            assert {bodies[-1]["state"] for bodies in self.statuses.values()} == {state}

        await eventually(probe)

    def check(self) -> None:
        """Nothing that was seen ever went back, and no Task attempt had two Pods."""
        for bodies in self.statuses.values():
            before = None
            for body in bodies:
                status = decode_status(body)
                assert status is not None
                check_status(status)
                if before is not None:
                    check_step(before, status)
                before = status
        assert {key: uids for key, uids in self.pods.items() if len(uids) > 1} == {}
