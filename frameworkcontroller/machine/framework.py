"""Decisions on a Framework.

Source: docs/lifecycle.md, "The Framework". An attempt is over when its ConfigMap and all of its Pods are gone.
Answers to requests move it on in owned.py: a deletion that is accepted, an object that exists already, and one that is
confirmed to be absent.
"""

from __future__ import annotations

from frameworkcontroller.api.completion import (
    ALWAYS_RETRIED,
    CONFIGMAP_EXTERNAL_DELETED,
    CONFIGMAP_LOCAL_CACHE_CREATION_TIMEOUT,
    FRAMEWORK_ATTEMPT_COMPLETION,
    CompletionStatus,
)
from frameworkcontroller.api.objects import ConfigMapRecord
from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import State
from frameworkcontroller.machine import task as task_machine
from frameworkcontroller.machine.gates import (
    deletable_at,
    is_deletion_blocked,
    put_off,
    why_end_after_tasks,
    why_end_at_once,
    why_end_before_configmap,
    why_end_unless_by_tasks,
    why_end_unseen,
    why_not_create_configmap,
    why_not_prepare,
    why_not_start,
)
from frameworkcontroller.machine.kernel.absence import (
    Known,
    look_for_pods,
    may_have_unrecorded_pods,
    shows_pods,
    wait_for_pod_list,
)
from frameworkcontroller.machine.kernel.actions import ConfirmGone, ConfirmNone, Create, Delete, LookUp
from frameworkcontroller.machine.kernel.context import Context, action_on_unrecorded, count_tasks, describe
from frameworkcontroller.machine.kernel.holds import Wait
from frameworkcontroller.machine.kernel.manifests import configmap_body
from frameworkcontroller.machine.kernel.model import Urgency, require
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.nextattempt import decide_framework_retry, retain
from frameworkcontroller.machine.terminating import configmap_deletable_at, watch_configmap, watch_unrecorded_configmap

_TASK_STOPPED = CompletionStatus.of(FRAMEWORK_ATTEMPT_COMPLETION, "Stop to complete current FrameworkAttempt")


def step(ctx: Context) -> None:
    """Move the Framework and the Tasks on the agenda as far as the observed objects allow."""
    ctx.tracker.holds.end_stall(None, LifeReason.PODS_NOT_DELETED)
    ctx.tracker.absence.wanted = False
    for part in ctx.parts.before:
        part.before(ctx)
    state = ctx.status.state
    if state is State.ATTEMPT_COMPLETED:
        decide_framework_retry(ctx)
    elif state is State.COMPLETED:
        retain(ctx)
    configmap = ctx.observed.configmap
    ours = configmap if configmap is not None and configmap.identity.controller_uid == ctx.framework.uid else None
    if ctx.status.state in ENDED:
        ctx.tracker.agenda.clear()
        if ctx.status.state is State.ATTEMPT_COMPLETED and ctx.framework.spec.is_suspended:
            look_for_pods(ctx)
        watch_unrecorded_configmap(ctx, ours)
        if ctx.tracker.is_clean:
            task_machine.delete_leftovers(ctx)
        if not _delete_unrecorded(ctx, ours):
            ctx.tracker.holds.end_stall(None, LifeReason.STATUS_OUTDATED)
            ctx.tracker.holds.end_stall(None, LifeReason.CONFIGMAP_NOT_GONE)
        for part in ctx.parts.at_end:
            part.at_end(ctx)
        return
    if ctx.status.state is State.CREATION_PENDING and not _adopt(ctx, ours):
        _create(ctx, ours)
        return
    if configmap is None or configmap.uid != ctx.attempt.configmap_uid:
        _without_configmap(ctx)
        return
    if not ctx.tracker.expectations.trusts_absence(configmap.uid):
        ctx.tracker.expectations.trust_absence(configmap.uid)
        ctx.tracker.holds.end_stall(None, RequestReason.CONFIGMAP_NOT_ANSWERED)
        ctx.tracker.look_at_all()
    if ctx.framework.spec.active_deadline_seconds is not None and ctx.attempt.execution_start_time is None:
        started = configmap.creation_time
        ctx.tracker.record_execution_start(ctx.status.transition_time if started is None else started)
    if configmap.identity.deleting:
        _with_deleting_configmap(ctx)
    else:
        _with_configmap(ctx)
    _step_attempt(ctx)
    if configmap.identity.deleting and ctx.status.state not in ENDED:
        watch_configmap(ctx, configmap)


