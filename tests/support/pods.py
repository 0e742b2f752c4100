"""Pods to test kubelets with, and a kubelet's inside without an API server."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from frameworkcontroller.local.kubelet.pod import NodePod, decode_pod
from frameworkcontroller.local.kubelet.pod_workers import PodWorker, PodWorkers
from frameworkcontroller.local.kubelet.podstatus import Json
from frameworkcontroller.local.kubelet.runtime import Runtime

_uids = itertools.count(1)


def pod_manifest(
    *containers: Mapping[str, Any],
    name: str = "f-r-0",
    namespace: str = "default",
    inits: tuple[Mapping[str, Any], ...] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Pod as a user writes it; one container ``main`` if none is given, restartPolicy Never unless stated."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": dict(annotations or {}),
            "labels": dict(labels or {}),
        },
        "spec": {
            "restartPolicy": "Never",
            **spec,
            "initContainers": [{"image": "none", **item} for item in inits],
            "containers": [{"image": "none", **item} for item in containers or ({"name": "main"},)],
        },
    }


def bound(manifest: dict[str, Any], *, node: str = "local", status: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The same Pod as the API server has it once it is bound."""
    number = next(_uids)
    metadata = {"uid": f"00000000-0000-4000-8000-{number:012}", "resourceVersion": str(number), **manifest["metadata"]}
    return {
        **manifest,
        "metadata": metadata,
        "spec": {**manifest["spec"], "nodeName": node},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            **(status or {}),
        },
    }


def record(manifest: dict[str, Any], **kwargs: Any) -> NodePod:
    """The record of a Pod that is bound."""
    return decode_pod(bound(manifest, **kwargs), keep_manifest=True)


class Hosting:
    """A `PodWorkers` on a runtime, and the status that it would report of each Pod."""

    def __init__(self, runtime: Runtime, *, wall: Callable[[], float]) -> None:
        self.changes: list[str] = []
        self.workers = PodWorkers(runtime, on_change=self.changes.append, wall=wall)

    def admit(self, manifest: dict[str, Any], **kwargs: Any) -> str:
        """Bind the Pod here; its uid."""
        pod = record(manifest, **kwargs)
        self.workers.admit(pod)
        return pod.uid

    def pod(self, uid: str) -> PodWorker:
        pod = self.workers.get(uid)
        assert pod is not None
        return pod

    def status(self, uid: str) -> Json:
        """The Pod's status as it is now."""
        return self.workers.status(self.pod(uid))

    def phase(self, uid: str) -> str:
        phase: str = self.status(uid)["phase"]
        return phase

    def container(self, uid: str, name: str = "main") -> Json:
        """The status of one container."""
        status = self.status(uid)
        found: Json = next(
            item
            for item in [*status.get("initContainerStatuses", ()), *status["containerStatuses"]]
            if item["name"] == name
        )
        return found

    def delete(self, uid: str, grace: int = 30) -> None:
        """Let a graceful deletion of the Pod begin."""
        manifest = orjson.loads(self.pod(uid).record.manifest)
        metadata = {
            **manifest["metadata"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": grace,
        }
        self.workers.update(decode_pod({**manifest, "metadata": metadata}, keep_manifest=True))
