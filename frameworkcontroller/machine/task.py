"""Decisions on a Task of a running FrameworkAttempt.

Source: docs/lifecycle.md, "A Task". ``step`` moves the Task as far as the observed Pod allows, and adds the action that
its persisted state justifies. Actions that need a transition of this plan wait until it is persisted.
Answers to requests move the Task on in owned.py: an accepted deletion to DELETION_REQUESTED, a Pod that exists already
to its adoption.
"""

from __future__ import annotations

from collections.abc import Iterator

from frameworkcontroller.api.causes import cause
from frameworkcontroller.api.completion import (
    POD_EXTERNAL_DELETED,
    POD_LOCAL_CACHE_CREATION_TIMEOUT,
    POD_SUCCEEDED,
    TASK_PRE_RUNNING_DEADLINE_EXCEEDED,
    CompletionStatus,
)
from frameworkcontroller.api.names import pod_name, split_pod_name
from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine import headline
from frameworkcontroller.machine.gates import (
    deletable_at,
    put_off,
    save_attempt,
    save_early,
    wait_for_retry,
    why_not_create_pod,
)
from frameworkcontroller.machine.kernel.absence import is_of_framework
from frameworkcontroller.machine.kernel.actions import ConfirmGone, ConfirmNone, Create, Delete, Renderer
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.context import Context, action_on_unrecorded, describe_row, summarize
from frameworkcontroller.machine.kernel.failure import disrupted
from frameworkcontroller.machine.kernel.holds import CREATIONS
from frameworkcontroller.machine.kernel.manifests import PodTemplate
from frameworkcontroller.machine.kernel.model import SnapshotTrigger, Urgency, require
from frameworkcontroller.machine.kernel.policy import (
    NO_BACK_OFF,
    decide_task_retry,
    ended_early,
    made_progress,
    retries_in_a_row,
    task_back_off,
)
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.kernel.rules import with_rule
from frameworkcontroller.machine.kernel.states import ENDED, WITH_UNENDED_POD
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.scale import SCALED_DOWN
from frameworkcontroller.machine.terminating import end_left_running, taskless_target, wait_for_containers, watch_pod

_CONFIGMAP_DOUBT_SEC = 5
"""Interval of lists of ConfigMaps because Pods were deleted before they ran."""

_CONFIGMAP_GONE_LOOK_SEC = 5
"""Time until a live read looks for a Pod whose ConfigMap is gone and that the cache has not shown."""


def step(ctx: Context, task: TaskStatus) -> None:
    """Move a Task as far as its observed Pod allows."""
    key = task.key
    pod = ctx.observed.find_pod(pod_name(ctx.framework.name, *key))
    end_left_running(ctx, key, pod)
    if task.is_leaving and _decide(ctx, task, SCALED_DOWN):
        # In a status of the original controller, which sets completionStatus later.
        ctx.tracker.change(task, Urgency.NOW)
    if task.state is State.ATTEMPT_COMPLETED:
        _decide_retry(ctx, task)
    if task.state is State.CREATION_PENDING:
        if not _adopt(ctx, task, pod):
            _create(ctx, task, pod)
            return
    elif task.state in (State.ATTEMPT_COMPLETED, State.COMPLETED):
        if not _delete_unrecorded(ctx, task, pod):
            ctx.tracker.holds.stalls.pop(task.key, None)
        return
    if pod is None or pod.uid != task.attempt.pod_uid:
        _without_pod(ctx, task)
        return
    if not ctx.tracker.expectations.trusts_absence(pod.uid):
        ctx.tracker.expectations.trust_absence(pod.uid)
        ctx.tracker.holds.end_stall(key, RequestReason.POD_NOT_ANSWERED)
    if pod.identity.deleting:
        _with_deleting_pod(ctx, task, pod)
    else:
        _with_pod(ctx, task, pod)


