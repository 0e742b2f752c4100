"""``history release-finalizers``: give up the history that cannot be archived, so that Frameworks can be deleted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from frameworkcontroller.api import names
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.commands import program
from frameworkcontroller.commands.finalizers import Held, find_held, held, let_go
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import table
from frameworkcontroller.views.texts import counted, duration


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show the affected Frameworks, and remove their finalizers unless it is a dry run. Return the exit code."""
    if options.names and options.all_namespaces:
        raise program.UsageError("history release-finalizers: names belong to one namespace: without -A")
    # No command line that is cut short gives up the history of a whole namespace.
    if not (options.names or options.all_namespaces or options.namespace or options.dry_run):
        raise program.UsageError(
            f"history release-finalizers: give names of Frameworks, -n {invocation.namespace} for all of the "
            "namespace, -A for all of the cluster, or --dry-run to see which they are"
        )
    if options.names:
        bodies = [await invocation.framework(name) for name in dict.fromkeys(options.names)]
        found = [one for one in map(held, bodies) if one is not None]
    else:
        found = await find_held(invocation, all_namespaces=options.all_namespaces)
    if not found:
        invocation.print(f"no Framework has the finalizer {names.HISTORY_FINALIZER}")
        return program.EXIT_OK
    _print(invocation, found)
    if options.dry_run:
        invocation.print(f"would release {_said(found)}; nothing was changed")
        return program.EXIT_OK
    failed = 0
    released = []
    for one in found:
        if why := await let_go(invocation, one):
            invocation.error(f"{one.key}: {why}")
            failed += 1
        else:
            released.append(one)
    invocation.print(f"released {_said(released)}")
    if stay := [one for one in released if not one.deleted]:
        invocation.note(
            f"{counted(len(stay), 'Framework')} will get the finalizer again from a running controller, unless its "
            "history.sink is none or its history.onUnavailable is Drop"
        )
    return program.EXIT_FAILED if failed else program.EXIT_OK


def _print(invocation: Invocation, found: Sequence[Held]) -> None:
    rows = table("FRAMEWORK", "STATE", "DELETED", "ATTEMPT", "TASKS")
    now = invocation.wall()
    for one in sorted(found, key=lambda one: one.key):
        deleted = f"{duration(now - parse_time(one.deleted))} ago" if one.deleted else "-"
        attempt = "-" if one.attempt is None else str(one.attempt)
        rows.add_row(one.key, one.state or "-", deleted, attempt, f"{one.tasks:,}")
    invocation.print_table(rows)
    invocation.print()


def _said(found: Sequence[Held]) -> str:
    tasks = counted(sum(one.tasks for one in found), "Task")
    return f"{counted(len(found), 'Framework')} with {tasks}, whose last attempts may not be in the archive"
