"""Attempts of a Framework: the first one, the next one after a retry, and the end of the retention after the last.

Source: docs/lifecycle.md, "The Framework".
"""

from __future__ import annotations

from typing import Final

from frameworkcontroller.api.completion import NEVER_RETRIED, Outcome
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import FrameworkAttemptStatus, FrameworkStatus, State
from frameworkcontroller.api.timestamps import LAST_TIME, format_time
from frameworkcontroller.machine.gates import put_off, save_attempt, save_early, wait_for_retry, why_not_start
from frameworkcontroller.machine.kernel.actions import Delete
from frameworkcontroller.machine.kernel.context import Context, describe, describe_row, summarize
from frameworkcontroller.machine.kernel.model import Env, SnapshotTrigger, require
from frameworkcontroller.machine.kernel.policy import (
    NO_BACK_OFF,
    decide_retry,
    ended_early,
    framework_back_off,
    retries_in_a_row,
)
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.scale import new_role

_REASONS: Final = {
    Outcome.SUCCEEDED: LifeReason.FRAMEWORK_SUCCEEDED,
    Outcome.STOPPED: LifeReason.FRAMEWORK_STOPPED,
    Outcome.FAILED: LifeReason.FRAMEWORK_FAILED,
}


def new_status(framework: Framework, env: Env) -> FrameworkStatus:
    now = env.second
    return FrameworkStatus(start_time=now, transition_time=now, attempt=new_attempt(framework, 0, env))


def new_attempt(framework: Framework, attempt_id: int, env: Env) -> FrameworkAttemptStatus:
    return FrameworkAttemptStatus(
        id=attempt_id,
        start_time=env.second,
        roles=[new_role(role, env) for role in framework.spec.task_roles],
    )


def decide_framework_retry(ctx: Context) -> None:
    status, limits = ctx.status, ctx.env.limits
    completion = require(status.attempt.completion_status, "completionStatus of the attempt")
    if ctx.framework.invalid and not completion.is_one_of(NEVER_RETRIED) and put_off(ctx, None, why_not_start(ctx)):
        # Neither the next attempt nor the end of the Framework is decided without a retry policy.
        if not ctx.tracker.is_clean:
            ctx.tracker.persist_first(None)
        return
    conflict_delay = 0
    if status.retry.retry_delay_sec is None:
        conflict_delay = ctx.env.rng.randint(
            limits.framework_min_retry_delay_sec_for_transient_conflict_failed,
            limits.framework_max_retry_delay_sec_for_transient_conflict_failed,
        )
    policy = ctx.framework.spec.retry_policy
    decision = decide_retry(policy, completion, status.retry.accountable_retried_count, conflict_delay)
    if status.retry.retry_delay_sec is None and not decision.retry:
        ctx.tracker.move_framework(State.COMPLETED, ctx.env.second)
        for part in ctx.parts.ended:
            part.ended(ctx, completion)
        reason = _REASONS[completion.outcome]
        text = f"Framework completed, not retried as {decision.reason}, with {describe(completion)}"
        ctx.record(reason, text, completion=completion)
        return
    if ctx.framework.deleting and any(part.blocks_deletion(ctx) for part in ctx.parts.blocks_deletion):
        # Also once only another client's finalizer is left.
        return
    if not ctx.tracker.is_clean and not any(part.knows_attempt(ctx) for part in ctx.parts.knows_attempt):
        # Clients must see the end of this attempt before the next one starts.
        ctx.tracker.persist_first(None)
        return
    in_a_row, early = retries_in_a_row(status), ended_early(status)
    back_off = framework_back_off(policy, completion, limits)
    last = summarize(completion) + describe_row(in_a_row)
    if status.retry.retry_delay_sec is None:
        delay = max(decision.delay_sec, back_off.delay_sec(in_a_row, completion, early=early))
        if not delay and not save_attempt(ctx, SnapshotTrigger.FRAMEWORK_RETRY):
            return
        ctx.tracker.schedule_retry(status, delay)
        due = status.transition_time + delay
        when = f"in {delay}s, at {format_time(min(due, LAST_TIME))}" if delay else "at once"
        if ctx.framework.spec.is_suspended:
            when = f"{when}, if not suspended" if delay else "once the Framework is resumed"
        text = f"FrameworkAttempt {status.attempt.id + 1} starts {when}, as {decision.reason}, after {last}"
        ctx.record(LifeReason.FRAMEWORK_RETRY_SCHEDULED, text, completion=completion, warning=False)
    delay = require(status.retry.retry_delay_sec, "retryDelaySec")
    stop = ctx.framework.spec.execution_type is ExecutionType.STOP
    if delay:
        save_early(ctx, SnapshotTrigger.FRAMEWORK_RETRY)
    if not stop and not ctx.wait_out(None, status.transition_time, delay):
        wait_for_retry(ctx, None, delay, last)
        return
    if delay and not save_attempt(ctx, SnapshotTrigger.FRAMEWORK_RETRY):
        return
    ctx.snapshot_framework(SnapshotTrigger.FRAMEWORK_RETRY)
    attempt = new_attempt(ctx.framework, status.retry.total_retried_count + 1, ctx.env)
    for part in ctx.parts.begin_attempt:
        part.begin_attempt(ctx, attempt)
    recent = 0 if back_off is NO_BACK_OFF else back_off.row_after(in_a_row, completion, early=early)
    ctx.tracker.retry_framework(
        attempt, completion, accountable=decision.accountable, recent=recent, now=ctx.env.second
    )
    ctx.tracker.holds.hold_attempt(ctx.env)
    text = f"Retried with FrameworkAttempt {status.attempt.id}, as {decision.reason}"
    ctx.record(LifeReason.FRAMEWORK_RETRIED, text, completion=completion, warning=False)


def retain(ctx: Context) -> None:
    """Delete the completed Framework after its retention."""
    if ctx.framework.deleting:
        return
    ttl = ctx.framework.spec.ttl_seconds_after_finished
    seconds = ctx.env.limits.framework_completed_retain_sec if ttl is None else ttl
    if not ctx.wait_out(None, ctx.status.transition_time, seconds):
        return
    if not save_attempt(ctx, SnapshotTrigger.FRAMEWORK_DELETION):
        return
    if ctx.tracker.is_clean:
        if not ctx.tracker.process.deletion_snapshot_taken:
            ctx.tracker.process.deletion_snapshot_taken = True
            ctx.snapshot_framework(SnapshotTrigger.FRAMEWORK_DELETION)
        ctx.act(Delete(Target(Kind.FRAMEWORK, ctx.framework.name), ctx.framework.uid))
    else:
        ctx.tracker.persist_first(None)
        ctx.tracker.agenda.look(None, ctx.env.clock)
