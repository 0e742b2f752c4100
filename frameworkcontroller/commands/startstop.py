"""``start`` and ``stop``: set the execution type of Frameworks."""

from __future__ import annotations

import argparse

from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.views.apiobjects import Json, is_suspended, state_of


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Set ``options.wanted`` for each of them. Return the exit code."""
    wanted = ExecutionType(options.wanted)
    done = "started" if wanted is ExecutionType.START else "stopped"

    def change(framework: Json) -> tuple[list[Json], str]:
        name = framework["metadata"]["name"]
        now = (framework.get("spec") or {}).get("executionType") or ExecutionType.START
        if now == wanted:
            return [], f"already {done}"
        if state_of(framework) == State.COMPLETED:
            raise program.CommandError(f"{name}: has already completed")
        if now == ExecutionType.STOP:
            raise program.CommandError(f"{name}: is stopped and cannot be started again; create another one")
        waits = wanted is ExecutionType.START and is_suspended(framework)
        text = f"{done}; it waits to be resumed" if waits else done
        return [{"op": "add", "path": "/spec/executionType", "value": wanted}], text

    return await invocation.for_each(options.names, lambda name: invocation.patch_spec(name, change))
