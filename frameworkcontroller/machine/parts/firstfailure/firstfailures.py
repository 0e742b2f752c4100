"""Which Task failed first in an attempt of the Framework: the earliest end of a container that failed.

Kubelets give the time of an end in whole seconds, by the clock of their node. Followers are no candidates: containers
that this controller has stopped, and those whose words match an entry of podFailureSpec with ``cascade``.

The earliest failures are part of the status, written together with the completions of their Tasks, so a restart loses
none. Ends after the decision are only in memory: the last ones are evaluated when the last Pod is gone. No decision
reads any of this, and it causes no write.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, NamedTuple

from frameworkcontroller.api.causes import cause, container_end, one_line
from frameworkcontroller.api.completion import TASK_PRE_RUNNING_DEADLINE_EXCEEDED, CompletionStatus
from frameworkcontroller.api.objects import ENDED_PHASES, ContainerRecord, PodRecord
from frameworkcontroller.api.status import FirstFailure, State, TaskStatus
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.part import Part, PartState
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker

SKEW_SEC: Final = 2
"""Largest difference of the clocks of two nodes, with the cut to whole seconds."""

MOST: Final = 8
"""Largest number of failures in the status."""

_STOP_SIGNALS: Final = frozenset({9, 15})
_STOP_CODES: Final = frozenset({128 + signal for signal in _STOP_SIGNALS})


@dataclass(slots=True, eq=False)
class LateEnds(PartState):
    """Ends that became known after the end of the attempt was decided.

    ``decided``: when, or later. ``unseen``: the Pod of a Task is gone, and the ends of its containers were not seen.
    """

    of_attempt: ClassVar[bool] = True

    decided: int | None = None
    unseen: bool = False
    failures: list[FirstFailure] = field(default_factory=list)

    def successor(self, tracker: Tracker, before: Tracker) -> LateEnds | None:
        """The same, if the attempt continues."""
        status, was = tracker.status, before.status
        is_same = status is not None and was is not None and status.attempt.configmap_uid == was.attempt.configmap_uid
        return self if is_same else None


class _End(NamedTuple):
    """The end of a container that failed. ``time``: None if the kubelet gives none."""

    container: ContainerRecord
    time: int | None
    cascade: bool


class FirstFailurePart(Part):
    """The first failure of an attempt, for people."""

    def begin(self, ctx: Context) -> None:
        """Take over an attempt whose end another process has decided: Pods may have gone since."""
        status, tracker = ctx.status, ctx.tracker
        if not status.earliest_failures or not tracker.is_completing or status.state in ENDED:
            return
        if tracker.find_part(LateEnds) is None:
            late = tracker.part(LateEnds)
            late.decided, late.unseen = ctx.env.second, True

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        """Note the failure of a Pod that has just ended, or that is ended."""
        completion = task.attempt.completion_status
        if completion is not None and completion.unexpected and not task.is_leaving:
            _note(ctx, _own_failure(ctx, task, completion, pod))

    def before_delete(self, ctx: Context, task: TaskStatus | None) -> None:
        """Note that others delete a Pod. The ends of its containers follow."""
        if task is None or task.state is not State.DELETING or task.is_leaving or ctx.tracker.is_completing:
            return
        completion = task.attempt.completion_status
        if completion is None or completion.pod is not None or not completion.unexpected:
            return
        if all(one.key != task.key for one in ctx.status.earliest_failures):
            _note(ctx, _own_failure(ctx, task, completion, None))

    def pod_gone(self, ctx: Context, task: TaskStatus) -> None:
        """Note the ends in the last state of a Pod."""
        completion = task.attempt.completion_status
        if completion is None or completion.succeeded or task.is_leaving:
            return
        last = ctx.tracker.life.dropped.get(task.key)
        if completion.unexpected:
            _note(ctx, _own_failure(ctx, task, completion, last))
        elif ctx.tracker.is_completing and ctx.status.earliest_failures:
            late = ctx.tracker.part(LateEnds)
            if last is not None and last.containers:
                _note_stopped(ctx, task, last, late)
            elif task.attempt.run_time is not None:
                late.unseen = True

    def finish(self, ctx: Context) -> None:
        """Forget failures that were retried, and set the first failure once the end of the attempt is decided."""
        status = ctx.status
        if not status.earliest_failures:
            return
        earliest, first = [one for one in status.earliest_failures if _is_current(ctx, one)], status.first_failure
        completion = status.attempt.completion_status
        if earliest and completion is not None and completion.unexpected and status.state not in ENDED:
            late = ctx.tracker.part(LateEnds)
            if late.decided is None:
                late.decided = ctx.env.second
            # Another Pod may have failed earlier, and not be seen yet.
            first = first_of(earliest, unseen=True)
        _record(ctx, earliest, first)

    def ended(self, ctx: Context, completion: CompletionStatus) -> None:
        """Set the first failure again when the last Pod is gone."""
        status = ctx.status
        if status.state is not State.ATTEMPT_COMPLETED or not completion.unexpected:
            return
        late, earliest = ctx.tracker.find_part(LateEnds), status.earliest_failures
        for one in () if late is None else late.failures:
            earliest = with_failure(earliest, one)
        if earliest:
            _record(ctx, earliest, first_of(earliest, unseen=late is not None and late.unseen))


def _record(ctx: Context, earliest: list[FirstFailure], first: FirstFailure | None) -> None:
    if (earliest, first) != (ctx.status.earliest_failures, ctx.status.first_failure):
        ctx.tracker.record_failures(earliest, first)


def _is_current(ctx: Context, one: FirstFailure) -> bool:
    """Whether the failure is the last one of its Task, which is not retried and does not leave."""
    task = ctx.tracker.task(one.key)
    is_same = task is not None and one.task_attempt_id == task.attempt.id and not task.is_leaving
    return is_same and one.framework_attempt_id == ctx.attempt.id


def with_failure(earliest: Sequence[FirstFailure], new: FirstFailure) -> list[FirstFailure]:
    """The ``MOST`` earliest failures, one for each Task. Those that look like consequences come last.

    One whose container was not seen to end stays: the real time of its end may be earlier.
    """
    before = next((one for one in earliest if one.key == new.key), None)
    if before is not None and (before.certain or not new.certain):
        return list(earliest)
    found = sorted([*(one for one in earliest if one is not before), new], key=_order)
    kept, beyond = found[:MOST], found[MOST:]
    if any(map(_is_doubt, beyond)) and not any(map(_is_doubt, kept)):
        kept[-1] = next(filter(_is_doubt, beyond))
    return kept


def first_of(earliest: Sequence[FirstFailure], *, unseen: bool) -> FirstFailure:
    """The first of the failures. ``unseen``: the Pod of another Task has gone, and its end was not seen."""
    first, rivals = earliest[0], [one for one in earliest[1:] if not one.cascade]
    certain = first.certain and not first.cascade and not unseen
    certain = certain and not any(not one.certain or _are_close(first, one) for one in rivals)
    if len(earliest) == MOST and not earliest[-1].cascade and earliest[-2].time - first.time <= SKEW_SEC:
        # There may be others that are as close.
        certain = False
    return replace(first, certain=certain)


def _order(one: FirstFailure) -> tuple[bool, int, str, int]:
    return one.cascade, one.time, *one.key


def _is_doubt(one: FirstFailure) -> bool:
    return not one.certain and not one.cascade


def _are_close(first: FirstFailure, other: FirstFailure) -> bool:
    """Whether the later failure may have been the earlier one."""
    is_same_clock = bool(first.node_name) and first.node_name == other.node_name
    return other.time - first.time <= (0 if is_same_clock else SKEW_SEC)


def _note(ctx: Context, failure: FirstFailure) -> None:
    if ctx.tracker.is_completing:
        late = ctx.tracker.part(LateEnds)
        late.failures = with_failure(late.failures, failure)
    else:
        _record(ctx, with_failure(ctx.status.earliest_failures, failure), ctx.status.first_failure)


def _own_failure(ctx: Context, task: TaskStatus, completion: CompletionStatus, pod: PodRecord | None) -> FirstFailure:
    """The failure of a Task. ``pod``: its last state, None if it is not known."""
    ends = [] if pod is None else _failed_ends(ctx, pod)
    has_ended = pod is not None and pod.phase in ENDED_PHASES
    # Otherwise containers may have ended at any time before.
    seen = has_ended or task.attempt.pod_uid is None or completion.is_one_of({TASK_PRE_RUNNING_DEADLINE_EXCEEDED.code})
    return _failure(ctx, task, completion, ends, seen=seen)


def _note_stopped(ctx: Context, task: TaskStatus, last: PodRecord, late: LateEnds) -> None:
    """Note the failure of a Task that was stopped before its failure was seen.

    One that is later than the known failures does not matter.
    """
    decided = ctx.env.second if late.decided is None else late.decided
    latest = ctx.status.earliest_failures[0].time + SKEW_SEC
    ends = [
        one
        for one in _failed_ends(ctx, last)
        if one.time is not None and one.time <= latest and not (one.time >= decided and _looks_stopped(one))
    ]
    first = min((one.time for one in ends if one.time is not None), default=None)
    if first is None:
        return
    if first > decided:
        # By the stop, or by itself and on a node whose clock is ahead.
        late.unseen = True
        return
    completion = ctx.env.limits.classifier.classify(last)
    # The clock of its node may be behind: then the stop has ended it.
    _note(ctx, _failure(ctx, task, completion, ends, seen=first < decided - SKEW_SEC))


def _failure(
    ctx: Context, task: TaskStatus, completion: CompletionStatus, ends: Sequence[_End], *, seen: bool
) -> FirstFailure:
    now = ctx.env.second
    first = min(ends, key=lambda one: (one.cascade, now if one.time is None else one.time), default=None)
    made = FirstFailure(
        framework_attempt_id=ctx.attempt.id,
        task_role_name=task.role,
        task_index=task.index,
        task_attempt_id=task.attempt.id,
        time=now,
        code=completion.code,
        phrase=completion.phrase,
        node_name=task.attempt.pod_node_name or "",
        message=cause(completion),
        certain=seen,
    )
    if first is None:
        return made
    end, is_one_of_many = first.container.completion, len(ends) > 1 and completion.pod is not None
    return replace(
        made,
        time=now if first.time is None else first.time,
        container_name=end.name,
        message=one_line(container_end(end)) if is_one_of_many else made.message,
        certain=seen and first.time is not None,
        cascade=first.cascade,
    )


def _failed_ends(ctx: Context, pod: PodRecord) -> list[_End]:
    """The ends of the containers that failed. Sidecars end with their Pod."""
    failed = [one for one in pod.containers if one.terminated and not one.sidecar and _has_failed(one)]
    cascading = ctx.env.limits.classifier.cascading(pod) if failed else frozenset()
    return [_End(one, _finished(one), one.completion.name in cascading) for one in failed]


def _has_failed(container: ContainerRecord) -> bool:
    return container.completion.code != 0 or container.completion.signal != 0


def _looks_stopped(found: _End) -> bool:
    end = found.container.completion
    is_signal = end.signal in _STOP_SIGNALS or end.code in _STOP_CODES
    return found.cascade or (is_signal and end.reason != "OOMKilled")


def _finished(container: ContainerRecord) -> int | None:
    with suppress(ValueError):
        return parse_time(container.finished) if container.finished else None
    return None