def start_completing(ctx: Context, completion: CompletionStatus) -> None:
    """Decide the completion of the attempt. Once that is persisted, the ConfigMap and its dependents are deleted."""
    decided = ctx.tracker.decide_completion(ctx.status, completion)
    _stop_tasks(ctx)
    ctx.tracker.move_framework(State.DELETION_PENDING, ctx.env.second)
    if decided:
        if completion.is_one_of(ALWAYS_RETRIED):
            ctx.tracker.counters().rerun += ctx.tracker.counts.completed
        _record_completing(ctx)


def _record_completing(ctx: Context) -> None:
    final = require(ctx.attempt.completion_status, "completionStatus of the attempt")
    text = f"FrameworkAttempt {ctx.attempt.id} is completing with {describe(final)}"
    ctx.record(LifeReason.FRAMEWORK_ATTEMPT_COMPLETING, text, completion=final)


def _stop_tasks(ctx: Context) -> None:
    for task in ctx.tracker.tasks():
        ctx.tracker.decide_completion(task, _TASK_STOPPED, Urgency.NOW)


def end_attempt(ctx: Context, completion: CompletionStatus) -> None:
    """Complete the Tasks and the attempt, whose ConfigMap and Pods are gone."""
    ctx.tracker.decide_completion(ctx.status, completion)
    tracker, now = ctx.tracker, ctx.env.second
    for task in tracker.tasks():
        tracker.decide_completion(task, _TASK_STOPPED)
        if task.state is not State.COMPLETED:
            if task.state is not State.ATTEMPT_COMPLETED:
                tracker.move(task, State.ATTEMPT_COMPLETED, now)
            tracker.move(task, State.COMPLETED, now)
        tracker.change(task, Urgency.SOON)
    tracker.forget_tasks()
    tracker.move_framework(State.ATTEMPT_COMPLETED, now)
    final = require(ctx.attempt.completion_status, "completionStatus of the attempt")
    for part in ctx.parts.ended:
        part.ended(ctx, final)
    text = f"FrameworkAttempt {ctx.attempt.id} completed with {describe(final)}"
    ctx.record(LifeReason.FRAMEWORK_ATTEMPT_COMPLETED, text, completion=final)


def record_creation(ctx: Context, uid: str) -> None:
    """Record the attempt's ConfigMap, which was created or is adopted."""
    ctx.tracker.record_configmap(uid, ctx.env.second)
    ctx.tracker.holds.release(None)
    tasks = count_tasks(sum(len(role.tasks) for role in ctx.attempt.roles))
    text = f"FrameworkAttempt {ctx.attempt.id} started with {tasks}: ConfigMap {uid} was created"
    ctx.record(LifeReason.FRAMEWORK_ATTEMPT_STARTED, text)


# --- no ConfigMap is recorded -----------------------------------------------------------------------------------


def _adopt(ctx: Context, configmap: ConfigMapRecord | None) -> bool:
    """Adopt a ConfigMap that was created for this attempt, but not recorded. Return whether there is one.

    Also while the Framework is suspended: something of this attempt may run, so it ends, and the next has another id.
    """
    if configmap is None or configmap.identity.deleting or ctx.tracker.is_completing:
        return False
    # Attempt ids are not random: the ConfigMap was created for a persisted one.
    if not ctx.tracker.is_clean or ctx.tracker.absence.configmap is Known.ABSENT:
        return False
    if configmap.uid in ctx.tracker.absence.late:
        return False
    if not may_adopt(ctx):
        return False
    if configmap.identity.annotations != ctx.configmap_identity():
        return False
    record_creation(ctx, configmap.uid)
    return True


