"""``cost``: resource-hours of past attempts, by Framework, namespace, queue, user, node, code or day."""

from __future__ import annotations

import argparse
import csv
import io
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from frameworkcontroller.commands import archivesource, program
from frameworkcontroller.commands.archivesource import open_archive
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import table_of
from frameworkcontroller.history.reads import MAX_GROUPS, CostKey, CountCost
from frameworkcontroller.views.resourcehours import SPANS, hours, percent, spans_in, title_of, total_of
from frameworkcontroller.views.texts import clean_line, counted

_NONE: Final = "-"
_TOTAL: Final = "TOTAL"
_FORMULA: Final = re.compile(r"[=+\-@\t\r\n]")
_NUMBER: Final = re.compile(r"-?[0-9]+")

Item = Mapping[str, Any]


def run_anywhere(options: argparse.Namespace) -> int:
    """Run the command, also without a cluster. Return the exit code."""
    return archivesource.run_anywhere(run, options)


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show the costs. Return the exit code."""
    if options.most == 0:
        raise program.UsageError("--most 0: must be at least 1")
    by = options.by or (CostKey.NAMESPACE if options.all_namespaces else CostKey.FRAMEWORK)
    namespace = "" if options.all_namespaces else invocation.namespace
    since = None if options.since is None else int(invocation.wall() - options.since)
    query = CountCost(by, options.resource or "", namespace, since, limit=min(options.most, MAX_GROUPS))
    async with open_archive(invocation, options) as source:
        found = await source.read(query)
    _print(invocation, options, str(by), found)
    return program.EXIT_OK


def _print(invocation: Invocation, options: argparse.Namespace, by: str, found: Any) -> None:
    total = found["total"]
    if options.output in ("json", "yaml"):
        invocation.print_object(found, options.output)
    elif options.output == "csv":
        invocation.print(_csv(by, found).rstrip("\n"))
    elif found["items"]:
        rows = [*found["items"], {**total, "key": _TOTAL, "label": _TOTAL}]
        resources = [found["resource"], *(name for name in total["resources"] if name != found["resource"])]
        columns = _columns(by, [name for name in resources if name], wide=options.output == "wide")
        if total["unknownAttempts"]:
            columns["UNKNOWN"] = lambda one: str(one["unknownAttempts"])
        invocation.print_table(table_of(columns, rows))
    else:
        invocation.note("the history has no attempt with a node in this time")
    if total["unknownAttempts"]:
        many = counted(total["unknownAttempts"], "attempt")
        invocation.note(
            f"{many} with unknown cost, not in the sums: archived by an older version, or with too many resources"
        )


def _columns(by: str, resources: list[str], *, wide: bool) -> dict[str, Callable[[Item], str]]:
    """Return the columns of the table: of the first resource; ``wide``: of all."""
    columns: dict[str, Callable[[Item], str]] = {
        by.upper(): lambda one: _label(by, one),
        "ATTEMPTS": lambda one: str(one["attempts"]),
    }
    for position, resource in enumerate(resources if wide else resources[:1]):
        # Titles must differ.
        name = title_of(resource).upper()
        columns[name] = lambda one, of=resource: hours(of, total_of(spans_in(one, of)))  # type: ignore[misc]
        for span in SPANS:
            title = span.upper() if position == 0 else f"{span.upper()} {resource.upper()}"
            columns[title] = lambda one, of=resource, span=span: hours(of, spans_in(one, of)[span])  # type: ignore[misc]
        lost = "LOST %" if position == 0 else f"LOST % {resource.upper()}"
        columns[lost] = lambda one, of=resource: _lost(spans_in(one, of))  # type: ignore[misc]
    return columns


def _lost(spans: Mapping[str, float]) -> str:
    return percent(spans["lost"], total_of(spans)) or _NONE


def _label(by: str, one: Item) -> str:
    """Return the group for people: of a code also its name, of a Framework its name alone."""
    label, key = clean_line(one["label"] or ""), clean_line(one["key"])
    if by == CostKey.CODE and label not in ("", key):
        return f"{key} {label}"
    return label or key or _NONE


# --- CSV --------------------------------------------------------------------------------------------------------


def _csv(by: str, found: Any) -> str:
    """One line for each group and resource, in resource-seconds, which programs add up."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([by, "label", "attempts", "unknown_attempts", "resource", *(f"{span}_seconds" for span in SPANS)])
    for one in found["items"]:
        head = [neutral(one["key"]), neutral(one["label"]), one["attempts"], one["unknownAttempts"]]
        for resource, spans in one["resources"].items():
            writer.writerow([*head, neutral(resource), *(spans[span] for span in SPANS)])
        if not one["resources"]:
            writer.writerow([*head, "", *("" for _ in SPANS)])
    return out.getvalue()


def neutral(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula. Numbers stay as they are."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
