"""``logs``: the merged logs of the containers of a Framework; with ``-f`` also of later attempts.

Logs of Pods that are gone come from the archive, if one is named.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias

import orjson

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import archivesource, program
from frameworkcontroller.commands.invocation import Invocation, checked_name
from frameworkcontroller.commands.logprinter import LinePrinter
from frameworkcontroller.kube.errors import ApiError, KubeError, NotFound
from frameworkcontroller.kube.podlog import NotALog
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.views.apiobjects import Json, attempt_of, pod_selector, state_of, task_numbers
from frameworkcontroller.views.archivedlogs import ArchivedLogs
from frameworkcontroller.views.containerlogs import ArchivedLog, newest, of_default_containers
from frameworkcontroller.views.logfollower import LogFollower
from frameworkcontroller.views.loglines import Line, Source, read_lines, sources_of
from frameworkcontroller.views.texts import clean_line, counted
from frameworkcontroller.webaccess.viewers import LogAccessError

_DEFAULT_TAIL: Final = 100
_MAX_IN_FLIGHT: Final = 20
_MAX_PROBLEMS: Final = 3

_Query: TypeAlias = dict[str, str | int]


def run_anywhere(options: argparse.Namespace) -> int:
    """Run the command, also without a cluster. Return the exit code."""
    return archivesource.run_anywhere(run, options)


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Print them. Return the exit code."""
    _check(options)
    checked_name(options.name)
    return await _Logs(invocation, options).run()


async def follow(invocation: Invocation, options: argparse.Namespace, framework: Json) -> None:
    """Print the logs of all attempts after this state of the Framework, until its end."""
    await _Logs(invocation, options)._follow(framework)


def _check(options: argparse.Namespace) -> None:
    if options.task is not None:
        if options.target[0] is not None:
            raise program.UsageError("--task: is already named by ROLE/INDEX")
        options.target = options.task
    if options.follow and options.previous:
        raise program.UsageError("--previous: cannot be followed: it has ended")
    if options.follow and (options.attempt is not None or options.all_attempts):
        raise program.UsageError("-f: follows the current and later attempts, without --attempt and --all-attempts")


@asynccontextmanager
async def _opened(invocation: Invocation, options: argparse.Namespace) -> AsyncIterator[ArchivedLogs]:
    """Open the archive of the options. Its errors end the command."""
    async with archivesource.open_archive(invocation, options) as source:
        try:
            yield ArchivedLogs(source, invocation.namespace, options.name)
        except LogAccessError as error:
            raise program.CommandError(str(error)) from None


