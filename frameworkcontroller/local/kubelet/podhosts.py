"""The names of Pods and of headless Services, in the /etc/hosts of the Pods of their namespace.

Like a cluster's DNS, but only within a namespace, and only for Services without a cluster IP: a Pod is
``{hostname}.{subdomain}`` if a headless Service named like its subdomain selects it, and the Service's name means all
Pods that it selects. Kubelet and informers report the objects; `Names` has the files written, in batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from frameworkcontroller.local.kubelet.hoststable import Edits, HostsFile, HostsTable, write_edits
from frameworkcontroller.local.kubelet.pod import TERMINAL, NodePod

CLUSTER_DOMAIN: Final = "cluster.local"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """A Service, as needed for names."""

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    selector: Mapping[str, str]
    headless: bool
    publishes_not_ready: bool

    def publishes(self, pod: NodePod) -> bool:
        """Whether it is headless and has this Pod behind it."""
        return (
            self.headless
            and bool(self.selector)
            and pod.phase not in TERMINAL
            and (pod.ready or self.publishes_not_ready)
            and self.selector.items() <= pod.labels.items()
        )


def decode_service(body: dict[str, Any]) -> ServiceRecord:
    """Decode a Service as the API server sent it."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    namespace, name = metadata["namespace"], metadata["name"]
    return ServiceRecord(
        key=f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion") or "",
        selector=spec.get("selector") or {},
        headless=spec.get("clusterIP") == "None",
        publishes_not_ready=bool(spec.get("publishNotReadyAddresses")),
    )


def in_domain(name: str, namespace: str) -> list[str]:
    """All forms of a name that ends with a Service's, the full one first."""
    return [f"{name}.{namespace}.svc.{CLUSTER_DOMAIN}", f"{name}.{namespace}.svc", f"{name}.{namespace}", name]


def _names(pod: NodePod, service: ServiceRecord) -> str:
    names = in_domain(service.name, service.namespace)
    if pod.hostname and pod.subdomain == service.name:
        names = in_domain(f"{pod.hostname}.{pod.subdomain}", pod.namespace) + names
    return " ".join(names)


@dataclass(slots=True)
class _Member:
    """A Pod with an address; ``file`` is None if it does not use the names."""

    pod: NodePod
    address: str
    file: HostsFile | None


@dataclass(slots=True)
class _Namespace:
    services: dict[str, ServiceRecord] = field(default_factory=dict)
    members: dict[str, _Member] = field(default_factory=dict)
    table: HostsTable = field(default_factory=HostsTable)


class Names:
    """The names of one node's Pods, by namespace."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Namespace] = {}
        self._namespace_of: dict[str, str] = {}
        self._changed: set[str] = set()
        self._changes = 0
        self._written = 0
        """How many of the changes are in the files."""
        self._writing: asyncio.Task[None] | None = None

    # --- the objects --------------------------------------------------------------------------------------------------

    def has_service(self, namespace: str, name: str) -> bool:
        """Whether it has heard of this Service."""
        space = self._namespaces.get(namespace)
        return space is not None and name in space.services

    def set_service(self, service: ServiceRecord) -> None:
        """Add or update a Service."""
        space = self._namespaces.setdefault(service.namespace, _Namespace())
        space.services[service.name] = service
        self._update(service.namespace, *space.members.values())

    def remove_service(self, service: ServiceRecord) -> None:
        """Remove a Service."""
        space = self._namespaces.get(service.namespace)
        if space is not None and space.services.pop(service.name, None) is not None:
            self._update(service.namespace, *space.members.values())

    def add_pod(self, pod: NodePod, address: str, path: Path | None, head: str) -> str:
        """Add a Pod that got its address; return the text that the caller writes to the file ``path`` at once.

        ``head`` is the beginning of the file. With None as ``path`` the Pod does not use the names.
        """
        space = self._namespaces.setdefault(pod.namespace, _Namespace())
        member = space.members[pod.uid] = _Member(pod, address, None)
        self._namespace_of[pod.uid] = pod.namespace
        self._update(pod.namespace, member)
        if path is None:
            return head
        table = space.table.text
        member.file = HostsFile(path, len(head.encode()), len(table))
        return head + table.decode()

    def update_pod(self, pod: NodePod) -> None:
        """Heed a new version of a Pod: its labels, whether it is ready, whether it has ended."""
        namespace = self._namespace_of.get(pod.uid)
        if namespace is not None:
            member = self._namespaces[namespace].members[pod.uid]
            member.pod = pod
            self._update(namespace, member)

    def remove_pod(self, uid: str) -> None:
        """Remove a Pod, before its address is released."""
        namespace = self._namespace_of.pop(uid, None)
        if namespace is None:
            return
        space = self._namespaces[namespace]
        del space.members[uid]
        if space.table.set(uid, {}):
            self._note_change(namespace)
        if not space.members:
            # It has no reader now, and the next Pods need no hidden lines.
            space.table = HostsTable()

    def _update(self, namespace: str, *members: _Member) -> None:
        space = self._namespaces[namespace]
        for member in members:
            services = [service for service in space.services.values() if service.publishes(member.pod)]
            lines = {_names(member.pod, service): member.address for service in services}
            if space.table.set(member.pod.uid, lines):
                self._note_change(namespace)

    # --- files --------------------------------------------------------------------------------------------------------

    async def published(self) -> None:
        """Wait until all changes so far are in the files."""
        wanted = self._changes
        while self._written < wanted and self._writing is not None:
            await asyncio.shield(self._writing)

    def _note_change(self, namespace: str) -> None:
        self._changed.add(namespace)
        self._changes += 1
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="names of Pods")

    async def _write(self) -> None:
        """Write all changes; those that come meanwhile are written together by another task."""
        changes, spaces = self._changes, [self._namespaces[namespace] for namespace in self._changed]
        self._changed.clear()
        work: list[tuple[list[HostsFile], Edits]] = [
            ([member.file for member in space.members.values() if member.file], space.table.take_edits())
            for space in spaces
        ]
        try:
            await asyncio.to_thread(_write_all, work)
        except OSError as error:
            log.error("cannot write the names of Pods: %s", error)
        self._written, self._writing = changes, None
        if self._changed:
            self._writing = asyncio.create_task(self._write(), name="names of Pods")


def _write_all(work: list[tuple[list[HostsFile], Edits]]) -> None:
    for files, edits in work:
        write_edits(files, edits)
