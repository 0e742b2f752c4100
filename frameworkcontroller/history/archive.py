"""The archive: takes records, keeps them in a database, answers queries.

Answers are JSON values with the names of the HTTP API; times are RFC 3339, UTC. A field whose
value is not known is None.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError, with_plain_roles
from frameworkcontroller.history import queries, retention
from frameworkcontroller.history.database import Database
from frameworkcontroller.history.errors import ArchiveError, QueryError, RecordError
from frameworkcontroller.history.failures import FailureKey, FailureQuery, count_failures
from frameworkcontroller.history.groupcommit import Writer
from frameworkcontroller.history.ingest import parse, unpack
from frameworkcontroller.history.queries import (
    FrameworkQuery,
    Namespaces,
    Page,
    TaskQuery,
)

__all__ = [
    "Archive",
    "ArchiveError",
    "FailureKey",
    "FailureQuery",
    "FrameworkQuery",
    "Namespaces",
    "Page",
    "Pruned",
    "QueryError",
    "RecordError",
    "Stored",
    "TaskQuery",
    "Usage",
    "encode",
]


@dataclass(frozen=True, slots=True)
class Stored:
    """What a call of ``store`` has stored. ``records``: of the call, known and older ones too."""

    records: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a call of ``prune`` has removed."""

    frameworks: int
    attempts: int
    """Framework attempts, Task attempts and Pods."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the archive holds. ``bytes``: in use, without space to be reused."""

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


class Archive:
    """The records of many Frameworks in a database. Methods may be called concurrently, by tasks of one event loop.

    All methods raise ArchiveError while the database cannot be used; methods with a query raise QueryError.
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
    async def open(cls, url: str, *, reserve: bool = False) -> Archive:
        """Open the database, create it if needed, and migrate it to this version.

        Args:
            url: ``sqlite:///relative/path``, ``sqlite:////absolute/path`` or
                ``postgresql://user:password@host:port/database?sslmode=…``.
            reserve: set disk space aside beside SQLite, for retention on a full disk.

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

    async def __aenter__(self) -> Archive:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def store(self, lines: Sequence[bytes]) -> Stored:
        """Store records, one of each line of JSON: all of them or none. Durable at return.

        Concurrent calls share a commit. Of records with the same id, the one with the later ``time`` stays.

        Raises:
            RecordError: a record is invalid.
        """
        if not lines:
            return Stored(0)
        async with self._places:
            batch = await asyncio.to_thread(parse, lines, self._wall())
            await self._writer.write(batch)
        return Stored(batch.records)

    async def frameworks(self, query: FrameworkQuery, namespaces: Namespaces = None) -> Page:
        """List Frameworks.

        The items have ``uid``, ``namespace``, ``name``, ``cluster``, ``state``, ``phase``, ``code``, ``phrase``,
        ``type``, ``diagnostics``, ``attempts`` (how many were begun), ``taskRetries``, ``tasks``, ``failedTasks``,
        ``succeededTasks`` and ``stoppedTasks`` (of the newest archived attempt), ``created``, ``started``,
        ``completed``, ``archived`` (time of the newest record), ``deleted``.
        A Framework with only Tasks or Pods in the archive is ``running``, and has no ``state``.
        """
        async with self._database.reading() as connection:
            return await queries.list_frameworks(connection, query, namespaces)

    async def namespaces(self) -> list[str]:
        """The namespaces of all Frameworks, sorted."""
        async with self._database.reading() as connection:
            return await queries.list_namespaces(connection)

    async def framework(self, uid: str, namespaces: Namespaces = None) -> dict[str, Any] | None:
        """A Framework as an item of ``frameworks``, with ``attempts`` replaced by a list of the archived ones.

        These have ``id``, ``trigger``, ``code``, ``phrase``, ``type``, ``diagnostics``, ``started``, ``completed``,
        ``tasks``, ``failedTasks``, by ``id``. The number of attempts is ``attemptCount``.
        """
        async with self._database.reading() as connection:
            return await queries.get_framework(connection, uid, namespaces)

    async def attempt(self, uid: str, attempt: int, namespaces: Namespaces = None) -> dict[str, Any] | None:
        """An attempt of a Framework: as in ``framework``, with ``record`` (without ``object``), ``object``, ``tasks``.

        ``object``: the Framework as archived, its roles decompressed; None if only Tasks are archived yet.
        ``tasks``: counts of Tasks ``total``, ``running``, ``succeeded``, ``stopped``, ``failed``.
        """
        async with self._database.reading() as connection:
            found = await queries.get_attempt(connection, uid, attempt, namespaces)
        if found is None:
            return None
        item, packed = found
        return {**item, **await asyncio.to_thread(_shown, packed)}

    async def tasks(self, uid: str, attempt: int, query: TaskQuery, namespaces: Namespaces = None) -> Page | None:
        """List Task attempts of an attempt of a Framework; None if there is no such attempt.

        The items have ``role``, ``index``, ``taskUid``, ``attempt``, ``code``, ``phrase``, ``type``, ``diagnostics``,
        ``node``, ``pod``, ``podUid``, ``podIP``, ``hostIP``, ``started``, ``ran``, ``completed``, ``trigger``.
        ``frameworkAttempt`` is the number of the Framework attempt.
        """
        async with self._database.reading() as connection:
            return await queries.list_tasks(connection, uid, attempt, query, namespaces)

    async def task_history(
        self, uid: str, role: str, index: int, namespaces: Namespaces = None
    ) -> list[dict[str, Any]] | None:
        """All archived attempts of a Task over all attempts of its Framework, oldest first; items as in ``tasks``.

        At most ``MAX_PAGE``, the newest ones. None if there is no such Framework.
        """
        async with self._database.reading() as connection:
            return await queries.list_task_history(connection, uid, role, index, namespaces)

    async def task_attempt(
        self,
        uid: str,
        attempt: int,
        role: str,
        index: int,
        task_uid: str,
        task_attempt: int,
        namespaces: Namespaces = None,
    ) -> dict[str, Any] | None:
        """A Task attempt: an item of ``tasks`` with ``object`` (kind Task) and ``pods`` (the archived Pods).

        The object of a Task attempt without a record of its own is made from the Framework's.
        """
        place = (role, index, task_uid, task_attempt)
        async with self._database.reading() as connection:
            found = await queries.get_task_attempt(connection, uid, attempt, place, namespaces)
        if found is None:
            return None
        return {**found.item, **await asyncio.to_thread(_shown_task, found)}

    async def failures(self, query: FailureQuery, namespaces: Namespaces = None) -> list[dict[str, Any]]:
        """Count failures. Most Task attempts first; by day: newest first.

        The items have ``key`` (a text), ``label`` (of a code its phrase), ``taskAttempts``, ``frameworkAttempts``
        (attempts of Frameworks that failed: with this code, on this day, because of a Task of this role, or on this
        node), ``frameworks`` (to which these belong), ``first``, ``last`` (completions) and ``example`` with ``uid``,
        ``namespace``, ``name``, ``attempt``, ``role``, ``index`` (these None for the Framework itself).
        """
        async with self._database.reading() as connection:
            return await count_failures(connection, query, namespaces)

    async def prune(self, *, before: int | None = None, max_bytes: int | None = None) -> Pruned:
        """Remove Frameworks as a whole, oldest record first, in small steps between which others write.

        Args:
            before: seconds since the epoch; those whose newest record is older.
            max_bytes: as many as needed until ``usage().bytes`` is at most this.
        """
        return Pruned(*await retention.prune(self._database, before, max_bytes))

    async def usage(self) -> Usage:
        """What the archive holds. Takes a second for a million Task attempts."""
        used = await retention.used_bytes(self._database)
        async with self._database.reading() as connection:
            count = await queries.count_frameworks(connection)
        return Usage(used, count)

    async def check(self) -> None:
        """Return if the database answers and has the schema of this version."""
        await self._database.check()


