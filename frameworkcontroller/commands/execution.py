"""``start``, ``stop``, ``suspend`` and ``resume``: set the execution type or ``spec.suspend`` of Frameworks."""

from __future__ import annotations

import argparse

from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.views.apiobjects import Json, condition_of, is_suspended, state_of


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Set ``options.wanted`` for each of them. Return the exit code."""
    wanted: str | bool = options.wanted
    if isinstance(wanted, str):
        start_or_stop = ExecutionType(wanted)
        return await invocation.for_each(
            options.names, lambda name: invocation.patch_spec(name, lambda found: _execute(found, start_or_stop))
        )
    return await invocation.for_each(options.names, lambda name: _suspend(invocation, name, suspend=wanted))


def _execute(framework: Json, wanted: ExecutionType) -> tuple[list[Json], str]:
    done = "started" if wanted is ExecutionType.START else "stopped"
    now = (framework.get("spec") or {}).get("executionType") or ExecutionType.START
    if now == wanted:
        return [], f"already {done}"
    _refuse_completed(framework)
    if now == ExecutionType.STOP:
        name = framework["metadata"]["name"]
        raise program.CommandError(f"{name}: is stopped and cannot be started again; create another one")
    waits = wanted is ExecutionType.START and is_suspended(framework)
    text = f"{done}; it waits to be resumed" if waits else done
    return [{"op": "add", "path": "/spec/executionType", "value": wanted}], text


async def _suspend(invocation: Invocation, name: str, *, suspend: bool) -> str:
    def change(framework: Json) -> tuple[list[Json], str]:
        spec = framework.get("spec") or {}
        _refuse_completed(framework)
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


def _refuse_completed(framework: Json) -> None:
    if state_of(framework) == State.COMPLETED:
        raise program.CommandError(f"{framework['metadata']['name']}: has already completed")
