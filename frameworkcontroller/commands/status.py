"""``status``: one Framework as a tree, once, or live until it has completed."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.diagnosis import read_view
from frameworkcontroller.commands.events import Event, read_event
from frameworkcontroller.commands.follower import Follower
from frameworkcontroller.commands.invocation import Json, Session
from frameworkcontroller.commands.poddiagnosis import is_past, needs_event, waits_for
from frameworkcontroller.commands.printing import decompress, print_value, without_managed_fields
from frameworkcontroller.commands.progress import LiveProgress, draw_for_ever, ending, progress_on
from frameworkcontroller.commands.tree import framework_tree
from frameworkcontroller.kube.errors import Forbidden
from frameworkcontroller.kube.resources import EVENTS, PODS

_LINES: Final = 40
_MOST_PODS_ASKED: Final = 500
_ASK_PODS_EVERY_SEC: Final = 3.0
_WAITING: Final = "status.phase=Pending"
_MOST_EVENTS_ASKED: Final = 1000
_WARNINGS_OF_PODS: Final = "involvedObject.kind=Pod,type=Warning"


async def run(session: Session, options: argparse.Namespace) -> int:
    """Show it. Returns the exit code."""
    framework = await session.framework(options.name)
    if options.output:
        try:
            decompress(framework)
        except StatusError as error:
            raise program.CommandError(str(error)) from None
        print_value(session, without_managed_fields(framework), options.output)
        return program.EXIT_OK
    if options.watch:
        return await _watch(session, framework)
    view = read_view(framework, await _pod_words(session, framework))
    session.out.print(framework_tree(view, session.wall(), None if options.all_tasks else _LINES))
    return program.EXIT_OK


async def _watch(session: Session, framework: Json) -> int:
    """Follow it to its end, which is the exit code: 0 if it succeeded."""
    metadata = framework["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    with progress_on(session.out, session.wall) as progress:
        progress.show(key, framework)
        follower = Follower(session.client, {key: metadata["uid"]}, progress.show)
        company = [asyncio.create_task(draw_for_ever(progress), name="drawing")]
        if isinstance(progress, LiveProgress):
            company.append(asyncio.create_task(_keep_asking(session, framework, progress), name="asking for Pods"))
        try:
            await follower.run()
        finally:
            for task in company:
                task.cancel()
            await asyncio.wait(company)
    end = ending(key, follower.last[key])
    session.say()
    session.say(end.text)
    return program.EXIT_OK if end.succeeded else program.EXIT_FAILED


async def _keep_asking(session: Session, framework: Json, progress: LiveProgress) -> None:
    while True:
        words = await _pod_words(session, framework)
        progress.pod_words.clear()
        progress.pod_words.update(words)
        await asyncio.sleep(_ASK_PODS_EVERY_SEC)


async def _pod_words(session: Session, framework: Mapping[str, Any]) -> dict[str, str]:
    """What the Framework's Pods that do not run yet, or are to go away, say they wait for."""
    name = framework["metadata"]["name"]
    state = (framework.get("status") or {}).get("state")
    if state is None or state == State.COMPLETED:
        return {}
    found: dict[str, str] = {}
    unexplained: dict[str, Json] = {}
    now = session.wall()

    def take(pod: Json) -> None:
        said = waits_for(pod, now)
        if said:
            found[pod["metadata"]["name"]] = said
        if needs_event(pod, now):
            unexplained[pod["metadata"]["uid"]] = pod

    roles = (framework.get("spec") or {}).get("taskRoles") or ()
    many = sum(role.get("taskNumber", 1) for role in roles) > _MOST_PODS_ASKED
    # Who may see Frameworks and no Pods sees what the Framework says.
    with suppress(Forbidden):
        await session.each(
            PODS,
            take,
            label_selector=f"{names.FRAMEWORK_NAME}={name}",
            field_selector=_WAITING if many else None,
            most=_MOST_PODS_ASKED,
        )
    if unexplained:
        for name, event in (await _last_warnings(session, unexplained)).items():
            said = found.get(name)
            found[name] = f"{f'{said}; ' if said else ''}{event.reason}: {event.message}"
    return found


async def _last_warnings(session: Session, pods: Mapping[str, Json]) -> dict[str, Event]:
    """The last Warning Event of each of the Pods (by uid), by their names; as far as the user may read Events."""
    last: dict[str, Event] = {}

    def take(body: Json) -> None:
        pod = pods.get((body.get("involvedObject") or {}).get("uid") or "")
        if pod is None:
            return
        event, name = read_event(body), pod["metadata"]["name"]
        if not is_past(event.seen, pod) and (name not in last or event.seen >= last[name].seen):
            last[name] = event

    with suppress(Forbidden):
        await session.each(EVENTS, take, field_selector=_WARNINGS_OF_PODS, most=_MOST_EVENTS_ASKED)
    return last
