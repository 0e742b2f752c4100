"""``logs``: what the containers of a Framework's Tasks have written, merged; with ``-f`` also of attempts to come."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from typing import Final

from rich.console import Console

from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.containerlogs import Line, NotALog, Source, read_lines, selector, sources_of
from frameworkcontroller.commands.follower import Follower
from frameworkcontroller.commands.humanize import counted, tame
from frameworkcontroller.commands.invocation import Json, Session
from frameworkcontroller.commands.lineprefix import Labels
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import PODS

_TAIL_OF_MANY: Final = 100
_AT_ONCE: Final = 20
_PROBLEMS_TOLD: Final = 3
_LAST_LINES_SEC: Final = 5.0


async def run(session: Session, options: argparse.Namespace) -> int:
    """Print them. Returns the exit code."""
    framework = await session.framework(options.name)
    role, index = options.target
    printer = _Printer(session.out, label=index is None, container=options.all_containers)
    if options.follow:
        if options.previous:
            raise program.CommandError("--previous: has ended, and cannot be followed", program.EXIT_USAGE)
        return await _Following(session, options, framework, printer).run()
    pods: list[Json] = []
    await session.each(PODS, pods.append, label_selector=selector(options.name, role, index))
    sources = [source for pod in pods for source in sources_of(pod, options.container, every=options.all_containers)]
    if not sources:
        raise program.CommandError(_nothing(options, framework, len(pods)))
    printer.make_room(sources)
    asked = _asked(options, many=len(sources) > 1)
    if options.previous:
        asked["previous"] = "true"
    limit = asyncio.Semaphore(_AT_ONCE)
    problems: list[str] = []

    async def read(source: Source) -> list[Line]:
        lines: list[Line] = []
        async with limit:
            try:
                # What was read before it fails is kept.
                async for line in read_lines(session.client, source, follow=False, **asked):
                    lines.append(line)  # noqa: PERF401
            except (ApiError, NotALog) as error:
                problems.append(_problem(source, error))
        return lines

    if len(sources) == 1:
        # As it comes, however long it is.
        try:
            async for line in read_lines(session.client, sources[0], follow=False, **asked):
                printer.print(line)
        except (ApiError, NotALog) as error:
            problems.append(_problem(sources[0], error))
    else:
        logs = await asyncio.gather(*map(read, sources))
        for line in sorted((line for log in logs for line in log), key=lambda line: line.stamp):
            printer.print(line)
    for problem in problems[:_PROBLEMS_TOLD]:
        session.complain(problem)
    if len(problems) > _PROBLEMS_TOLD:
        session.complain(f"and {len(problems) - _PROBLEMS_TOLD} more could not be read")
    return program.EXIT_FAILED if len(problems) == len(sources) else program.EXIT_OK


class _Following:
    """Follows the Pods, and the log of each container that begins to run, until the Framework has completed."""

    def __init__(self, session: Session, options: argparse.Namespace, framework: Json, printer: _Printer) -> None:
        self._session = session
        self._options = options
        self._printer = printer
        metadata = framework["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        self._framework = Follower(session.client, {key: metadata["uid"]}, lambda _key, _body: None)
        self._pods: Informer[_Pod] = Informer(
            session.client,
            PODS,
            self._read_pod,
            namespace=session.namespace,
            label_selector=selector(options.name, *options.target),
        )
        self._pods.add_handler(on_add=self._on_pod, on_update=lambda _old, new: self._on_pod(new))
        self._reading: dict[Source, asyncio.Task[None]] = {}

    async def run(self) -> int:
        pods = asyncio.create_task(self._pods.run(), name="following Pods")
        try:
            # Not before the Pods are known: of those of a Framework that has completed, some may still be there.
            await self._pods.wait_synced()
            await self._framework.run()
            if self._reading:
                # They end with their Pods, of which none is left.
                await asyncio.wait(self._reading.values(), timeout=_LAST_LINES_SEC)
        finally:
            company = [pods, *self._reading.values()]
            for task in company:
                task.cancel()
            await asyncio.wait(company)
        return program.EXIT_OK

    def _read_pod(self, body: Json) -> _Pod:
        sources = sources_of(body, self._options.container, every=self._options.all_containers)
        return _Pod(body, sources)

    def _on_pod(self, pod: _Pod) -> None:
        first = not self._pods.synced
        for source in pod.sources:
            if source not in self._reading:
                # Of what begins while we look, everything is new.
                asked = _asked(self._options, many=self._options.target[1] is None) if first else {}
                before = [task for other, task in self._reading.items() if other.is_same_place(source)]
                reading = self._read(source, asked, before)
                self._reading[source] = asyncio.create_task(reading, name=f"log of {source.label}")

    async def _read(self, source: Source, asked: dict[str, str | int], before: list[asyncio.Task[None]]) -> None:
        if before:
            # What an attempt wrote comes before what the next one writes.
            await asyncio.wait(before, timeout=_LAST_LINES_SEC)
        try:
            async for line in read_lines(self._session.client, source, follow=True, **asked):
                self._printer.print(line)
        except (ApiError, NotALog) as error:
            self._session.complain(_problem(source, error))


class _Pod:
    """A Pod in an informer's store."""

    __slots__ = ("key", "resource_version", "sources", "uid")

    def __init__(self, body: Json, sources: Iterable[Source]) -> None:
        metadata = body["metadata"]
        self.key = f"{metadata['namespace']}/{metadata['name']}"
        self.uid: str = metadata["uid"]
        self.resource_version: str = metadata["resourceVersion"]
        self.sources = tuple(sources)


