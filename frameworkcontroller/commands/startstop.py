"""``start`` and ``stop``: set the execution type of Frameworks."""

from __future__ import annotations

import argparse

from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.objects import Json, state_of
from frameworkcontroller.commands.patch import patch_spec


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Set ``options.wanted`` for each of them. Return the exit code."""
    code = program.EXIT_OK
    for name in options.names:
        try:
            await _set(invocation, name, ExecutionType(options.wanted))
        except program.CommandError as error:
            code = program.fail(str(error), error.code)
    return code


async def _set(invocation: Invocation, name: str, wanted: ExecutionType) -> None:
    done = "started" if wanted is ExecutionType.START else "stopped"
    result = ""

    def change(framework: Json) -> list[Json]:
        nonlocal result
        now = (framework.get("spec") or {}).get("executionType") or ExecutionType.START
        if now == wanted:
            result = f"{name}: already {done}"
            return []
        if state_of(framework) == State.COMPLETED:
            raise program.CommandError(f"{name}: has already completed")
        if now == ExecutionType.STOP:
            raise program.CommandError(f"{name}: is stopped and cannot be started again; create another one")
        result = f"{name}: {done}"
        return [{"op": "add", "path": "/spec/executionType", "value": wanted}]

    await patch_spec(invocation, name, change)
    invocation.print(result)