def _shown(packed: bytes | None) -> dict[str, Any]:
    """The object of a record, its roles decompressed, and the rest of the record."""
    if packed is None:
        return {"object": None, "record": None}
    record = unpack(packed)
    found = record.pop("object")
    try:
        attempt = with_plain_roles(found["status"]["attemptStatus"])
        found = {**found, "status": {**found["status"], "attemptStatus": attempt}}
    except (LookupError, StatusError, TypeError, ValueError):
        pass  # It is shown as it was stored.
    return {"object": found, "record": record}


def _shown_task(found: queries.TaskAttempt) -> dict[str, Any]:
    item = found.item
    task = unpack(found.own)["object"] if found.own is not None else None
    if task is None and found.framework is not None:
        task = _task_of(_shown(found.framework)["object"], item)
    return {"object": task, "pods": [unpack(pod)["object"] for pod in found.pods]}


def _task_of(framework: Any, item: dict[str, Any]) -> dict[str, Any] | None:
    """The Task of an item from the archived object of its Framework, None if a later one no longer has it."""
    try:
        role = next(
            role for role in framework["status"]["attemptStatus"]["taskRoleStatuses"] if role["name"] == item["role"]
        )
        status = next(
            task
            for task in role["taskStatuses"]
            if task["index"] == item["index"]
            and (task.get("instanceUID") or "") == item["taskUid"]
            and task["attemptStatus"]["id"] == item["attempt"]
        )
    except (LookupError, StopIteration, TypeError, AttributeError):
        return None
    roles = (framework.get("spec") or {}).get("taskRoles") or ()
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Task",
        "metadata": {
            "name": item["pod"],
            "namespace": framework["metadata"].get("namespace"),
            "uid": item["taskUid"],
            "creationTimestamp": status.get("startTime"),
        },
        "spec": next((spec.get("task") for spec in roles if spec.get("name") == item["role"]), None),
        "status": status,
    }
