"""From cache events to the keys of the Frameworks they concern.

An event only ever says where to look. What changes nothing that the machine reads (our own status write coming back,
say) wakes nobody.
"""

from __future__ import annotations

import logging
from typing import Any

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.names import framework_of
from frameworkcontroller.api.objects import (
    ENDED_PHASES,
    ConfigMapRecord,
    FrameworkRecord,
    PodRecord,
    is_pod_of_framework,
)
from frameworkcontroller.controller.ledger import Ledger
from frameworkcontroller.controller.snapshots import IS_SNAPSHOT, SnapshotLogger
from frameworkcontroller.kube.workqueue import WorkQueue
from frameworkcontroller.machine.model import Trigger
from frameworkcontroller.machine.tracker import Tracker

_log = logging.getLogger(__name__)

_MISSED = "its last state is not known, so there is no snapshot of it"


class EventHandlers:
    """Handlers for the three informers."""

    def __init__(self, queue: WorkQueue[str], ledger: Ledger, snapshot_logger: SnapshotLogger) -> None:
        self._queue = queue
        self._ledger = ledger
        self._snapshot_logger = snapshot_logger

    # --- Frameworks ---

    def framework_added(self, new: FrameworkRecord) -> None:
        """A Framework is in the cache."""
        self._queue.add(new.key)

    def framework_updated(self, old: FrameworkRecord, new: FrameworkRecord) -> None:
        """A Framework changed. Its status is ours and its metadata nobody's input: only spec and deletion count."""
        if new.uid != old.uid or new.generation != old.generation or new.deletion_time != old.deletion_time:
            self._queue.add(new.key)
        entry = self._ledger.get(new.key)
        if entry is not None and entry.uid == new.uid:
            new.status = None

    def framework_deleted(self, old: FrameworkRecord, final: FrameworkRecord | None) -> None:
        """A Framework is gone."""
        entry = self._ledger.find(old)
        if entry is not None:
            # No request may follow that would have them logged.
            snapshots, entry.snapshots = entry.snapshots, []
            self._snapshot_logger.log(old, entry.resource_version, snapshots)
        if self._snapshot_logger.wants(Trigger.FRAMEWORK_DELETION):
            self._keep_deleted(old, final, None if entry is None else entry.tracker)
        self._queue.add(old.key)

    def _keep_deleted(self, old: FrameworkRecord, final: FrameworkRecord | None, tracker: Tracker | None) -> None:
        if tracker is not None and tracker.deletion_kept:
            _log.info("[%s]: Framework was deleted", old.key)
        elif final is not None:
            tail = self._snapshot_logger.of_deleted_framework(final)
            _log.info("[%s]: Framework was deleted%s", old.key, tail, extra=IS_SNAPSHOT)
        elif tracker is not None and tracker.status is not None:
            # The event of its deletion was missed: its last state is the one that this controller knows.
            tail = self._snapshot_logger.of_deleted_framework(old, encode_status(old.name, tracker.status))
            _log.info("[%s]: Framework was deleted, as last seen%s", old.key, tail, extra=IS_SNAPSHOT)
        elif old.status:
            tail = self._snapshot_logger.of_deleted_framework(old)
            _log.info("[%s]: Framework was deleted, as last seen%s", old.key, tail, extra=IS_SNAPSHOT)
        else:
            _log.warning("[%s]: Framework was deleted while nobody watched: %s", old.key, _MISSED)

    # --- ConfigMaps ---

    def configmap_added(self, new: ConfigMapRecord) -> None:
        """An attempt's ConfigMap is in the cache."""
        self._queue.add(framework_key(new))

    def configmap_updated(self, old: ConfigMapRecord, new: ConfigMapRecord) -> None:
        """An attempt's ConfigMap changed."""
        if new.identity != old.identity:
            self._queue.add(framework_key(new))

    def configmap_deleted(self, old: ConfigMapRecord, _final: ConfigMapRecord | None) -> None:
        """An attempt's ConfigMap is gone, or has lost the label that we watch by: the event tells no difference."""
        self._ledger.configmap_dropped(framework_key(old), old.uid)
        self._queue.add(framework_key(old))

    # --- Pods ---

    def pod_added(self, new: PodRecord) -> None:
        """A Task's Pod is in the cache."""
        self._wake(new)

    def pod_updated(self, old: PodRecord, new: PodRecord) -> None:
        """A Task's Pod changed; most changes (conditions, probes, annotations) are of no interest."""
        if _essence(new) != _essence(old):
            self._wake(new)

    def pod_deleted(self, old: PodRecord, final: PodRecord | None) -> None:
        """A Task's Pod is gone, unless it only lost the label that we watch by."""
        removed = final is not None and final.is_removed
        self._ledger.pod_dropped(framework_key(old), final or old, removed=removed)
        is_ours = old.identity.controller_uid is not None and old.identity.marks is not None
        if final is None and is_ours and self._snapshot_logger.wants(Trigger.POD_DELETION):
            _log.warning(
                "[%s]: Pod %s (%s) was deleted while nobody watched: %s", framework_key(old), old.name, old.uid, _MISSED
            )
        self._wake(old)

    def pod_object_deleted(self, pod: dict[str, Any]) -> None:
        """The whole of a Pod that is gone, for the history."""
        metadata = pod["metadata"]
        # One that is neither only lost the label that we watch by.
        ended = (pod.get("status") or {}).get("phase") in ENDED_PHASES
        deleted = ended or metadata.get("deletionTimestamp") is not None
        if deleted and is_pod_of_framework(metadata) and self._snapshot_logger.wants(Trigger.POD_DELETION):
            key = f"{metadata['namespace']}/{framework_of(metadata['name'])}"
            tail = self._snapshot_logger.of_deleted_pod(pod)
            _log.info("[%s]: Pod %s was deleted%s", key, metadata["name"], tail, extra=IS_SNAPSHOT)

    def _wake(self, pod: PodRecord) -> None:
        key = framework_key(pod)
        self._ledger.touch_pod(key, pod.name)
        self._queue.add(key)


def framework_key(record: PodRecord | ConfigMapRecord) -> str:
    """Key of the Framework that the object's name belongs to: unlike the label, nobody can change it."""
    return f"{record.namespace}/{framework_of(record.name)}"


def _essence(pod: PodRecord) -> tuple[object, ...]:
    return (pod.identity, pod.phase, pod.node_name, pod.pod_ip, pod.host_ip, pod.running_grace_sec)