class _Printer:
    """Prints lines with their Task in front of them, each Task in a colour of its own."""

    def __init__(self, console: Console, *, label: bool, container: bool) -> None:
        self._console = console
        self._label = label
        self._container = container
        self._labels = Labels()
        self._prefixes: dict[str, str] = {}

    def make_room(self, sources: Iterable[Source]) -> None:
        """So that the lines of all these begin in the same column."""
        for source in sources:
            self._prefix(source)

    def print(self, line: Line) -> None:
        """The text is the container's own, colours and all."""
        prefix = self._prefix(line.source) if self._label or self._container else ""
        text = line.text.rstrip(b"\r").decode("utf-8", "replace")
        self._console.file.write(f"{prefix}{text}\n")
        self._console.file.flush()

    def _prefix(self, source: Source) -> str:
        label = source.label if self._label else ""
        if self._container:
            label += f"/{source.container}" if label else source.container
        # The same colour in every attempt.
        made = self._labels.make(label, f"{source.role}/{source.index}")
        if made.plain not in self._prefixes:
            with self._console.capture() as captured:
                self._console.print(made, end="", soft_wrap=True)
            self._prefixes[made.plain] = captured.get()
        return self._prefixes[made.plain]


def _problem(source: Source, error: ApiError | NotALog) -> str:
    told = f"its node answers: {tame(str(error))}" if isinstance(error, NotALog) else str(error)
    return f"{source.label}: {told}"


def _asked(options: argparse.Namespace, *, many: bool) -> dict[str, str | int]:
    asked: dict[str, str | int] = {}
    if options.since is not None:
        asked["sinceSeconds"] = int(options.since)
    if options.tail is not None:
        asked["tailLines"] = options.tail
    elif many and options.since is None:
        asked["tailLines"] = _TAIL_OF_MANY
    return asked


def _nothing(options: argparse.Namespace, framework: Json, pods: int) -> str:
    role, index = options.target
    place = f"{options.name}{f' {role}' if role else ''}{'' if index is None else f'[{index}]'}"
    if pods:
        what = f"container {options.container!r}" if options.container else "container"
        return f"{place}: no {what} has begun to run in its {counted(pods, 'Pod')}"
    roles = [one["name"] for one in framework["spec"]["taskRoles"]]
    if role is not None and role not in roles:
        return f"{options.name}: has no role {role!r}, only {', '.join(roles) or 'none'}"
    if (framework.get("status") or {}).get("state") == State.COMPLETED:
        return f"{place}: has completed; its Pods are gone, and with them their logs"
    return f"{place}: there is no Pod now"
