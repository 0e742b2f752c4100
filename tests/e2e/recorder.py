"""Everything that happens to Frameworks and Pods of the cluster, as one watch for each shows it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from frameworkcontroller.api.codec import decompress_roles
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.resources import EVENTS, PODS, SERVICES, Resource
from tests.e2e.clusterdns import ENDPOINTS
from tests.e2e.witness import Stored

Json = dict[str, Any]

_UPTIME: Final = Path("/proc/uptime")


def uptime() -> float:
    """Seconds since the machine's start: the clock of containers, too."""
    return float(_UPTIME.read_text().split()[0])


class Recorder:
    """Keeps the newest state of every object, and every status of a Framework with the time by which it was there."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        followed = (FRAMEWORKS, PODS, EVENTS, SERVICES, ENDPOINTS)
        self._objects: dict[Resource, dict[tuple[str, str], Json]] = {resource: {} for resource in followed}
        self.statuses: defaultdict[str, list[Stored]] = defaultdict(list)
        """By namespace."""
        self.pods_seen: defaultdict[str, dict[str, Json]] = defaultdict(dict)
        """The last state of every Pod there ever was, by namespace and UID."""
        self.over: set[str] = set()
        """Namespaces of which nothing is recorded any more."""
        self._changed = asyncio.Event()
        self._failed: Exception | None = None

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        try:
            await asyncio.gather(*(self._follow(resource) for resource in self._objects))
        except Exception as error:  # noqa: BLE001 - on any error, plays must not wait forever
            self._failed = error
            self._changed.set()

    def frameworks(self, namespace: str) -> dict[str, Json]:
        """The Frameworks of a namespace by name; roles are not compressed."""
        return self._of(FRAMEWORKS, namespace)

    def pods(self, namespace: str) -> dict[str, Json]:
        """The Pods of a namespace by name."""
        return self._of(PODS, namespace)

    def events(self, namespace: str) -> dict[str, Json]:
        """The Events of a namespace by name."""
        return self._of(EVENTS, namespace)

    def services(self, namespace: str) -> dict[str, Json]:
        """The Services of a namespace by name."""
        return self._of(SERVICES, namespace)

    def endpoints(self, namespace: str) -> dict[str, Json]:
        """The Endpoints of a namespace by name."""
        return self._of(ENDPOINTS, namespace)

    async def until(self, holds: Callable[[], Any], *, within: float) -> Any:
        """Wait until `holds`, asked after every change, returns something true without an AssertionError; that then.

        When the time is up, its last AssertionError is raised.
        """
        deadline = asyncio.get_running_loop().time() + within
        while True:
            if self._failed is not None:
                raise RuntimeError("nothing is recorded any more") from self._failed
            self._changed.clear()
            failed: AssertionError | None = None
            try:
                if result := holds():
                    return result
            except AssertionError as error:
                failed = error
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise failed or AssertionError(f"{holds} still says no after {within:g} s")
            with suppress(TimeoutError):
                # Once a second at least: not all that is waited for shows in a watch.
                await asyncio.wait_for(self._changed.wait(), min(left, 1))

    def _of(self, resource: Resource, namespace: str) -> dict[str, Json]:
        return {name: body for (where, name), body in self._objects[resource].items() if where == namespace}

    async def _follow(self, resource: Resource) -> None:
        while True:
            # An API server that is busy may break a watch off.
            with suppress(KubeError):
                listed = orjson.loads(await self._client.list(resource))
                for body in listed["items"]:
                    self._take(resource, "MODIFIED", body)
                there = {(body["metadata"]["namespace"], body["metadata"]["name"]) for body in listed["items"]}
                for key in self._objects[resource].keys() - there:
                    self._take(resource, "DELETED", self._objects[resource][key])
                version = listed["metadata"]["resourceVersion"]
                async with self._client.watch(resource, resource_version=version) as lines:
                    async for line in lines:
                        event = orjson.loads(line)
                        if event["type"] == "ERROR":
                            break
                        if event["type"] != "BOOKMARK":
                            self._take(resource, event["type"], event["object"])
            await asyncio.sleep(0.5)

    def _take(self, resource: Resource, what: str, body: Json) -> None:
        namespace, uid = body["metadata"]["namespace"], body["metadata"]["uid"]
        key = namespace, body["metadata"]["name"]
        if resource is FRAMEWORKS:
            _expand(body)
        if what == "DELETED":
            self._objects[resource].pop(key, None)
        else:
            self._objects[resource][key] = body
        if namespace not in self.over:
            if resource is FRAMEWORKS and (what == "DELETED" or "attemptStatus" in (body.get("status") or ())):
                status = None if what == "DELETED" else body["status"]
                self.statuses[namespace].append(Stored(uptime(), uid, status))
            if resource is PODS:
                self.pods_seen[namespace][uid] = body
        self._changed.set()


def _expand(framework: Json) -> None:
    attempt = (framework.get("status") or {}).get("attemptStatus") or {}
    if packed := attempt.get("taskRoleStatusesCompressed"):
        attempt["taskRoleStatuses"] = decompress_roles(packed)
