"""Entry points of the decisions: ``plan`` returns actions, ``fold`` takes their outcomes.

They change only the tracker.
"""

from __future__ import annotations

from collections.abc import Sequence

from frameworkcontroller.api.names import QUEUE_NAME
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.machine import conditions, framework, scale
from frameworkcontroller.machine.gates import may_start
from frameworkcontroller.machine.kernel import companions
from frameworkcontroller.machine.kernel.actions import Outcome
from frameworkcontroller.machine.kernel.context import Context, count_tasks
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.model import Env, Observed, Plan
from frameworkcontroller.machine.kernel.protocol import Archive
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Answer, Kind
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.owned import take
from frameworkcontroller.machine.parts.claims import volumeclaims as claims
from frameworkcontroller.machine.parts.history import archiving as history
from frameworkcontroller.machine.parts.kueue import workloadoutcomes


def plan(subject: Framework, tracker: Tracker, observed: Observed, env: Env) -> Plan:
    """Decide one step: change the tracked status, and return the actions that its persisted part justifies.

    The order is that of docs/lifecycle.md.

    Raises:
        InvariantError: the status violates an invariant.
    """
    ctx = Context(subject, tracker, observed, env)
    tracker.again = False
    if tracker.begun_at is None:
        tracker.begun_at = env.clock
    tracker.agenda.ring(env.clock)
    if tracker.status is None:
        tracker.begin(framework.new_status(subject, env), dirty=True)
        if subject.invalid:
            _observe_generation(ctx)
            return _finish(ctx)
        ctx.record(Reason.FRAMEWORK_ACCEPTED, f"Framework was accepted with {count_tasks(subject.spec.task_count)}")
        if subject.ignored_queue:
            text = f"The label {QUEUE_NAME}: {subject.ignored_queue} means nothing, as kueue.mode is disabled"
            ctx.record(Reason.QUEUE_IGNORED, f"{text}: the Framework starts without quota", warning=True)
        _observe_generation(ctx)
        # The first written status says why nothing starts.
        may_start(ctx)
        return _finish(ctx)
    _observe_generation(ctx)
    history.begin(ctx)
    if not (ctx.must_go or subject.invalid) and (scale.rescale(ctx) or scale.copy_forced_deletion(ctx)):
        # Persisted before anything else is decided.
        return _finish(ctx)
    ctx.plan.actions, tracker.follow_ups = tracker.follow_ups, []
    framework.step(ctx)
    return _finish(ctx)


def fold(subject: Framework, tracker: Tracker, outcomes: Sequence[Outcome], env: Env) -> Plan:
    """Fold the outcomes of actions into the tracked status.

    Folding them again into another status is safe: an outcome changes only the attempt that asked for the action, and
    only in a state that awaits it.

    Raises:
        InvariantError: the status violates an invariant.
    """
    ctx = Context(subject, tracker, Observed(None, lambda _: None), env)
    for outcome in outcomes:
        if outcome.action.target.kind is Kind.WORKLOAD:
            workloadoutcomes.take(ctx, outcome)
        else:
            take(ctx, outcome)
    return _finish(ctx)


def archived(subject: Framework, tracker: Tracker, answers: Sequence[tuple[Archive, Answer]], env: Env) -> Plan:
    """Fold answers of the history, as ``fold`` does."""
    ctx = Context(subject, tracker, Observed(None, lambda _: None), env)
    for archive, answer in answers:
        history.take(ctx, archive, answer)
    return _finish(ctx)


def reject(subject: Framework, tracker: Tracker, why: str, env: Env, *, reason: Reason) -> Plan:
    """Stall a Framework that is left alone, without actions."""
    ctx = Context(subject, tracker, Observed(None, lambda _: None), env)
    tracker.agenda.ring(env.clock)
    if tracker.status is None:
        tracker.begin(framework.new_status(subject, env), dirty=True)
    _observe_generation(ctx)
    tracker.holds.stalls[None] = Stall(reason, why)
    return _finish(ctx)


def stall(subject: Framework, tracker: Tracker, reason: Reason, why: str, env: Env) -> Plan:
    """Stall a Framework whose tracked status cannot be persisted, without any other decision."""
    ctx = Context(subject, tracker, Observed(None, lambda _: None), env)
    tracker.holds.stalls[None] = Stall(reason, why)
    return _finish(ctx)


def _observe_generation(ctx: Context) -> None:
    tracker, generation = ctx.tracker, ctx.framework.generation
    if tracker.generation != generation:
        tracker.generation = generation
        tracker.rescale_due = True
        companions.forget_unwanted(ctx)
        claims.remember(ctx)
        tracker.templates.clear()
        tracker.queueing.spec = None
        tracker.touch_all()
    tracker.observe_generation(generation)


def _finish(ctx: Context) -> Plan:
    history.finish(ctx)
    conditions.refresh(ctx)
    alarm = ctx.tracker.agenda.next_alarm()
    if alarm is not None:
        ctx.requeue_at(alarm)
    ctx.plan.urgency = ctx.tracker.urgency
    return ctx.plan
