"""Runs the queue against an API server: watches, decides, and writes."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import orjson

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import ApiError, ApiServerError, Conflict, Invalid, KubeError, NotFound
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import RESOURCEFLAVORS, WORKLOADS, Resource
from frameworkcontroller.local.queues import counts
from frameworkcontroller.local.queues.decisions import QueueView, Write, decide, next_due
from frameworkcontroller.local.queues.kueue_crds import CLUSTERQUEUES, LOCALQUEUES
from frameworkcontroller.local.queues.queue_records import (
    ClusterQueueRecord,
    FlavorRecord,
    LocalQueueRecord,
    QueuedWorkload,
    decode_cluster_queue,
    decode_flavor,
    decode_local_queue,
    decode_workload,
)

_RETRY: Final = Backoff(0.2, 10.0)

log = logging.getLogger(__name__)


class QueueController:
    """The queue of the cluster behind ``client``. At most one may run on a cluster."""

    def __init__(
        self, client: KubeClient, *, wall: Callable[[], float] = time.time, rng: random.Random | None = None
    ) -> None:
        """``wall`` is the time of day, in seconds since the epoch."""
        self._client = client
        self._wall = wall
        self._rng = rng if rng is not None else random.Random()
        self._changed = asyncio.Event()
        self._workloads: Informer[QueuedWorkload] = Informer(client, WORKLOADS, decode_workload, rng=rng)
        self._local_queues: Informer[LocalQueueRecord] = Informer(client, LOCALQUEUES, decode_local_queue, rng=rng)
        self._cluster_queues: Informer[ClusterQueueRecord] = Informer(
            client, CLUSTERQUEUES, decode_cluster_queue, rng=rng
        )
        self._flavors: Informer[FlavorRecord] = Informer(client, RESOURCEFLAVORS, decode_flavor, rng=rng)
        self._written = _Written()
        informers: tuple[Informer[Any], ...] = (
            self._workloads,
            self._local_queues,
            self._cluster_queues,
            self._flavors,
        )
        self._informers = informers
        for informer in informers:
            informer.add_handler(on_add=self._notice, on_update=self._notice, on_delete=self._notice)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"queue: {informer.resource.plural}")
            group.create_task(self._run(), name="queue")

    async def wait_ready(self) -> None:
        """Wait until all queues and workloads are known."""
        for informer in self._informers:
            await informer.wait_synced()

    def _notice(self, *_: object) -> None:
        self._changed.set()

    async def _run(self) -> None:
        await self.wait_ready()
        failures = 0
        while True:
            self._changed.clear()
            try:
                await self._pass()
                failures = 0
            except KubeError as error:
                failures += 1
                log.warning("queue: %s", error)
                asyncio.get_running_loop().call_later(_RETRY.delay(failures, self._rng), self._changed.set)
            await self._wait()

    async def _wait(self) -> None:
        due = next_due(self._known())
        try:
            async with asyncio.timeout(None if due is None else max(due - self._wall(), 0.0) + 0.1):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _pass(self) -> None:
        while writes := decide(self._view(), int(self._wall())):
            if not all([await self._write(write) for write in writes]):
                break  # the informer shows the change
        view, now = self._view(), int(self._wall())
        for local, status in counts.local_queue_statuses(view, now):
            await self._put_status(LOCALQUEUES, local, status)
        for queue, status in counts.cluster_queue_statuses(view, now):
            await self._put_status(CLUSTERQUEUES, queue, status)

    def _view(self) -> QueueView:
        return QueueView(
            workloads=list(self._known()),
            local_queues={record.key: record for record in self._local_queues.lister.values()},
            cluster_queues={record.key: record for record in self._cluster_queues.lister.values()},
            flavors=frozenset(self._flavors.lister),
        )

    def _known(self) -> Iterator[QueuedWorkload]:
        for record in self._workloads.lister.values():
            yield self._written.newest(record)

    async def _write(self, write: Write) -> bool:
        """Whether it was written. If not, the workload has changed."""
        workload = write.workload
        log.debug("queue: %s: %s", workload.key, write.patch)
        try:
            answer = await self._patch(
                WORKLOADS, workload, write.patch, subresource=None if write.deactivates else "status"
            )
        except (Conflict, NotFound):
            return False
        except Invalid as error:
            log.warning("queue: the API server refuses a write of workload %s: %s", workload.key, error)
            return False
        except KubeError as error:
            if not isinstance(error, ApiError) or isinstance(error, ApiServerError):
                # It may have been executed. A decision on the older version could give the same quota away once more.
                await self._read_again(workload)
            raise
        self._written.add(workload, decode_workload(orjson.loads(answer)))
        return True

    async def _read_again(self, workload: QueuedWorkload) -> None:
        failures = 0
        while True:
            try:
                body = await self._client.get(WORKLOADS, workload.name, workload.namespace)
            except NotFound:
                return
            except KubeError:
                failures += 1
                await asyncio.sleep(_RETRY.delay(failures, self._rng))
            else:
                found = decode_workload(orjson.loads(body))
                if found.resource_version != workload.resource_version:
                    self._written.add(workload, found)
                return

    async def _put_status(
        self, resource: Resource, record: LocalQueueRecord | ClusterQueueRecord, status: Mapping[str, Any]
    ) -> None:
        try:
            await self._patch(resource, record, {"status": status}, subresource="status")
        except (Conflict, NotFound):
            return  # the informer shows the newer version

    async def _patch(
        self, resource: Resource, record: _Versioned, patch: Mapping[str, Any], *, subresource: str | None
    ) -> bytes:
        metadata = {"uid": record.uid, "resourceVersion": record.resource_version}
        return await self._client.patch(
            resource,
            record.name,
            orjson.dumps({**patch, "metadata": metadata}),
            record.namespace or None,
            content_type=MERGE_PATCH,
            subresource=subresource,
        )


class _Versioned(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class _Written:
    """The workloads as this queue wrote them, until the informer shows them: quota must not be given away twice.

    A write has the resourceVersion of its object as precondition. So any other version that the informer shows later is
    at least as new as the written one.
    """

    def __init__(self) -> None:
        self._by_key: dict[str, tuple[QueuedWorkload, frozenset[str]]] = {}
        """Each with the versions that are older."""

    def add(self, old: QueuedWorkload, new: QueuedWorkload) -> None:
        """Remember ``new``, the version that follows ``old``."""
        _, older = self._by_key.get(old.key, (old, frozenset[str]()))
        self._by_key[old.key] = new, older | {old.resource_version}

    def newest(self, shown: QueuedWorkload) -> QueuedWorkload:
        """The newest known version of a workload that the informer shows as ``shown``."""
        if shown.key not in self._by_key:
            return shown
        written, older = self._by_key[shown.key]
        if written.uid == shown.uid and shown.resource_version in older:
            return written
        del self._by_key[shown.key]
        return shown