def may_adopt(ctx: Context) -> bool:
    """Whether the spec lets the attempt have a ConfigMap: it runs, or is suspended and ends."""
    spec = ctx.framework.spec
    return (spec.execution_type is ExecutionType.START or spec.is_suspended) and not ctx.framework.deleting


def _create(ctx: Context, configmap: ConfigMapRecord | None) -> None:
    ctx.tracker.agenda.clear()
    watch_unrecorded_configmap(ctx, configmap)
    tracker = ctx.tracker
    if configmap is not None:
        tracker.absence.saw_configmap(configmap.uid)
    if (
        put_off(ctx, None, why_not_start(ctx))
        and not is_deletion_blocked(ctx)
        and (ctx.framework.deleting or not tracker.is_completing)
    ):
        _release(ctx)
        is_held = ctx.framework.spec.is_suspended or ctx.framework.invalid
        if (is_held and not ctx.framework.deleting) or tracker.absence.wanted:
            _look_up(ctx, configmap)
        return
    ends = tracker.is_completing or why_end_at_once(ctx) is not None
    if not ends and (completion := why_end_before_configmap(ctx)) is not None:
        ends = True
        _complete_unseen(ctx, completion)
    if not ends and put_off(ctx, None, why_not_prepare(ctx)):
        _release(ctx)
        if tracker.absence.wanted:
            _look_up(ctx, configmap)
        elif not tracker.is_clean:
            ctx.tracker.persist_first(None)
        return
    if not ends and may_have_unrecorded_pods(tracker) and shows_pods(ctx):
        # A controller has created them and ended, and another client has deleted their ConfigMap, or its label.
        tracker.holds.wait(
            None, Wait(RequestReason.WAITING, "Pods that no status records are to be gone, or adopted, first")
        )
        _look_up(ctx, configmap)
        return
    # From now on any controller may create something. Others, which may delete it as late, must see that in the status.
    was_held = tracker.absence.stop_holding_back()
    if not tracker.is_clean or (was_held and not ends):
        if not ends:
            # The condition still shows the reason to wait.
            put_off(ctx, None, why_not_create_configmap(ctx))
        # Among others, that a resumed Framework is no longer Suspended.
        ctx.tracker.persist_first(None)
    elif ends:
        if not wait_for_pod_list(ctx):
            tracker.absence.pods_remain = shows_pods(ctx)
            task_machine.delete_leftovers(ctx)
            ctx.act(ConfirmNone(ctx.configmap_target(), ctx.framework.uid))
    elif not _delete_unrecorded(ctx, configmap):
        is_ready = False not in [part.ensure(ctx) for part in ctx.parts.ensure]
        if not put_off(ctx, None, why_not_create_configmap(ctx)) and is_ready:
            labels: dict[str, str] = {}
            for part in ctx.parts.configmap_labels:
                labels |= part.configmap_labels(ctx)
            data: dict[str, str] = {}
            for part in ctx.parts.configmap_data:
                data |= part.configmap_data(ctx)
            body = configmap_body(ctx.framework, ctx.attempt.id, labels, data)
            ctx.act(Create(ctx.configmap_target(), body, ctx.framework.uid))


def _release(ctx: Context) -> None:
    for part in ctx.parts.release:
        part.release(ctx)


def _look_up(ctx: Context, configmap: ConfigMapRecord | None) -> None:
    """Find out whether something of a held-back attempt exists.

    A controller may have created the ConfigMap, and Pods, and have ended before it recorded them.
    """
    tracker = ctx.tracker
    look_for_pods(ctx)
    if not tracker.is_clean:
        ctx.tracker.persist_first(None)
    elif _delete_unrecorded(ctx, configmap):
        tracker.absence.configmap = Known.FOUND
    elif tracker.absence.configmap is not Known.ABSENT:
        if not ctx.observed.creating:
            ctx.act(LookUp(ctx.configmap_target(), ctx.framework.uid))
    else:
        task_machine.delete_leftovers(ctx)


