"""``lint``: print the problems of the Frameworks in files, by line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from frameworkcontroller.api import names
from frameworkcontroller.api.yamldocuments import ERRORS, Lines, documents, error_text, place, repeated_keys
from frameworkcontroller.commands import program
from frameworkcontroller.commands.lint.findings import Finding, error, mapping, warning
from frameworkcontroller.commands.lint.frameworks import check_framework
from frameworkcontroller.commands.lint.hostnames import check_services
from frameworkcontroller.commands.output import console
from frameworkcontroller.views.texts import counted


def run(options: argparse.Namespace) -> int:
    """Check the files. Return the exit code: 1 for errors, with ``--strict`` also for warnings."""
    out = console(sys.stdout)
    found = [(program.input_name(path), *each) for path in options.files for each in lint_text(_read(path))]
    for file, line, finding in found:
        color = "red" if finding.severity == "error" else "yellow"
        out.print(f"{place(file, line)}: {finding}", style=color, soft_wrap=True)
    errors = sum(finding.severity == "error" for *_, finding in found)
    warnings = len(found) - errors
    files = counted(len(options.files), "file")
    if found:
        totals = f"{counted(errors, 'error')}, {counted(warnings, 'warning')} in {files}"
        out.print(totals, style="bold", soft_wrap=True)
    else:
        out.print(f"no problems in {files}", style="green", soft_wrap=True)
    return program.EXIT_FAILED if errors or (options.strict and warnings) else program.EXIT_OK


def lint_text(content: str) -> list[tuple[int, Finding]]:
    """Check the Frameworks in the text of a file. Return the findings by line; line 0 is the file as a whole.

    Of objects of other kinds, only the names and selectors of Services count.
    """
    found: list[tuple[int, Finding]] = []
    objects: list[tuple[Any, yaml.Node]] = []
    try:
        for document in documents(content):
            objects += _objects(*document)
        services = [body for body, _ in objects if mapping(body).get("kind") == "Service"]
        for body, node in objects:
            first, line_of = node.start_mark.line + 1, Lines(node).line_of
            found += [(line_of(each.problem.path) or first, each) for each in _check(body, node, services)]
    except ERRORS as refused:
        line, text = error_text(refused)
        found.append((line, error((), text)))
    if not found and not any(mapping(body).get("kind") == names.KIND for body, _ in objects):
        found.append((0, warning((), "contains no Framework")))
    return sorted(found, key=lambda each: each[0])


def _check(body: Any, node: yaml.Node, services: list[dict[Any, Any]]) -> Iterator[Finding]:
    for problem in repeated_keys(node):
        yield Finding("error", problem)
    if not isinstance(body, dict):
        yield error((), "is not an API object: must be a mapping with apiVersion, kind, metadata and spec")
    elif body.get("kind") == names.KIND:
        yield from check_framework(body)
        yield from check_services(body, services)
    elif body.get("apiVersion") == names.API_VERSION:
        yield error(("kind",), f"must be {names.KIND}", value=body.get("kind"))
    elif body.get("kind") is None:
        yield error(("kind",), "is required")
    elif "taskRoles" in mapping(body, "spec"):
        yield warning(("kind",), f"is not {names.KIND}, though it has taskRoles", value=body["kind"])


def _objects(body: Any, root: yaml.Node) -> Iterator[tuple[Any, yaml.Node]]:
    """Yield the objects of a document, or of a ``List`` in it, each with its node."""
    if body is None:
        return
    if isinstance(body, dict) and body.get("kind") == "List" and isinstance(root, yaml.MappingNode):
        for key, value in root.value:
            if key.value == "items" and isinstance(value, yaml.SequenceNode):
                yield from zip(body["items"], value.value, strict=True)
    else:
        yield body, root


def _read(path: Path) -> str:
    try:
        return program.read_input(path).decode("utf-8")
    except UnicodeDecodeError as refused:
        raise program.UsageError(f"{program.input_name(path)}: is not UTF-8 text (byte {refused.start})") from None
