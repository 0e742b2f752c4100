"""ConfigMaps that terminate: stalls while they stay, or their Pods do."""

from __future__ import annotations

from frameworkcontroller.api.objects import ConfigMapRecord
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.model import require
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.terminating import watch_orphans


def watch_orphan(ctx: Context, configmap: ConfigMapRecord | None) -> None:
    """Watch the end of an orphaned ConfigMap of the attempt's name."""
    ctx.tracker.holds.end_stalls_of_pods()
    if configmap is not None and configmap.identity.deleting:
        watch_orphans(ctx, configmap.uid)
        watch_end(ctx, configmap)
    else:
        ctx.tracker.life.alone_since = None


def watch_end(ctx: Context, configmap: ConfigMapRecord) -> None:
    """Stall the Framework if a terminating ConfigMap stays without Pods."""
    tracker = ctx.tracker
    _watch_collector(ctx, configmap)
    if tracker.may_have_pods:
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