def _delete_unrecorded(ctx: Context, configmap: ConfigMapRecord | None) -> bool:
    """Delete an unrecorded ConfigMap of the attempt's name. Return whether there is one."""
    if configmap is None or configmap.identity.deleting:
        return configmap is not None
    if ctx.tracker.is_clean:
        ctx.act(action_on_unrecorded(ctx.configmap_target(), configmap.identity, ctx.configmap_identity()))
    else:
        # It may be of this attempt, whose end is not persisted.
        ctx.tracker.persist_first(None)
    return True


# --- a ConfigMap is recorded, but the cache does not show it -------------------------------------------------------


def _without_configmap(ctx: Context) -> None:
    uid = require(ctx.attempt.configmap_uid, "configMapUID")
    target = ctx.configmap_target()
    if ctx.tracker.expectations.trusts_absence(uid):
        _handle_gone_configmap(ctx)
        return
    # All Tasks are planned once the ConfigMap is seen, or known to be gone.
    ctx.tracker.agenda.clear()
    if ctx.status.state is State.CREATION_REQUESTED and not ctx.tracker.expectations.has_lost(uid):
        timeout = ctx.env.limits.object_local_cache_creation_timeout_sec
        ends = why_end_at_once(ctx) is not None
        if (not ends or is_deletion_blocked(ctx)) and (completion := why_end_unseen(ctx)) is not None:
            _complete_unseen(ctx, completion)
        ends |= ctx.tracker.is_completing
        if not ends and not ctx.wait_out(None, ctx.status.transition_time, timeout):
            return
        if ends or ctx.tracker.expectations.is_hidden(uid, ctx.observed.configmaps_listed):
            if ctx.tracker.is_clean:
                ctx.act(Delete(target, uid, confirm=True))
            else:
                ctx.tracker.persist_first(None)
            return
    # The cache may be older than the status, or the ConfigMap has lost its label: ask the API server.
    ctx.act(ConfirmGone(target, uid))


def _complete_unseen(ctx: Context, completion: CompletionStatus) -> None:
    """Decide the completion of an attempt without an object in the cache."""
    if ctx.tracker.decide_completion(ctx.status, completion, Urgency.NOW):
        _record_completing(ctx)


def handle_unseen_configmap(ctx: Context) -> None:
    """Handle a created ConfigMap that the cache has never shown and that is gone."""
    timeout = ctx.env.limits.object_local_cache_creation_timeout_sec
    text = f"ConfigMap did not appear in the local cache within {timeout}s, so it was taken for deleted, and deleted"
    never_seen = CompletionStatus.of(CONFIGMAP_LOCAL_CACHE_CREATION_TIMEOUT, text)
    ctx.tracker.life.configmap_end = why_end_at_once(ctx) or never_seen
    ctx.tracker.expectations.trust_absence(require(ctx.attempt.configmap_uid, "configMapUID"))
    ctx.tracker.agenda.look()


def _handle_gone_configmap(ctx: Context) -> None:
    """Wait for the Pods of a ConfigMap that is gone, and end the attempt when the last one is.

    Pods outlive a ConfigMap that was deleted in the background, or with orphaned dependents.
    """
    tracker = ctx.tracker
    by_others = _completion_by_others(ctx, "ConfigMap was deleted by others")
    completion = tracker.life.configmap_end or by_others
    if completion is by_others and not ctx.tracker.is_completing:
        # Usually in the background, so it was never seen to be terminating.
        ctx.record(LifeReason.CONFIGMAP_DELETING, "ConfigMap was deleted by others", completion=by_others)
    if _wait_for_pods(ctx):
        if not tracker.life.configmap_gone:
            tracker.life.configmap_gone = True
            tracker.look_at_all()
            ctx.tracker.decide_completion(ctx.status, completion)
            _stop_tasks(ctx)
            if ctx.status.state is not State.DELETING:
                tracker.move_framework(State.DELETING, ctx.env.second)
        _step_tasks(ctx)
    if not _wait_for_pods(ctx):
        end_attempt(ctx, completion)


