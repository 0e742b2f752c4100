"""``logs``: the merged logs of the containers of a Framework; with ``-f`` also of later attempts."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, TypeAlias

from rich.console import Console

from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.containerlogs import Line, NotALog, Source, read_lines, selector, sources_of
from frameworkcontroller.commands.follower import Follower
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.objects import Json, Record, roles_of, state_of
from frameworkcontroller.commands.output import LinePrefixes, clean_line, counted
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import PODS

_DEFAULT_TAIL: Final = 100
_MAX_IN_FLIGHT: Final = 20
_MAX_PROBLEMS: Final = 3
_LAST_LINES_SEC: Final = 5.0

_Query: TypeAlias = dict[str, str | int]


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Print them. Return the exit code."""
    framework = await invocation.framework(options.name)
    role, index = options.target
    printer = _Printer(invocation.out, label=index is None, container=options.all_containers)
    if options.follow:
        if options.previous:
            raise program.UsageError("--previous: cannot be followed: it has ended")
        await _Following(invocation, options, framework, printer).run()
        return program.EXIT_OK
    pods: list[Json] = []
    await invocation.each(PODS, pods.append, label_selector=selector(options.name, role, index))
    sources = [source for pod in pods for source in sources_of(pod, options.container, every=options.all_containers)]
    if not sources:
        raise program.CommandError(_no_sources(options, framework, len(pods)))
    printer.reserve(sources)
    query = _query(options, many=len(sources) > 1)
    if options.previous:
        query["previous"] = "true"
    limit = asyncio.Semaphore(_MAX_IN_FLIGHT)
    problems: list[str] = []

    async def read(source: Source, take: Callable[[Line], None]) -> None:
        async with limit:
            try:
                async for line in read_lines(invocation.client, source, follow=False, **query):
                    take(line)
            except (ApiError, NotALog) as error:
                problems.append(_problem(source, error))

    if len(sources) == 1:
        # Without a buffer: the log may be long.
        await read(sources[0], printer.print)
    else:
        logs: list[list[Line]] = [[] for _ in sources]
        await asyncio.gather(*(read(source, log.append) for source, log in zip(sources, logs, strict=True)))
        for line in sorted(chain.from_iterable(logs), key=lambda line: line.stamp):
            printer.print(line)
    for problem in problems[:_MAX_PROBLEMS]:
        invocation.error(problem)
    if len(problems) > _MAX_PROBLEMS:
        invocation.error(f"{len(problems) - _MAX_PROBLEMS} more logs could not be read")
    return program.EXIT_FAILED if len(problems) == len(sources) else program.EXIT_OK


class _Following:
    """Follows the log of each container that runs, until the Framework has completed."""

    def __init__(self, invocation: Invocation, options: argparse.Namespace, framework: Json, printer: _Printer) -> None:
        self._invocation = invocation
        self._options = options
        self._printer = printer
        self._framework = Follower(invocation.client, [framework])
        self._pods: Informer[Record[list[Source]]] = Informer(
            invocation.client,
            PODS,
            lambda body: Record.of(body, sources_of(body, options.container, every=options.all_containers)),
            namespace=invocation.namespace,
            label_selector=selector(options.name, *options.target),
        )
        self._pods.add_handler(
            on_add=lambda new: self._read_new(new.value), on_update=lambda _old, new: self._read_new(new.value)
        )
        self._readers: dict[Source, asyncio.Task[None]] = {}

    async def run(self) -> None:
        async with program.background(self._pods.run()) as tasks:
            try:
                # Pods first: a Framework that has completed may still have some.
                await self._pods.wait_synced()
                await self._framework.run()
                if self._readers:
                    # They end with their Pods, which are gone.
                    await asyncio.wait(self._readers.values(), timeout=_LAST_LINES_SEC)
            finally:
                tasks.extend(self._readers.values())

    def _read_new(self, sources: list[Source]) -> None:
        many = self._options.target[1] is None
        for source in sources:
            if source not in self._readers:
                # A container that starts after the first list is read from its start.
                query = {} if self._pods.synced else _query(self._options, many=many)
                before = [task for other, task in self._readers.items() if other.is_same_place(source)]
                self._readers[source] = asyncio.create_task(self._read(source, query, before))

    async def _read(self, source: Source, query: _Query, before: list[asyncio.Task[None]]) -> None:
        if before:
            # The lines of an attempt come before those of the next one.
            await asyncio.wait(before, timeout=_LAST_LINES_SEC)
        try:
            async for line in read_lines(self._invocation.client, source, follow=True, **query):
                self._printer.print(line)
        except (ApiError, NotALog) as error:
            self._invocation.error(_problem(source, error))


class _Printer:
    """Prints lines with their Task as prefix, in a color of its own."""

    def __init__(self, console: Console, *, label: bool, container: bool) -> None:
        self._console = console
        self._label = label
        self._container = container
        self._labels = LinePrefixes()
        self._prefixes: dict[str, str] = {}

    def reserve(self, sources: Iterable[Source]) -> None:
        """Make the prefixes as wide as these sources need."""
        for source in sources:
            self._prefix(source)

    def print(self, line: Line) -> None:
        """Print the line as the container wrote it, with its colors."""
        prefix = self._prefix(line.source) if self._label or self._container else ""
        text = line.text.rstrip(b"\r").decode("utf-8", "replace")
        self._console.file.write(f"{prefix}{text}\n")
        self._console.file.flush()

    def _prefix(self, source: Source) -> str:
        label = source.label if self._label else ""
        if self._container:
            label += f"/{source.container}" if label else source.container
        # All attempts of a Task have the same color.
        made = self._labels.make(label, f"{source.role}/{source.index}")
        if made.plain not in self._prefixes:
            with self._console.capture() as captured:
                self._console.print(made, end="", soft_wrap=True)
            self._prefixes[made.plain] = captured.get()
        return self._prefixes[made.plain]


def _problem(source: Source, error: ApiError | NotALog) -> str:
    text = f"its node answers: {clean_line(str(error))}" if isinstance(error, NotALog) else str(error)
    return f"{source.label}: {text}"


def _query(options: argparse.Namespace, *, many: bool) -> _Query:
    query: _Query = {}
    if options.since is not None:
        query["sinceSeconds"] = int(options.since)
    if options.tail is not None:
        query["tailLines"] = options.tail
    elif many and options.since is None:
        query["tailLines"] = _DEFAULT_TAIL
    return query


def _no_sources(options: argparse.Namespace, framework: Json, pods: int) -> str:
    role, index = options.target
    place = f"{options.name}{f' {role}' if role else ''}{'' if index is None else f'[{index}]'}"
    if pods:
        what = f"container {options.container!r}" if options.container else "container"
        return f"{place}: no {what} has started in its {counted(pods, 'Pod')}"
    roles = [one["name"] for one in roles_of(framework)]
    if role is not None and role not in roles:
        return f"{options.name}: has no role {role!r}, only {', '.join(roles) or 'none'}"
    if state_of(framework) == State.COMPLETED:
        return f"{place}: has completed; its Pods are gone, and with them their logs"
    return f"{place}: there is no Pod now"
