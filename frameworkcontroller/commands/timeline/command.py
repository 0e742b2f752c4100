"""``timeline``: writes the picture to a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from frameworkcontroller.api.codec import StatusError
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Session
from frameworkcontroller.commands.timeline.attempts import Chronicle
from frameworkcontroller.commands.timeline.svg import draw, draw_page

_STDOUT = Path("-")


async def run(session: Session, options: argparse.Namespace) -> int:
    """Write it. Returns the exit code."""
    output: Path = options.output
    if output != _STDOUT and output.suffix not in (".svg", ".html"):
        raise program.CommandError(f"-o {output}: must end in .svg or .html, or be - for stdout", program.EXIT_USAGE)
    framework = await session.framework(options.name)
    metadata = framework["metadata"]
    chronicle = Chronicle(metadata["namespace"], metadata["name"], metadata["uid"])
    try:
        # First, for the order of its roles.
        chronicle.take_framework(framework)
        for path in options.history:
            _take_history(session, chronicle, path)
    except StatusError as error:
        raise program.CommandError(f"{options.name}: {error}") from None
    if not chronicle.rows:
        raise program.CommandError(f"{options.name}: nothing has happened yet: it was not seen by a controller")
    title = f"{chronicle.namespace}/{chronicle.name}"
    made = (draw_page if output.suffix == ".html" else draw)(title, chronicle.rows, session.wall())
    if output == _STDOUT:
        session.out.file.write(made)
        return program.EXIT_OK
    try:
        output.write_text(made, encoding="utf-8")
    except OSError as error:
        raise program.CommandError(f"-o {output}: cannot be written: {error.strerror}", program.EXIT_USAGE) from None
    session.say(f"{options.name}: {output}")
    return program.EXIT_OK


def _take_history(session: Session, chronicle: Chronicle, path: Path) -> None:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            taken = chronicle.take_log(lines)
    except OSError as error:
        raise program.CommandError(f"--history {path}: cannot be read: {error.strerror}", program.EXIT_USAGE) from None
    except (KeyError, ValueError, TypeError) as error:
        raise program.CommandError(f"--history {path}: a snapshot in it cannot be read: {error}") from None
    if not taken:
        session.note(f"--history {path}: holds no snapshot of this Framework")
