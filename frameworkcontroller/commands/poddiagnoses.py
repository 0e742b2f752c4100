"""Diagnoses of the Pods of a Framework, from the Pods and their Events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from frameworkcontroller.api.status import State
from frameworkcontroller.commands.events import Event, read_event
from frameworkcontroller.commands.objects import Json, pod_selector, roles_of, state_of, task_number
from frameworkcontroller.commands.paging import each_object
from frameworkcontroller.commands.poddiagnosis import diagnose_pod, precedes_scheduling
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import Forbidden
from frameworkcontroller.kube.resources import EVENTS, PODS

_MAX_PODS: Final = 500
_MAX_EVENTS: Final = 1000


async def diagnose_pods(client: KubeClient, framework: Mapping[str, Any], wall: Callable[[], float]) -> dict[str, str]:
    """Return the diagnoses of the Framework's Pods that do not run or are being deleted, by name.

    Without permission to read Pods there are none; without that for Events, they lack what only Events have. Of a
    Framework with many Pods only pending ones are read.
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
        field_selector="status.phase=Pending" if sum(map(task_number, roles_of(framework))) > _MAX_PODS else None,
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
    last_warnings: dict[str, Event] = {}
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
