"""Follows the logs of a Framework's containers, over retries and broken connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.podlog import NotALog
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.views.apiobjects import CachedObject, Json, attempt_of, pod_selector
from frameworkcontroller.views.frameworkfollower import FrameworkFollower
from frameworkcontroller.views.loglines import Line, Source, read_lines, sources_of

LAST_LINES_SEC: Final = 5.0
"""Time for the last lines of a container whose Pod is gone, and for their records to reach an archive."""

Target: TypeAlias = tuple[str | None, int | None]
"""A role and an index; None for all."""


class LogFollower:
    """Follows the log of each container that runs, until the Framework has completed.

    ``take`` gets each line; of one container, and of the attempts of one Task, in order. ``container`` None: the
    default one, unless ``every`` is true. ``query``: options of the API for containers that run at the beginning.
    """

    def __init__(
        self,
        client: KubeClient,
        framework: Json,
        take: Callable[[Line], None],
        *,
        target: Target = (None, None),
        container: str | None = None,
        every: bool = False,
        query: Mapping[str, str | int] | None = None,
        on_attempt: Callable[[int], None] = lambda _number: None,
        on_problem: Callable[[Source, Exception], None] = lambda _source, _error: None,
    ) -> None:
        """``on_attempt``: called at each further attempt; ``on_problem``: if a log cannot be read."""
        self._client = client
        self._framework = framework
        self._take = take
        self._query = query or {}
        self._on_attempt = on_attempt
        self._on_problem = on_problem
        self._readers: dict[Source, asyncio.Task[None]] = {}
        self._latest: dict[tuple[str, int, str], asyncio.Task[None]] = {}
        """The last reader of each container of a Task, over its attempts and runs."""
        self.read: set[tuple[str, str, int]] = set()
        """Places of the containers that were read, at least in part."""
        self.first = self._attempt = attempt_of(framework)
        """The attempt at the beginning; -1 if none had begun."""
        self._pods: Informer[CachedObject[list[Source]]] = Informer(
            client,
            PODS,
            lambda body: CachedObject.of(body, sources_of(body, container, every=every)),
            namespace=framework["metadata"]["namespace"],
            label_selector=pod_selector(framework["metadata"]["name"], *target),
        )
        self._pods.add_handler(on_add=self._on_pod, on_update=lambda _old, new: self._on_pod(new))
        self.follower = FrameworkFollower(client, [framework], self._on_framework)

    @property
    def failing_since(self) -> float | None:
        """The time of the event loop at which listing or watching Pods began to fail; None while it works."""
        return self._pods.failing_since

    @property
    def missed(self) -> set[tuple[str, str, int]]:
        """Places of containers that have run and could not be read."""
        return {source.place for source in self._readers} - self.read

    async def run(self) -> None:
        """Follow them."""
        watching = asyncio.create_task(self._pods.run())
        try:
            # Pods first: a Framework that has completed may still have some.
            await self._pods.wait_synced()
            await self.follower.run()
            if self._readers:
                # They end with their Pods, which are gone.
                await asyncio.wait(self._readers.values(), timeout=LAST_LINES_SEC)
        finally:
            tasks = [watching, *self._readers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _on_framework(self, _key: str, body: Mapping[str, Any]) -> None:
        if (now := attempt_of(body)) > self._attempt:
            self._attempt = now
            self._on_attempt(now)

    def _on_pod(self, record: CachedObject[list[Source]]) -> None:
        for source in record.value:
            if source not in self._readers:
                # A container that starts after the first list is read from its start.
                query = {} if self._pods.synced else self._query
                former = self._latest.get(source.origin)
                reader = asyncio.create_task(self._read(source, query, former))
                self._readers[source] = self._latest[source.origin] = reader

    async def _read(self, source: Source, query: Mapping[str, str | int], former: asyncio.Task[None] | None) -> None:
        if former is not None:
            # The lines of an attempt come before the next one's.
            await asyncio.wait([former], timeout=LAST_LINES_SEC)
        try:
            async for line in read_lines(self._client, source, follow=True, **query):
                self._take(line)
                self.read.add(source.place)
            self.read.add(source.place)
        except (ApiError, NotALog) as error:
            self._on_problem(source, error)
