"""``list``: the Frameworks of a namespace, or of all."""

from __future__ import annotations

import argparse

from rich.table import Table
from rich.text import Text

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.humanize import code_and_phrase_of, duration
from frameworkcontroller.commands.invocation import Json, Session
from frameworkcontroller.commands.printing import print_objects
from frameworkcontroller.commands.summary import Summary, summarize

_NONE = "-"


async def run(session: Session, options: argparse.Namespace) -> int:
    """List them. Returns the exit code."""
    if options.output in ("json", "yaml", "name"):
        objects: list[Json] = []
        await session.each(
            FRAMEWORKS, objects.append, all_namespaces=options.all_namespaces, label_selector=options.selector
        )
        print_objects(session, objects, options.output)
        return program.EXIT_OK
    found: list[Summary] = []
    await session.each(
        FRAMEWORKS,
        lambda body: found.append(summarize(body)),
        all_namespaces=options.all_namespaces,
        label_selector=options.selector,
    )
    if not found:
        where = "" if options.all_namespaces else f' in namespace "{session.namespace}"'
        session.note(f"there are no Frameworks{where}")
        return program.EXIT_OK
    wide = options.output == "wide"
    session.print_table(_table(found, session.wall(), namespaces=options.all_namespaces, wide=wide))
    return program.EXIT_OK


def _table(found: list[Summary], now: float, *, namespaces: bool, wide: bool) -> Table:
    titles = ["NAMESPACE"] * namespaces + ["NAME", "STATE", "RUNNING", "RETRIES", "RESULT", "AGE"]
    if wide:
        titles += ["EXECUTION", "DONE", "TASK RETRIES", "RAN", "ROLES", "STALLED"]
    table = Table(*titles, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for one in found:
        row: list[str | Text] = [one.namespace] * namespaces
        row += [
            one.name,
            _state(one),
            f"{one.running}/{one.total}",
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
        table.add_row(*row)
    return table


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
    return Text(code_and_phrase_of(one.code, one.phrase), "red")
