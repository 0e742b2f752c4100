"""The event handlers of the informers: enqueue the key of the Framework that an object belongs to.

Updates that change nothing that the machine reads, such as those by our own status writes, are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.names import framework_of
from frameworkcontroller.api.objects import (
    ENDED_PHASES,
    CompanionRecord,
    ConfigMapRecord,
    FrameworkRecord,
    PodRecord,
    is_pod_of_framework,
)
from frameworkcontroller.controller.reconcilers import Reconcilers
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.kube.workqueue import WorkQueue
from frameworkcontroller.machine.kernel.model import SnapshotTrigger
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.reconciler import Reconciler

if TYPE_CHECKING:
    from frameworkcontroller.controller.historysink import HistorySink

_log: Final = logging.getLogger(__name__)

_UNWATCHED = "was deleted while unwatched: no snapshot, as its last state is unknown"


class EventHandlers:
    """Event handlers of the informers of Frameworks, ConfigMaps, Pods and companions."""

    def __init__(
        self,
        queue: WorkQueue[str],
        reconcilers: Reconcilers,
        snapshots: SnapshotLogger,
        history: HistorySink | None = None,
    ) -> None:
        self._queue = queue
        self._reconcilers = reconcilers
        self._snapshots = snapshots
        self._history = history

    # --- Frameworks ---

    def framework_added(self, new: FrameworkRecord) -> None:
        self._queue.add(new.key)

    def framework_updated(self, old: FrameworkRecord, new: FrameworkRecord) -> None:
        """Enqueue a Framework whose spec or queue changed, or whose deletion began."""
        machine = self._reconcilers.find(new)
        # The caches of a new leader may have been behind: the status that it believes is not the stored one.
        is_doubtful = isinstance(machine, Reconciler) and machine.is_doubtful
        if new.inputs != old.inputs or is_doubtful:
            self._queue.add(new.key)
        if isinstance(machine, Reconciler):
            machine.on_framework_event(new)
        if machine is not None:
            # Its reconciler tracks it.
            new.status_json = None

    def framework_deleted(self, old: FrameworkRecord, final: FrameworkRecord | None) -> None:
        """Enqueue a deleted Framework, log its snapshots, and offer them to the history."""
        machine = self._reconcilers.find(old)
        if isinstance(machine, Reconciler):
            # Otherwise the next request would log them, but there may be none.
            snapshots = machine.take_snapshots()
            self._snapshots.log(old, machine.known.stored.resource_version, snapshots)
            if self._history is not None:
                self._history.offer(old, machine.known.stored.resource_version, snapshots)
        logged = self._snapshots.wants(SnapshotTrigger.FRAMEWORK_DELETION)
        if self._wants(SnapshotTrigger.FRAMEWORK_DELETION):
            self._keep_deleted(old, final, None if machine is None else machine.tracker, logged=logged)
        self._queue.add(old.key)

    def _keep_deleted(
        self, old: FrameworkRecord, final: FrameworkRecord | None, tracker: Tracker | None, *, logged: bool
    ) -> None:
        if tracker is not None and tracker.process.deletion_snapshot_taken:
            if logged:
                _log.info("[%s]: Framework was deleted", old.key)
            return
        last, remark, status_json = final or old, "" if final is not None else ", as last seen", None
        if final is None and tracker is not None and tracker.status is not None:
            # The watch missed the deletion; the tracked status is the newest known.
            status_json = encode_status(old.name, tracker.status)
        if final is None and status_json is None and not old.status:
            _log.warning("[%s]: Framework %s", old.key, _UNWATCHED)
            return
        if logged:
            self._snapshots.log_deleted_framework(last, remark=remark, status_json=status_json)
        if self._history is not None:
            self._history.offer_deleted_framework(last, status_json=status_json)

    # --- ConfigMaps ---

    def configmap_added(self, new: ConfigMapRecord) -> None:
        self._queue.add(framework_key(new))

    def configmap_updated(self, old: ConfigMapRecord, new: ConfigMapRecord) -> None:
        if new.inputs != old.inputs:
            self._queue.add(framework_key(new))

    def configmap_deleted(self, old: ConfigMapRecord, final: ConfigMapRecord | None) -> None:
        """``old`` was deleted, or lost the label that selects it."""
        key = framework_key(old)
        if (machine := self._reconcilers.reconciler(key)) is not None:
            machine.on_configmap_dropped(final or old)
        self._queue.add(key)

    # --- companions ---

    def companion_changed(self, companion: CompanionRecord) -> None:
        """Enqueue the Framework of a companion. Other objects are found by their names."""
        if companion.framework:
            key = f"{companion.namespace}/{companion.framework}"
            if (machine := self._reconcilers.reconciler(key)) is not None:
                machine.on_companion_event(companion)
            self._queue.add(key)

    def companion_updated(self, old: CompanionRecord, new: CompanionRecord) -> None:
        if new.inputs != old.inputs:
            self.companion_changed(old)
            self.companion_changed(new)

    def companion_deleted(self, old: CompanionRecord, _final: CompanionRecord | None) -> None:
        if (machine := self._reconcilers.reconciler(f"{old.namespace}/{old.framework}")) is not None:
            machine.on_companion_dropped(old)
        self.companion_changed(old)

    def companions_listed(self, kind: Kind, listed: float, find: Callable[[str], CompanionRecord | None]) -> None:
        """Enqueue the Frameworks of companions that ended unseen: created before a list that does not have them.

        ``listed``: the loop's time at which the list was requested. ``find``: the cached companion of a key.
        """
        for machine in self._reconcilers.values():
            if isinstance(machine, Reconciler) and machine.on_companions_listed(kind, listed, find):
                self._queue.add(machine.key)

    # --- Pods ---

    def pod_changed(self, pod: PodRecord) -> None:
        key = framework_key(pod)
        if (machine := self._reconcilers.reconciler(key)) is not None:
            machine.on_pod_event(pod.name)
        self._queue.add(key)

    def pod_updated(self, old: PodRecord, new: PodRecord) -> None:
        if new.inputs != old.inputs:
            self.pod_changed(new)
        elif new.ready != old.ready:
            # Most Frameworks have no role that waits for another one.
            key = framework_key(new)
            if (machine := self._reconcilers.reconciler(key)) is not None and machine.on_readiness(new.name):
                self._queue.add(key)

    def pod_deleted(self, old: PodRecord, final: PodRecord | None) -> None:
        """``old`` was deleted, or lost the label that selects it."""
        removed = final is not None and final.is_removed
        if (machine := self._reconcilers.reconciler(framework_key(old))) is not None:
            machine.on_pod_dropped(final or old, removed=removed)
        is_ours = old.identity.controller_uid is not None and old.identity.annotations is not None
        if final is None and is_ours and self._wants(SnapshotTrigger.POD_DELETION):
            _log.warning("[%s]: Pod %s (%s) %s", framework_key(old), old.name, old.uid, _UNWATCHED)
        self.pod_changed(old)

    def pod_object_deleted(self, pod: dict[str, Any]) -> None:
        """Log the snapshot of a deleted Pod, and offer it to the history."""
        metadata = pod["metadata"]
        # A Pod that is neither ended nor terminating only lost the label that selects it.
        ended = (pod.get("status") or {}).get("phase") in ENDED_PHASES
        deleted = ended or metadata.get("deletionTimestamp") is not None
        if deleted and self._wants(SnapshotTrigger.POD_DELETION) and is_pod_of_framework(metadata):
            if self._snapshots.wants(SnapshotTrigger.POD_DELETION):
                key = f"{metadata['namespace']}/{framework_of(metadata['name'])}"
                self._snapshots.log_deleted_pod(key, pod)
            if self._history is not None:
                self._history.offer_deleted_pod(pod)

    def _wants(self, trigger: SnapshotTrigger) -> bool:
        history = self._history
        return self._snapshots.wants(trigger) or (history is not None and history.wants(trigger))


def framework_key(record: PodRecord | ConfigMapRecord) -> str:
    """Return the key of the object's Framework, from its name, which unlike its label cannot change."""
    return f"{record.namespace}/{framework_of(record.name)}"
