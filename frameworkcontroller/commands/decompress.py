"""``decompress``: Frameworks with their roles' statuses readable, from a file or as they are."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson
import yaml

from frameworkcontroller.api.codec import StatusError
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Session
from frameworkcontroller.commands.printing import decompress, encode, print_value, without_managed_fields


def run_on_file(options: argparse.Namespace) -> int:
    """Print what the file holds. Returns the exit code."""
    for document in _documents(options.file):
        text = encode(_readable(document), options.output)
        sys.stdout.write(f"---\n{text}" if options.output == "yaml" else text)
    sys.stdout.flush()
    return program.EXIT_OK


async def run(session: Session, options: argparse.Namespace) -> int:
    """Print the Framework as it is. Returns the exit code."""
    framework = await session.framework(options.name)
    print_value(session, without_managed_fields(_readable(framework)), options.output)
    return program.EXIT_OK


def _readable(body: Any) -> Any:
    if not isinstance(body, dict):
        raise program.CommandError("not an API object")
    items = body.get("items")
    for one in items if isinstance(items, list) else [body]:
        try:
            decompress(one)
        except (StatusError, AttributeError) as error:
            raise program.CommandError(str(error)) from None
    return body


def _documents(path: Path) -> list[Any]:
    name = "standard input" if str(path) == "-" else str(path)
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise program.CommandError(f"{name}: cannot be read: {error.strerror}", program.EXIT_USAGE) from None
    try:
        return [orjson.loads(raw)]
    except ValueError:
        pass
    try:
        return [document for document in yaml.safe_load_all(raw) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise program.CommandError(f"{name}: is neither JSON nor YAML: {problem}", program.EXIT_USAGE) from None
