"""The archive: takes records, keeps them in a database, answers reads."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from frameworkcontroller.history import queries, retention
from frameworkcontroller.history.costs import count_cost
from frameworkcontroller.history.database import Database
from frameworkcontroller.history.failures import count_failures, list_failures
from frameworkcontroller.history.groupcommit import Writer
from frameworkcontroller.history.ingest import parse
from frameworkcontroller.history.queries import Readable
from frameworkcontroller.history.reads import (
    A,
    ArchiveReader,
    CountCost,
    CountFailures,
    GetAttempt,
    GetFramework,
    GetLog,
    GetTaskAttempt,
    GetTaskHistory,
    ListFailures,
    ListFrameworks,
    ListLogs,
    ListNamespaces,
    ListTasks,
    Read,
)
from frameworkcontroller.webaccess.viewers import LogAccessError, Viewer


class Usage(NamedTuple):
    """The size of the archive. ``bytes``: in use, without space to be reused."""

    bytes: int
    frameworks: int


def encode(value: Any) -> bytes:
    """The JSON of an answer. ``orjson.dumps`` refuses integers beyond 64 bits, which objects may have."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


_CALLS: Final = 16
"""Calls of ``store`` whose rows are in memory at once."""


class HistoryArchive:
    """The records of many Frameworks in a database. Methods may be called concurrently, by tasks of one event loop.

    All methods raise ArchiveError while the database cannot be used.
    """

    def __init__(self, database: Database, wall: Callable[[], float] = time.time) -> None:
        """``database``: an open one. ``wall``: seconds since the epoch."""
        self._database = database
        self._wall = wall
        self._writer = Writer(database)
        # More callers wait with their lines, which take less memory than rows.
        self._places = asyncio.Semaphore(_CALLS)

    @property
    def path(self) -> Path | None:
        """The file of SQLite, None of PostgreSQL."""
        return self._database.path

    @classmethod
    async def open(cls, url: str, *, reserve: bool = False) -> HistoryArchive:
        """Open the database, create it if needed, and migrate it to this version.

        Args:
            url: ``sqlite:///relative/path``, ``sqlite:////absolute/path`` or
                ``postgresql://user:password@host:port/database?sslmode=…``.
            reserve: set disk space aside for SQLite's retention on a full disk.

        Raises:
            ArchiveError: it cannot be opened, or is of a newer version.
        """
        database = Database(url, reserve=reserve)
        await database.open()
        return cls(database)

    async def close(self) -> None:
        """Wait for the calls in progress, and close the database."""
        await self._writer.close()
        await self._database.close()

    async def __aenter__(self) -> HistoryArchive:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def store(self, lines: Sequence[bytes]) -> None:
        """Store records, one of each line of JSON: all of them or none. Durable at return.

        Concurrent calls share a commit.

        Raises:
            RecordError: a record is invalid.
        """
        if lines:
            async with self._places:
                await self._writer.write(await asyncio.to_thread(parse, lines, self._wall()))

    async def read(self, query: Read[A], readable: Readable = None) -> A:
        """Answer. ``readable``: the namespaces that the viewer may read, None: all."""
        async with self._database.reading() as connection:
            found = await _READS[type(query)](connection, query, readable)
        # Records are decompressed after the connection is free.
        answer: A = await asyncio.to_thread(found) if callable(found) else found
        return answer

    async def for_viewer(self, viewer: Viewer) -> ArchiveReader:
        """Return the archive as the viewer may read it."""
        every = await self.read(ListNamespaces())
        return _LocalReader(self, await viewer.readable(every["items"]), viewer)

    async def prune(self, *, before: int | None = None, max_bytes: int | None = None) -> retention.Pruned:
        """Remove Frameworks as a whole, oldest record first, in small steps between which others write.

        Args:
            before: seconds since the epoch; those whose newest record is older.
            max_bytes: as many as needed until ``usage().bytes`` is at most this.
        """
        return await retention.prune(self._database, before, max_bytes)

    async def prune_logs(self, *, before: int | None = None, max_bytes: int | None = None) -> int:
        """Remove the oldest logs, in small steps between which others write. Return their number.

        Args:
            before: seconds since the epoch; logs of older records.
            max_bytes: as many as needed until the others take at most this.
        """
        return await retention.prune_logs(self._database, before, max_bytes)

    async def usage(self) -> Usage:
        """Return the size of the archive. Takes a second for a million Task attempts."""
        used = await retention.used_bytes(self._database)
        async with self._database.reading() as connection:
            count = await queries.count_frameworks(connection)
        return Usage(used, count)

    async def check(self) -> None:
        """Return if the database answers and has the schema of this version."""
        await self._database.check()


@dataclass(frozen=True, slots=True)
class _LocalReader:
    archive: HistoryArchive
    readable: Readable
    viewer: Viewer

    async def read(self, query: Read[A]) -> A:
        if query.of_logs:
            uid: str = query.uid  # type: ignore[attr-defined] # of all that are ``of_logs``
            framework = await self.archive.read(GetFramework(uid), self.readable)
            if framework is not None and not await self.viewer.may_read_logs(framework["namespace"]):
                raise LogAccessError(framework["namespace"])
        return await self.archive.read(query, self.readable)


_READS: Final[Mapping[type[Read[Any]], Callable[[AsyncConnection, Any, Readable], Awaitable[Any]]]] = {
    ListFrameworks: queries.list_frameworks,
    GetFramework: queries.get_framework,
    GetAttempt: queries.get_attempt,
    ListTasks: queries.list_tasks,
    GetTaskAttempt: queries.get_task_attempt,
    GetTaskHistory: queries.list_task_history,
    ListLogs: queries.list_logs,
    GetLog: queries.get_log,
    CountCost: count_cost,
    CountFailures: count_failures,
    ListFailures: list_failures,
    ListNamespaces: queries.list_namespaces,
}
