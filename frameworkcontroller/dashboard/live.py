"""Live Frameworks: a small summary of each from list and watch, and whole objects on demand."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.dashboard.rows import FrameworkRow, live_framework
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import Forbidden, KubeError, NotFound
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import EVENTS, PODS
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.views.apiobjects import Json
from frameworkcontroller.views.kubeevents import KubeEvent as Event
from frameworkcontroller.views.kubeevents import read_event
from frameworkcontroller.views.paging import each_object
from frameworkcontroller.views.poddiagnosis import diagnose_pods
from frameworkcontroller.webaccess.singleflight import SingleFlight

T = TypeVar("T")

_FRESH_SEC: Final = 3.0
"""For how long Pods and Events that were read for one page are good enough for others."""

_MAX_READS: Final = 64
_MAX_OBJECTS: Final = 8
_MAX_POD_EVENTS: Final = 1000
_MAX_CHANGES: Final = 100


@dataclass(frozen=True, slots=True)
class Stale:
    """Why the shown state may be old, and since when, in seconds since the epoch. ``listed``: there is a state."""

    problem: str
    since: float
    listed: bool


@dataclass(frozen=True, slots=True)
class PodsAndEvents:
    """Pods and Events of a Framework or a Task. Each problem says why the part before it may be missing.

    ``diagnoses``: of the Pods of a Framework, by name. ``pod``: of a Task, as it is now.
    """

    diagnoses: Mapping[str, str] = field(default_factory=dict)
    pod: Json | None = None
    pods_problem: str = ""
    events: tuple[Event, ...] = ()
    events_problem: str = ""


class Changes:
    """The Frameworks that have changed since the last `take`: a bounded set."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], None] = {}
        self._event = asyncio.Event()

    def add(self, namespace: str, uid: str) -> None:
        """Add a Framework."""
        if len(self._found) < _MAX_CHANGES:
            self._found[namespace, uid] = None
        self._event.set()

    def touch(self) -> None:
        """Wake the waiting task, though no Framework has changed."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for a change."""
        await self._event.wait()

    def take(self) -> list[tuple[str, str]]:
        """Return namespace and UID of each, at most a hundred."""
        found = list(self._found)
        self._found.clear()
        self._event.clear()
        return found


