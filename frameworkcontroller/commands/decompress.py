"""``decompress``: print Frameworks, from the cluster or a file, with the statuses of their roles decompressed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson
import yaml

from frameworkcontroller.api.codec import with_plain_roles
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.views.apiobjects import Json
from frameworkcontroller.views.texts import encode


def run_on_file(options: argparse.Namespace) -> int:
    """Print the objects in the file. Return the exit code."""
    for document in _documents(options.file):
        if not isinstance(document, dict):
            raise program.CommandError("not an API object")
        items = document.get("items")
        for body in items if isinstance(items, list) else [document]:
            _decompress(body)
        text = encode(document, options.output)
        sys.stdout.write(f"---\n{text}" if options.output == "yaml" else text)
    sys.stdout.flush()
    return program.EXIT_OK


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Print the Framework. Return the exit code."""
    invocation.print_object(decompressed(await invocation.framework(options.name)), options.output)
    return program.EXIT_OK


def decompressed(framework: Json) -> Json:
    """Decompress the status of a Framework and remove its ``managedFields``, in place.

    Raises:
        CommandError: the status cannot be decompressed.
    """
    (framework.get("metadata") or {}).pop("managedFields", None)
    _decompress(framework)
    return framework


def _decompress(body: Any) -> None:
    try:
        status = body.get("status") or {}
        if attempt := status.get("attemptStatus"):
            status["attemptStatus"] = with_plain_roles(attempt)
    except (AttributeError, TypeError, ValueError) as error:
        raise program.CommandError(str(error)) from None


def _documents(path: Path) -> list[Any]:
    raw = program.read_input(path)
    try:
        return [orjson.loads(raw)]
    except ValueError:
        pass
    try:
        return [document for document in yaml.safe_load_all(raw) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise program.UsageError(f"{program.input_name(path)}: is neither JSON nor YAML: {problem}") from None
