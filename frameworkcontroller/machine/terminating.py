"""Terminating Pods and ConfigMaps, and ended Pods with running containers: stalls, and forced deletion."""

from __future__ import annotations

from frameworkcontroller.api.names import pod_name, split_pod_name
from frameworkcontroller.api.objects import ConfigMapRecord, Identity, PodRecord
from frameworkcontroller.api.spec import PodForceDeletionPolicy
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import Delete
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.model import require
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.lifereasons import LifeReason

_STALL_LEFT_RUNNING_SEC = 30
"""Time until running containers of an ended Pod stall the Framework: the default grace period."""


def taskless_target(ctx: Context, key: TaskKey) -> Target:
    return Target(Kind.POD, pod_name(ctx.framework.name, *key), role=key[0], index=key[1])


def watch_pods_of_configmap(ctx: Context, configmap_uid: str) -> None:
    """Watch the Pods of an unrecorded, terminating ConfigMap. Costs the number of all Pods."""
    for pod in ctx.observed.list_pods():
        if pod.identity.deleting and pod.identity.controller_uid == configmap_uid:
            watch_pod(ctx, pod, unrecorded=True)


def watch_pod(ctx: Context, pod: PodRecord, *, unrecorded: bool = False) -> None:
    """Stall the Framework if a terminating Pod stays, and delete it by force after its role's timeout."""
    parts = split_pod_name(pod.name)
    if parts is None:
        return
    key = parts[1:]
    deletion_time = require(pod.identity.deletion_time, "deletionTimestamp")
    grace = pod.identity.deletion_grace_sec
    if ctx.wait_out(key, deletion_time - grace, grace + ctx.env.limits.pod_stuck_deleting_sec):
        ctx.tracker.holds.stalls[key] = Stall(
            LifeReason.POD_NOT_GONE,
            f"Pod {pod.name} was to be deleted by {format_time(deletion_time)} and still exists "
            f"(node {pod.node_name or 'none'}){_why_not_forced(ctx, key, pod.uid)}",
        )
    if (deletion := forced_deletion(ctx, key, pod.identity, pod.node_name, unrecorded=unrecorded)) is not None:
        ctx.act(deletion)


def _why_not_forced(ctx: Context, key: TaskKey, uid: str) -> str:
    spared = ctx.tracker.holds.spared(key, uid)
    return "" if spared is None else f": {spared.why}"


def forced_deletion(
    ctx: Context, key: TaskKey, found: Identity, node: str | None, *, unrecorded: bool
) -> Delete | None:
    """The deletion by force of a terminating Pod, once the timeout of its role is over.

    ``node``: the name of its Node; None if it is unknown.
    """
    tracker = ctx.tracker
    role, task = tracker.roles.get(key[0]), tracker.task(key)
    timeout = None if role is None else role.pod_graceful_deletion_timeout_sec
    if role is None or timeout is None or found.deletion_time is None:
        return None
    if not ctx.wait_out(key, found.deletion_time - found.deletion_grace_sec, timeout):
        return None
    # A policy of a later version spares Pods, too.
    if_lost = role.pod_force_deletion_policy not in (None, PodForceDeletionPolicy.ALWAYS)
    spared = tracker.holds.spared(key, found.uid) if if_lost else None
    if spared is not None and spared.until > ctx.env.clock:
        ctx.tracker.agenda.look(key, spared.until)
        return None
    if tracker.is_head_settled and (task is None or tracker.is_settled(task)):
        target = taskless_target(ctx, key) if task is None else ctx.pod_target(task)
        return Delete(
            target, found.uid, force=True, confirm=True, unrecorded=unrecorded, if_node_lost=if_lost, node=node or None
        )
    tracker.persist_first(key)
    return None


def _left_running_until(ctx: Context, key: TaskKey, pod: PodRecord) -> float | None:
    """When (monotonic seconds) an ended Pod with running containers may be deleted; None for now.

    The API server removes ended Pods at once, and the containers would overlap with the next instance. Kubelets before
    1.22.9 write the phase before the grace period.
    """
    end_left_running(ctx, key, pod)
    if pod.running_grace_sec is None:
        return None
    left, now = ctx.tracker.life.left_running, ctx.env.clock
    if key not in left or left[key][0] != pod.uid:
        left[key] = (pod.uid, now)
    due = left[key][1] + pod.running_grace_sec + ctx.env.limits.kubelet_report_sec
    return due if now < due else None


