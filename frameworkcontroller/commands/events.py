"""``events``: the Events of a Framework, its attempt's ConfigMap and its Pods, oldest first."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation, checked_name
from frameworkcontroller.commands.objects import Record
from frameworkcontroller.commands.output import clean_line, duration, table
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import EVENTS


@dataclass(frozen=True, slots=True)
class Event:
    """One Event. ``seen``: seconds since the epoch; ``about``: kind and name of its object, as ``Pod/a``."""

    namespace: str
    warning: bool
    seen: int
    count: int
    reason: str
    about: str
    message: str

    @property
    def text(self) -> str:
        """The message and the number of times."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{clean_line(self.message)}{times}"

    @property
    def color(self) -> str:
        """The color of a Warning; that of other Events is the terminal's."""
        return "yellow" if self.warning else ""

    def concerns(self, framework: str | None) -> bool:
        """Return whether it is about the Framework, its attempt's ConfigMap or one of its Pods; True for None."""
        if framework is None:
            return True
        kind, _, name = self.about.partition("/")
        if kind == "Pod":
            parts = names.split_pod_name(name)
            return parts is not None and parts[0] == framework
        return (kind, name) in ((names.KIND, framework), ("ConfigMap", names.configmap_name(framework)))


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
    informer: Informer[Record[Event]] = Informer(
        invocation.client,
        EVENTS,
        lambda body: Record.of(body, read_event(body)),
        namespace=namespace,
        field_selector=field_selector,
    )
    listed: list[Event] = []

    def take(event: Event) -> None:
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


def read_event(body: Mapping[str, Any]) -> Event:
    """Read an Event of the core API, written in the old or the new form."""
    metadata, series = body["metadata"], body.get("series") or {}
    involved = body.get("involvedObject") or {}
    seen = series.get("lastObservedTime") or body.get("lastTimestamp") or body.get("eventTime")
    return Event(
        metadata["namespace"],
        body.get("type") == "Warning",
        parse_time(seen or metadata["creationTimestamp"]),
        series.get("count") or body.get("count") or 1,
        body.get("reason") or "",
        f"{involved.get('kind', '')}/{involved.get('name', '')}",
        body.get("message") or "",
    )
