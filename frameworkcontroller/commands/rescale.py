"""``scale``: set the number of Tasks of roles, and adjust their completion policies."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from frameworkcontroller.api.names import scaler_name
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.views.apiobjects import Json, roles_of, state_of
from frameworkcontroller.views.texts import counted

_POLICY: Final = "frameworkAttemptCompletionPolicy"
_MINIMA: Final = ("minFailedTaskCount", "minSucceededTaskCount")


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Scale the roles. Return the exit code."""
    if not options.roles:
        raise program.UsageError("scale: no role is given: ROLE=N")
    wanted: dict[str, int] = {}
    for role, number in options.roles:
        if wanted.setdefault(role, number) != number:
            raise program.UsageError(f"{role} is given twice, with different numbers")
    results, warnings = await invocation.patch_spec(
        options.name, lambda framework: _change(framework, wanted, adjust=options.adjust_policy)
    )
    for text in results:
        invocation.print(f"{options.name}: {text}")
    for text in warnings:
        invocation.note(f"warning: {options.name}: {text}")
    return program.EXIT_OK


def _change(
    framework: Mapping[str, Any], wanted: Mapping[str, int], *, adjust: bool
) -> tuple[list[Json], tuple[list[str], list[str]]]:
    """Return the JSON patch operations that scale the roles, and the results and warnings for the user.

    Raises:
        CommandError: the Framework has completed, has no such role, or the role has autoscaling.
    """
    framework_name = framework["metadata"]["name"]
    if state_of(framework) == State.COMPLETED:
        raise program.CommandError(f"{framework_name}: has already completed")
    roles = roles_of(framework)
    places = {role["name"]: position for position, role in enumerate(roles)}
    operations: list[Json] = []
    results: list[str] = []
    warnings: list[str] = []
    for name, number in wanted.items():
        if name not in places:
            known = ", ".join(places) or "none"
            raise program.UsageError(f"{framework_name}: has no role {name!r}, only {known}")
        role, path = roles[places[name]], f"/spec/taskRoles/{places[name]}"
        if role.get("autoscaling"):
            command = f"kubectl scale frameworkrolescaler/{scaler_name(framework_name, name)} --replicas {number}"
            raise program.UsageError(f"{framework_name}: {name} has autoscaling; use {command}")
        old = role.get("taskNumber", 1)
        if old == number:
            results.append(f"{name}: already has {counted(number, 'Task')}")
        else:
            operations.append({"op": "add", "path": f"{path}/taskNumber", "value": number})
            results.append(f"{name}: {old} -> {counted(number, 'Task')}")
        policy = role.get(_POLICY) or {}
        changed = {}
        for field in _MINIMA:
            minimum = policy.get(field) or 0
            new = adjusted(minimum, old, number) if adjust else minimum
            if new != minimum:
                changed[field] = new
                share = "all" if minimum == old else f"{minimum} of {old}"
                results.append(f"{name}: {field} {minimum} -> {new}, since it was {share}")
            if new > number > 0:
                hint = "" if adjust else "; use --adjust-policy to adjust it"
                warnings.append(f"{name}: {field} {new} can never be reached by {counted(number, 'Task')}{hint}")
            elif field == "minSucceededTaskCount" and 1 < minimum == old < number and new == minimum:
                text = f"was all Tasks: the attempt now ends when {new} of {number} have succeeded"
                warnings.append(f"{name}: {field} {new} {text}; use --adjust-policy to adjust it")
        if changed:
            operations.append({"op": "add", "path": f"{path}/{_POLICY}", "value": {**policy, **changed}})
    return operations, (results, warnings)


def adjusted(minimum: int, old: int, new: int) -> int:
    """Adjust the minimum of a completion policy for ``old`` Tasks to ``new`` Tasks.

    A minimum of all Tasks stays all of them; one between 1 and all keeps its share, rounded up. Others stay: below 1 is
    never, 1 is the first Task. With no Task left, the minimum waits for the next scaling.
    """
    if minimum <= 1 or old <= 0 or new <= 0 or minimum > old:
        return minimum
    if minimum == old:
        return new
    return max(1, -(-minimum * new // old))
