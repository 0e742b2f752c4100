"""The lines of a Framework's logs: from its Pods while they exist, and from the archive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.podlog import NotALog
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.sdk.archives import archive_of
from frameworkcontroller.sdk.exceptions import LogUnavailable, RequestRefused
from frameworkcontroller.sdk.following import brought, check_watch
from frameworkcontroller.sdk.podtemplates import Json
from frameworkcontroller.sdk.runstatus import LogLine, read_status
from frameworkcontroller.sdk.translation import translated
from frameworkcontroller.views.apiobjects import attempt_of, pod_selector
from frameworkcontroller.views.archivedlogs import ArchivedLogs
from frameworkcontroller.views.containerlogs import ArchivedLog, newest, of_default_containers
from frameworkcontroller.views.logfollower import LAST_LINES_SEC, LogFollower, Target
from frameworkcontroller.views.loglines import Line, Source, read_lines, sources_of
from frameworkcontroller.views.paging import each_object

_IN_FLIGHT: Final = 20
_POLL_SEC: Final = 0.5
_RECENT_SEC: Final = 60.0
_DENIED: Final = (401, 403)


class RunLogs:
    """The logs of one Framework. ``body``: its API object now; ``target``: a role and an index, None for all."""

    def __init__(
        self, client: KubeClient, connection: Connection, body: Json, target: Target, tail: int | None
    ) -> None:
        """``tail``: only the last lines of each Task."""
        self._client = client
        self._connection = connection
        self._body = body
        self._target = target
        self._tail = tail
        self._query: dict[str, str | int] = {} if tail is None else {"tailLines": tail}
        metadata = body["metadata"]
        self._name: Final[str] = metadata["name"]
        self._namespace: Final[str] = metadata["namespace"]
        self._uid: Final[str] = metadata["uid"]

    async def follow(self) -> AsyncGenerator[LogLine, None]:
        """Yield the lines as they come, until the end of the Framework; then those that could not be read in time."""
        lines: asyncio.Queue[Line | ApiError] = asyncio.Queue()

        def on_problem(_source: Source, error: Exception) -> None:
            # The log of a Pod that has just gone is in the archive.
            if isinstance(error, ApiError) and error.code in _DENIED:
                lines.put_nowait(error)

        following = LogFollower(
            self._client, self._body, lines.put_nowait, target=self._target, query=self._query, on_problem=on_problem
        )

        async def check() -> None:
            await self._check(following)

        async with aclosing(brought(lines, following.run(), check)) as found:
            async for line in found:
                if isinstance(line, ApiError):
                    with translated("get", "pods/log", namespace=self._namespace):
                        raise line
                yield _line(line)
        try:
            async with archive_of(self._connection) as archive:
                if archive is not None:
                    kept = ArchivedLogs(archive, self._namespace, self._name)
                    missed = await kept.missed(self._body, following, self._target)
                    async with aclosing(self._archived(kept, missed)) as archived:
                        async for one in archived:
                            yield one
        except RequestRefused:
            if following.missed:
                raise

    async def past(self, attempt: int | None) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of existing Pods, by time, and lines of the other Tasks from the archive.

        ``attempt``: of the Framework; None: the last one. Raises LogUnavailable if there is none.
        """
        current = max(attempt_of(self._body), 0)
        wanted = current if attempt is None else attempt
        read: set[tuple[str, int]] = set()
        if wanted == current:
            for line in await self._of_pods(wanted, read):
                yield _line(line)
            if read and self._tasks() <= read:
                return
        async with archive_of(self._connection) as archive:
            if archive is None:
                if not read:
                    raise LogUnavailable(
                        f"{self._name}: no Pod of attempt {wanted} has a log now, and no archive is named "
                        "($FRAMEWORK_HISTORY_URL, or the kubeconfig)"
                    )
                return
            kept = ArchivedLogs(archive, self._namespace, self._name)
            some = [log for log in await self._stored(kept, wanted) if log.task not in read]
            # Records arrive in batches.
            deadline = asyncio.get_running_loop().time() + LAST_LINES_SEC
            while self._may_be_late(wanted, read | {log.task for log in some}, deadline):
                await asyncio.sleep(_POLL_SEC)
                some = [log for log in await self._stored(kept, wanted) if log.task not in read]
            if not some and not read:
                raise LogUnavailable(f"{self._name}: no Pod of attempt {wanted} has a log now, nor has the archive")
            async with aclosing(self._archived(kept, some)) as archived:
                async for one in archived:
                    yield one

    async def _stored(self, kept: ArchivedLogs, attempt: int) -> list[ArchivedLog]:
        found = await kept.logs(self._uid, attempt, *self._target)
        return newest(of_default_containers(found, self._body))

    def _may_be_late(self, attempt: int, found: set[tuple[str, int]], deadline: float) -> bool:
        """Return whether the archive may soon have the logs of further Tasks, which have just ended."""
        completed = read_status(self._body).completed
        if attempt != attempt_of(self._body) or completed is None or self._tasks() <= found:
            return False
        return abs(time.time() - completed) < _RECENT_SEC and asyncio.get_running_loop().time() < deadline

    def _tasks(self) -> set[tuple[str, int]]:
        """Return the wanted Tasks in the status that have had a node."""
        role, index = self._target
        tasks = [one for one in read_status(self._body).tasks if one.node]
        return {(one.role, one.index) for one in tasks if role in (None, one.role) and index in (None, one.index)}

    async def _of_pods(self, attempt: int, read: set[tuple[str, int]]) -> list[Line]:
        """Return the lines of the Pods of an attempt, by time. Add the Tasks whose log was read to ``read``."""
        with translated("list", PODS.plural, namespace=self._namespace):
            each = each_object(
                self._client, PODS, self._namespace, label_selector=pod_selector(self._name, *self._target)
            )
            sources = [source async for pod in each for source in sources_of(pod, None)]
        limit = asyncio.Semaphore(_IN_FLIGHT)
        lines: list[Line] = []

        async def read_one(source: Source) -> None:
            async with limit:
                try:
                    lines.extend([line async for line in read_lines(self._client, source, follow=False, **self._query)])
                except NotALog:
                    return
                except ApiError as error:
                    # The log of a Pod that has just gone is in the archive.
                    if error.code in _DENIED:
                        raise
                    return
                read.add((source.role, source.index))

        with translated("get", "pods/log", namespace=self._namespace):
            await asyncio.gather(*(read_one(one) for one in sources if one.framework_attempt in (None, attempt)))
        return sorted(lines, key=lambda one: one.stamp)

    async def _check(self, following: LogFollower) -> None:
        """Raise the error of a watch that fails for a reason other than an outage."""
        since = following.follower.failing_since
        await check_watch(
            self._client, FRAMEWORKS, self._namespace, since, field_selector=f"metadata.name={self._name}"
        )
        selector = pod_selector(self._name, *self._target)
        await check_watch(self._client, PODS, self._namespace, following.failing_since, label_selector=selector)

    async def _archived(self, kept: ArchivedLogs, logs: Sequence[ArchivedLog]) -> AsyncGenerator[LogLine, None]:
        async with aclosing(kept.lines(self._uid, logs, self._tail)) as found:
            async for log, lines in found:
                for text in lines:
                    yield LogLine("", *log.task, log.item["attempt"], _text(text))


def _line(line: Line) -> LogLine:
    return LogLine(line.stamp, line.source.role, line.source.index, line.source.attempt, _text(line.text))


def _text(data: bytes) -> str:
    return data.rstrip(b"\r").decode("utf-8", "replace")
