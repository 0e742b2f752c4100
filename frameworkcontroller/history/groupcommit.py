"""One transaction for the records of many callers: a commit costs the same for few and many."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from sqlalchemy import exc

from frameworkcontroller.history.archiveerrors import ArchiveError, RecordError
from frameworkcontroller.history.database import Database, is_full, is_locked
from frameworkcontroller.history.ingest import ForeignRecordError, RowBatch, write

_log: Final = logging.getLogger(__name__)

_ROWS: Final = 10_000
"""A transaction takes no further caller's rows from here on."""


class Writer:
    """Writes batches in the order of the calls."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[tuple[RowBatch, asyncio.Future[None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def write(self, batch: RowBatch) -> None:
        """Return once the batch is durable. A caller that is canceled may find it stored or not.

        Raises:
            ArchiveError: the database cannot be used, or the archive is closed.
            RecordError: a record contradicts a stored one.
        """
        if self._closed:
            raise ArchiveError("the archive is closed")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((batch, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        await done

    async def close(self) -> None:
        """Wait for the batches that were given."""
        self._closed = True
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            group = [self._waiting.popleft()]
            rows = len(group[0][0])
            while self._waiting and rows + len(self._waiting[0][0]) <= _ROWS:
                group.append(self._waiting.popleft())
                rows += len(group[-1][0])
            await self._write_group(group)

    async def _write_group(self, group: list[tuple[RowBatch, asyncio.Future[None]]]) -> None:
        error: Exception | None = None
        try:
            whole = group[0][0]
            if len(group) > 1:
                whole = RowBatch()
                for batch, _ in group:
                    whole.merge(batch)
            await self._commit(whole)
        except Exception as problem:  # noqa: BLE001 - the callers get it
            if len(group) > 1 and (not isinstance(problem, ArchiveError) or _may_be_of_one(problem.__cause__)):
                # The records of one caller must not fail the other callers.
                for one in group:
                    await self._write_group([one])
                return
            error = problem
            if isinstance(problem, ForeignRecordError):
                _log.warning("Records refused: %s (%s)", problem, "/".join(problem.known))
                error = RecordError(group[0][0].lines[problem.uid], str(problem))
            elif isinstance(problem, exc.DataError | exc.IntegrityError):
                _log.exception("Cannot store records")
                error = ArchiveError(f"cannot store records: {problem.orig}")
        for _, done in group:
            if not done.done():
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)

    async def _commit(self, batch: RowBatch) -> None:
        try:
            await self._write(batch)
        except ArchiveError as error:
            if is_locked(error.__cause__) or is_full(error.__cause__):
                raise
            # Connections break when the database restarts, and files may be replaced. A second write changes nothing,
            # so it does not matter whether the first one was committed.
            await self._write(batch)

    async def _write(self, batch: RowBatch) -> None:
        self._database.require_room()
        async with self._database.writing() as connection:
            await write(connection, batch)


def _may_be_of_one(cause: BaseException | None) -> bool:
    """Whether the database is there, and refused a statement: perhaps because of the rows of one caller."""
    return isinstance(cause, exc.DBAPIError) and not cause.connection_invalidated and not is_locked(cause)
