"""``list``: the Frameworks of one namespace or of all."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import SUCCEEDED
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.decompress import decompressed
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import table_of
from frameworkcontroller.views.apiobjects import Json
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
        invocation.note(f"there are no Frameworks{where}")
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
        "STATE": state_text,
        "RUNNING": lambda one: f"{one.tasks[State.RUNNING]}/{one.total}",
        "RETRIES": lambda one: str(one.retries),
        "RESULT": _result,
        "AGE": lambda one: duration(now - one.created),
    }
    if wide:
        columns |= {
            "EXECUTION": lambda one: one.execution,
            "DONE": lambda one: f"{one.done}/{one.total}",
            "TASK RETRIES": lambda one: str(one.task_retries),
            "RAN": lambda one: _NONE if one.run_time is None else duration((one.completion_time or now) - one.run_time),
            "ROLES": lambda one: ",".join(f"{name}={number}" for name, number in one.wanted.items()) or _NONE,
            "QUEUE": lambda one: one.queue or _NONE,
            "SUSPENDED": lambda one: one.suspended or _NONE,
            "STALLED": lambda one: one.stalled or _NONE,
            "WHY": lambda one: one.why or _NONE,
        }
    return table_of(columns, found)


def state_text(one: Summary) -> Text:
    """Return the state, with a word on its wait."""
    if one.unreadable:
        return Text("(unreadable status)", "red")
    if not one.state:
        return Text("(not seen by a controller yet)", "yellow")
    if one.completed:
        return Text(one.state, "dim")
    if word := one.word or ("waits" if one.why else ""):
        return Text(f"{one.state} ({word})", "yellow")
    return Text(one.state, "green" if one.state == State.RUNNING else "")


def _result(one: Summary) -> Text:
    if one.result == SUCCEEDED:
        return Text(SUCCEEDED, "green")
    return Text(one.end, "red") if one.end else Text(_NONE)
