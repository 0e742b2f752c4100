"""``run``: create a Framework for a command, and wait for it if asked."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import console
from frameworkcontroller.commands.parsers import build_plugin_parser
from frameworkcontroller.commands.progress import ending
from frameworkcontroller.commands.runarray import Array
from frameworkcontroller.commands.runmanifest import Builder, place, refused
from frameworkcontroller.sdk.asyncclient import Cluster
from frameworkcontroller.sdk.definitions import Framework
from frameworkcontroller.sdk.exceptions import FrameworkError
from frameworkcontroller.views.apiobjects import Json
from frameworkcontroller.views.frameworkfollower import FrameworkFollower
from frameworkcontroller.views.texts import encode

_EVERY_LINE: Final = str(2**31 - 1)


def dry_run(options: argparse.Namespace) -> int:
    """Print the manifests. Return the exit code."""
    builder = Builder(options)
    made = [builder.build(index) for index in options.array or (None,)]
    notes = builder.check(made[-1])
    if options.name is None:
        notes.append("it has a generateName: give it to 'kubectl create -f -', which 'kubectl apply' cannot take")
    err = console(sys.stderr)
    for text in notes:
        err.print(program.line("note", text), soft_wrap=True)
    bodies = [_in_namespace(body, options.namespace) for body in _bodies(made)]
    if options.output == "json":
        text = encode(bodies[0] if len(bodies) == 1 else {"apiVersion": "v1", "kind": "List", "items": bodies}, "json")
    else:
        text = "---\n".join(encode(body, "yaml") for body in bodies)
    console(sys.stdout).print(text, end="", soft_wrap=True)
    return program.EXIT_OK


def _bodies(frameworks: Iterable[Framework]) -> list[Json]:
    """Return the manifests of Frameworks and of their objects, of equal ones the first."""
    found: dict[tuple[str, str | None], Json] = {}
    for framework in frameworks:
        for body in (framework.to_dict(), *framework.all_objects()):
            found.setdefault((body["kind"], body["metadata"].get("name")), body)
    return list(found.values())


def _in_namespace(body: Json, namespace: str | None) -> Json:
    return body if namespace is None else {**body, "metadata": {**body["metadata"], "namespace": namespace}}


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Create it, and wait if asked. Return the exit code."""
    builder = Builder(options)
    cluster = Cluster.of(invocation.client, invocation.namespace)

    async def create(framework: Framework) -> Json:
        try:
            body: Json = dict((await cluster.submit(framework)).status.object)
        except FrameworkError as error:
            raise refused(error) from None
        invocation.print(f"{body['metadata']['name']}: created")
        return body

    if options.array is not None:
        return await Array(invocation, builder, create).run()
    framework = builder.build()
    for text in builder.check(framework):
        invocation.note(text)
    # Loading takes long. After the creation, first lines would be lost meanwhile.
    follow = _logs_command() if options.follow else None
    body = await create(framework)
    name, there = body["metadata"]["name"], place(options)
    if not (options.follow or options.wait):
        invocation.note(f"its logs: kubectl framework logs {name} -f{there}")
        invocation.note(f"its state: kubectl framework status {name}{there}")
        return program.EXIT_OK
    with _left_behind(invocation, f"{name} continues; to stop it: kubectl framework stop {name}{there}"):
        if follow is not None:
            await follow(invocation, _options_of_logs(options, name), body)
        return await _end(invocation, body)


def _logs_command() -> Callable[[Invocation, argparse.Namespace, Json], Awaitable[None]]:
    from frameworkcontroller.commands import mergedlogs

    return mergedlogs.follow


def _options_of_logs(options: argparse.Namespace, name: str) -> argparse.Namespace:
    """Return the options of ``logs -f``, with all lines."""
    found = build_plugin_parser().parse_args(["logs", name, "--follow", "--tail", _EVERY_LINE])
    found.kubeconfig, found.context = options.kubeconfig, options.context
    return found


async def _end(invocation: Invocation, body: Mapping[str, Any]) -> int:
    """Wait for the end, and print it. Return the exit code."""
    follower = FrameworkFollower(invocation.client, [body])
    await follower.run()
    ((key, last),) = follower.last.items()
    end = ending(key, last)
    invocation.print(end.text)
    return program.EXIT_OK if end.succeeded else program.EXIT_FAILED


@contextmanager
def _left_behind(invocation: Invocation, text: str) -> Iterator[None]:
    """Print the text if the command is interrupted."""
    try:
        yield
    except asyncio.CancelledError:
        invocation.note(text)
        raise
