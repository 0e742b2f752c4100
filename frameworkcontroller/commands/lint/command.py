"""``lint``: reads files and says, line by line, what is wrong with the Frameworks in them."""

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
from frameworkcontroller.commands.humanize import counted
from frameworkcontroller.commands.lint.findings import Finding, Severity, error, warning
from frameworkcontroller.commands.lint.spec import check_framework
from frameworkcontroller.commands.output import console
from frameworkcontroller.config.yamlplaces import line_of, repeated_keys, syntax_error

_STDIN: Final = Path("-")
_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


@dataclass(frozen=True, slots=True)
class Report:
    """A finding with its place; ``line`` 0 if it has none."""

    file: str
    line: int
    severity: Severity
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.severity}: {self.text}"


def run(options: argparse.Namespace) -> int:
    """Check the files. Returns the exit code: 1 if there are errors (with ``--strict`` also for warnings)."""
    out = console(sys.stdout)
    reports: list[Report] = []
    for path in options.files:
        name = "standard input" if path == _STDIN else str(path)
        reports += lint_text(name, _read(path, name))
    for report in reports:
        out.print(str(report), style=_COLOURS[report.severity], soft_wrap=True)
    errors = sum(report.severity is Severity.ERROR for report in reports)
    warnings = len(reports) - errors
    files = counted(len(options.files), "file")
    if reports:
        said = f"{counted(errors, 'error')}, {counted(warnings, 'warning')} in {files}"
        out.print(said, style="bold", soft_wrap=True)
    else:
        out.print(f"nothing to complain of in {files}", style="green", soft_wrap=True)
    return program.EXIT_FAILED if errors or (options.strict and warnings) else program.EXIT_OK


def lint_text(file: str, text: str) -> list[Report]:
    """What is wrong with the Frameworks in the text of a file, in the order of its lines.

    Documents of other kinds are let pass: a file often holds the Framework's Service, too.
    """
    reports: list[Report] = []
    frameworks = 0
    try:
        for root in yaml.compose_all(text, Loader=_Loader):
            for body, node in _objects(root):
                found = list(_check(body, node))
                frameworks += _is_framework(body)
                reports += [_report(file, node, finding) for finding in found]
    except (yaml.YAMLError, ValueError, RecursionError) as refused:
        problem = ": is nested too deeply, or contains itself" if isinstance(refused, RecursionError) else None
        place, _, told = (problem or syntax_error(refused)).partition(": ")
        line = int(place.removeprefix(":")) if place else 0
        reports.append(Report(file, line, Severity.ERROR, told))
    else:
        if not frameworks and not reports:
            reports.append(Report(file, 0, Severity.WARNING, "holds no Framework"))
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
    """The objects of a document, each with its node; those of a ``List`` one by one."""
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


def _report(file: str, node: yaml.Node, finding: Finding) -> Report:
    line = line_of(node, finding.problem.path) or node.start_mark.line + 1
    return Report(file, line, finding.severity, str(finding.problem))


def _read(path: Path, name: str) -> str:
    try:
        return sys.stdin.read() if path == _STDIN else path.read_text(encoding="utf-8")
    except OSError as refused:
        raise program.CommandError(f"{name}: cannot be read: {refused.strerror}", program.EXIT_USAGE) from None
    except UnicodeDecodeError as refused:
        raise program.CommandError(f"{name}: is not UTF-8 text (byte {refused.start})", program.EXIT_USAGE) from None


class _Loader(yaml.SafeLoader):
    """YAML as the API knows it: JSON has no dates, so what looks like one is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
