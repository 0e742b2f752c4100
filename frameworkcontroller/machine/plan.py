"""Entry points of the decisions: ``plan`` returns actions, ``fold`` takes their outcomes.

They change only the tracker.
"""

from __future__ import annotations

from collections.abc import Sequence

from frameworkcontroller.api.objects import Framework
from frameworkcontroller.machine import conditions, framework, scale
from frameworkcontroller.machine.gates import is_deletion_blocked, put_off, why_not_start
from frameworkcontroller.machine.kernel.actions import Outcome
from frameworkcontroller.machine.kernel.agenda import Scope
from frameworkcontroller.machine.kernel.context import Context, count_tasks
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.model import Env, Observed, Plan
from frameworkcontroller.machine.kernel.protocol import Archive
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Answer
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.mistakes import mistake_in
from frameworkcontroller.machine.nextattempt import new_status
from frameworkcontroller.machine.owned import take
from frameworkcontroller.machine.parts import PARTS
from frameworkcontroller.machine.specreading import adapted


def plan(subject: Framework, tracker: Tracker, observed: Observed, env: Env) -> Plan:
    """Decide one step: change the tracked status, and return the actions that its persisted part justifies.

    docs/lifecycle.md has the order.

    Raises:
        InvariantError: the status violates an invariant.
    """
    ctx = _begin(subject, tracker, observed, env)
    if tracker.absence.begun_at is None:
        tracker.absence.begun_at = env.clock
    tracker.agenda.begin(env.clock)
    if tracker.status is None:
        ctx.is_new = True
        tracker.begin(new_status(ctx.framework, env), dirty=True)
        if subject.invalid:
            _observe_generation(ctx)
            return _finish(ctx)
        tasks = count_tasks(ctx.framework.spec.task_count)
        ctx.record(LifeReason.FRAMEWORK_ACCEPTED, f"Framework was accepted with {tasks}")
        _observe_generation(ctx)
        # The first written status says why nothing starts.
        put_off(ctx, None, why_not_start(ctx))
        return _finish(ctx)
    _observe_generation(ctx)
    for part in ctx.parts.begin:
        part.begin(ctx)
    if not (is_deletion_blocked(ctx) or subject.invalid) and (scale.rescale(ctx) or scale.copy_forced_deletion(ctx)):
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
    ctx = _begin(subject, tracker, Observed(None, lambda _: None), env)
    for outcome in outcomes:
        part = PARTS.of(outcome.action.target)
        (take if part is None else part.take)(ctx, outcome)
    return _finish(ctx)


def fold_archived(subject: Framework, tracker: Tracker, answers: Sequence[tuple[Archive, Answer]], env: Env) -> Plan:
    """Fold answers to ``Archive`` effects, as ``fold`` does outcomes."""
    ctx = _begin(subject, tracker, Observed(None, lambda _: None), env)
    for archive, answer in answers:
        for part in PARTS.take_answer:
            part.take_answer(ctx, archive, answer)
    return _finish(ctx)


def reject(subject: Framework, tracker: Tracker, why: str, env: Env, *, reason: Reason) -> Plan:
    """Stall a Framework that is ignored, without actions."""
    ctx = _begin(subject, tracker, Observed(None, lambda _: None), env)
    tracker.agenda.ring(env.clock)
    if tracker.status is None:
        tracker.begin(new_status(ctx.framework, env), dirty=True)
    _observe_generation(ctx)
    tracker.holds.stalls[None] = Stall(reason, why)
    return _finish(ctx)


def stall(subject: Framework, tracker: Tracker, reason: Reason, why: str, env: Env) -> Plan:
    """Stall a Framework whose tracked status cannot be persisted, without any other decision."""
    ctx = _begin(subject, tracker, Observed(None, lambda _: None), env)
    tracker.holds.stalls[None] = Stall(reason, why)
    return _finish(ctx)


def _begin(subject: Framework, tracker: Tracker, observed: Observed, env: Env) -> Context:
    tracker.agenda.forget_time()
    subject = adapted(subject, tracker)
    return Context(subject, tracker, observed, env, PARTS.active(subject, tracker, env.limits))


def _observe_generation(ctx: Context) -> None:
    tracker, generation = ctx.tracker, ctx.framework.generation
    numbers = tuple(role.task_number for role in ctx.framework.spec.autoscaled)
    if tracker.process.generation != generation or tracker.process.task_numbers != numbers:
        tracker.process.generation, tracker.process.task_numbers = generation, numbers
        tracker.agenda.look(Scope.ROLES)
        tracker.holds.keep_others(lambda key: any(part.keeps_hold(ctx, key) for part in PARTS.keeps_hold))
        tracker.life.templates.clear()
        for part in PARTS.observe_generation:
            part.observe_generation(ctx)
        if not ctx.framework.invalid:
            tracker.process.spec = ctx.framework.spec
        tracker.process.mistake = "" if ctx.framework.invalid else mistake_in(ctx.framework.spec)
        if tracker.process.mistake and ctx.status.observed_generation != generation:
            ctx.record(LifeReason.LIKELY_MISTAKE, tracker.process.mistake, warning=True)
        tracker.look_at_all()
    tracker.observe_generation(generation)


def _finish(ctx: Context) -> Plan:
    for part in ctx.parts.finish:
        part.finish(ctx)
    conditions.refresh(ctx)
    if (when := ctx.tracker.agenda.next_time()) is not None:
        ctx.plan.requeue_after = max(0.0, when - ctx.env.clock)
    ctx.plan.urgency = ctx.tracker.urgency
    return ctx.plan
