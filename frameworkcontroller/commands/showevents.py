"""``events``: the Events of a Framework, its attempt's ConfigMap and its Pods, oldest first."""

from __future__ import annotations

import argparse
from operator import attrgetter

from rich.text import Text

from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation, checked_name
from frameworkcontroller.commands.output import table
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import EVENTS
from frameworkcontroller.views.apiobjects import CachedObject
from frameworkcontroller.views.kubeevents import KubeEvent, read_event
from frameworkcontroller.views.texts import clean_line, duration


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show them. Return the exit code; with ``--watch`` only a signal ends it."""
    name = None if options.name is None else checked_name(options.name)
    everywhere: bool = options.all_namespaces
    field_selector = "involvedObject.kind=Framework" if name is None else None
    if options.watch:
        await _watch(invocation, name, None if everywhere else invocation.namespace, field_selector)
    events = invocation.each(EVENTS, all_namespaces=everywhere, field_selector=field_selector)
    found = [event async for body in events if (event := read_event(body)).concerns(name)]
    if not found:
        whose = "Frameworks" if name is None else f"Framework {name}"
        invocation.note(f"there are no Events of {whose} (clusters delete Events after an hour or so)")
        return program.EXIT_OK
    rows = table(*["NAMESPACE"] * everywhere, "SEEN", "TYPE", "REASON", "ABOUT", "MESSAGE")
    for event in sorted(found, key=attrgetter("seen")):
        rows.add_row(
            *[event.namespace] * everywhere,
            f"{duration(invocation.wall() - event.seen)} ago",
            Text("Warning" if event.warning else "Normal", event.color),
            clean_line(event.reason),
            clean_line(event.about),
            Text(event.text, event.color),
        )
    invocation.print_table(rows)
    return program.EXIT_OK


async def _watch(invocation: Invocation, name: str | None, namespace: str | None, field_selector: str | None) -> None:
    informer: Informer[CachedObject[KubeEvent]] = Informer(
        invocation.client,
        EVENTS,
        lambda body: CachedObject.of(body, read_event(body)),
        namespace=namespace,
        field_selector=field_selector,
    )
    listed: list[KubeEvent] = []

    def take(event: KubeEvent) -> None:
        if not informer.synced:
            listed.append(event)
        elif event.concerns(name):
            line = f"{event.about}: {clean_line(event.reason)}: {event.text}"
            invocation.out.print(line, style=event.color, soft_wrap=True)

    informer.add_handler(on_add=lambda new: take(new.value), on_update=lambda _old, new: take(new.value))
    # No task group, which would wrap the error of a broken pipe.
    async with program.background(informer.run()) as (watching,):
        await informer.wait_synced()
        for event in sorted(listed, key=attrgetter("seen")):
            take(event)
        await watching
