"""The conditions QuotaReserved and Admitted, with Kueue's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frameworkcontroller.api.status import AdmissionStatus, Condition, State
from frameworkcontroller.api.workloads import WorkloadCondition, WorkloadRecord
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.part import Shown
from frameworkcontroller.machine.parts.kueue.enqueueing import inactive_text
from frameworkcontroller.machine.parts.kueue.queueing import NOT_LOOKED_AT, QueuedFramework, Queueing, needed_pods

_TYPES: Final = ("QuotaReserved", "Admitted")

_TELL_SEC: Final = 60.0
"""Least time between two status writes for messages of Kueue alone."""

_NO_RESERVATION: Final = "NoReservation"


def shown_conditions(ctx: Context, before: Mapping[str, Condition]) -> Mapping[str, Shown]:
    """The conditions by the last plan, until then by the stored status."""
    state = ctx.tracker.find_part(Queueing)
    if ctx.env.limits.kueue and (state is None or not state.stepped):
        kept = [before[kind] for kind in _TYPES if kind in before]
        complete = kept if len(kept) == len(_TYPES) else ()
        return {one.type: Shown(one.status == "True", one.reason, one.message) for one in complete}
    if state is None or state.shown is None:
        return {}
    return {kind: _paced(ctx, one, before.get(kind)) for kind, one in zip(_TYPES, state.shown, strict=True)}


def _paced(ctx: Context, shown: Shown, before: Condition | None) -> Shown:
    """The condition with the last message, if only Kueue's message has changed, and did lately."""
    changed = before is not None and not shown.value and before.message != shown.message
    if before is None or not changed or (before.status, before.reason) != ("False", shown.reason):
        return shown
    if before.observed_generation != ctx.framework.generation:
        return shown
    queued = QueuedFramework(ctx)
    if before.message != NOT_LOOKED_AT and queued.is_paced("message"):
        return shown._replace(message=before.message)
    queued.pace("message", _TELL_SEC)
    return shown._replace(quiet=True)


def conditions_of(queued: QueuedFramework) -> tuple[Shown, Shown] | None:
    """The conditions QuotaReserved and Admitted, None without a queue."""
    status, admission, workload = queued.ctx.status, queued.admission, queued.workload
    if admission is None and (queued.labels is None or status.state is State.COMPLETED):
        return None
    if admission is not None:
        reserved = Shown(True, "QuotaReserved", f"Quota is reserved in ClusterQueue {admission.cluster_queue}")
        if (lost := queued.state.lost) is not None:
            return reserved, Shown(False, "Evicted", lost.diagnostics)
        return reserved, Shown(True, "Admitted", _admitted_text(queued.ctx, admission))
    if status.state not in (State.CREATION_PENDING, State.ATTEMPT_COMPLETED):
        not_queued = Shown(False, "NotQueued", f"FrameworkAttempt {status.attempt.id} began without a queue")
        return not_queued, not_queued
    if workload is not None and workload.quota_reserved and not workload.evicted:
        said = workload.quota_reserved
        return Shown(True, said.reason, said.message), Shown(False, *_awaited(workload))
    said = _said(workload)
    no_quota = Shown(False, _NO_RESERVATION, "the Framework has no quota yet")
    return Shown(False, said.reason, said.message), no_quota


def _awaited(workload: WorkloadRecord) -> tuple[str, str]:
    """Reason and message why a Workload with quota is not admitted. After an eviction, Kueue keeps the old ones."""
    said = workload.admitted
    is_old = not said.reason or said.reason.startswith(_NO_RESERVATION)
    checks = "; ".join(
        f"admission check {one.name} is {one.state}{f': {one.message}' if one.message else ''}"
        for one in workload.checks
    )
    if checks:
        return "UnsatisfiedChecks" if is_old else said.reason, checks
    return ("Pending", "Kueue has not admitted the Workload yet") if is_old else (said.reason, said.message)


def _admitted_text(ctx: Context, admission: AdmissionStatus) -> str:
    """How many Tasks are admitted, if the spec has more by now."""
    waiting = []
    for role in ctx.framework.spec.task_roles:
        count, needed = admission.available(role.name), needed_pods(ctx, role.name)
        if needed > count:
            waiting.append(f"{count} of the {needed} Tasks of TaskRole {role.name}")
    text = f"Admitted by Workload {admission.workload_name}"
    return f"{text}; only {', '.join(waiting)} until the next FrameworkAttempt" if waiting else text


def _said(workload: WorkloadRecord | None) -> WorkloadCondition:
    """Kueue's condition of a Workload that is not admitted."""
    if workload is None:
        return WorkloadCondition("False", "NotQueued", "the Framework has no Workload yet")
    if workload.evicted and workload.reserves:
        return workload.evicted
    if not workload.active:
        return WorkloadCondition("False", "Inactive", inactive_text(workload))
    if workload.quota_reserved.reason:
        return workload.quota_reserved
    return WorkloadCondition("False", "Pending", NOT_LOOKED_AT)
