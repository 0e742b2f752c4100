"""``status``: show a Framework as a tree, once or until it has completed."""

from __future__ import annotations

import argparse
import asyncio
import math
from typing import Final

from frameworkcontroller.commands import program
from frameworkcontroller.commands.decompress import decompressed
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.progress import LiveProgress, ending, keep_diagnosing, progress_on
from frameworkcontroller.views.apiobjects import Json, key_of
from frameworkcontroller.views.diagnosis import read_view
from frameworkcontroller.views.frameworkfollower import FrameworkFollower
from frameworkcontroller.views.poddiagnosis import diagnose_pods
from frameworkcontroller.views.tree import framework_tree

_MAX_LINES: Final = 40


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show it. Return the exit code."""
    framework = await invocation.framework(options.name, hint_at_history=True)
    if options.output:
        invocation.print_object(decompressed(framework), options.output)
        return program.EXIT_OK
    if options.watch:
        return await _watch(invocation, framework)
    view = read_view(framework, await diagnose_pods(invocation.client, framework, invocation.wall))
    invocation.out.print(framework_tree(view, invocation.wall(), math.inf if options.all_tasks else _MAX_LINES))
    return program.EXIT_OK


async def _watch(invocation: Invocation, framework: Json) -> int:
    """Show the Framework until its end. Return the exit code, 0 if it succeeded."""
    key = key_of(framework)
    async with progress_on(invocation.out, invocation.wall) as progress, program.background() as tasks:
        progress.show(key, framework)
        follower = FrameworkFollower(invocation.client, [framework], progress.show)
        if isinstance(progress, LiveProgress):
            tasks.append(asyncio.create_task(keep_diagnosing(invocation.client, follower, progress, invocation.wall)))
        await follower.run()
    end = ending(key, follower.last[key])
    invocation.print()
    invocation.print(end.text)
    return program.EXIT_OK if end.succeeded else program.EXIT_FAILED
