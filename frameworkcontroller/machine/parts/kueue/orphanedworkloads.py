"""Workloads of Frameworks that are gone: their finalizer is removed once nothing of the Framework exists.

Kueue does not treat them as orphans, so they would keep their quota. A Framework that is deleted in the foreground
releases its quota itself (enqueueing.py), except in quarantine: its deletion would wait for the finalizer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.workloads import WorkloadRecord
from frameworkcontroller.machine.kernel.absence import is_of_framework
from frameworkcontroller.machine.kernel.actions import LookUp, carry_out
from frameworkcontroller.machine.kernel.aside import Aside
from frameworkcontroller.machine.kernel.exchanges import Gone, NotDoneError, Patched, find_metadata
from frameworkcontroller.machine.kernel.protocol import OrphanReleased, View
from frameworkcontroller.machine.kernel.requests import Answer, Kind, Request, Target
from frameworkcontroller.machine.parts.kueue.workloadactions import ReleaseQuota, RemoveFinalizer, Seen

LOOK_SEC: Final = 15.0
"""Time until an orphan is looked at again that cannot be released yet. Mostly an event comes before."""


def orphans(workloads: Iterable[WorkloadRecord], framework_uid: str | None) -> list[WorkloadRecord]:
    """The Workloads with the finalizer of other Frameworks than the one with that UID (None: of any)."""
    return [one for one in workloads if one.in_use and one.owner_uid not in ("", framework_uid)]


def releases_of(uid: str, workloads: Iterable[WorkloadRecord], now: int) -> list[ReleaseQuota]:
    """The releases of a Framework of that UID which Kueue has evicted, and for which nothing can be decided.

    ``workloads``: the cached ones with its name. ``now``: seconds since the epoch.
    """
    evicted = (one for one in workloads if one.identity.controller_uid == uid and one.evicted and one.reserves)
    return [ReleaseQuota(Target(Kind.WORKLOAD, one.name), one.uid, now) for one in evicted]


class OrphanRelease(Aside):
    """Remove the finalizer of an orphan, once live reads show that its Framework and its ConfigMap are gone."""

    def __init__(self, orphan: WorkloadRecord, *, deleting_uid: str | None = None) -> None:
        """``deleting_uid``: of an ignored Framework, which only has to be in deletion."""
        super().__init__(f"{orphan.namespace}/{orphan.framework}", orphan.owner_uid)
        self._orphan = orphan
        self._may_be_deleting = self.uid == deleting_uid

    def exchange(self, view: View) -> Generator[Request, Answer, float | None]:
        """Return None once it is released or gone."""
        orphan, uid = self._orphan, self.uid
        if any(is_of_framework(uid, pod) for pod in view.observe(creating=False).list_pods()):
            return LOOK_SEC
        if not (yield from _is_gone(self.name, uid, or_deleting=self._may_be_deleting)):
            return LOOK_SEC
        configmap = Target(Kind.CONFIGMAP, names.configmap_name(self.name))
        if not isinstance((yield from carry_out(LookUp(configmap, uid))), Gone):
            return LOOK_SEC
        result = yield from carry_out(RemoveFinalizer(Target(Kind.WORKLOAD, orphan.name), orphan.uid, uid))
        if isinstance(result, Patched):
            self._effects.append(OrphanReleased(orphan.name))
        return None if isinstance(result, Patched | Gone | Seen) else LOOK_SEC


def _is_gone(framework: str, uid: str, *, or_deleting: bool) -> Generator[Request, Answer, bool]:
    try:
        metadata = yield from find_metadata(Target(Kind.FRAMEWORK, framework))
    except NotDoneError:
        return False
    if metadata is None or metadata["uid"] != uid:
        return True
    return or_deleting and metadata.get("deletionTimestamp") is not None
