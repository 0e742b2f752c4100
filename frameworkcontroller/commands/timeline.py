"""``timeline``: write the picture to a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from frameworkcontroller.api.codec import StatusError
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.views.apiobjects import key_of
from frameworkcontroller.views.attempts import AttemptHistory
from frameworkcontroller.views.timelinesvg import draw, draw_page

_STDOUT = Path("-")


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Write it. Return the exit code."""
    output: Path = options.output
    if output != _STDOUT and output.suffix not in (".svg", ".html"):
        raise program.UsageError(f"-o {output}: must end in .svg or .html, or be - for stdout")
    framework = await invocation.framework(options.name, hint_at_history=True)
    history = AttemptHistory(framework["metadata"]["uid"])
    try:
        # First: its roles are in the order of the spec.
        history.add_framework(framework)
        for path in options.history:
            _add_log(invocation, history, path)
    except StatusError as error:
        raise program.CommandError(f"{options.name}: {error}") from None
    if not history.rows:
        raise program.CommandError(f"{options.name}: has no attempts yet: no controller has seen it")
    made = (draw_page if output.suffix == ".html" else draw)(key_of(framework), history.rows, invocation.wall())
    if output == _STDOUT:
        invocation.out.file.write(made)
        return program.EXIT_OK
    try:
        output.write_text(made, encoding="utf-8")
    except OSError as error:
        raise program.UsageError(f"-o {output}: cannot be written: {error.strerror}") from None
    invocation.print(f"{options.name}: {output}")
    return program.EXIT_OK


def _add_log(invocation: Invocation, history: AttemptHistory, path: Path) -> None:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            added = history.add_log(lines)
    except OSError as error:
        raise program.UsageError(f"--history {path}: cannot be read: {error.strerror}") from None
    except (KeyError, ValueError, TypeError) as error:
        raise program.CommandError(f"--history {path}: a snapshot in it cannot be read: {error}") from None
    if not added:
        invocation.note(f"--history {path}: has no snapshot of this Framework")