def end_attempt(ctx: Context, task: TaskStatus, completion: CompletionStatus | None, *, refused: bool = False) -> None:
    """Complete the attempt, whose Pod is gone or was never created (``refused``: by the API server)."""
    tracker, key = ctx.tracker, task.key
    _decide(ctx, task, completion, tracker.life.dropped.get(key))
    for part in ctx.parts.pod_gone:
        part.pod_gone(ctx, task)
    tracker.expectations.forget(task.attempt.pod_uid)
    tracker.life.dropped.pop(key, None)
    tracker.life.left_running.pop(key, None)
    if refused:
        tracker.holds.hold_retry(key, ctx.env, "the Pod of the last TaskAttempt was refused")
    else:
        tracker.holds.release(key)
    tracker.move(task, State.ATTEMPT_COMPLETED, ctx.env.second)
    spec = ctx.framework.spec.role(task.role)
    renews = spec is not None and spec.task.retry_policy.reset_on_progress
    if renews and made_progress(ctx.framework.spec, ctx.status, task):
        tracker.renew_retries(task)
    tracker.agenda.look(key)
    final = _completion_of(task)
    text = f"TaskAttempt {task.attempt.id} completed with {summarize(final)}"
    ctx.record(LifeReason.TASK_ATTEMPT_COMPLETED, text, task, completion=final)


# --- no Pod is recorded -----------------------------------------------------------------------------------------


def _adopt(ctx: Context, task: TaskStatus, pod: PodRecord | None) -> bool:
    """Adopt a Pod that was created for this attempt, but not recorded. Return whether there is one."""
    if pod is None or pod.identity.deleting or ctx.tracker.is_completing or task.is_leaving:
        return False
    if (pod.identity.controller_uid, pod.identity.annotations) != (ctx.attempt.configmap_uid, ctx.pod_identity(task)):
        return False
    record_creation(ctx, task, pod.uid)
    return True


def record_creation(ctx: Context, task: TaskStatus, uid: str) -> None:
    """Record the Pod of the Task's attempt, which was created or is adopted."""
    ctx.tracker.record_pod(task, uid, ctx.env.second)
    ctx.tracker.holds.release(task.key)
    ctx.tracker.holds.release_retries()
    ctx.tracker.agenda.look(task.key)
    ctx.record(LifeReason.POD_CREATED, f"Pod {uid} was created for TaskAttempt {task.attempt.id}", task)


def _create(ctx: Context, task: TaskStatus, pod: PodRecord | None) -> None:
    if _delete_unrecorded(ctx, task, pod) or ctx.tracker.is_completing:
        return
    key = task.key
    if not ctx.tracker.is_settled(task):
        ctx.tracker.persist_first(key)
        return
    configmap_uid = require(ctx.attempt.configmap_uid, "configMapUID")
    target = ctx.pod_target(task)
    if task.is_leaving:
        ctx.tracker.holds.wait(key, None)
        ctx.act(ConfirmNone(target, configmap_uid))
        return
    if put_off(ctx, task, why_not_create_pod(ctx, task)) or not _ensure(ctx, task):
        return
    template = ctx.tracker.life.templates.get(task.role)
    if template is None:
        spec = ctx.framework.spec.role(task.role)
        if spec is None:
            return
        shapes = [shape for part in ctx.parts.shape if (shape := part.shape(ctx, spec)) is not None]
        template = PodTemplate(ctx.framework, ctx.attempt, spec, ctx.tracker.roles[task.role].instance_uid, shapes)
        ctx.tracker.life.templates[task.role] = template
    ctx.create_for(key, lambda: _creation(ctx, task, target, template))


def _creation(ctx: Context, task: TaskStatus, target: Target, template: PodTemplate) -> Create:
    configmap_uid = require(ctx.attempt.configmap_uid, "configMapUID")
    field: tuple[str, ...] = ()
    for part in ctx.parts.creating_pod:
        field = part.creating_pod(ctx, task) or field
    words = template.words(task)
    shapes = tuple([shape for part in ctx.parts.shape_task if (shape := part.shape_task(ctx, task)) is not None])
    source = Renderer(template.fill_shaped, (words, shapes)) if shapes else Renderer(template.fill, (words,))
    return Create(target, source, configmap_uid, field, template.is_large)


