"""Print docs/states.md, the state machine, from its table.

Run as `.venv/bin/python scripts/states.py > docs/states.md`; a test detects an outdated page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.states import EDGES

MEANING: Final = {
    State.CREATION_PENDING: "the object (ConfigMap or Pod) is not requested yet",
    State.CREATION_REQUESTED: "it is created, but not yet in the cache",
    State.PREPARING: "it exists, but was never observed running",
    State.RUNNING: "it exists and has run",
    State.DELETION_PENDING: "the completion of the attempt is decided and being persisted",
    State.DELETION_REQUESTED: "its deletion was accepted",
    State.DELETING: "it is being deleted",
    State.ATTEMPT_COMPLETED: "it is gone; the decision on a retry follows",
    State.COMPLETED: "final",
}

HEAD: Final = """\
# States

The states of Frameworks and Tasks and all of their transitions ([introduction](write-a-framework.md#concepts),
[rule of each transition](lifecycle.md)). "The object" is the ConfigMap of a FrameworkAttempt or the Pod of a
TaskAttempt. States that are never observed are skipped.
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
