"""``logs``: the merged logs of the containers of a Framework; with ``-f`` also of later attempts."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final, TypeAlias

from rich.console import Console

from frameworkcontroller.api import names
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.frameworkfollower import FrameworkFollower
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.output import LinePrefixes
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError, TransportError
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.podlog import STAMP, NotALog
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.views.apiobjects import CachedObject, Json, default_container, pod_selector, roles_of, state_of
from frameworkcontroller.views.texts import clean_line, counted

_DEFAULT_TAIL: Final = 100
_MAX_IN_FLIGHT: Final = 20
_MAX_PROBLEMS: Final = 3
_LAST_LINES_SEC: Final = 5.0
_RETRY_SEC: Final = 1.0
_MAX_ANSWER_BYTES: Final = 2000

_Query: TypeAlias = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Source:
    """One run of a container of the Pod of a Task's attempt."""

    role: str
    index: int
    attempt: int
    namespace: str
    pod: str
    pod_uid: str
    container: str
    restarts: int

    @property
    def label(self) -> str:
        """``worker[3]``; ``worker[3]#1`` in the Task's second attempt."""
        return f"{self.role}[{self.index}]{f'#{self.attempt}' if self.attempt else ''}"

    def is_same_place(self, other: Source) -> bool:
        """Return whether it is the same container of the same Task, in any attempt or run."""
        return (self.role, self.index, self.container) == (other.role, other.index, other.container)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log. ``stamp``: its time as RFC 3339 text; the texts of one container compare as the times do."""

    source: Source
    stamp: str
    text: bytes


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Print them. Return the exit code."""
    framework = await invocation.framework(options.name)
    role, index = options.target
    printer = _Printer(invocation.out, label=index is None, container=options.all_containers)
    if options.follow:
        if options.previous:
            raise program.UsageError("--previous: cannot be followed: it has ended")
        await _follow(invocation, options, framework, printer)
        return program.EXIT_OK
    pods = [pod async for pod in invocation.each(PODS, label_selector=pod_selector(options.name, role, index))]
    sources = [source for pod in pods for source in sources_of(pod, options.container, every=options.all_containers)]
    if not sources:
        raise program.CommandError(_no_sources(options, framework, len(pods)))
    for source in sources:
        # The prefixes become as wide as the widest one.
        printer.prefix(source)
    query = _query(options, many=len(sources) > 1)
    limit = asyncio.Semaphore(_MAX_IN_FLIGHT)
    problems: list[str] = []

    async def read(source: Source, take: Callable[[Line], None]) -> None:
        async with limit:
            try:
                async for line in read_lines(invocation.client, source, follow=False, **query):
                    take(line)
            except (ApiError, NotALog) as error:
                problems.append(f"{source.label}: {error}")

    if len(sources) == 1:
        # Without a buffer: the log may be long.
        await read(sources[0], printer.print)
    else:
        logs: list[list[Line]] = [[] for _ in sources]
        await asyncio.gather(*(read(source, log.append) for source, log in zip(sources, logs, strict=True)))
        for line in sorted(chain.from_iterable(logs), key=attrgetter("stamp")):
            printer.print(line)
    for problem in problems[:_MAX_PROBLEMS]:
        invocation.error(problem)
    if len(problems) > _MAX_PROBLEMS:
        invocation.error(f"{len(problems) - _MAX_PROBLEMS} more logs could not be read")
    return program.EXIT_FAILED if len(problems) == len(sources) else program.EXIT_OK


async def _follow(invocation: Invocation, options: argparse.Namespace, framework: Json, printer: _Printer) -> None:
    """Follow the log of each container that runs, until the Framework has completed."""
    readers: dict[Source, asyncio.Task[None]] = {}

    def read_new(record: CachedObject[list[Source]]) -> None:
        for source in record.value:
            if source not in readers:
                # A container that starts after the first list is read from its start.
                query = {} if pods.synced else _query(options, many=options.target[1] is None)
                before = [task for other, task in readers.items() if other.is_same_place(source)]
                readers[source] = asyncio.create_task(read(source, query, before))

    async def read(source: Source, query: _Query, before: list[asyncio.Task[None]]) -> None:
        if before:
            # The lines of an attempt come before the next one's.
            await asyncio.wait(before, timeout=_LAST_LINES_SEC)
        try:
            async for line in read_lines(invocation.client, source, follow=True, **query):
                printer.print(line)
        except (ApiError, NotALog) as error:
            invocation.error(f"{source.label}: {error}")

    pods: Informer[CachedObject[list[Source]]] = Informer(
        invocation.client,
        PODS,
        lambda body: CachedObject.of(body, sources_of(body, options.container, every=options.all_containers)),
        namespace=invocation.namespace,
        label_selector=pod_selector(options.name, *options.target),
    )
    pods.add_handler(on_add=read_new, on_update=lambda _old, new: read_new(new))
    async with program.background(pods.run()) as tasks:
        try:
            # Pods first: a Framework that has completed may still have some.
            await pods.wait_synced()
            await FrameworkFollower(invocation.client, [framework]).run()
            if readers:
                # They end with their Pods, which are gone.
                await asyncio.wait(readers.values(), timeout=_LAST_LINES_SEC)
        finally:
            tasks.extend(readers.values())