def _completion_by_others(ctx: Context, text: str) -> CompletionStatus:
    """The completion of an attempt whose ConfigMap another client has deleted.

    While the Framework is suspended, another controller may have deleted it, which must not use up a retry.
    """
    return why_end_unseen(ctx) or CompletionStatus.of(CONFIGMAP_EXTERNAL_DELETED, text)


def _wait_for_pods(ctx: Context) -> bool:
    """Return whether a Pod of the attempt exists or may exist, and have Pods listed if that is not known."""
    if ctx.tracker.task_states.may_have_pods or ctx.observed.creating:
        return True
    pods = (pod for pod in ctx.observed.list_pods() if ctx.is_of_attempt(pod))
    if any(not task_machine.is_known_to_be_gone(ctx, pod) for pod in pods):
        return True
    return wait_for_pod_list(ctx)


# --- the recorded ConfigMap is there ------------------------------------------------------------------------------


def _with_deleting_configmap(ctx: Context) -> None:
    if ctx.status.state is State.DELETING:
        return
    if not ctx.tracker.is_completing:
        text = "ConfigMap is being deleted by others"
        ctx.tracker.decide_completion(ctx.status, _completion_by_others(ctx, text))
        ctx.record(LifeReason.CONFIGMAP_DELETING, text, completion=ctx.attempt.completion_status)
    ctx.tracker.move_framework(State.DELETING, ctx.env.second)


def _with_configmap(ctx: Context) -> None:
    state = ctx.status.state
    if state is State.CREATION_REQUESTED:
        ctx.tracker.move_framework(State.PREPARING, ctx.env.second)
    elif state is State.DELETION_PENDING:
        uid = require(ctx.attempt.configmap_uid, "configMapUID")
        # Containers of an ended Pod still run, and the garbage collector would not wait for them.
        due = configmap_deletable_at(ctx)
        if not ctx.tracker.is_clean:
            ctx.tracker.persist_first(None)
        elif due is None and (due := deletable_at(ctx, None)) is None:
            ctx.act(Delete(ctx.configmap_target(), uid))
        else:
            ctx.tracker.agenda.look(None, due)


def _step_attempt(ctx: Context) -> None:
    tracker, otherwise = ctx.tracker, None
    if tracker.is_completing and ctx.status.state in (State.PREPARING, State.RUNNING):
        # Its end was decided before its ConfigMap was known.
        start_completing(ctx, require(ctx.attempt.completion_status, "completionStatus of the attempt"))
    elif not tracker.is_completing:
        if (completion := why_end_at_once(ctx)) is not None:
            start_completing(ctx, completion)
        else:
            otherwise = why_end_unless_by_tasks(ctx)
            if ctx.framework.invalid:
                if otherwise is None:
                    tracker.agenda.clear()
                    return
                # Since when their Pods have not been looked at, some may have ended.
                tracker.look_at_all()
            ctx.ends = otherwise is not None or tracker.ended_by_rule is not None
    for part in ctx.parts.before_tasks:
        part.before_tasks(ctx)
    _step_tasks(ctx)
    if ctx.ends:
        # A Task whose Pod is gone completes, so that a policy may be met.
        _step_tasks(ctx)
    if ctx.status.state is State.PREPARING and tracker.counts.running:
        tracker.move_framework(State.RUNNING, ctx.env.second)
        ctx.record(LifeReason.FRAMEWORK_ATTEMPT_RUNNING, f"FrameworkAttempt {ctx.attempt.id} is running")
    if tracker.is_completing:
        return
    if (completion := why_end_after_tasks(ctx, otherwise)) is not None:
        ctx.drop_creations()
        start_completing(ctx, completion)
        return
    for part in ctx.parts.after_tasks:
        part.after_tasks(ctx)


def _step_tasks(ctx: Context) -> None:
    """Step the Tasks on the agenda, and delete Pods without a Task."""
    tracker = ctx.tracker
    if tracker.agenda.taskless_due:
        tracker.agenda.taskless_due = False
        tracker.agenda.wake(task_machine.taskless_pods(ctx))
    for key in tracker.agenda.take():
        if (task := tracker.task(key)) is not None:
            task_machine.step(ctx, task)
        else:
            task_machine.delete_taskless(ctx, key)
