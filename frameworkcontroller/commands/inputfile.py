"""Input files of commands; ``-`` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from frameworkcontroller.commands import program


def name_of(path: Path) -> str:
    """Return the name for messages."""
    return "standard input" if str(path) == "-" else str(path)


def read(path: Path) -> bytes:
    """Read a file. Raise CommandError if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise program.UsageError(f"{name_of(path)}: cannot be read: {error.strerror}") from None
