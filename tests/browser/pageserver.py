"""The pages as they are served: in front of an embedded API server and an archive, on real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import orjson
from aiohttp import web

from frameworkcontroller.api.codec import EncodedStatus, decode_status
from frameworkcontroller.api.historyrecords import HistoryRecord, Trigger, encode_record, framework_attempt_id
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.dashboard.eventstreams import EventStreams
from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.dashboard.pages import Pages
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import AlreadyExists
from frameworkcontroller.kube.resources import CRDS, EVENTS, NAMESPACES
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.webaccess.middleware import protect
from frameworkcontroller.webaccess.viewers import WebAccess
from tests.support import pagesamples
from tests.support.access import Everyone
from tests.support.archives import log_record
from tests.support.eventually import eventually
from tests.support.framework_crd import crd_json
from tests.support.objects import items, read

Json = dict[str, Any]

_OF_THE_SERVER: Final = frozenset({"uid", "resourceVersion", "creationTimestamp", "generation"})


def clock() -> float:
    """Seconds since the epoch, in the days of the samples."""
    return pagesamples.NOW + (time.time() - _STARTED)


_STARTED: Final = time.time()


class PageServer:
    """The served pages, and the cluster and archive behind them."""

    def __init__(
        self,
        api: ApiServer,
        client: KubeClient,
        archive: HistoryArchive | None,
        live: LiveFrameworks,
        access: WebAccess | None = None,
    ) -> None:
        self.client = client
        self.archive = archive
        self._access = access or Everyone()
        self._api = api
        self.streams = EventStreams(live)
        self._live = live
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The address of the list, with the slash at its end."""
        return f"http://127.0.0.1:{self._port}/"

    async def start(self) -> None:
        """Serve, on the same port as before."""
        past = self.archive
        self.streams = EventStreams(self._live)
        # On a busy machine an archive may take its time.
        app = Pages(self._live, past, wall=clock, streams=self.streams, archive_sec=120).application()
        protect(app, self._access)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections, and refuse new ones."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def apply(self, *bodies: Json) -> None:
        """Write Frameworks with their status. Each gets the UID that the API server chooses."""
        for body in bodies:
            metadata = body["metadata"]
            namespace, name = metadata["namespace"], metadata["name"]
            new = {key: value for key, value in metadata.items() if key not in _OF_THE_SERVER}
            # A label that only an archive may have: API servers refuse it.
            new["labels"] = {key: value for key, value in new.get("labels", {}).items() if "<" not in value}
            created = {**body, "metadata": new}
            created.pop("status", None)
            with suppress(AlreadyExists):
                await self.client.create(FRAMEWORKS, orjson.dumps(created), namespace)
            if "status" in body:
                await self.set_status(namespace, name, body["status"])
        await eventually(self._shown)

    async def set_status(self, namespace: str, name: str, status: Json) -> None:
        """Replace a status, as the controller does."""
        decoded = decode_status(status)
        assert decoded is not None
        patch = b'{"status":%b}' % EncodedStatus(name, decoded, compress=True).body
        await self.client.patch(FRAMEWORKS, name, patch, namespace, content_type=MERGE_PATCH, subresource="status")

    async def uid(self, namespace: str, name: str) -> str:
        """The UID of a live Framework."""
        uid: str = (await read(self.client, FRAMEWORKS, name, namespace))["metadata"]["uid"]
        return uid

    async def delete(self, namespace: str, name: str) -> None:
        """Delete a Framework."""
        await self.client.delete(FRAMEWORKS, name, namespace, propagation="Background")

    async def add_event(self, namespace: str, kind: str, name: str, reason: str, message: str) -> None:
        """Write an Event about an object."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock()))
        body = {
            "metadata": {"generateName": "event-", "namespace": namespace},
            "involvedObject": {"kind": kind, "name": name, "namespace": namespace},
            "reason": reason, "message": message, "type": "Warning", "count": 1,
            "firstTimestamp": moment, "lastTimestamp": moment, "source": {"component": "test"},
        }  # fmt: skip
        await self.client.create(EVENTS, orjson.dumps(body), namespace)

    async def archive_of(self, *bodies: Json, trigger: Trigger = Trigger.FRAMEWORK_DELETION) -> None:
        """Store Frameworks as a controller archives them."""
        assert self.archive is not None
        await self.archive.store([_record(body, trigger) for body in bodies])

    async def archive_log(self, uid: str, name: str, data: bytes) -> None:
        """Store a log of Task 0 of the role worker of a Framework."""
        assert self.archive is not None
        await self.archive.store([log_record(uid, 0, data, where=f"default/{name}")])

    async def _shown(self) -> None:
        listed = await items(self.client, FRAMEWORKS, None)
        assert {(one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in listed} == {
            (one.uid, one.resource_version) for one in self._live.all()
        }


def _record(body: Json, trigger: Trigger) -> bytes:
    metadata = body["metadata"]
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(clock()))
    return encode_record(
        HistoryRecord(
            id=framework_attempt_id(body),
            trigger=trigger,
            time=moment,
            cluster="",
            namespace=metadata["namespace"],
            name=metadata["name"],
            generation=1,
            object=body,
        )
    )


@asynccontextmanager
async def serving(
    folder: Path, *, with_archive: bool = True, access: WebAccess | None = None
) -> AsyncIterator[PageServer]:
    """Serve the pages of an empty cluster, and of an empty archive in ``folder``. ``access``: usually of loopback."""
    async with ApiServer(wall=clock) as api:
        client = KubeClient(Connection.to_address(api.url))
        archive = await HistoryArchive.open(f"sqlite:///{folder}/history.db") if with_archive else None
        live = LiveFrameworks(client, wall=clock)
        watching: asyncio.Task[None] | None = None
        server = PageServer(api, client, archive, live, access)
        try:
            await client.create(CRDS, crd_json())
            for name in ("default", "research", "serving"):
                with suppress(AlreadyExists):
                    await client.create(NAMESPACES, orjson.dumps({"metadata": {"name": name}}))
            watching = asyncio.create_task(live.run())
            await live.wait_synced()
            await server.start()
            yield server
        finally:
            await server.stop()
            if watching is not None:
                watching.cancel()
                await asyncio.wait([watching])
            if archive is not None:
                await archive.close()
            await client.close()


def with_name(body: Json, name: str, **metadata: Any) -> Json:
    """The Framework under another name, with other metadata."""
    return {**body, "metadata": {**body["metadata"], "name": name, **metadata}}


def past_frameworks() -> list[Json]:
    """Completed Frameworks of the days before, which have been deleted since."""
    found = []
    for number in range(12):
        end = (pagesamples.SUCCEEDED, pagesamples.KILLED, pagesamples.NO_DATA)[number % 3]
        began = 86_400 * number + 9000
        ends = [pagesamples.SUCCEEDED if index % 2 else end for index in range(4)]
        workers = [pagesamples.task(index, State.COMPLETED, one, began=began) for index, one in enumerate(ends)]
        body = pagesamples.framework(f"night{number}", {"worker": workers}, State.COMPLETED, end=end, began=began)
        found.append(with_name(body, f"night{number}", uid=f"past-{number}"))
    return found