def end_left_running(ctx: Context, key: TaskKey, pod: PodRecord | None) -> None:
    """Forget that containers of an ended Pod run, if they have ended or the Pod is terminating."""
    if key not in ctx.tracker.life.left_running:
        return
    if pod is None or pod.identity.deleting or pod.running_grace_sec is None:
        del ctx.tracker.life.left_running[key]
        ctx.tracker.holds.end_stall(key, LifeReason.POD_STILL_RUNS)


def wait_for_containers(ctx: Context, key: TaskKey, pod: PodRecord) -> bool:
    """Look at the Pod again once its containers have ended, and after a while stall. Return whether it has to stay."""
    due = _left_running_until(ctx, key, pod)
    if due is None:
        return False
    stall_at = ctx.tracker.life.left_running[key][1] + _STALL_LEFT_RUNNING_SEC
    if ctx.env.clock < stall_at:
        due = min(due, stall_at)
    else:
        when = int(ctx.env.now + due - ctx.env.clock)
        ctx.tracker.holds.stalls[key] = Stall(
            LifeReason.POD_STILL_RUNS,
            f"Pod {pod.name} has {pod.phase.lower()}, and its containers still run (node {pod.node_name or 'none'}): "
            f"it is deleted when they end, or at {format_time(when)}",
        )
    ctx.tracker.agenda.look(key, due)
    return True


def configmap_deletable_at(ctx: Context) -> float | None:
    """When (monotonic seconds) the attempt's ConfigMap may be deleted; None: at once.

    Its deletion waits for running containers of ended Pods. Costs the number of such Pods and of Tasks on the agenda.
    """
    dues = []
    for key in (*ctx.tracker.agenda, *ctx.tracker.life.left_running):
        pod = ctx.observed.find_pod(pod_name(ctx.framework.name, *key))
        if pod is None or pod.identity.deleting or pod.identity.controller_uid != ctx.attempt.configmap_uid:
            continue
        if (due := _left_running_until(ctx, key, pod)) is not None:
            dues.append(due)
    return max(dues, default=None)


# --- ConfigMaps ----------------------------------------------------------------------------------------------------


def watch_unrecorded_configmap(ctx: Context, configmap: ConfigMapRecord | None) -> None:
    """Watch the end of an unrecorded ConfigMap of the attempt's name."""
    ctx.tracker.holds.end_stalls_of_pods()
    if configmap is not None and configmap.identity.deleting:
        watch_pods_of_configmap(ctx, configmap.uid)
        watch_configmap(ctx, configmap)
    else:
        ctx.tracker.life.alone_since = None


def watch_configmap(ctx: Context, configmap: ConfigMapRecord) -> None:
    """Stall the Framework if a terminating ConfigMap stays without Pods."""
    tracker = ctx.tracker
    _watch_collector(ctx, configmap)
    if tracker.task_states.may_have_pods:
        tracker.life.alone_since = None
        return
    if tracker.life.alone_since is None:
        tracker.life.alone_since = ctx.env.clock
    due = tracker.life.alone_since + ctx.env.limits.pod_stuck_deleting_sec
    if ctx.env.clock < due:
        ctx.tracker.agenda.look(None, due)
    elif not any(pod.identity.controller_uid == configmap.uid for pod in ctx.observed.list_pods()):
        when = format_time(require(configmap.identity.deletion_time, "deletionTimestamp"))
        tracker.holds.stalls[None] = Stall(
            LifeReason.CONFIGMAP_NOT_GONE,
            f"ConfigMap {configmap.name} was to be deleted by {when} and still exists, without any Pod: "
            "a finalizer holds it",
        )


def _watch_collector(ctx: Context, configmap: ConfigMapRecord) -> None:
    """Stall the Framework if its ConfigMap was deleted, and none of the Pods is: the garbage collector has to do it."""
    deleted = configmap.identity.deletion_time
    if deleted is None or not ctx.wait_out(None, deleted, ctx.env.limits.pod_stuck_deleting_sec):
        return
    pods = [pod for pod in ctx.observed.list_pods() if pod.identity.controller_uid == configmap.uid]
    if pods and not any(pod.identity.deleting for pod in pods):
        ctx.tracker.holds.stalls[None] = Stall(
            LifeReason.PODS_NOT_DELETED,
            f"ConfigMap {configmap.name} was deleted at {format_time(deleted)}, and none of its {len(pods)} Pods is "
            f"being deleted, such as {pods[0].name}: does the garbage collector of Kubernetes work?",
        )