def _ensure(ctx: Context, task: TaskStatus) -> bool:
    # Each part is asked.
    return False not in [part.ensure_for(ctx, task) for part in ctx.parts.ensure_for]


def _needs_objects(ctx: Context, task: TaskStatus) -> bool:
    role = ctx.framework.spec.role(task.role)
    return role is not None and any(part.needs_objects(role) for part in ctx.parts.needs_objects)


def _delete_unrecorded(ctx: Context, task: TaskStatus, pod: PodRecord | None) -> bool:
    """Delete an unrecorded Pod of this Task's name. Return whether there is one.

    Pods that are not of the attempt are never touched.
    """
    if pod is None or not ctx.is_of_attempt(pod):
        return False
    if task.state is State.ATTEMPT_COMPLETED and pod.uid == task.attempt.pod_uid:
        return False
    if pod.identity.deleting:
        if pod.uid != task.attempt.pod_uid:
            watch_pod(ctx, pod, unrecorded=True)
    elif not (ctx.tracker.is_head_settled and ctx.tracker.is_settled(task)):
        # It may be of this attempt, and not be adopted only because of a decision that is not persisted.
        ctx.tracker.persist_first(task.key)
    elif not wait_for_containers(ctx, task.key, pod):
        ctx.act(action_on_unrecorded(ctx.pod_target(task), pod.identity, ctx.pod_identity(task)))
    return True


def taskless_pods(ctx: Context) -> Iterator[TaskKey]:
    """Keys of Pods of the attempt that have no Task."""
    for pod in ctx.observed.list_pods():
        parts = split_pod_name(pod.name)
        if parts is not None and _is_taskless(ctx, parts[1:], pod):
            yield parts[1:]


def delete_taskless(ctx: Context, key: TaskKey) -> None:
    """Delete a Pod without a Task. After a ScaleDown, a creation whose answer was lost may still be executed."""
    pod = ctx.observed.find_pod(pod_name(ctx.framework.name, *key))
    end_left_running(ctx, key, pod)
    if pod is None or not _is_taskless(ctx, key, pod):
        ctx.tracker.holds.stalls.pop(key, None)
    elif pod.identity.deleting:
        watch_pod(ctx, pod, unrecorded=True)
    elif wait_for_containers(ctx, key, pod):
        return
    elif ctx.tracker.is_head_settled:
        ctx.act(Delete(taskless_target(ctx, key), pod.uid, unrecorded=True))
    else:
        ctx.tracker.persist_first(key)


def delete_leftovers(ctx: Context) -> None:
    """Delete Pods of the Framework that exist though no attempt is alive. All is persisted.

    Mostly the garbage collector does, but not if they have lost their owner. Costs the number of all Pods.
    """
    for pod in ctx.observed.list_pods():
        parts = split_pod_name(pod.name)
        is_ours = is_of_framework(ctx.framework.uid, pod) and not ctx.is_later(pod.identity)
        if parts is None or not is_ours or is_known_to_be_gone(ctx, pod):
            continue
        if pod.identity.deleting:
            watch_pod(ctx, pod, unrecorded=True)
        else:
            task = ctx.tracker.task(parts[1:])
            target = taskless_target(ctx, parts[1:]) if task is None else ctx.pod_target(task)
            ctx.act(Delete(target, pod.uid, unrecorded=True))


def is_known_to_be_gone(ctx: Context, pod: PodRecord) -> bool:
    """Whether the Pod belongs to a Task's ended attempt, and the cache is stale."""
    parts = split_pod_name(pod.name)
    task = None if parts is None else ctx.tracker.task(parts[1:])
    return task is not None and task.state in ENDED and task.attempt.pod_uid == pod.uid