class LiveFrameworks:
    """Watches the Frameworks of a namespace, or (None) of all. `run` keeps them current."""

    def __init__(
        self, client: KubeClient, namespace: str | None = None, *, wall: Callable[[], float] = time.time
    ) -> None:
        """``wall``: a clock, in seconds since the epoch."""
        self.namespace = namespace
        self._client = client
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self._began = wall()
        self._informer: Informer[FrameworkRow] = Informer(
            client, FRAMEWORKS, live_framework, namespace=namespace, on_problem=self._on_problem
        )
        self._informer.add_handler(
            on_add=lambda new: self._on_change(None, new),
            on_update=self._on_change,
            on_delete=lambda old, _final: self._on_change(old, None),
        )
        self._uids: dict[str, str] = {}
        self._subscribers: set[Changes] = set()
        self._fingerprints: dict[str, int] = {}
        self._salt = secrets.token_bytes(16)
        self._objects: LRUCache[str, tuple[str, bytes]] = LRUCache(_MAX_OBJECTS)
        """Version and JSON by UID: parsed, a large one takes twenty times the memory."""
        self._reads: SingleFlight[Hashable, Any] = SingleFlight()
        self._read: LRUCache[Hashable, tuple[float, Any]] = LRUCache(_MAX_READS)

    async def run(self) -> None:
        """Keep them current until cancelled."""
        watching = asyncio.create_task(self._informer.run(), name="watch of Frameworks")
        try:
            while True:
                # Pages show when they begin and end to be stale, though no Framework changes.
                failing = self._informer.failing_since
                await asyncio.sleep(1.0)
                if (failing is None) != (self._informer.failing_since is None):
                    self._on_problem()
                if watching.done():
                    watching.result()
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def wait_synced(self) -> None:
        """Wait for the first list."""
        await self._informer.wait_synced()

    @property
    def namespaces(self) -> set[str]:
        """The namespaces of the Frameworks."""
        return {one.namespace for one in self.all()}

    @property
    def stale(self) -> Stale | None:
        """Why the Frameworks may be older than those in the cluster; None if they are current."""
        failing = self._informer.failing_since
        if failing is not None:
            return Stale(self._informer.problem, self._wall() - (self._loop.time() - failing), self._informer.synced)
        if not self._informer.synced:
            return Stale("", self._began, listed=False)
        return None

    def all(self) -> Iterator[FrameworkRow]:
        """Iterate over all of them, until the next await."""
        return iter(self._informer.lister.values())

    def get(self, namespace: str, name: str) -> FrameworkRow | None:
        """Return the Framework of that name."""
        return self._informer.lister.get(f"{namespace}/{name}")

    def by_uid(self, uid: str) -> FrameworkRow | None:
        """Return the Framework with that UID."""
        key = self._uids.get(uid)
        return None if key is None else self._informer.lister.get(key)

    def __len__(self) -> int:
        return len(self._informer.lister)

    # --- changes ---

    def subscribe(self) -> Changes:
        """Return changes from now on, until `unsubscribe`."""
        made = Changes()
        self._subscribers.add(made)
        return made

    def unsubscribe(self, changes: Changes) -> None:
        """Collect no more changes there."""
        self._subscribers.discard(changes)

    def _on_change(self, old: FrameworkRow | None, new: FrameworkRow | None) -> None:
        for one in (old, new):
            if one is not None:
                mark = self._fingerprints.get(one.namespace, 0) ^ hash((one.uid, one.resource_version))
                self._fingerprints[one.namespace] = mark
        if old is not None and new is None:
            self._uids.pop(old.uid, None)
        if new is not None:
            self._uids[new.uid] = new.key
        changed = new or old
        if changed is not None:
            for changes in self._subscribers:
                changes.add(changed.namespace, changed.uid)

    def fingerprint(self, readable: Collection[str] | None, uid: str = "") -> str:
        """Return a digest that changes with the Frameworks of these namespaces (None: all), or with the one of ``uid``.

        A UID of another namespace counts as unknown.
        """
        if uid:
            one = self.by_uid(uid)
            hidden = one is None or (readable is not None and one.namespace not in readable)
            found: object = None if one is None or hidden else one.resource_version
        else:
            found = sorted(
                (namespace, mark)
                for namespace, mark in self._fingerprints.items()
                if readable is None or namespace in readable
            )
        stale = self.stale
        text = repr((found, stale and (stale.problem, stale.listed)))
        return hashlib.blake2b(text.encode(), key=self._salt, digest_size=12).hexdigest()

    def _on_problem(self) -> None:
        for changes in self._subscribers:
            changes.touch()

    # --- whole objects ---

    async def read(self, one: FrameworkRow) -> tuple[Json, KubeError | None]:
        """Return the object of a Framework, at least as new as its summary; else an older one, and why.

        Raises:
            NotFound: it is gone.
            KubeError: it cannot be read, and no older one is at hand.
        """
        known = self._objects.get(one.uid)
        if known is not None and known[0] == one.resource_version:
            return _parsed(known[1]), None
        try:
            raw = await self._reads.run(
                (one.uid, one.resource_version), lambda: self._client.get(FRAMEWORKS, one.name, one.namespace)
            )
        except NotFound:
            self._objects.pop(one.uid)
            raise
        except KubeError as error:
            if known is None:
                raise
            return _parsed(known[1]), error
        body = _parsed(raw)
        metadata = body["metadata"]
        self._objects.put(metadata["uid"], (metadata["resourceVersion"], raw))
        return body, None

    async def _shared(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return the value of a read that is in progress, or began a few seconds ago, or of a new one."""
        began = self._loop.time()
        known = self._read.get(key)
        if known is not None and began - known[0] < _FRESH_SEC:
            value: T = known[1]
            return value

        async def kept() -> T:
            value: T = self._read.put(key, (began, await read()))[1]
            return value

        found: T = await self._reads.run(key, kept)
        return found

    async def of_framework(self, framework: Json) -> PodsAndEvents:
        """Return the diagnoses of its Pods, and its Events. Missing permission is a problem, not an error."""
        namespace, name = framework["metadata"]["namespace"], framework["metadata"]["name"]

        async def read() -> PodsAndEvents:
            diagnoses: Mapping[str, str] = {}
            problem = ""
            try:
                diagnoses = await diagnose_pods(self._client, framework, self._wall)
            except KubeError as error:
                problem = _problem("Pods", error)
            events, events_problem = await self._events(
                f"involvedObject.kind={names.KIND},involvedObject.name={name}",
                f"involvedObject.kind=ConfigMap,involvedObject.name={names.configmap_name(name)}",
                "involvedObject.kind=Pod",
                namespace=namespace,
            )
            found = tuple(event for event in events if event.concerns(name))
            return PodsAndEvents(diagnoses, None, problem, found, events_problem)

        return await self._shared(("framework", framework["metadata"]["uid"]), read)

    async def of_pod(self, namespace: str, name: str) -> PodsAndEvents:
        """Return a Pod, if there is one, and its Events. Missing permission is a problem, not an error."""

        async def read() -> PodsAndEvents:
            body, problem = None, ""
            try:
                body = _parsed(await self._client.get(PODS, name, namespace))
            except NotFound:
                pass
            except KubeError as error:
                problem = _problem("Pods", error)
            selector = f"involvedObject.kind=Pod,involvedObject.name={name}"
            return PodsAndEvents({}, body, problem, *await self._events(selector, namespace=namespace))

        return await self._shared(("pod", namespace, name), read)

    async def _events(self, *selectors: str, namespace: str) -> tuple[tuple[Event, ...], str]:
        found: list[Event] = []
        try:
            for selector in selectors:
                read = each_object(self._client, EVENTS, namespace, field_selector=selector, most=_MAX_POD_EVENTS)
                found += [read_event(body) async for body in read]
        except KubeError as error:
            return tuple(found), _problem("Events", error)
        return tuple(found), ""


def _parsed(raw: bytes) -> Json:
    body: Json = orjson.loads(raw)
    body["metadata"].pop("managedFields", None)
    return body


def _problem(what: str, error: KubeError) -> str:
    if isinstance(error, Forbidden):
        return f"These pages have no permission to read {what}: {error}"
    return f"{what} cannot be read: {error}"
