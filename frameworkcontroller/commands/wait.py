"""``wait``: wait until Frameworks are in a phase, or meet a condition."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from frameworkcontroller.api.status import Phase, State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.progress import ending
from frameworkcontroller.views.apiobjects import condition_of, is_suspended, state_of
from frameworkcontroller.views.frameworkfollower import FrameworkFollower
from frameworkcontroller.views.summary import described, summarize


def _is_in(phase: Phase, body: Mapping[str, Any]) -> bool:
    return summarize(body).phase is phase


_CONDITIONS: Final[dict[str, Callable[[Mapping[str, Any]], bool]]] = {
    "admitted": lambda body: condition_of(body, "Admitted").get("status") == "True",
    "running": lambda body: state_of(body) == State.RUNNING,
    "suspended": lambda body: is_suspended(body) and condition_of(body, "Suspended").get("status") == "True",
    "completed": lambda body: state_of(body) == State.COMPLETED,
    "succeeded": lambda body: ending("", body).succeeded,
    **{f"phase={phase}": partial(_is_in, phase) for phase in Phase},
}

_PASSING: Final = ("admitted", "running", "suspended", *(f"phase={phase}" for phase in Phase if not phase.is_final))
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
        met = next((name for name in passing if body and _CONDITIONS[name](body)), None)
        invocation.print(f"{key.partition('/')[2]}: {met.removeprefix('phase=')}" if met else ending(key, body).text)
    all_met = all(body and is_met(body) for body in follower.last.values())
    return program.EXIT_OK if all_met else program.EXIT_FAILED


def _late(key: str, body: Mapping[str, Any] | None) -> str:
    """Name a Framework, with its phase and message."""
    found = summarize(body) if body else None
    return key.partition("/")[2] if found is None else f"{key.partition('/')[2]} ({described(found)})"
