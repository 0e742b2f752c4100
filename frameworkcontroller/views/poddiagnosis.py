"""The reasons for which Pods do not run, end or disappear: from their own status, and from their Events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from frameworkcontroller.api.objects import trouble_of
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import Forbidden
from frameworkcontroller.kube.resources import EVENTS, PODS
from frameworkcontroller.views.apiobjects import (
    Json,
    default_container,
    pod_selector,
    state_of,
    task_numbers,
)
from frameworkcontroller.views.kubeevents import KubeEvent, read_event
from frameworkcontroller.views.paging import each_object
from frameworkcontroller.views.texts import duration

_LATE_SEC: Final = 60.0
_MAX_PODS: Final = 500
_MAX_EVENTS: Final = 1000


async def diagnose_pods(client: KubeClient, framework: Mapping[str, Any], wall: Callable[[], float]) -> dict[str, str]:
    """Return the diagnoses of the Framework's Pods that do not run or are being deleted, by name.

    Without permission to read Pods there are none; without permission for Events, they lack causes that only Events
    have. Of a Framework with many Pods only pending ones are read.
    """
    if state_of(framework) in (None, State.COMPLETED):
        return {}
    found: dict[str, str] = {}
    unexplained: dict[str, Json] = {}
    namespace = framework["metadata"]["namespace"]
    pods = each_object(
        client,
        PODS,
        namespace,
        label_selector=pod_selector(framework["metadata"]["name"]),
        field_selector="status.phase=Pending" if sum(task_numbers(framework).values()) > _MAX_PODS else None,
        most=_MAX_PODS,
    )
    # A user may be allowed to read Frameworks but not Pods.
    with suppress(Forbidden):
        async for pod in pods:
            text, needs_event = diagnose_pod(pod, wall())
            if text:
                found[pod["metadata"]["name"]] = text
            if needs_event:
                unexplained[pod["metadata"]["uid"]] = pod
    if not unexplained:
        return found
    warnings = "involvedObject.kind=Pod,type=Warning"
    last_warnings: dict[str, KubeEvent] = {}
    with suppress(Forbidden):
        async for body in each_object(client, EVENTS, namespace, field_selector=warnings, most=_MAX_EVENTS):
            uid = (body.get("involvedObject") or {}).get("uid")
            if uid in unexplained:
                event, pod = read_event(body), unexplained[uid]
                last = last_warnings.get(pod["metadata"]["name"], event)
                if event.seen >= last.seen and not precedes_scheduling(event.seen, pod):
                    last_warnings[pod["metadata"]["name"]] = event
    for name, event in last_warnings.items():
        found[name] = "; ".join(filter(None, (found.get(name), f"{event.reason}: {event.message}")))
    return found


def diagnose_pod(pod: Mapping[str, Any], now: float) -> tuple[str, bool]:
    """Return the reason for which the Pod does not run, end or disappear, and whether only its Events may have it.

    The reason is "" if there is none; one whose cause only Events may have is a symptom.
    """
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return _deletion(metadata, spec, status, now), False
    trouble = trouble_of(spec, status)
    if trouble is not None and trouble.waiting:
        return trouble.waiting, False
    is_pending = (status.get("phase") or "Pending") == "Pending"
    if not spec.get("nodeName"):
        return f"waits for the scheduler {spec.get('schedulerName') or 'default-scheduler'}", is_pending
    if _node_is_lost(spec, status):
        return f"its node {spec['nodeName']} does not report", False
    if name := _running_init_container(spec, status):
        return f"init container {name} is running", False
    ended = _ended_beside_others(pod, spec, status)
    return (ended, False) if ended else (_starting(status) or _reason(status), is_pending)


def _running_init_container(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    sidecars = {one["name"] for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"}
    running = (
        one["name"] for one in status.get("initContainerStatuses") or () if "running" in (one.get("state") or {})
    )
    return next((name for name in running if name not in sidecars), "")


def _starting(status: Mapping[str, Any]) -> str:
    listed = (status.get(key) or () for key in ("initContainerStatuses", "containerStatuses"))
    waiting = ((one.get("state") or {}).get("waiting") or {} for statuses in listed for one in statuses)
    return next((text for one in waiting if (text := _reason(one))), "")


def precedes_scheduling(event_seen: int, pod: Mapping[str, Any]) -> bool:
    """Return whether an Event of that time, seconds since the epoch, is older than the Pod's node."""
    scheduled = _condition(pod.get("status") or {}, "PodScheduled")
    since = scheduled.get("lastTransitionTime")
    return scheduled.get("status") == "True" and bool(since) and event_seen < parse_time(since)


def _deletion(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any], now: float) -> str:
    if metadata.get("finalizers"):
        return f"held by the finalizers {', '.join(metadata['finalizers'])}"
    node = spec.get("nodeName")
    if _node_is_lost(spec, status):
        return f"waits for its node {node}, which does not report"
    # A deletionTimestamp is the end of the grace period.
    late = now - parse_time(metadata["deletionTimestamp"])
    if node and late >= _LATE_SEC:
        return f"its grace period ended {duration(late)} ago: check its node {node}"
    return "waits until its containers have ended"


def _node_is_lost(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether the control plane has marked the Pod as not ready after its kubelet reported it as ready."""
    if not spec.get("nodeName"):
        return False
    if status.get("reason") == "NodeLost":
        return True
    reported = _condition(status, "ContainersReady").get("status") == "True" and not spec.get("readinessGates")
    return reported and _condition(status, "Ready").get("status") == "False"


def _ended_beside_others(pod: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Name a container that has ended while others keep the Pod running."""
    if spec.get("restartPolicy") != "Never":
        return ""
    containers = status.get("containerStatuses") or ()
    running = [one["name"] for one in containers if "running" in (one.get("state") or {})]
    for one in containers if running else ():
        end = (one.get("state") or {}).get("terminated")
        if end and (end.get("exitCode") or one["name"] == default_container(pod)):
            text = f"container {one['name']} has ended with exit code {end.get('exitCode') or 0}"
            reason = f" ({_reason(end)})" if _reason(end) else ""
            others = f"{', '.join(running)} {'has' if len(running) == 1 else 'have'}"
            return f"{text}{reason}; its Pod runs until {others} ended, too"
    return ""


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((one for one in status.get("conditions") or () if one.get("type") == kind), {})


def _reason(part: Mapping[str, Any]) -> str:
    # A container's message is often the end of its log, with a line feed.
    return ": ".join(filter(None, (part.get("reason"), (part.get("message") or "").strip())))
