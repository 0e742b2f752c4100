"""The addresses of Services: connections to a cluster IP go to the ready Pods in turn, as with kube-proxy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Final

from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.object_records import Change, ObjectRecord
from frameworkcontroller.local.apiserver.storage import ObjectStorage
from frameworkcontroller.local.readycondition import is_ready

_SERVICES: Final = builtin_resources.SERVICES.resource
_PODS: Final = builtin_resources.PODS.resource
_CHUNK: Final = 1 << 16
_CONNECT_SEC: Final = 5.0

_log: Final = logging.getLogger(__name__)

_Port = tuple[str, str, int]
"""Key of the Service, cluster IP and port."""


class ServiceProxy:
    """Listens on the TCP ports of all Services with a cluster IP and a selector."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage
        self._changed = asyncio.Event()
        self._servers: dict[_Port, asyncio.Server | None] = {}
        """None for a port that cannot be listened on."""
        self._clients: set[asyncio.StreamWriter] = set()
        self._turn = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        unobserve = self._storage.observe(self._observe)
        try:
            while True:
                self._changed.clear()
                await self._listen({port for record in self._storage.records(_SERVICES) for port in _ports(record)})
                await self._changed.wait()
        finally:
            unobserve()
            await self._listen(set())
            for writer in self._clients:
                writer.transport.abort()

    def _observe(self, change: Change) -> None:
        if change.record.resource == _SERVICES:
            self._changed.set()

    async def _listen(self, wanted: set[_Port]) -> None:
        for port in self._servers.keys() - wanted:
            if (server := self._servers.pop(port)) is not None:
                server.close()
        for port in wanted - self._servers.keys():
            self._servers[port] = await self._start(port)

    async def _start(self, port: _Port) -> asyncio.Server | None:
        key, address, number = port
        try:
            return await asyncio.start_server(lambda *pair: self._serve(port, *pair), address, number)
        except OSError as error:
            _log.warning("Service %s: its port %d leads nowhere: %s", key, number, error.strerror or error)
            return None

    async def _serve(self, port: _Port, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            if (pod := await self._connect(port)) is not None:
                with closing(pod[1]):
                    await asyncio.gather(_pump(reader, pod[1]), _pump(pod[0], writer))
        finally:
            # Without a ready Pod, at once.
            writer.close()
            self._clients.discard(writer)

    async def _connect(self, port: _Port) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        self._turn += 1
        found = list(self._backends(port))
        for at in range(len(found)):
            address, number = found[(self._turn + at) % len(found)]
            with suppress(OSError, TimeoutError):
                return await asyncio.wait_for(asyncio.open_connection(address, number), _CONNECT_SEC)
        return None

    def _backends(self, port: _Port) -> Iterator[tuple[str, int]]:
        """Address and port of each ready Pod."""
        key, _, number = port
        service = self._storage.get(_SERVICES, key)
        spec = {} if service is None else service.document()["spec"]
        selector = (spec.get("selector") or {}).items()
        target = next((one.get("targetPort") or number for one in spec.get("ports") or () if one["port"] == number), 0)
        for record in self._storage.records(_PODS, f"{key.partition('/')[0]}/"):
            if selector and selector <= record.labels.items() and not record.deleting:
                pod = record.document()
                address, wanted = (pod.get("status") or {}).get("podIP"), _container_port(pod, target)
                if address and wanted and is_ready(pod):
                    yield address, wanted


def _ports(service: ObjectRecord) -> Iterator[_Port]:
    spec = service.document().get("spec") or {}
    address = spec.get("clusterIP")
    if address in (None, "", "None") or not spec.get("selector") or service.deleting:
        return
    for port in spec.get("ports") or ():
        if port.get("protocol", "TCP") == "TCP":
            yield service.key, address, port["port"]


def _container_port(pod: dict[str, Any], target: int | str) -> int:
    """The number of a port, which may be named by a container; 0 if none is."""
    if isinstance(target, int):
        return target
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or ())
    return next((int(port["containerPort"]) for port in ports if port.get("name") == target), 0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
