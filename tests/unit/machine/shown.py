"""Short forms of what a plan asks for and a status shows."""

from __future__ import annotations

from frameworkcontroller.machine.kernel.model import Plan
from tests.support.bench import Bench


def actions(made: Plan) -> list[str]:
    """The plan's actions in short."""
    return [f"{type(action).__name__} {action.target.name}" for action in made.actions]


def stalls(bench: Bench) -> list[tuple[str, str]]:
    """Status and reason of the condition Stalled, where there is one."""
    return [(item.status, item.reason) for item in bench.status.conditions if item.type == "Stalled"]


def stall(bench: Bench) -> tuple[str, str]:
    """Reason and message of the condition Stalled, empty if it is not True."""
    found = (one for one in bench.status.conditions if one.type == "Stalled" and one.status == "True")
    return next(((one.reason, one.message) for one in found), ("", ""))