def _is_taskless(ctx: Context, key: TaskKey, pod: PodRecord) -> bool:
    return ctx.is_of_attempt(pod) and ctx.tracker.task(key) is None


# --- a Pod is recorded, but the cache does not show it -------------------------------------------------------------


def _without_pod(ctx: Context, task: TaskStatus) -> None:
    uid = require(task.attempt.pod_uid, f"podUID of Task {task.role}[{task.index}]")
    key = task.key
    if ctx.tracker.expectations.trusts_absence(uid):
        by_others = _completion_by_others("Pod was deleted by others", ctx.tracker.life.dropped.get(key))
        _doubt_configmaps(ctx, task, by_others)
        end_attempt(ctx, task, by_others)
        return
    if task.state is State.CREATION_REQUESTED and not ctx.tracker.expectations.has_lost(uid):
        since, timeout = task.transition_time, ctx.env.limits.object_local_cache_creation_timeout_sec
        if ctx.tracker.life.configmap_gone:
            since, timeout = ctx.status.transition_time, _CONFIGMAP_GONE_LOOK_SEC
        if not task.is_leaving and not ctx.wait_out(key, since, timeout):
            return
        if task.is_leaving or ctx.tracker.expectations.is_hidden(uid, ctx.observed.pods_listed):
            if ctx.tracker.is_settled(task):
                ctx.act(Delete(ctx.pod_target(task), uid, confirm=True))
            else:
                ctx.tracker.persist_first(key)
            return
    # The cache may be older than the status, or the Pod has lost its label: ask the API server.
    ctx.act(ConfirmGone(ctx.pod_target(task), uid))


def handle_unseen_pod(ctx: Context, task: TaskStatus) -> None:
    """End the attempt of a created Pod that the cache has never shown and that is gone."""
    timeout = ctx.env.limits.object_local_cache_creation_timeout_sec
    text = f"Pod did not appear in the local cache within {timeout}s, so it was taken for deleted, and deleted"
    end_attempt(ctx, task, CompletionStatus.of(POD_LOCAL_CACHE_CREATION_TIMEOUT, text))


def _completion_by_others(what: str, pod: PodRecord | None) -> CompletionStatus:
    if pod is not None and pod.disruption is not None:
        return disrupted(what, pod.disruption)
    return CompletionStatus.of(POD_EXTERNAL_DELETED, what)


def _doubt_configmaps(ctx: Context, task: TaskStatus, by_others: CompletionStatus) -> None:
    """Hold creations if a Pod is deleted before it ran, and list ConfigMaps again, unless they were listed lately.

    The garbage collector deletes a new Pod at once if its ConfigMap is gone and the watch has left that out.
    """
    unexplained = by_others.code == POD_EXTERNAL_DELETED.code and task.attempt.completion_status is None
    if not unexplained or task.attempt.run_time is not None:
        return
    why = "a Pod was deleted before it ran, so its ConfigMap may be gone"
    ctx.tracker.holds.hold(CREATIONS, ctx.env, why, reason=LifeReason.RELISTING)
    if ctx.env.clock - ctx.observed.configmaps_listed > _CONFIGMAP_DOUBT_SEC:
        ctx.plan.relist.add(Kind.CONFIGMAP)


# --- the recorded Pod is there ------------------------------------------------------------------------------------


