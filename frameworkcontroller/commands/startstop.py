"""``start`` and ``stop``: what is asked of Frameworks as a whole."""

from __future__ import annotations

import argparse

from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Json, Session
from frameworkcontroller.commands.patch import edit


async def run(session: Session, options: argparse.Namespace) -> int:
    """Start or stop them, as ``options.wanted`` says. Returns the exit code."""
    code = program.EXIT_OK
    for name in options.names:
        try:
            await _set(session, name, ExecutionType(options.wanted))
        except program.CommandError as error:
            # The others are none the worse for it.
            code = program.fail(str(error), error.code)
    return code


async def _set(session: Session, name: str, wanted: ExecutionType) -> None:
    said = ""

    def change(framework: Json) -> list[Json]:
        nonlocal said
        now = (framework.get("spec") or {}).get("executionType") or ExecutionType.START
        state = (framework.get("status") or {}).get("state")
        done = {ExecutionType.START: "started", ExecutionType.STOP: "stopped"}[wanted]
        if now == wanted:
            said = f"{name}: was {done} before"
            return []
        if state == State.COMPLETED:
            raise program.CommandError(f"{name}: has completed already")
        if now == ExecutionType.STOP:
            raise program.CommandError(f"{name}: was stopped, and cannot be started again: create another one")
        said = f"{name}: {done}"
        return [{"op": "add", "path": "/spec/executionType", "value": wanted}]

    await edit(session, name, change)
    session.say(said)
