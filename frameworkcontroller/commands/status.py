"""``status``: show a Framework as a tree, once or until it has completed."""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.decompress import decompressed
from frameworkcontroller.commands.diagnosis import read_view
from frameworkcontroller.commands.events import Event, read_event
from frameworkcontroller.commands.follower import Follower
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.objects import Json, key_of, pod_selector, roles_of, state_of, task_number
from frameworkcontroller.commands.poddiagnosis import diagnose_pod, precedes_scheduling
from frameworkcontroller.commands.progress import LiveProgress, ending, progress_on
from frameworkcontroller.commands.tree import framework_tree
from frameworkcontroller.kube.errors import Forbidden
from frameworkcontroller.kube.resources import EVENTS, PODS

_MAX_LINES: Final = 40
_MAX_PODS: Final = 500
_POD_INTERVAL_SEC: Final = 3.0
_MAX_EVENTS: Final = 1000


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show it. Return the exit code."""
    framework = await invocation.framework(options.name)
    if options.output:
        invocation.print_object(decompressed(framework), options.output)
        return program.EXIT_OK
    if options.watch:
        return await _watch(invocation, framework)
    view = read_view(framework, await _diagnose_pods(invocation, framework))
    invocation.out.print(framework_tree(view, invocation.wall(), math.inf if options.all_tasks else _MAX_LINES))
    return program.EXIT_OK


async def _watch(invocation: Invocation, framework: Json) -> int:
    """Show the Framework until its end. Return the exit code, 0 if it succeeded."""
    key = key_of(framework)
    async with progress_on(invocation.out, invocation.wall) as progress, program.background() as tasks:
        progress.show(key, framework)
        follower = Follower(invocation.client, [framework], progress.show)
        if isinstance(progress, LiveProgress):
            tasks.append(asyncio.create_task(_keep_diagnosing(invocation, framework, follower, progress)))
        await follower.run()
    end = ending(key, follower.last[key])
    invocation.print()
    invocation.print(end.text)
    return program.EXIT_OK if end.succeeded else program.EXIT_FAILED


async def _keep_diagnosing(invocation: Invocation, framework: Json, follower: Follower, progress: LiveProgress) -> None:
    while True:
        pods = await _diagnose_pods(invocation, follower.last[key_of(framework)] or framework)
        progress.pods.clear()
        progress.pods.update(pods)
        await asyncio.sleep(_POD_INTERVAL_SEC)


async def _diagnose_pods(invocation: Invocation, framework: Mapping[str, Any]) -> dict[str, str]:
    """Return the diagnoses of the Framework's Pods that do not run or are being deleted, by name."""
    if state_of(framework) in (None, State.COMPLETED):
        return {}
    found: dict[str, str] = {}
    unexplained: dict[str, Json] = {}
    pods = invocation.each(
        PODS,
        label_selector=pod_selector(framework["metadata"]["name"]),
        field_selector="status.phase=Pending" if sum(map(task_number, roles_of(framework))) > _MAX_PODS else None,
        most=_MAX_PODS,
    )
    # A user may be allowed to read Frameworks but not Pods.
    with suppress(Forbidden):
        async for pod in pods:
            text, needs_event = diagnose_pod(pod, invocation.wall())
            if text:
                found[pod["metadata"]["name"]] = text
            if needs_event:
                unexplained[pod["metadata"]["uid"]] = pod
    if not unexplained:
        return found
    warnings = "involvedObject.kind=Pod,type=Warning"
    last_warnings: dict[str, Event] = {}
    with suppress(Forbidden):
        async for body in invocation.each(EVENTS, field_selector=warnings, most=_MAX_EVENTS):
            uid = (body.get("involvedObject") or {}).get("uid")
            if uid in unexplained:
                event, pod = read_event(body), unexplained[uid]
                last = last_warnings.get(pod["metadata"]["name"], event)
                if event.seen >= last.seen and not precedes_scheduling(event.seen, pod):
                    last_warnings[pod["metadata"]["name"]] = event
    for name, event in last_warnings.items():
        found[name] = "; ".join(filter(None, (found.get(name), f"{event.reason}: {event.message}")))
    return found
