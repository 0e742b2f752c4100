"""Workloads of Frameworks that are gone: their finalizer is removed once nothing of the Framework exists.

Kueue does not take them for orphans, so they would keep their quota. A Framework that is deleted in the foreground
gives its quota back by itself (kueue.py), unless it is left alone, as in quarantine: its deletion would wait for the
finalizer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.workloads import WorkloadRecord
from frameworkcontroller.machine.kernel.absence import is_of_framework
from frameworkcontroller.machine.kernel.actions import LookUp, carry_out
from frameworkcontroller.machine.kernel.exchanges import Gone, Patched
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    Refusal,
    Refused,
    Request,
    Target,
    metadata_in,
)
from frameworkcontroller.machine.parts.kueue.workloadactions import GiveBack, LetGo, Seen

LOOK_SEC: Final = 15.0
"""Time until an orphan is looked at again that cannot be released yet. Mostly an event comes before."""


@dataclass(frozen=True, slots=True)
class Release:
    """The outcome for an orphan. ``look_after``: the seconds until it is to be looked at again, None for never."""

    done: bool
    look_after: float | None = None


def orphans(workloads: Iterable[WorkloadRecord], framework_uid: str | None) -> list[WorkloadRecord]:
    """Those of the Workloads with the finalizer that are not of the Framework with that UID (None: of none)."""
    return [one for one in workloads if one.in_use and _owner_uid(one) not in ("", framework_uid)]


def releases_of(uid: str, workloads: Iterable[WorkloadRecord], now: int) -> list[GiveBack]:
    """The releases of a Framework of that UID which Kueue has evicted, and for which nothing can be decided.

    ``workloads``: the cached ones with its name. ``now``: seconds since the epoch.
    """
    evicted = (one for one in workloads if one.identity.controller_uid == uid and one.evicted and one.reserves)
    return [GiveBack(Target(Kind.WORKLOAD, one.name), one.uid, now) for one in evicted]


def _owner_uid(workload: WorkloadRecord) -> str:
    """The UID of its Framework. One that was orphaned on purpose has none until it is deleted."""
    return workload.identity.controller_uid or (workload.job_uid if workload.identity.deleting else "")


def release(
    orphan: WorkloadRecord, list_pods: Callable[[], Iterable[PodRecord]], *, deleting_uid: str | None = None
) -> Generator[Request, Answer, Release]:
    """Remove the finalizer of an orphan, once live reads show that its Framework and its ConfigMap are gone.

    ``list_pods``: the cached Pods with the name of its Framework. ``deleting_uid``: of a Framework that is left alone,
    for which it is enough that it is being deleted.
    """
    uid = _owner_uid(orphan)
    later = Release(False, LOOK_SEC)
    if any(is_of_framework(uid, pod) for pod in list_pods()):
        return later
    if not (yield from _is_gone(orphan.framework, uid, or_deleting=uid == deleting_uid)):
        return later
    configmap = Target(Kind.CONFIGMAP, names.configmap_name(orphan.framework))
    if not isinstance((yield from carry_out(LookUp(configmap, uid))), Gone):
        return later
    result = yield from carry_out(LetGo(Target(Kind.WORKLOAD, orphan.name), orphan.uid))
    return Release(isinstance(result, Patched)) if isinstance(result, Patched | Gone | Seen) else later


def _is_gone(framework: str, uid: str, *, or_deleting: bool) -> Generator[Request, Answer, bool]:
    answer = yield Get(Kind.FRAMEWORK, framework)
    match answer:
        case Answered(body=body):
            metadata = metadata_in(body, "uid")
            if not isinstance(metadata, dict):
                return False
            return metadata["uid"] != uid or (or_deleting and metadata.get("deletionTimestamp") is not None)
        case Refused(kind=Refusal.OBJECT_NOT_FOUND):
            return True
    return False
