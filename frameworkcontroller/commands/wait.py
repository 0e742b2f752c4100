"""``wait``: wait until Frameworks run, have completed or have succeeded."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.follower import Follower
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.objects import state_of
from frameworkcontroller.commands.progress import ending


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Wait. Return the exit code: 0 if all met the condition, 1 if one no longer can."""
    frameworks = [await invocation.framework(name) for name in options.names]
    wanted: str = options.wanted
    follower = Follower(invocation.client, frameworks, until=_runs if wanted == "running" else lambda _body: False)
    try:
        async with asyncio.timeout(options.timeout):
            await follower.run()
    except TimeoutError:
        late = ", ".join(key.partition("/")[2] for key, body in follower.last.items() if not _is_met(wanted, body))
        raise program.CommandError(f"not {wanted} within {options.timeout:g} s: {late}") from None
    for key, body in follower.last.items():
        invocation.print(f"{key.partition('/')[2]}: running" if body and _runs(body) else ending(key, body).text)
    met = all(_is_met(wanted, body) for body in follower.last.values())
    return program.EXIT_OK if met else program.EXIT_FAILED


def _is_met(wanted: str, body: Mapping[str, Any] | None) -> bool:
    if body is None:
        return False
    if wanted == "running":
        return _runs(body)
    return ending("", body).succeeded if wanted == "succeeded" else state_of(body) == State.COMPLETED


def _runs(body: Mapping[str, Any]) -> bool:
    return state_of(body) == State.RUNNING
