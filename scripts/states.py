"""Prints docs/states.md: the state machine, from its table.

Run as `.venv/bin/python scripts/states.py > docs/states.md`; a test says when that is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frameworkcontroller.machine.states import EDGES, MEANING

HEAD: Final = """\
# States

This page is to look up a state, and what can follow it. The [manual](manual.md#concepts) introduces states, and
[lifecycle](lifecycle.md) says what makes a Framework or a Task take an edge.

A Framework and a Task go through the same states. "The object" is what an attempt stands on: the ConfigMap of a
FrameworkAttempt, the Pod of a TaskAttempt. A phase that was never observed may be skipped. No edge is ever taken that
is not here: this page is made from the table in `machine/states.py`, which everything that moves a state asks.
"""


def page() -> Iterator[str]:
    """The lines of the page."""
    yield HEAD
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {next(iter(EDGES))}"
    for state, following in EDGES.items():
        for after in EDGES:
            if after in following:
                yield f"    {state} --> {after}"
        if not following:
            yield f"    {state} --> [*]"
    yield "```"
    yield ""
    yield "| state | meaning | next |"
    yield "|---|---|---|"
    for state, following in EDGES.items():
        names = ", ".join(f"`{one}`" for one in EDGES if one in following)
        yield f"| `{state}` | {MEANING[state]} | {names or 'none'} |"


def document() -> str:
    """The whole page."""
    return "".join(f"{line}\n" for line in page())


if __name__ == "__main__":
    print(document(), end="")
