"""What clients can see of Frameworks and their Pods, and what of it was promised."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import PODS
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

    async def watch(self) -> None:
        """Follow until cancelled."""
        await asyncio.gather(self._follow(FRAMEWORKS, self._see_framework), self._follow(PODS, self._see_pod))

    async def _follow(self, resource: Any, see: Callable[[Json], None]) -> None:
        page = orjson.loads(await self._client.list(resource, self._namespace))
        version = page["metadata"]["resourceVersion"]
        for item in page["items"]:
            see(item)
        async with self._client.watch(resource, self._namespace, resource_version=version) as lines:
            async for line in lines:
                event = orjson.loads(line)
                if event["type"] != "BOOKMARK":
                    see(event["object"])

    def _see_framework(self, framework: Json) -> None:
        if framework.get("status"):
            self.statuses.setdefault(framework["metadata"]["uid"], []).append(framework["status"])

    def _see_pod(self, pod: Json) -> None:
        annotations = pod["metadata"]["annotations"]
        key = (pod["metadata"]["name"], annotations[names.TASK_UID], annotations[names.TASK_ATTEMPT_ID])
        self.pods.setdefault(key, set()).add(pod["metadata"]["uid"])

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