class _Logs:
    """The logs that the options ask for, from live Pods and from the archive."""

    def __init__(self, invocation: Invocation, options: argparse.Namespace) -> None:
        self.invocation = invocation
        self.options = options
        self.role, self.index = options.target
        self.is_live = getattr(options, "live", True)
        self.has_archive = archivesource.name_archive(invocation, options)
        self.printer = LinePrinter(
            invocation.out,
            label=self.index is None or options.all_attempts,
            attempt=options.all_attempts,
            container=options.all_containers,
            raw=options.raw,
        )
        self.problems: list[str] = []

    async def run(self) -> int:
        framework = await self._framework()
        if framework is None or not self._wants(attempt_of(framework)):
            return await self._print_archived(framework, frozenset())
        if self.options.follow and state_of(framework) != State.COMPLETED:
            await self._follow(framework)
            return program.EXIT_OK
        return await self._print(framework)

    def _wants(self, attempt: int) -> bool:
        return bool(self.options.all_attempts or self.options.attempt in (None, attempt))

    async def _framework(self) -> Json | None:
        """Return the Framework in the cluster; None if there is none, and an archive may have it."""
        if not self.has_archive:
            if not self.is_live:
                raise program.UsageError(f"{self.options.unreachable}; or name an archive: {archivesource.HOW_TO_NAME}")
            if self.options.attempt is not None or self.options.all_attempts:
                live = attempt_of(await self.invocation.framework(self.options.name))
                if not self.options.all_attempts and self.options.attempt != live:
                    raise program.CommandError(
                        f"{self.options.name}: is in attempt {live}; an archive may have the logs of attempt "
                        f"{self.options.attempt}: {archivesource.HOW_TO_NAME}"
                    )
            return await self.invocation.framework(self.options.name)
        if not self.is_live:
            return None
        try:
            found: Json = orjson.loads(
                await self.invocation.client.get(FRAMEWORKS, self.options.name, self.invocation.namespace)
            )
        except NotFound:
            return None
        except KubeError as error:
            self.invocation.note(f"the cluster cannot be read: {clean_line(str(error))}")
            return None
        return found if self.options.uid in (None, found["metadata"]["uid"]) else None

    # --- live Pods ---

    async def _print(self, framework: Json) -> int:
        """Print the logs of the Pods that exist, and archived ones of Tasks without a Pod."""
        options = self.options
        selector = pod_selector(options.name, self.role, self.index)
        pods = [pod async for pod in self.invocation.each(PODS, label_selector=selector)]
        sources = [s for pod in pods for s in sources_of(pod, options.container, every=options.all_containers)]
        covers_all = bool(sources) and self.index is not None and not options.all_attempts
        code = program.EXIT_OK
        if self.has_archive and not covers_all:
            try:
                code = await self._print_archived(framework, frozenset(sources), len(pods))
            except program.CommandError as error:
                # The live Pods do not need the archive.
                if not sources:
                    raise
                self.invocation.note(str(error))
        elif not sources:
            raise program.CommandError(_no_sources(options, framework, len(pods)))
        return await self._print_live(sources) if sources else code

    async def _print_live(self, sources: Sequence[Source]) -> int:
        for source in sources:
            # The prefixes become as wide as the widest one.
            self.printer.prefix(source)
        query = _query(self.options, many=len(sources) > 1)
        limit = asyncio.Semaphore(_MAX_IN_FLIGHT)
        problems: list[str] = []

        async def read(source: Source, take: Callable[[Line], None]) -> None:
            async with limit:
                try:
                    async for line in read_lines(self.invocation.client, source, follow=False, **query):
                        take(line)
                except (ApiError, NotALog) as error:
                    problems.append(f"{source.label}: {error}")

        if len(sources) == 1:
            # Without a buffer: the log may be long.
            await read(sources[0], self.printer.print)
        else:
            logs: list[list[Line]] = [[] for _ in sources]
            await asyncio.gather(*(read(source, log.append) for source, log in zip(sources, logs, strict=True)))
            for line in sorted(chain.from_iterable(logs), key=attrgetter("stamp")):
                self.printer.print(line)
        self._report(problems, "more logs could not be read")
        return program.EXIT_FAILED if len(problems) == len(sources) else program.EXIT_OK

    def _report(self, problems: Sequence[str], others: str) -> None:
        for problem in problems[:_MAX_PROBLEMS]:
            self.invocation.error(problem)
        if len(problems) > _MAX_PROBLEMS:
            self.invocation.error(f"{len(problems) - _MAX_PROBLEMS} {others}")

    # --- the archive ---

    async def _print_archived(self, framework: Json | None, live: frozenset[Source], pods: int = 0) -> int:
        """Print archived logs. Raises CommandError if there is none, and no live one.

        ``live``: printed from Pods. ``pods``: the number of Pods.
        """
        options = self.options
        uid = options.uid if framework is None else framework["metadata"]["uid"]
        async with _opened(self.invocation, options) as archive:
            item = await archive.find(uid)
            if item is None:
                if live:
                    return program.EXIT_OK
                raise program.CommandError(self._not_archived(framework, uid, pods))
            uid = item["uid"]
            current = max((item["attempts"] or 1) - 1, 0)
            if framework is not None:
                # The archive may not have the newest attempt yet.
                current = max(attempt_of(framework), 0)
            attempt = current if options.attempt is None and not options.all_attempts else options.attempt
            found = await archive.logs(uid, attempt, self.role, self.index, options.container)
            if not options.container and not options.all_containers:
                shown = current if attempt is None else attempt
                found = of_default_containers(
                    found, framework or (await archive.framework(uid, shown) if found else {})
                )
            printed = {(one.pod_uid, one.container, one.restarts) for one in live}
            if options.all_attempts:
                wanted = [log for log in found if log.place not in printed]
            else:
                tasks = {(one.role, one.index) for one in live}
                wanted = [log for log in newest(found, previous=options.previous) if log.task not in tasks]
            if not wanted:
                if live:
                    return program.EXIT_OK
                raise program.CommandError(await self._no_log(archive, uid, attempt, framework))
            some = "logs" if not live else counted(len(wanted), "log")
            of_attempt = "" if attempt is None else f" of attempt {attempt}"
            self.invocation.note(f"{some}{of_attempt} from the archive: the Pods are gone")
            return await self._print_logs(archive, uid, wanted)

    async def _no_log(self, archive: ArchivedLogs, uid: str, attempt: int | None, framework: Json | None) -> str:
        every = await archive.logs(uid, None, self.role, self.index)
        unknown = None if every or framework is None else _not_in_spec(self.options, framework)
        if unknown is not None:
            return unknown
        which = "" if attempt is None else f" of attempt {attempt}"
        which += f" of container {self.options.container!r}" if self.options.container else ""
        text = f"{self._place()}: neither a Pod nor the archive has a log{which}"
        if not every:
            return f"{text}; the controller keeps logs by history.logs.keep (None, Failed or All)"
        attempts = sorted({log.item["frameworkAttempt"] for log in every})
        if attempt is not None and attempt not in attempts:
            text += f"; the archive has some of attempt {', '.join(map(str, attempts))} (--attempt N, --all-attempts)"
        if self.options.container or attempt is None or attempt in attempts:
            containers = sorted({log.item["container"] for log in every})
            text += f"; the archive has some of container {', '.join(containers)} (-c NAME, --all-containers)"
        return text

    def _place(self) -> str:
        return _place(self.options)

    def _not_archived(self, framework: Json | None, uid: str | None, pods: int) -> str:
        name, namespace = self.options.name, self.invocation.namespace
        if framework is None:
            which = f" with UID {uid}" if uid else ""
            return f'neither the cluster nor the archive has a Framework "{name}"{which} in namespace "{namespace}"'
        if state_of(framework) == State.COMPLETED and not pods:
            return f"{self._place()}: its Pods are gone, and the archive does not have this Framework"
        return _no_sources(self.options, framework, pods)

    async def _print_logs(self, archive: ArchivedLogs, uid: str, logs: Sequence[ArchivedLog]) -> int:
        options = self.options
        if options.since is not None:
            self.invocation.note("--since: archived lines have no times; all are shown")
        tail = options.tail
        if tail is None and len(logs) > 1:
            tail = _DEFAULT_TAIL
        for log in logs:
            self.printer.prefix(_source_of(log, self.invocation.namespace))
        problems: list[str] = []
        empty = 0
        async for log, lines in archive.lines(uid, logs, tail):
            if log.missing and (options.tail is None or not lines):
                problems.append(f"{log.label} {log.item['container']}: {log.missing}")
            empty += not lines and bool(log.missing)
            source = _source_of(log, self.invocation.namespace)
            for text in lines:
                self.printer.print(Line(source, "", text))
        for problem in problems[:_MAX_PROBLEMS]:
            self.invocation.note(problem)
        if len(problems) > _MAX_PROBLEMS:
            self.invocation.note(f"{len(problems) - _MAX_PROBLEMS} more logs are not complete")
        return program.EXIT_FAILED if empty == len(logs) else program.EXIT_OK

    # --- following ---

    async def _follow(self, framework: Json) -> None:
        """Follow the log of each container that runs, until the Framework has completed.

        Logs of Pods that were gone too soon come from the archive.
        """
        invocation, options = self.invocation, self.options

        def report(source: Source, error: Exception) -> None:
            if not self.has_archive:
                invocation.error(f"{source.label}: {error}")

        following = LogFollower(
            invocation.client,
            framework,
            self.printer.print,
            target=options.target,
            container=options.container,
            every=options.all_containers,
            query=_query(options, many=options.target[1] is None),
            on_attempt=lambda number: invocation.note(f"{options.name}: attempt {number}"),
            on_problem=report,
        )
        await following.run()
        if self.has_archive:
            await self._print_missed(framework, following)

    async def _print_missed(self, framework: Json, following: LogFollower) -> None:
        """Print archived logs of Pods that were gone before they could be read."""
        uid: str = framework["metadata"]["uid"]
        try:
            async with _opened(self.invocation, self.options) as archive:
                missed = await archive.missed(
                    framework, following, self.options.target, self.options.container, every=self.options.all_containers
                )
                if missed:
                    self.invocation.note(f"{counted(len(missed), 'log')} from the archive: the Pods were gone too soon")
                    await self._print_logs(archive, uid, missed)
        except program.CommandError as error:
            self.invocation.note(str(error))


