"""``lint``: print the problems of the Frameworks in files, by line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from frameworkcontroller.api import names
from frameworkcontroller.commands import program
from frameworkcontroller.commands.lint.findings import Finding, Severity, error, warning
from frameworkcontroller.commands.lint.spec import check_framework
from frameworkcontroller.commands.output import console, counted
from frameworkcontroller.config.yamlplaces import line_of, repeated_keys, syntax_error

_COLORS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


@dataclass(frozen=True, slots=True)
class Report:
    """A finding with its file and line; 0 for the file as a whole."""

    file: str
    line: int
    severity: Severity
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.severity}: {self.text}"


def run(options: argparse.Namespace) -> int:
    """Check the files. Return the exit code: 1 for errors, with ``--strict`` also for warnings."""
    out = console(sys.stdout)
    reports: list[Report] = []
    for path in options.files:
        reports += lint_text(program.input_name(path), _read(path))
    for report in reports:
        out.print(str(report), style=_COLORS[report.severity], soft_wrap=True)
    errors = sum(report.severity is Severity.ERROR for report in reports)
    warnings = len(reports) - errors
    files = counted(len(options.files), "file")
    if reports:
        totals = f"{counted(errors, 'error')}, {counted(warnings, 'warning')} in {files}"
        out.print(totals, style="bold", soft_wrap=True)
    else:
        out.print(f"no problems in {files}", style="green", soft_wrap=True)
    return program.EXIT_FAILED if errors or (options.strict and warnings) else program.EXIT_OK


def lint_text(file: str, content: str) -> list[Report]:
    """Check the Frameworks in the text of a file. Return the findings by line.

    Objects of other kinds are ignored: a file often has the Framework's Service, too.
    """
    reports: list[Report] = []
    frameworks = 0
    try:
        for root in yaml.compose_all(content, Loader=_Loader):
            for body, node in _objects(root):
                found = list(_check(body, node))
                frameworks += _is_framework(body)
                for finding in found:
                    line = line_of(node, finding.problem.path) or node.start_mark.line + 1
                    reports.append(Report(file, line, finding.severity, str(finding.problem)))
    except (yaml.YAMLError, ValueError, RecursionError) as refused:
        problem = ": is nested too deeply, or contains itself" if isinstance(refused, RecursionError) else None
        place, _, text = (problem or syntax_error(refused)).partition(": ")
        line = int(place.removeprefix(":")) if place else 0
        reports.append(Report(file, line, Severity.ERROR, text))
    else:
        if not frameworks and not reports:
            reports.append(Report(file, 0, Severity.WARNING, "contains no Framework"))
    return sorted(reports, key=lambda report: report.line)


def _check(body: Any, node: yaml.Node) -> Iterator[Finding]:
    for problem in repeated_keys(node, ()):
        yield Finding(Severity.ERROR, problem)
    if not isinstance(body, dict):
        yield error((), "is not an API object: must be a mapping with apiVersion, kind, metadata and spec")
    elif _is_framework(body):
        yield from check_framework(body)
    elif body.get("apiVersion") == names.API_VERSION:
        yield error(("kind",), f"must be {names.KIND}", value=body.get("kind"))
    elif body.get("kind") is None:
        yield error(("kind",), "is required")
    elif "taskRoles" in (body.get("spec") or ()):
        yield warning(("kind",), f"is not {names.KIND}, though it has taskRoles", value=body["kind"])


def _is_framework(body: Any) -> bool:
    return isinstance(body, dict) and body.get("kind") == names.KIND


def _objects(root: yaml.Node | None) -> Iterator[tuple[Any, yaml.Node]]:
    """Yield the objects of a document, or of a ``List`` in it, each with its node."""
    if root is None:
        return
    body = _Loader("").construct_document(root)
    if body is None:
        return
    if isinstance(body, dict) and body.get("kind") == "List" and isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "items" and isinstance(value, yaml.SequenceNode):
                yield from zip(body["items"], value.value, strict=True)
        return
    yield body, root


def _read(path: Path) -> str:
    try:
        return program.read_input(path).decode("utf-8")
    except UnicodeDecodeError as refused:
        raise program.UsageError(f"{program.input_name(path)}: is not UTF-8 text (byte {refused.start})") from None


class _Loader(yaml.SafeLoader):
    """YAML without dates, which JSON does not have."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
