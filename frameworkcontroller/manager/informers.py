"""The informers of one controller: their resources, intervals of comparison, and event handlers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, cast

from frameworkcontroller.api import names
from frameworkcontroller.api.objectkinds import RESOURCES, Companion, Kind
from frameworkcontroller.api.objects import (
    ClaimRecord,
    CompanionRecord,
    ConfigMapRecord,
    FrameworkRecord,
    PodRecord,
    configmap_record,
    framework_record,
    pod_record,
)
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.workloads import WorkloadRecord
from frameworkcontroller.controller.eventhandlers import EventHandlers, framework_key
from frameworkcontroller.kube import resources
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.discovery import find_served
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.machine.kernel.model import NotListed

Ts = TypeVarTuple("Ts")
C_co = TypeVar("C_co", bound=CompanionRecord, covariant=True)

COMPARISON_SEC: Final = 600.0
COMPARISON_MAX_SEC: Final = 3600.0
COMPARISON_SEC_PER_OBJECT: Final = 0.3
"""A comparison with a list finds changes that a watch has lost. A Pod costs 11 us here and 7 KB from the API server, so
the interval grows with the cache: to at most three Pods a second, and up to an hour."""


def comparison_sec(objects: int) -> float:
    """Seconds until a cache of ``objects`` objects is compared with a list."""
    return min(COMPARISON_MAX_SEC, max(COMPARISON_SEC, objects * COMPARISON_SEC_PER_OBJECT))


DISCOVERY_SEC: Final = 60.0
"""Interval of discovery of an API that a Framework needs, while no version is served."""

SERVED_LOOKS: Final = 50
"""API servers serve the resource of a CRD a moment after it is established."""


class CompanionInformer(Generic[C_co]):
    """Watches a kind of companions from the first Framework on that needs one, while this replica acts."""

    def __init__(
        self,
        kind: Kind,
        make: Callable[..., Informer[C_co]],
        handlers: EventHandlers,
        enqueue: Callable[[str], None],
        versions: VersionFinder | None = None,
        *,
        always: bool = False,
    ) -> None:
        """``make`` makes the informer. ``enqueue`` takes the key of a Framework that waited for the first list.

        ``versions`` finds the served version; None: that of the informer is served. ``always``: watch before any
        Framework needs one.
        """
        self._kind = kind
        self._handlers = handlers
        self.informer = make(label_selector=names.FRAMEWORK_NAME, on_problem=self._on_problem)
        self._versions = versions
        self._failing = asyncio.Event()
        self._problem = NotListed()
        """Why no version is known."""
        self.informer.add_handler(
            on_add=handlers.companion_changed,
            on_update=handlers.companion_updated,
            on_delete=handlers.companion_deleted,
            on_listed=self._on_listed,
        )
        self._enqueue = enqueue
        self._wanted = asyncio.Event()
        self._waiting: set[str] = set()
        self._always = always

    def find(self, key: str, framework: str) -> C_co | NotListed | None:
        """The cached companion of that key, for the Framework of that key."""
        return self.informer.lister.get(key) if self.informer.synced else self._list(framework)

    def of(self, framework: str, *, needed: bool) -> Iterable[C_co] | NotListed:
        """The cached companions with that value of the index, the key of the Framework. Unless ``needed``, none."""
        if self.informer.synced:
            return self.informer.lister.by_index(framework).values()
        return self._list(framework) if needed or self._wanted.is_set() else ()

    def _list(self, framework: str) -> NotListed:
        self._waiting.add(framework)
        self._wanted.set()
        return self._problem if self._problem.problem else NotListed(self.informer.problem)

    async def run(self) -> None:
        """Watch until cancelled; the next run starts like the first."""
        if not self._always:
            await self._wanted.wait()
        try:
            while True:
                if self._versions is not None:
                    await self._find_version(self._versions)
                name = f"informer of {self.informer.resource.qualified}"
                async with asyncio.TaskGroup() as group:
                    watch = group.create_task(self.informer.run(), name=name)
                    if self._versions is not None:
                        await self._moved(self._versions)
                        watch.cancel()
                self.informer.reset()
        finally:
            self.informer.reset()
            self._problem = NotListed()
            self._wanted.clear()
            self._waiting.clear()

    async def _find_version(self, versions: VersionFinder) -> None:
        while True:
            try:
                found = await versions.find()
            except KubeError as error:
                problem = NotListed(str(error))
            else:
                if found is not None:
                    self._problem = NotListed()
                    self.informer.use(found)
                    return
                problem = NotListed(versions.problem, not_served=True)
            if problem != self._problem:
                self._problem = problem
                self._enqueue_waiting()
            await asyncio.sleep(DISCOVERY_SEC)

    async def _moved(self, versions: VersionFinder) -> None:
        """Wait until the version that is watched is no longer the one to use. Looks only while the watch fails."""
        while True:
            await self._failing.wait()
            with suppress(KubeError):
                if await versions.find() != self.informer.resource:
                    return
            if not self.informer.problem:
                self._failing.clear()
            else:
                await asyncio.sleep(DISCOVERY_SEC)

    def _on_problem(self) -> None:
        self._failing.set()
        self._enqueue_waiting()

    def _on_listed(self) -> None:
        self._handlers.companions_listed(self._kind, self.informer.listed_since, self.informer.lister.get)
        self._enqueue_waiting()
        self._waiting.clear()

    def _enqueue_waiting(self) -> None:
        for key in self._waiting:
            self._enqueue(key)


@dataclass(frozen=True, slots=True)
class VersionFinder:
    """Finds the version of a resource that the API server serves, and notes it for requests."""

    client: KubeClient
    kind: Kind
    candidates: Sequence[Resource]
    """The versions, the best first."""
    resources: dict[Kind, Resource]
    """Those that requests use."""
    install: Callable[[], Awaitable[None]] | None = None
    """Installs the CRD if none is served."""

    @property
    def problem(self) -> str:
        """That none is served, in words."""
        versions = ", ".join(one.version for one in self.candidates)
        return f"the API server does not serve {self.candidates[0].qualified} ({versions})"

    async def find(self) -> Resource | None:
        """The best version that is served, None if none is.

        Raises:
            KubeError: the API server gives no valid answer, or the CRD cannot be installed.
        """
        found = await find_served(self.client, *self.candidates)
        if found is None and self.install is not None:
            await self.install()
            for _ in range(SERVED_LOOKS):
                if (found := await find_served(self.client, *self.candidates)) is not None:
                    break
                await asyncio.sleep(0.2)
        if found is not None:
            self.resources[self.kind] = found
        return found


def _framework_of_companion(companion: CompanionRecord) -> str:
    return f"{companion.namespace}/{companion.framework}"


class Informers:
    """The informers of Frameworks, ConfigMaps, Pods and companions."""

    def __init__(
        self,
        client: KubeClient,
        handlers: EventHandlers,
        *,
        namespace: str | None,
        rng: random.Random,
        acting: Callable[[], bool],
        on_undecodable: Callable[[str, Exception, dict[str, Any]], None],
        enqueue: Callable[[str], None],
        install: Callable[[], Awaitable[None]] | None = None,
        kueue: bool = False,
        runs: bool = False,
    ) -> None:
        """``namespace`` None: all. ``acting``: whether this replica runs syncs. ``on_undecodable``: for Frameworks.

        ``enqueue``: takes the key of a Framework to be synced. ``install``: installs the CRDs of this project's
        companions. ``kueue``: whether Workloads are watched. ``runs``: whether records of Pods have the runs of their
        containers.
        """

        def when_acting(handler: Callable[[*Ts], None]) -> Callable[[*Ts], None]:
            """A standby drops the events of its warm caches: a new leader syncs every Framework anyway."""

            def handle(*event: *Ts) -> None:
                if acting():
                    handler(*event)

            return handle

        informer = partial(Informer, client, namespace=namespace, rng=rng, compare_seconds=comparison_sec)
        self.frameworks: Informer[FrameworkRecord] = informer(
            FRAMEWORKS, framework_record, on_undecodable=when_acting(on_undecodable), takes_cut=True
        )
        self.configmaps: Informer[ConfigMapRecord] = informer(
            resources.CONFIGMAPS, configmap_record, label_selector=names.FRAMEWORK_NAME
        )
        self.pods: Informer[PodRecord] = informer(
            resources.PODS,
            partial(pod_record, runs=True) if runs else pod_record,
            label_selector=names.FRAMEWORK_NAME,
            index=framework_key,
            on_deleted_object=when_acting(handlers.pod_object_deleted),
        )
        self.frameworks.add_handler(
            on_add=when_acting(handlers.framework_added),
            on_update=when_acting(handlers.framework_updated),
            on_delete=when_acting(handlers.framework_deleted),
        )
        # A standby keeps the statuses, too.
        self.frameworks.add_handler(on_add=FrameworkRecord.pack, on_update=lambda _, new: new.pack())
        self.configmaps.add_handler(
            on_add=when_acting(handlers.configmap_added),
            on_update=when_acting(handlers.configmap_updated),
            on_delete=when_acting(handlers.configmap_deleted),
        )
        self.pods.add_handler(
            on_add=when_acting(handlers.pod_changed),
            on_update=when_acting(handlers.pod_updated),
            on_delete=when_acting(handlers.pod_deleted),
        )

        self.resources: dict[Kind, Resource] = dict(RESOURCES)
        """The resources of the kinds, in the versions that are served, as far as known."""

        def watched(kind: Kind, companion: Companion) -> CompanionInformer[CompanionRecord]:
            index = _framework_of_companion if companion.is_indexed else None
            make = partial(informer, kind.resource, companion.decode, index=index)
            versions = None
            if (older := companion.older_versions) is not None:
                candidates = (kind.resource, *(replace(kind.resource, version=version) for version in older))
                versions = VersionFinder(
                    client, kind, candidates, self.resources, install if companion.is_own else None
                )
            return CompanionInformer(kind, make, handlers, enqueue, versions, always=companion.of_queues)

        companions = {kind: kind.companion for kind in Kind if kind.companion is not None}
        self.companions = {
            kind: watched(kind, companion) for kind, companion in companions.items() if kueue or not companion.of_queues
        }

    def compare(self, *, older_than: float) -> None:
        """Compare the caches with lists that were not listed since that time of the loop.

        A Framework that cannot be decoded is reported in any case: a standby reports none.
        """
        unreadable = self.frameworks.forget_undecodable()
        for informer in self:
            if unreadable and informer is self.frameworks:
                informer.relist()
            elif informer.listed_since < older_than:
                informer.compare()

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter((self.frameworks, self.configmaps, self.pods))

    @property
    def all(self) -> tuple[Informer[Any], ...]:
        """All informers, including unneeded ones of companions."""
        return (*self, *(one.informer for one in self.companions.values()))

    @property
    def needed(self) -> tuple[Informer[Any], ...]:
        """Those that watch, or would if this replica led."""
        return (*self, *(one.informer for one in self.companions.values() if one.informer.running))

    def find_companion(self, kind: Kind, key: str, framework: str) -> CompanionRecord | NotListed | None:
        """The cached companion of that kind and key, for the Framework of that key."""
        return self.companions[kind].find(key, framework)

    def list_claims(self, framework: str, needed: bool) -> Iterable[ClaimRecord] | NotListed:
        """The cached volume claims of the Framework of that key. ``needed``: start their watch."""
        claims = cast("CompanionInformer[ClaimRecord]", self.companions[Kind.VOLUME_CLAIM])
        return claims.of(framework, needed=needed)

    def list_workloads(self, framework: str) -> Iterable[WorkloadRecord]:
        """The cached Workloads of Frameworks of that key, of earlier ones of the name, too."""
        workloads = cast("CompanionInformer[WorkloadRecord]", self.companions[Kind.WORKLOAD])
        return workloads.informer.lister.by_index(framework).values()

    def of(self, kind: Kind) -> Informer[Any]:
        """The informer of the owned objects of that kind."""
        return self.configmaps if kind is Kind.CONFIGMAP else self.pods
