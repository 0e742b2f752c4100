"""Kueue's Workloads, as the controller reads them: the record of the cache, and names of Kueue's interface.

Source: the API ``kueue.x-k8s.io/v1beta2``.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from frameworkcontroller.api import fields, names
from frameworkcontroller.api.objects import CompanionRecord, decoder_of, framework_in, owned_fields

JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: the UID of its Framework."""

IN_USE_FINALIZER: Final = "kueue.x-k8s.io/resource-in-use"
"""Finalizer of a Workload. Kueue counts its quota until this controller removes it."""

QUEUED_INPUTS: Final = "FC_QUEUED_INPUTS"
"""Annotation of a Workload: digest of the inputs of its podSets."""

QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
REQUEUED: Final = "Requeued"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
FINISHED: Final = "Finished"
PODS_READY: Final = "PodsReady"

_HASH_DIGITS: Final = 5


def workload_name(framework: str, uid: str) -> str:
    """The name of a Framework's Workload, as Kueue makes it for other jobs. No other Framework has it."""
    text = f"{names.KIND}\n{names.GROUP}\n{framework}\n{uid}"
    return f"{names.KIND.lower()}-{framework}-{hashlib.sha1(text.encode()).hexdigest()[:_HASH_DIGITS]}"  # noqa: S324


@dataclass(slots=True, frozen=True)
class WorkloadCondition:
    """A condition of a Workload: ``status`` is True, False or Unknown, and "" if there is none."""

    status: str = ""
    reason: str = ""
    message: str = ""

    def __bool__(self) -> bool:
        """Whether it is True."""
        return self.status == "True"


_NO_CONDITION: Final = WorkloadCondition()


@dataclass(slots=True, frozen=True)
class AdmissionCheck:
    """An admission check of a Workload that is not ready: its name, its state, and its message."""

    name: str
    state: str
    message: str


@dataclass(slots=True, frozen=True)
class WorkloadRecord(CompanionRecord):
    """A Workload. ``in_use``: whether it has the finalizer. ``queued_inputs``: its annotation, "" if none.

    ``reserves``: whether status.admission is set, or QuotaReserved is True: its quota is taken.
    """

    kind: str = "Workload"
    job_uid: str = ""
    """The UID of its Framework by its label, also without an owner."""
    in_use: bool = False
    queued_inputs: str = ""
    last_checkpoint: str = ""
    """Its annotation, as text; "" if none."""
    queue_name: str = ""
    priority_kind: str = ""
    """WorkloadPriorityClass or PriorityClass, "" for none."""
    priority_class: str = ""
    max_execution_seconds: int | None = None
    counts: tuple[tuple[str, int], ...] = ()
    """The names of its podSets, and the numbers of their Pods."""
    reclaimed: tuple[tuple[str, int], ...] = ()
    """The names of podSets, and the numbers of their Pods whose quota was released."""
    checks: tuple[AdmissionCheck, ...] = ()
    """Admission checks that are not ready."""
    active: bool = True
    reserves: bool = False
    quota_reserved: WorkloadCondition = _NO_CONDITION
    admitted: WorkloadCondition = _NO_CONDITION
    evicted: WorkloadCondition = _NO_CONDITION
    finished: WorkloadCondition = _NO_CONDITION
    pods_ready: WorkloadCondition = _NO_CONDITION

    @property
    def inputs(self) -> tuple[object, ...]:
        """The fields whose change is an event."""
        return (replace(self, resource_version=""),)

    @property
    def owner_uid(self) -> str:
        """The UID of its Framework. One that was orphaned on purpose has none until it is deleted."""
        return self.identity.controller_uid or (self.job_uid if self.identity.deleting else "")


@decoder_of("Workload")
def workload_record(body: Mapping[str, Any]) -> WorkloadRecord:
    """The record of a Workload. Raises ObjectError if it is invalid."""
    metadata = body["metadata"]
    labels = metadata.get("labels") or {}
    spec, status = body.get("spec") or {}, body.get("status") or {}
    priority_class = spec.get("priorityClassRef") or {}
    conditions = {
        item.get("type"): WorkloadCondition(
            fields.text(item, "status"), sys.intern(fields.text(item, "reason")), fields.text(item, "message")
        )
        for item in status.get("conditions") or ()
    }
    quota_reserved = conditions.get(QUOTA_RESERVED, _NO_CONDITION)
    return WorkloadRecord(
        *owned_fields(metadata, ()),
        framework=framework_in(metadata) or fields.text(labels, names.FRAMEWORK_NAME),
        job_uid=fields.text(labels, JOB_UID),
        in_use=IN_USE_FINALIZER in (metadata.get("finalizers") or ()),
        queued_inputs=fields.text(metadata.get("annotations") or {}, QUEUED_INPUTS),
        last_checkpoint=fields.text(metadata.get("annotations") or {}, names.LAST_CHECKPOINT),
        queue_name=sys.intern(fields.text(spec, "queueName")),
        priority_kind=sys.intern(fields.text(priority_class, "kind")),
        priority_class=sys.intern(fields.text(priority_class, "name")),
        max_execution_seconds=fields.maybe_number(spec, "maximumExecutionTimeSeconds"),
        counts=tuple((fields.text(one, "name"), fields.number(one, "count")) for one in spec.get("podSets") or ()),
        reclaimed=tuple(
            (fields.text(one, "name"), count)
            for one in status.get("reclaimablePods") or ()
            if (count := fields.number(one, "count"))
        ),
        checks=tuple(
            AdmissionCheck(fields.text(one, "name"), state, fields.text(one, "message"))
            for one in status.get("admissionChecks") or ()
            if (state := fields.text(one, "state")) != "Ready"
        ),
        active=spec.get("active") is not False,
        reserves=bool(quota_reserved) or status.get("admission") is not None,
        quota_reserved=quota_reserved,
        admitted=conditions.get(ADMITTED, _NO_CONDITION),
        evicted=conditions.get(EVICTED, _NO_CONDITION),
        finished=conditions.get(FINISHED, _NO_CONDITION),
        pods_ready=conditions.get(PODS_READY, _NO_CONDITION),
    )
