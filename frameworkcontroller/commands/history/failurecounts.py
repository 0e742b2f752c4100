"""``history --failures``: failures by cause, code, node, role or day, and the attempts of one group."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from frameworkcontroller.api.causes import cause_in
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import table_of
from frameworkcontroller.history.reads import ArchiveReader, CountFailures, ListFailures
from frameworkcontroller.views.diagnosis import code_and_phrase
from frameworkcontroller.views.texts import clean_line

Item = dict[str, Any]


async def show_failures(invocation: Invocation, options: argparse.Namespace, source: ArchiveReader) -> None:
    """Show the groups, or the attempts of the group ``--key``."""
    namespace = "" if options.all_namespaces else invocation.namespace
    since = None if options.since is None else int(invocation.wall() - options.since)
    most = options.most
    if options.key is None:
        counted = await source.read(CountFailures(options.failures, namespace, since, limit=most))
        _print(invocation, options, counted["items"], _groups(options.failures))
        return
    listed = await source.read(ListFailures(options.failures, options.key, namespace, since, limit=most))
    _print(invocation, options, listed["items"], _ATTEMPTS)


def _print(invocation: Invocation, options: argparse.Namespace, items: Sequence[Any], columns: dict[str, Any]) -> None:
    if options.output is not None:
        invocation.print_object({"items": items}, options.output)
    elif items:
        invocation.print_table(table_of(columns, items))
    else:
        invocation.note("the history has no such failure")


def _groups(by: str) -> dict[str, Any]:
    rates = {"OF ATTEMPTS THERE": lambda one: str(one["ofAttempts"]), "RATE": _rate} if by == "node" else {}
    return {
        "TASK ATTEMPTS": lambda one: str(one["taskAttempts"]),
        **rates,
        "FRAMEWORK ATTEMPTS": lambda one: str(one["frameworkAttempts"]),
        "FRAMEWORKS": lambda one: str(one["frameworks"]),
        "LAST": lambda one: one["last"],
        by.upper(): _label,
    }


def _label(one: Item) -> str:
    """Return the value for ``--key``, and the words of a code or a cause."""
    label = clean_line(one["label"] or "")
    return one["key"] if one["key"] == label else f"{one['key']} ({label})"


def _rate(one: Item) -> str:
    return f"{100 * one['taskAttempts'] / one['ofAttempts']:.1f}%" if one["ofAttempts"] else "-"


_ATTEMPTS: dict[str, Any] = {
    "FRAMEWORK": lambda one: f"{one['namespace']}/{one['name']}",
    "TASK": lambda one: f"{one['role']}[{one['index']}]",
    "ATTEMPT": lambda one: f"{one['frameworkAttempt']}/{one['attempt']}",
    "CODE": lambda one: code_and_phrase(one["code"], one["phrase"] or ""),
    "NODE": lambda one: one["node"] or "-",
    "ENDED": lambda one: one["completed"],
    "WHY": lambda one: clean_line(cause_in(one["diagnostics"] or "")),
}