def _with_deleting_pod(ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
    tracker = ctx.tracker
    if task.state is not State.DELETING:
        by_others = _completion_by_others("Pod is being deleted by others", pod)
        _doubt_configmaps(ctx, task, by_others)
        _decide(ctx, task, by_others, pod)
        tracker.move(task, State.DELETING, ctx.env.second)
    for part in ctx.parts.before_delete:
        part.before_delete(ctx, task)
    watch_pod(ctx, pod)


def _with_pod(ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
    tracker = ctx.tracker
    if task.state is State.DELETION_PENDING:
        key = task.key
        if not tracker.is_settled(task):
            tracker.persist_first(key)
        elif not wait_for_containers(ctx, key, pod):
            if (due := deletable_at(ctx, task)) is None:
                ctx.act(Delete(ctx.pod_target(task), pod.uid))
            else:
                tracker.agenda.look(key, due)
        return
    if task.state not in WITH_UNENDED_POD:
        # Its deletion was accepted: the cache is stale.
        return
    now = ctx.env.second
    if task.state is State.CREATION_REQUESTED:
        tracker.move(task, State.PREPARING, now)
    if pod.phase != "Unknown":
        tracker.record_placement(task, pod)
    if pod.phase == "Succeeded":
        _start_completing(ctx, task, CompletionStatus.of(POD_SUCCEEDED, "Pod succeeded", pod=pod.completion))
    elif pod.phase == "Failed":
        _start_completing(ctx, task, ctx.env.limits.classifier.classify(pod), pod)
    elif task.is_leaving or tracker.life.configmap_gone:
        _start_completing(ctx, task, None)
    elif pod.phase == "Running" and task.state is State.PREPARING:
        tracker.move(task, State.RUNNING, now)
        text = f"TaskAttempt {task.attempt.id} is running on {pod.node_name or '?'}"
        ctx.record(LifeReason.TASK_RUNNING, text, task)
    elif task.state is State.PREPARING and (why := _why_end_before_running(ctx, task, pod)) is not None:
        _start_completing(ctx, task, why)
    headline.observe(ctx, task, pod)
    for part in ctx.parts.observe_pod:
        part.observe_pod(ctx, task, pod)
    waits = task.state is State.PREPARING and not ctx.tracker.is_completing
    if waits and _needs_objects(ctx, task) and not put_off(ctx, task, why_not_create_pod(ctx, task)):
        # While no node uses it, another client may have deleted an object, and the Pod would wait for it forever.
        _ensure(ctx, task)


def _why_end_before_running(ctx: Context, task: TaskStatus, pod: PodRecord) -> CompletionStatus | None:
    completion = _why_end_by_deadline(ctx, task, pod)
    for part in ctx.parts.why_end_task:
        completion = completion or part.why_end_task(ctx, task, pod)
    return completion


def _why_end_by_deadline(ctx: Context, task: TaskStatus, pod: PodRecord) -> CompletionStatus | None:
    """The completion of an attempt whose Pod has not run for preRunningDeadlineSeconds."""
    spec = ctx.framework.spec.role(task.role)
    deadline = None if spec is None else spec.task.pre_running_deadline_seconds
    if deadline is None or pod.creation_time is None or not ctx.wait_out(task.key, pod.creation_time, deadline):
        return None
    where = f"on node {pod.node_name}" if pod.node_name else "and had no node"
    text = f"Pod did not run {where} within preRunningDeadlineSeconds {deadline} after its creation"
    return CompletionStatus.of(TASK_PRE_RUNNING_DEADLINE_EXCEEDED, text)


def _start_completing(
    ctx: Context, task: TaskStatus, completion: CompletionStatus | None, pod: PodRecord | None = None
) -> None:
    """Decide the completion of the attempt. Once that is persisted, the Pod is deleted."""
    _decide(ctx, task, completion, pod)
    ctx.tracker.move(task, State.DELETION_PENDING, ctx.env.second)
    ctx.tracker.persist_first(task.key)


def _completion_of(task: TaskStatus) -> CompletionStatus:
    return require(task.attempt.completion_status, f"completionStatus of Task {task.role}[{task.index}]")


# --- the attempt is over --------------------------------------------------------------------------------------------


def _decide_retry(ctx: Context, task: TaskStatus) -> None:
    completion = _completion_of(task)
    spec = ctx.framework.spec.role(task.role)
    if task.is_leaving or ctx.tracker.is_completing or spec is None:
        _complete(ctx, task, "it is being deleted" if task.is_leaving else "the FrameworkAttempt completes")
        return
    policy = spec.task.retry_policy
    decision = decide_task_retry(policy, completion, task.retry.accountable_retried_count)
    if task.retry.retry_delay_sec is None and not decision.retry:
        _complete(ctx, task, decision.reason)
        return
    if not ctx.tracker.is_settled(task):
        # Clients must see the end of this attempt before the next one starts.
        ctx.tracker.persist_first(task.key)
        return
    in_a_row, early = retries_in_a_row(task), ended_early(task)
    back_off = task_back_off(policy, completion, ctx.env.limits)
    if task.retry.retry_delay_sec is None:
        delay = back_off.delay_sec(in_a_row, completion, early=early)
        for part in ctx.parts.retry_delay_sec:
            delay = max(delay, part.retry_delay_sec(ctx, task))
        if not delay and not save_attempt(ctx, SnapshotTrigger.TASK_RETRY, task):
            return
        ctx.tracker.schedule_retry(task, delay)
        if delay:
            text = (
                f"TaskAttempt {task.attempt.id + 1} follows {delay}s later, as {decision.reason}, "
                f"after {summarize(completion)}{describe_row(in_a_row)}"
            )
            ctx.record(LifeReason.TASK_RETRY_SCHEDULED, text, task, completion=completion, warning=False)
    delay = require(task.retry.retry_delay_sec, "retryDelaySec")
    if delay:
        save_early(ctx, SnapshotTrigger.TASK_RETRY, task)
    if not ctx.wait_out(task.key, task.transition_time, delay):
        wait_for_retry(ctx, task, delay, summarize(completion) + describe_row(in_a_row))
        return
    if delay and not save_attempt(ctx, SnapshotTrigger.TASK_RETRY, task):
        return
    ctx.snapshot_task(SnapshotTrigger.TASK_RETRY, task)
    recent = 0 if back_off is NO_BACK_OFF else back_off.row_after(in_a_row, completion, early=early)
    ctx.tracker.retry(task, completion, accountable=decision.accountable, recent=recent, now=ctx.env.second)
    ctx.tracker.persist_first(task.key)
    when = f"after {delay}s" if delay else "at once"
    text = f"TaskAttempt {task.attempt.id} follows {when}, as {decision.reason}, after {summarize(completion)}"
    ctx.record(LifeReason.TASK_RETRIED, text, task, completion=completion, warning=False)


def _complete(ctx: Context, task: TaskStatus, why: str) -> None:
    completion = _completion_of(task)
    ctx.tracker.move(task, State.COMPLETED, ctx.env.second)
    if task.is_leaving:
        # The rescale step removes or replaces it, once that is persisted.
        ctx.tracker.agenda.look()
    text = f"Task completed, not retried as {why}, with {summarize(completion)}"
    ctx.record(LifeReason.TASK_COMPLETED, text, task, completion=completion)


def _decide(ctx: Context, task: TaskStatus, completion: CompletionStatus | None, pod: PodRecord | None = None) -> bool:
    """Set the attempt's completion status unless it is set. Return whether it was set now.

    ``pod``: the last state of the Pod, for the failure rules.
    """
    if completion is None or task.attempt.completion_status is not None:
        return False
    spec = ctx.framework.spec.role(task.role)
    if spec is not None and not task.is_leaving and not ctx.tracker.is_completing:
        completion = with_rule(spec.task.pod_failure_policy, completion, pod)
    ctx.tracker.decide_completion(task, completion)
    if completion.succeeded:
        reason, verb = LifeReason.TASK_SUCCEEDED, "succeeded"
    elif completion.unexpected:
        reason, verb = LifeReason.TASK_FAILED, "failed"
    else:
        reason, verb = LifeReason.TASK_STOPPED, "is stopped"
    why = cause(completion) if completion.unexpected else completion.diagnostics
    text = f"TaskAttempt {task.attempt.id} {verb} with {summarize(completion)}: {why}"
    ctx.record(reason, text, task, completion=completion)
    return True
