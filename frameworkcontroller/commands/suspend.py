"""``suspend`` and ``resume``: set ``spec.suspend`` of Frameworks."""

from __future__ import annotations

import argparse

from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.views.apiobjects import Json, condition_of, is_suspended, state_of


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Set ``options.wanted`` for each of them. Return the exit code."""
    return await invocation.for_each(options.names, lambda name: _set(invocation, name, suspend=options.wanted))


async def _set(invocation: Invocation, name: str, *, suspend: bool) -> str:
    def change(framework: Json) -> tuple[list[Json], str]:
        spec = framework.get("spec") or {}
        if state_of(framework) == State.COMPLETED:
            raise program.CommandError(f"{name}: has already completed")
        if spec.get("executionType") == ExecutionType.STOP:
            raise program.CommandError(f"{name}: is stopped, and completes")
        if bool(spec.get("suspend")) == suspend:
            return [], "already suspended" if suspend else "is not suspended"
        done = "suspended" if suspend else "resumed"
        if spec.get("executionType") == ExecutionType.CREATE:
            done += "; it also waits to be started"
        stalled = condition_of(framework, "Stalled")
        if not suspend and stalled.get("status") == "True" and stalled.get("reason") == "InvalidSpec":
            done += "; this counts once its spec is valid: see 'kubectl framework status'"
        return [{"op": "add", "path": "/spec/suspend", "value": suspend}], done

    done = await invocation.patch_spec(name, change)
    # A CRD without the field drops it silently.
    if suspend and not is_suspended(await invocation.framework(name)):
        raise program.CommandError(f"{name}: not suspended: the CRD of this cluster has no spec.suspend; update it")
    return done