def _source_of(log: ArchivedLog, namespace: str) -> Source:
    item = log.item
    return Source(
        role=item["role"],
        index=item["index"],
        attempt=item["attempt"],
        namespace=namespace,
        pod=item["pod"],
        pod_uid=item["podUid"],
        container=item["container"],
        restarts=item["run"],
        framework_attempt=item["frameworkAttempt"],
    )


def _query(options: argparse.Namespace, *, many: bool) -> _Query:
    query: _Query = {"previous": "true"} if options.previous else {}
    if options.since is not None:
        query["sinceSeconds"] = int(options.since)
    if options.tail is not None:
        query["tailLines"] = options.tail
    elif many and options.since is None:
        query["tailLines"] = _DEFAULT_TAIL
    return query


def _place(options: argparse.Namespace) -> str:
    role, index = options.target
    return f"{options.name}{f' {role}' if role else ''}{'' if index is None else f'[{index}]'}"


def _no_sources(options: argparse.Namespace, framework: Json, pods: int) -> str:
    place = _place(options)
    if pods:
        what = f"container {options.container!r}" if options.container else "container"
        return f"{place}: no {what} has started in its {counted(pods, 'Pod')}"
    unknown = _not_in_spec(options, framework)
    if unknown is not None:
        return unknown
    if state_of(framework) == State.COMPLETED:
        return (
            f"{place}: has completed; its Pods are gone, and with them their logs. An archive may have them: "
            f"{archivesource.HOW_TO_NAME}"
        )
    return f"{place}: there is no Pod now"


def _not_in_spec(options: argparse.Namespace, framework: Json) -> str | None:
    """Return the error for a role or a Task that the spec does not have; None if it has it."""
    role, index = options.target
    numbers = task_numbers(framework)
    if role is not None and role not in numbers:
        return f"{options.name}: has no role {role!r}, only {', '.join(numbers) or 'none'}"
    if role is not None and index is not None and index >= numbers[role]:
        return f"{options.name}: has no Task {role}[{index}]: role {role} has {counted(numbers[role], 'Task')}"
    return None
