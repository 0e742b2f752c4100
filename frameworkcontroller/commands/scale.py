"""``scale``: how many Tasks roles have, and what becomes of their completion policies."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.humanize import counted
from frameworkcontroller.commands.invocation import Json, Session
from frameworkcontroller.commands.patch import edit

_POLICY: Final = "frameworkAttemptCompletionPolicy"
_MINIMA: Final = ("minFailedTaskCount", "minSucceededTaskCount")


async def run(session: Session, options: argparse.Namespace) -> int:
    """Scale the roles. Returns the exit code."""
    if not options.roles:
        raise program.CommandError("scale: say which role is to have how many Tasks: ROLE=N", program.EXIT_USAGE)
    wanted: dict[str, int] = {}
    for role, number in options.roles:
        if wanted.setdefault(role, number) != number:
            raise program.CommandError(f"{role} is given twice, with different numbers", program.EXIT_USAGE)
    said: list[str] = []
    warnings: list[str] = []

    def change(framework: Json) -> list[Json]:
        said.clear()
        warnings.clear()
        if (framework.get("status") or {}).get("state") == State.COMPLETED:
            raise program.CommandError(f"{options.name}: has completed already")
        return scale(framework, wanted, adjust=options.adjust_policy, said=said, warnings=warnings)

    await edit(session, options.name, change)
    for text in said:
        session.say(f"{options.name}: {text}")
    for text in warnings:
        session.note(f"warning: {options.name}: {text}")
    return program.EXIT_OK


def scale(
    framework: Mapping[str, Any], wanted: Mapping[str, int], *, adjust: bool, said: list[str], warnings: list[str]
) -> list[Json]:
    """The operations that give the roles these numbers of Tasks, with words on them added to the lists.

    Raises:
        CommandError: it has no such role.
    """
    roles = (framework.get("spec") or {}).get("taskRoles") or []
    places = {role["name"]: position for position, role in enumerate(roles)}
    operations: list[Json] = []
    for name, number in wanted.items():
        if name not in places:
            known = ", ".join(places) or "none"
            raise program.CommandError(
                f"{framework['metadata']['name']}: has no role {name!r}, only {known}", program.EXIT_USAGE
            )
        role, path = roles[places[name]], f"/spec/taskRoles/{places[name]}"
        old = role.get("taskNumber", 1)
        if old == number:
            said.append(f"{name}: has {counted(number, 'Task')} already")
        else:
            operations.append({"op": "add", "path": f"{path}/taskNumber", "value": number})
            said.append(f"{name}: {old} -> {counted(number, 'Task')}")
        policy = role.get(_POLICY) or {}
        changed = {}
        for field in _MINIMA:
            minimum = policy.get(field) or 0
            new = adjusted(minimum, old, number) if adjust else minimum
            if new != minimum:
                changed[field] = new
                share = "all" if minimum == old else f"{minimum} of {old}"
                said.append(f"{name}: {field} {minimum} -> {new}, since it was {share}")
            if new > number > 0:
                hint = "" if adjust else "; --adjust-policy changes it along"
                warnings.append(f"{name}: {field} {new} can never be reached by {counted(number, 'Task')}{hint}")
        if changed:
            operations.append({"op": "add", "path": f"{path}/{_POLICY}", "value": {**policy, **changed}})
    return operations


def adjusted(minimum: int, old: int, new: int) -> int:
    """What a policy's minimum for ``old`` Tasks means for ``new``.

    Less than 1 is never and stays so; 1 is the first one and stays so; all of them are all of them; anything between
    keeps its share, rounded up. With no Task left it stays as it is, for when there are some again.
    """
    if minimum <= 1 or old <= 0 or new <= 0 or minimum > old:
        return minimum
    if minimum == old:
        return new
    return max(1, -(-minimum * new // old))
