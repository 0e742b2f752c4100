"""Binds PersistentVolumeClaims to directories of the node, in place of a cluster's volume controller and provisioner.

A claim of any size is bound at once if it names no storage class or `DEFAULT_CLASS`. Others stay Pending, and
an Event says why. There are no PersistentVolumes: the name of one stands in the claim, and the runtime keeps the files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, Invalid, NotFound
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import PERSISTENTVOLUMECLAIMS
from frameworkcontroller.local.kubelet.nodeevents import NodeEvents
from frameworkcontroller.local.kubelet.queueworkers import QueueWorkers

DEFAULT_CLASS: Final = "standard"
"""The storage class of the node, and of claims that name none."""

BOUND: Final = "Bound"


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim, as needed to bind it. ``capacity``: of its status."""

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    deleting: bool
    storage_class: str | None
    volume_name: str
    is_plain: bool
    access_modes: tuple[str, ...]
    size: Any
    phase: str
    capacity: Any

    @property
    def own_volume(self) -> str:
        """The name of the volume that it gets here."""
        return f"pvc-{self.uid}"

    @property
    def bound(self) -> bool:
        """Whether Pods can use it."""
        return self.phase == BOUND and self.volume_name == self.own_volume

    @property
    def obstacle(self) -> str:
        """Why it is never bound here; empty if it is."""
        if self.volume_name not in ("", self.own_volume):
            return f'volume "{self.volume_name}" not found'
        if self.storage_class == "":
            return "no persistent volumes available for this claim and no storage class is set"
        if self.storage_class not in (None, DEFAULT_CLASS):
            return (
                f'storageclass.storage.k8s.io "{self.storage_class}" not found: the local cluster has only '
                f'"{DEFAULT_CLASS}"'
            )
        return "" if self.is_plain else "the local cluster has no block volumes, selectors and data sources"


def decode_claim(body: Mapping[str, Any]) -> VolumeClaim:
    """Decode a claim as the API server sent it."""
    metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    namespace, name = metadata["namespace"], metadata["name"]
    return VolumeClaim(
        key=f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion") or "",
        deleting=metadata.get("deletionTimestamp") is not None,
        storage_class=spec.get("storageClassName"),
        volume_name=spec.get("volumeName") or "",
        is_plain=spec.get("volumeMode") != "Block"
        and not any(spec.get(field) for field in ("selector", "dataSource", "dataSourceRef")),
        access_modes=tuple(spec.get("accessModes") or ()),
        size=((spec.get("resources") or {}).get("requests") or {}).get("storage"),
        phase=status.get("phase") or "",
        capacity=(status.get("capacity") or {}).get("storage"),
    )


class Provisioner:
    """Binds the claims that ``claims`` shows. ``remove`` is called with the uid of a claim that is gone."""

    def __init__(
        self,
        client: KubeClient,
        claims: Informer[VolumeClaim],
        remove: Callable[[str], None],
        *,
        concurrency: int = 8,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._claims = claims
        self._events = NodeEvents(client, "persistentvolume-controller", wall=wall)
        self._workers = QueueWorkers("provisioner", self._provision, concurrency=concurrency)
        claims.add_handler(
            on_add=lambda new: self._workers.add(new.key),
            on_update=self._updated,
            on_delete=lambda old, _: remove(old.uid),
        )
        self._remove = remove

    async def run(self) -> None:
        """Run until cancelled."""
        await self._workers.run()

    def _updated(self, old: VolumeClaim, new: VolumeClaim) -> None:
        if old.uid != new.uid:
            self._remove(old.uid)
        self._workers.add(new.key)

    async def _provision(self, key: str) -> None:
        claim = self._claims.lister.get(key)
        if claim is None or claim.deleting:
            return
        if claim.obstacle:
            about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name, "uid": claim.uid}
            await self._events.warn(claim.namespace, about, "ProvisioningFailed", claim.obstacle)
            return
        with suppress(NotFound, Conflict, Invalid):
            if not claim.volume_name:
                await self._patch(claim, {"spec": {"volumeName": claim.own_volume}})
            if claim.phase != BOUND or claim.capacity != claim.size:
                capacity = {"storage": claim.size}
                status = {"phase": BOUND, "accessModes": claim.access_modes, "capacity": capacity}
                await self._patch(claim, {"status": status}, subresource="status")

    async def _patch(self, claim: VolumeClaim, change: Mapping[str, Any], *, subresource: str | None = None) -> None:
        # With the uid: another claim of the same name may have replaced it.
        body = orjson.dumps({**change, "metadata": {"uid": claim.uid}})
        await self._client.patch(
            PERSISTENTVOLUMECLAIMS,
            claim.name,
            body,
            claim.namespace,
            content_type=MERGE_PATCH,
            subresource=subresource,
            metadata_only=True,
        )
