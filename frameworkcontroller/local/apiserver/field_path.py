"""Paths of fields in a document, built cheaply and formatted only on demand."""

from __future__ import annotations

from typing import Any

# The parent's path and the last step, a key or an index; None is the document itself. A bare tuple for speed: a walk
# over a thousand Tasks creates ten thousand paths and prints none.
FieldPath = tuple[Any, str | int] | None


def steps(where: FieldPath) -> list[str | int]:
    """The steps from the document down to ``where``."""
    found: list[str | int] = []
    while where is not None:
        where, step = where
        found.append(step)
    found.reverse()
    return found


def show(where: FieldPath) -> str:
    """Format a path for error messages: ``spec.containers[0].name``."""
    text = ""
    for step in steps(where):
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def show_fields(where: FieldPath) -> str:
    """Format a path without indexes, as Go's JSON decoder does: ``spec.containers.name``."""
    return ".".join(step for step in steps(where) if isinstance(step, str))
