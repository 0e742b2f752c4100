"""``events``: what was told of a Framework, its attempt's ConfigMap and its Pods, in the order of time."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.commands import program
from frameworkcontroller.commands.humanize import duration, tame
from frameworkcontroller.commands.invocation import Json, Session, checked_name
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import EVENTS

_OF_ALL_FRAMEWORKS = "involvedObject.kind=Framework"


@dataclass(frozen=True, slots=True)
class Event:
    """One Event, as far as people want to know. ``resource_version`` is what an informer needs of it."""

    key: str
    uid: str
    resource_version: str
    namespace: str
    warning: bool
    seen: int
    count: int
    reason: str
    about: str
    message: str


async def run(session: Session, options: argparse.Namespace) -> int:
    """Show them. Returns the exit code; with ``--watch`` only a signal ends it."""
    name = None if options.name is None else checked_name(options.name)
    if options.watch:
        return await _watch(session, name, all_namespaces=options.all_namespaces)
    found: list[Event] = []

    def take(body: Json) -> None:
        if name is None or concerns(name, body.get("involvedObject") or {}):
            found.append(read_event(body))

    await session.each(
        EVENTS,
        take,
        all_namespaces=options.all_namespaces,
        field_selector=_OF_ALL_FRAMEWORKS if name is None else None,
    )
    if not found:
        whose = "Frameworks" if name is None else f"Framework {name}"
        session.note(f"there are no Events of {whose} (clusters keep them for an hour or so)")
        return program.EXIT_OK
    found.sort(key=lambda event: event.seen)
    table = Table(
        *["NAMESPACE"] * options.all_namespaces,
        *("SEEN", "TYPE", "REASON", "ABOUT", "MESSAGE"),
        box=None,
        pad_edge=False,
        padding=(0, 3, 0, 0),
        header_style="bold",
    )
    for event in found:
        colour = "yellow" if event.warning else ""
        table.add_row(
            *[event.namespace] * options.all_namespaces,
            f"{duration(session.wall() - event.seen)} ago",
            Text("Warning" if event.warning else "Normal", colour),
            tame(event.reason),
            tame(event.about),
            Text(_message(event), colour),
        )
    session.print_table(table)
    return program.EXIT_OK


async def _watch(session: Session, name: str | None, *, all_namespaces: bool) -> int:
    informer: Informer[Event] = Informer(
        session.client,
        EVENTS,
        read_event,
        namespace=None if all_namespaces else session.namespace,
        field_selector=_OF_ALL_FRAMEWORKS if name is None else None,
    )
    former: list[Event] = []

    def take(event: Event) -> None:
        if name is None or event.about in _own(name) or _is_pod_of(name, event.about):
            if informer.synced:
                show(event)
            else:
                former.append(event)

    def show(event: Event) -> None:
        line = f"{event.about}: {tame(event.reason)}: {_message(event)}"
        session.out.print(line, style="yellow" if event.warning else "", soft_wrap=True)

    informer.add_handler(on_add=take, on_update=lambda _old, new: take(new))
    watching = asyncio.create_task(informer.run(), name="watching Events")
    try:
        await informer.wait_synced()
        for event in sorted(former, key=lambda event: event.seen):
            show(event)
        await watching
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    raise AssertionError("an informer runs until it is cancelled")


def concerns(framework: str, about: Mapping[str, Any]) -> bool:
    """Whether the object reference is the Framework's, its attempt's ConfigMap's, or that of one of its Pods."""
    text = _about(about)
    return text in _own(framework) or _is_pod_of(framework, text)


def read_event(body: Mapping[str, Any]) -> Event:
    """The Event in an API object, of the old kind or of the new."""
    metadata, series = body["metadata"], body.get("series") or {}
    times = (series.get("lastObservedTime"), body.get("lastTimestamp"), body.get("eventTime"))
    seen = next((time for time in times if time), metadata["creationTimestamp"])
    return Event(
        f"{metadata['namespace']}/{metadata['name']}",
        metadata["uid"],
        metadata["resourceVersion"],
        metadata["namespace"],
        body.get("type") == "Warning",
        parse_time(seen),
        series.get("count") or body.get("count") or 1,
        body.get("reason") or "",
        _about(body.get("involvedObject") or {}),
        body.get("message") or "",
    )


def _about(reference: Mapping[str, Any]) -> str:
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _own(framework: str) -> tuple[str, str]:
    return f"Framework/{framework}", f"ConfigMap/{names.configmap_name(framework)}"


def _is_pod_of(framework: str, about: str) -> bool:
    kind, _, name = about.partition("/")
    parts = names.split_pod_name(name) if kind == "Pod" else None
    return parts is not None and parts[0] == framework


def _message(event: Event) -> str:
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"{tame(event.message)}{times}"
