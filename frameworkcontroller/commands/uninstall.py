"""``uninstall``: delete all Frameworks, and the CRD once nothing of them runs.

The deletion of a CRD deletes its objects in the background, so that their Pods would outlive them for a while.
Frameworks in a queue stay until the finalizers of their Workloads are removed, and those with a history until it is in
the archive. Without a controller, neither happens by itself.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.finalizers import Held, find_workloads, held, let_go, release_unused
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.kube.errors import Conflict, Forbidden, NotFound
from frameworkcontroller.kube.resources import CRDS, PODS
from frameworkcontroller.views.apiobjects import Json, key_of, state_of
from frameworkcontroller.views.texts import counted

_LOOK_EVERY_SEC: Final = 1.0
_NAMED: Final = 5
_REST: Final = (
    "The controller itself stays. Delete it before it starts again, as it then installs the CRD: "
    "kubectl delete -k manifests/base"
)


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show or delete them. Return the exit code."""
    if options.namespace is not None:
        raise program.UsageError("uninstall: the CRD belongs to all namespaces: without -n")
    try:
        await invocation.client.get(CRDS, names.CRD_NAME)
    except NotFound:
        invocation.print(f"there is no CRD {names.CRD_NAME}")
        return program.EXIT_OK
    namespaces: Counter[str] = Counter()
    active = 0
    async for body in invocation.each(FRAMEWORKS, all_namespaces=True):
        namespaces[body["metadata"]["namespace"]] += 1
        active += state_of(body) != State.COMPLETED
    what = f"{counted(namespaces.total(), 'Framework')} in {counted(len(namespaces), 'namespace')}"
    if not options.yes:
        invocation.print(f"would delete {what} ({active:,} not completed), with all of their Pods,")
        invocation.print(f"and the CRD {names.CRD_NAME}; nothing is deleted without --yes")
        return program.EXIT_FAILED
    given_up: set[str] = set()
    try:
        async with asyncio.timeout(options.timeout):
            await _delete_all(invocation, options.archive_within, given_up)
            invocation.print(f"deleted {what}")
            if given_up:
                invocation.print(
                    f"the last attempts of {counted(len(given_up), 'Framework')} may not be in the archive"
                )
            await _delete_crd(invocation)
    except TimeoutError:
        raise program.too_late("not over", options.timeout, f": {await _left(invocation)}") from None
    invocation.print(f"deleted the CRD {names.CRD_NAME}")
    invocation.print(_REST)
    return program.EXIT_OK


async def _delete_all(invocation: Invocation, archive_within: float, given_up: set[str]) -> None:
    """Delete all Frameworks in the foreground, also those that are created meanwhile, and wait for their end.

    Those without Pods wait for the controller while it archives at least one within ``archive_within`` seconds, and
    then are released. ``given_up`` gets their UIDs.
    """
    clock = asyncio.get_running_loop().time
    asked: set[str] = set()
    unarchived: set[str] = set()
    since = clock()
    while True:
        left = 0
        waiting: dict[str, Held] = {}
        async for body in invocation.each(FRAMEWORKS, all_namespaces=True, metadata_only=True):
            left += 1
            metadata = body["metadata"]
            if metadata["uid"] in asked or names.FOREGROUND_FINALIZER in (metadata.get("finalizers") or ()):
                one = held(body)
                if one is not None and one.only_held_by_history:
                    waiting[one.uid] = one
                continue
            # Conflict: another one has the name meanwhile, and is deleted in the next round.
            with suppress(NotFound, Conflict):
                await invocation.client.delete(
                    FRAMEWORKS,
                    metadata["name"],
                    metadata["namespace"],
                    uid=metadata["uid"],
                    propagation="Foreground",
                )
                asked.add(metadata["uid"])
        if not unarchived or unarchived - waiting.keys():
            since = clock()
        unarchived = {*waiting}
        if unarchived and clock() - since >= archive_within:
            given_up |= {uid for uid, one in waiting.items() if not await let_go(invocation, one)}
        workloads = await _release_workloads(invocation)
        if not left and not workloads and not [pod async for pod in _pods(invocation)]:
            return
        await asyncio.sleep(_LOOK_EVERY_SEC)


async def _release_workloads(invocation: Invocation) -> int:
    """Release the Workloads whose Framework is being deleted, or gone. Return the number before.

    The controller does the same, if it runs and Kueue is enabled in its configuration.
    """
    try:
        found = await find_workloads(invocation)
    except Forbidden:
        return 0
    for workload in found:
        await release_unused(invocation, workload)
    return len(found)


async def _delete_crd(invocation: Invocation) -> None:
    with suppress(NotFound):
        await invocation.client.delete(CRDS, names.CRD_NAME)
        while True:
            await invocation.client.get(CRDS, names.CRD_NAME)
            await asyncio.sleep(_LOOK_EVERY_SEC)


async def _left(invocation: Invocation) -> str:
    """Name the remaining objects."""
    found = [f"Pod {key_of(body)}" async for body in _pods(invocation)]
    with suppress(Forbidden):
        found += [f"Workload {one.key}" for one in await find_workloads(invocation)]
    with suppress(program.CommandError):
        found += [
            f"Framework {key_of(body)}"
            async for body in invocation.each(FRAMEWORKS, all_namespaces=True, metadata_only=True)
        ]
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f"{', '.join(found[:_NAMED])}{more}" if found else f"the CRD {names.CRD_NAME}"


def _pods(invocation: Invocation) -> AsyncIterator[Json]:
    return invocation.each(
        PODS, all_namespaces=True, label_selector=names.FRAMEWORK_NAME, metadata_only=True, most=_NAMED + 1
    )
