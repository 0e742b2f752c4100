"""``list``: the Frameworks of one namespace or of all."""

from __future__ import annotations

import argparse

from rich.table import Table
from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.decompress import decompressed
from frameworkcontroller.commands.diagnosis import code_and_phrase
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.objects import Json
from frameworkcontroller.commands.output import duration, table
from frameworkcontroller.commands.summary import Summary, summarize

_NONE = "-"


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """List them. Return the exit code."""
    everywhere: bool = options.all_namespaces
    objects: list[Json] = []
    found: list[Summary] = []
    as_objects = options.output in ("json", "yaml", "name")
    await invocation.each(
        FRAMEWORKS,
        objects.append if as_objects else lambda body: found.append(summarize(body)),
        all_namespaces=everywhere,
        label_selector=options.selector,
    )
    if as_objects:
        _print_objects(invocation, objects, options.output)
        return program.EXIT_OK
    if not found:
        where = "" if everywhere else f' in namespace "{invocation.namespace}"'
        invocation.note(f"there are no Frameworks{where}")
        return program.EXIT_OK
    wide = options.output == "wide"
    invocation.print_table(_table(found, invocation.wall(), namespaces=everywhere, wide=wide))
    return program.EXIT_OK


def _print_objects(invocation: Invocation, objects: list[Json], output: str) -> None:
    if output == "name":
        for body in objects:
            invocation.print(f"{names.CRD_NAME}/{body['metadata']['name']}")
        return
    for body in objects:
        try:
            decompressed(body)
        except program.CommandError as error:
            invocation.error(f"{body['metadata']['name']}: {error}; not decompressed")
    invocation.print_object({"apiVersion": "v1", "kind": "List", "items": objects}, output)


def _table(found: list[Summary], now: float, *, namespaces: bool, wide: bool) -> Table:
    titles = ["NAMESPACE"] * namespaces + ["NAME", "STATE", "RUNNING", "RETRIES", "RESULT", "AGE"]
    if wide:
        titles += ["EXECUTION", "DONE", "TASK RETRIES", "RAN", "ROLES", "STALLED"]
    rows = table(*titles)
    for one in found:
        row: list[str | Text] = [one.namespace] * namespaces
        row += [
            one.name,
            _state(one),
            f"{one.tasks[State.RUNNING]}/{one.total}",
            str(one.retries),
            _result(one),
            duration(now - one.created),
        ]
        if wide:
            row += [
                one.execution,
                f"{sum(one.task_ends.values())}/{one.total}",
                str(one.task_retries),
                _NONE if one.run_time is None else duration((one.completion_time or now) - one.run_time),
                ",".join(f"{name}={number}" for name, number in one.wanted.items()) or _NONE,
                one.stalled or _NONE,
            ]
        rows.add_row(*row)
    return rows


def _state(one: Summary) -> Text:
    if one.unreadable:
        return Text("(unreadable status)", "red")
    if not one.state:
        return Text("(not seen by a controller yet)", "yellow")
    if one.stalled and not one.completed:
        return Text(f"{one.state} (stalled)", "yellow")
    return Text(one.state, {State.RUNNING: "green", State.COMPLETED: "dim"}.get(State(one.state), ""))


def _result(one: Summary) -> Text:
    if one.code is None:
        return Text(_NONE)
    if one.result == "Succeeded":
        return Text("Succeeded", "green")
    return Text(code_and_phrase(one.code, one.phrase), "red")
