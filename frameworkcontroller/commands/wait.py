"""``wait``: wait until Frameworks are admitted, run, are suspended, have completed or have succeeded."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.frameworkfollower import FrameworkFollower
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.progress import ending
from frameworkcontroller.views.apiobjects import condition_of, is_suspended, state_of
from frameworkcontroller.views.summary import summarize

_CONDITIONS: Final[dict[str, Callable[[Mapping[str, Any]], bool]]] = {
    "admitted": lambda body: condition_of(body, "Admitted").get("status") == "True",
    "running": lambda body: state_of(body) == State.RUNNING,
    "suspended": lambda body: is_suspended(body) and condition_of(body, "Suspended").get("status") == "True",
    "completed": lambda body: state_of(body) == State.COMPLETED,
    "succeeded": lambda body: ending("", body).succeeded,
}

_PASSING: Final = ("admitted", "running", "suspended")
"""Conditions that a Framework meets before its end."""


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Wait. Return the exit code: 0 if all met the condition, 1 if one no longer can."""
    frameworks = [await invocation.framework(name) for name in options.names]
    wanted: str = options.wanted
    is_met = _CONDITIONS[wanted]
    # For the others, it waits for the end.
    follower = FrameworkFollower(invocation.client, frameworks, until=lambda body: wanted in _PASSING and is_met(body))
    try:
        async with asyncio.timeout(options.timeout):
            await follower.run()
    except TimeoutError:
        late = [_late(key, body) for key, body in follower.last.items() if not body or not is_met(body)]
        raise program.too_late(f"not {wanted}", options.timeout, f": {', '.join(late)}") from None
    for key, body in follower.last.items():
        passing = (wanted, *_PASSING) if wanted in _PASSING else _PASSING
        state = next((name for name in passing if body and _CONDITIONS[name](body)), None)
        invocation.print(f"{key.partition('/')[2]}: {state}" if state else ending(key, body).text)
    met = all(body and is_met(body) for body in follower.last.values())
    return program.EXIT_OK if met else program.EXIT_FAILED


def _late(key: str, body: Mapping[str, Any] | None) -> str:
    """Name a Framework, with the reason to wait."""
    name, why = key.partition("/")[2], summarize(body).why if body else ""
    return f"{name} (waits: {why})" if why else name