class _Printer:
    """Prints lines with their Task as prefix, in a color of its own."""

    def __init__(self, console: Console, *, label: bool, container: bool) -> None:
        self._console = console
        self._label = label
        self._container = container
        self._labels = LinePrefixes()
        self._prefixes: dict[str, str] = {}

    def print(self, line: Line) -> None:
        """Print the line as the container wrote it, with its colors."""
        text = line.text.rstrip(b"\r").decode("utf-8", "replace")
        self._console.file.write(f"{self.prefix(line.source)}{text}\n")
        self._console.file.flush()

    def prefix(self, source: Source) -> str:
        """Return the prefix of a source, as wide as the widest one so far; "" if all lines are of one container."""
        label = "/".join([source.label] * self._label + [source.container] * self._container)
        if not label:
            return ""
        # All attempts of a Task have the same color.
        made = self._labels.make(label, f"{source.role}/{source.index}")
        if made.plain not in self._prefixes:
            with self._console.capture() as captured:
                self._console.print(made, end="", soft_wrap=True)
            self._prefixes[made.plain] = captured.get()
        return self._prefixes[made.plain]


def _query(options: argparse.Namespace, *, many: bool) -> _Query:
    query: _Query = {"previous": "true"} if options.previous else {}
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


def sources_of(pod: Mapping[str, Any], container: str | None, *, every: bool = False) -> list[Source]:
    """Return the containers of the Pod that have begun to run: the named or default one, or ``every`` one."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    place = names.split_pod_name(metadata["name"])
    if place is None:
        return []
    wanted = container or default_container(pod)
    attempt = (metadata.get("annotations") or {}).get(names.TASK_ATTEMPT_ID, "0")
    of_attempt = partial(Source, *place[1:], int(attempt) if attempt.isdigit() else 0)
    found = []
    for one in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state, restarts = one.get("state") or {}, one.get("restartCount") or 0
        if (restarts or "running" in state or "terminated" in state) and (every or one["name"] == wanted):
            found.append(of_attempt(metadata["namespace"], metadata["name"], metadata["uid"], one["name"], restarts))
    return found


async def read_lines(client: KubeClient, source: Source, *, follow: bool, **options: str | int) -> AsyncIterator[Line]:
    """Yield the lines. With ``follow``, continue over broken connections until the container has ended.

    Raises:
        KubeError: the log does not exist or cannot be read.
    """
    query: dict[str, str | int] = {"timestamps": "true", **options, **({"follow": "true"} if follow else {})}
    # The stamp of the last line, and the number of lines with it: the clocks of some container runtimes are coarse.
    last, of_last = "", 0
    while True:
        resumed, seen_before = last, of_last
        try:
            async with client.log(source.pod, source.namespace, source.container, **query) as chunks:
                lines = _lines(chunks)
                async for raw in lines:
                    stamp, _, text = raw.partition(b" ")
                    if not STAMP.fullmatch(stamp):
                        raise NotALog(f"its node answers: {clean_line(await _whole(raw, lines))}")
                    line = Line(source, stamp.decode("ascii", "replace"), text)
                    if line.stamp < resumed:
                        continue
                    if line.stamp == resumed and seen_before:
                        seen_before -= 1
                        continue
                    of_last = of_last + 1 if line.stamp == last else 1
                    last = line.stamp
                    yield line
            return
        except TransportError:
            if not follow:
                raise
        if last:
            # The API takes whole seconds: the lines of that second that were printed are skipped above.
            query = {"timestamps": "true", "follow": "true", "sinceTime": f"{last[:19]}Z"}
        await asyncio.sleep(_RETRY_SEC)


async def _whole(first: bytes, rest: AsyncIterator[bytes]) -> str:
    text = first
    async for line in rest:
        if len(text) < _MAX_ANSWER_BYTES:
            text += b"\n" + line
    return text.decode("utf-8", "replace")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest
