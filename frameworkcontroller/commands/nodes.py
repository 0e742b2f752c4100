"""``nodes``: failed attempts of Tasks by node, suspicious nodes first."""

from __future__ import annotations

import argparse
from typing import Any, Final

from frameworkcontroller.commands import archivesource, program
from frameworkcontroller.commands.archivesource import open_archive
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import table_of
from frameworkcontroller.history.reads import CountFailures, FailureKey
from frameworkcontroller.history.suspectnodes import is_suspect, ranked
from frameworkcontroller.views.texts import clean_line


def run_anywhere(options: argparse.Namespace) -> int:
    """Run the command, also without a cluster. Return the exit code."""
    return archivesource.run_anywhere(run, options)


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show them. Return the exit code."""
    namespace = "" if options.all_namespaces else invocation.namespace
    query = CountFailures(FailureKey.NODE, namespace, int(invocation.wall() - options.since))
    async with open_archive(invocation, options) as source:
        items = ranked((await source.read(query))["items"])[: options.most]
    if options.output is not None:
        invocation.print_object({"items": [{**one, "suspect": is_suspect(one)} for one in items]}, options.output)
    elif items:
        invocation.print_table(table_of(_COLUMNS, items))
    else:
        invocation.note("the history has no failure on a node in this time")
    return program.EXIT_OK


def _rate(one: Any) -> str:
    return f"{100 * one['taskAttempts'] / one['ofAttempts']:.1f}%" if one["ofAttempts"] else "-"


def _expected(one: Any) -> str:
    return "-" if one.get("expected") is None else f"{one['expected']:.1f}"


_COLUMNS: Final[dict[str, Any]] = {
    "NODE": lambda one: clean_line(one["key"]),
    "SUSPECT": lambda one: "yes" if is_suspect(one) else "",
    "FAILED": lambda one: str(one["taskAttempts"]),
    "EXPECTED": _expected,
    "OF ATTEMPTS": lambda one: str(one["ofAttempts"]),
    "RATE": _rate,
    "FRAMEWORKS": lambda one: str(one["frameworks"]),
    "LAST": lambda one: one["last"],
}
