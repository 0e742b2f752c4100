"""``list``: the Frameworks of one namespace or of all."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands import program
from frameworkcontroller.commands.decompress import decompressed
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import table_of
from frameworkcontroller.views.apiobjects import Json
from frameworkcontroller.views.looks import LOOKS
from frameworkcontroller.views.summary import Summary, summarize
from frameworkcontroller.views.texts import duration

_NONE = "-"


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """List them. Return the exit code."""
    everywhere: bool = options.all_namespaces
    frameworks = invocation.each(FRAMEWORKS, all_namespaces=everywhere, label_selector=options.selector)
    if options.output in ("json", "yaml", "name"):
        _print_objects(invocation, [body async for body in frameworks], options.output)
        return program.EXIT_OK
    found = [summarize(body) async for body in frameworks]
    if found:
        invocation.print_table(_table(found, invocation.wall(), everywhere=everywhere, wide=options.output == "wide"))
    else:
        where = "" if everywhere else f' in namespace "{invocation.namespace}"'
        labels = f" with the labels {options.selector}" if options.selector else ""
        invocation.note(f"there are no Frameworks{where}{labels}")
    return program.EXIT_OK


def _print_objects(invocation: Invocation, objects: list[Json], output: str) -> None:
    if output == "name":
        for body in objects:
            invocation.print(f"{names.KIND.lower()}.{names.GROUP}/{body['metadata']['name']}")
        return
    for body in objects:
        try:
            decompressed(body)
        except program.CommandError as error:
            invocation.error(f"{body['metadata']['name']}: {error}; not decompressed")
    invocation.print_object({"apiVersion": "v1", "kind": "List", "items": objects}, output)


def _table(found: list[Summary], now: float, *, everywhere: bool, wide: bool) -> Table:
    columns: dict[str, Callable[[Summary], str | Text]] = {
        **({"NAMESPACE": lambda one: one.namespace} if everywhere else {}),
        "NAME": lambda one: one.name,
        "PHASE": phase_text,
        "TASKS": lambda one: f"{one.well}/{one.total}",
        **({"PROGRESS": lambda one: _progress(one, now)} if any(one.progress for one in found) else {}),
        "RETRIES": retries_text,
        "AGE": lambda one: duration(now - one.created),
    }
    if wide:
        columns |= {
            "WHY": _why,
            "QUEUE": lambda one: one.queue or _NONE,
            "STATE": lambda one: one.state or _NONE,
            "RESULT": lambda one: one.end or _NONE,
            "RAN": lambda one: _NONE if one.run_time is None else duration((one.completion_time or now) - one.run_time),
            "ROLES": lambda one: ",".join(f"{name}={number}" for name, number in one.wanted.items()) or _NONE,
            "EXECUTION": lambda one: one.execution,
        }
    return table_of(columns, found)


def phase_text(one: Summary) -> Text:
    """Return the phase in its color."""
    return Text(one.phase, "yellow" if one.stalled or one.unreadable else LOOKS[one.phase].color)


def retries_text(one: Summary) -> str:
    """Return the retries of the Framework and of its Tasks."""
    return f"{one.retries} + {one.task_retries} of Tasks" if one.task_retries else str(one.retries)


def _progress(one: Summary, now: float) -> str:
    return (one.progress.short(now) if one.progress else "") or _NONE


def _why(one: Summary) -> str:
    return "; ".join(filter(None, (one.word, one.message))) or _NONE
