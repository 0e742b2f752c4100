"""The conditions QuotaReserved and Admitted, with what Kueue says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frameworkcontroller.api.status import AdmissionStatus, Condition, State
from frameworkcontroller.api.workloads import WorkloadCondition, WorkloadRecord
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.part import Shown
from frameworkcontroller.machine.parts.kueue.enqueueing import inactive_text
from frameworkcontroller.machine.parts.kueue.queueing import NOT_LOOKED_AT, Queueing
from frameworkcontroller.machine.parts.kueue.workload import CachedWorkload, needed_pods, queue_of, queueing_of

_CONDITIONS: Final = ("QuotaReserved", "Admitted")

_TELL_SEC: Final = 60.0
"""Least time between two status writes for messages of Kueue alone."""


_NO_RESERVATION: Final = "NoReservation"


def shown_conditions(ctx: Context, before: Mapping[str, Condition]) -> Mapping[str, Shown]:
    """The conditions to show: those of the stored status until a plan has looked at the queue."""
    queueing = ctx.tracker.find_part(Queueing)
    if not ctx.env.limits.kueue or (queueing is not None and queueing.stepped):
        shown = None if queueing is None else queueing.shown
        found = {} if shown is None else dict(zip(_CONDITIONS, shown, strict=True))
    else:
        kept = [before[kind] for kind in _CONDITIONS if kind in before]
        return (
            {one.type: Shown(one.status == "True", one.reason, one.message) for one in kept} if len(kept) == 2 else {}
        )
    return (
        {} if queueing is None else {kind: _paced(ctx, queueing, one, before.get(kind)) for kind, one in found.items()}
    )


def _paced(ctx: Context, queueing: Queueing, shown: Shown, before: Condition | None) -> Shown:
    """The condition with the last message, if Kueue's words alone have changed, and did lately."""
    changed = before is not None and not shown.value and before.message != shown.message
    if before is None or not changed or (before.status, before.reason) != ("False", shown.reason):
        return shown
    if before.observed_generation != ctx.framework.generation:
        return shown
    if queueing.message_until > ctx.env.clock and before.message != NOT_LOOKED_AT:
        ctx.tracker.agenda.look(None, queueing.message_until)
        return shown._replace(message=before.message)
    queueing.message_until = ctx.env.clock + _TELL_SEC
    return shown._replace(quiet=True)


def conditions_of(ctx: Context, record: CachedWorkload) -> tuple[Shown, Shown] | None:
    """The conditions QuotaReserved and Admitted, with what Kueue says; None without a queue."""
    admission = ctx.status.admission
    if admission is None and (queue_of(ctx) is None or ctx.status.state is State.COMPLETED):
        return None
    if admission is not None:
        text = f"Quota is reserved in ClusterQueue {admission.cluster_queue}"
        reserved = Shown(True, "QuotaReserved", text)
        if (lost := queueing_of(ctx).lost) is not None:
            return reserved, Shown(False, "Evicted", lost.diagnostics)
        return reserved, Shown(True, "Admitted", _admitted_text(ctx, admission))
    if ctx.status.state not in (State.CREATION_PENDING, State.ATTEMPT_COMPLETED):
        text = f"FrameworkAttempt {ctx.attempt.id} began without a queue"
        return Shown(False, "NotQueued", text), Shown(False, "NotQueued", text)
    if isinstance(record, WorkloadRecord) and record.quota_reserved and not record.evicted:
        said = record.quota_reserved
        return Shown(True, said.reason, said.message), Shown(False, *_awaited(record))
    said = _said(record)
    no_quota = Shown(False, _NO_RESERVATION, "the Framework has no quota yet")
    return Shown(False, said.reason, said.message), no_quota


def _awaited(record: WorkloadRecord) -> tuple[str, str]:
    """Reason and message why a Workload with quota is not admitted. After an eviction, Kueue leaves those of before."""
    said = record.admitted
    is_old = not said.reason or said.reason.startswith(_NO_RESERVATION)
    checks = "; ".join(
        f"admission check {one.name} is {one.state}{f': {one.message}' if one.message else ''}" for one in record.checks
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


def _said(record: CachedWorkload) -> WorkloadCondition:
    """What Kueue says about a Workload that is not admitted."""
    if not isinstance(record, WorkloadRecord):
        return WorkloadCondition("False", "NotQueued", "the Framework has no Workload yet")
    if record.evicted and record.reserves:
        return record.evicted
    if not record.active:
        return WorkloadCondition("False", "Inactive", inactive_text(record))
    if record.quota_reserved.reason:
        return record.quota_reserved
    return WorkloadCondition("False", "Pending", NOT_LOOKED_AT)
