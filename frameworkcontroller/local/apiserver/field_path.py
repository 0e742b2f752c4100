"""Where in a document something was found: a path that costs next to nothing until it is printed."""

from __future__ import annotations

from typing import Any

# The place of the parent and the last step, a key or an index; None is the document itself. Passed down every walk, so
# it is a bare tuple and not a class: a walk over a thousand Tasks makes ten thousand of them and prints none.
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
    """``where`` as error messages name it: ``spec.containers[0].name``."""
    text = ""
    for step in steps(where):
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def show_fields(where: FieldPath) -> str:
    """``where`` without the indexes, as Go's JSON decoder names it: ``spec.containers.name``."""
    return ".".join(step for step in steps(where) if isinstance(step, str))
