"""Removes old Frameworks and old logs, in small steps: others write between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Table, delete, func, insert, select, text

from frameworkcontroller.history.archiveerrors import ArchiveError
from frameworkcontroller.history.database import CHILDREN, Database, doomed, frameworks, logs

T = TypeVar("T")

_FRAMEWORKS: Final = 100
"""Frameworks that become invisible in a step."""
_ROWS: Final = 500
"""Rows that a step removes: some 20 ms."""
_PAGES: Final = 1000
"""Pages that a step returns to the file system, 4 MB."""
_FEW_PAGES: Final = 100
"""On a full disk: the WAL needs as much room."""
_CHECKPOINT: Final = "PRAGMA wal_checkpoint(PASSIVE)"
"""The file shrinks as the WAL is copied into it. Readers keep their state."""

_ROW_BYTES: Final = 400
"""Of a row and its entries in indexes, without its record."""


class Pruned(NamedTuple):
    """The removed Frameworks. ``attempts``: their attempts, Task attempts, Pods and logs."""

    frameworks: int
    attempts: int


async def prune(database: Database, before: int | None, max_bytes: int | None) -> Pruned:
    """Delete Frameworks beyond the age or size limit; resume an interrupted deletion. Return the counts.

    On a full disk, the reserve makes room for it.

    Raises:
        ArchiveError: the database cannot be used.
    """
    return await _with_room(database, lambda: _prune(database, before, max_bytes))


async def prune_logs(database: Database, before: int | None, max_bytes: int | None) -> int:
    """Delete the oldest logs beyond the age or size limit. Return their number. Frameworks stay.

    On a full disk, the reserve makes room for it.

    Raises:
        ArchiveError: the database cannot be used.
    """
    return await _with_room(database, lambda: _prune_logs(database, before, max_bytes))


async def _with_room(database: Database, work: Callable[[], Awaitable[T]]) -> T:
    try:
        return await work()
    except ArchiveError as error:
        if not database.make_room(error):
            raise
        await database.run_script(_CHECKPOINT)
        return await work()


async def _prune_logs(database: Database, before: int | None, max_bytes: int | None) -> int:
    removed, excess = 0, 0
    if max_bytes is not None:
        async with database.reading() as connection:
            excess = int(await connection.scalar(select(_bytes_of(logs)).select_from(logs)) or 0) - max_bytes
    while True:
        async with database.writing() as connection:
            oldest = select(logs.c.lid, logs.c.time, logs.c.stored).order_by(logs.c.time, logs.c.lid).limit(_ROWS)
            lids = []
            for lid, time, stored in await connection.execute(oldest):
                if excess <= 0 and (before is None or time >= before * 1_000_000):
                    break
                lids.append(lid)
                excess -= stored + _ROW_BYTES
            if lids:
                await connection.execute(delete(logs).where(logs.c.lid.in_(lids)))
        removed += len(lids)
        if len(lids) < _ROWS:
            break
    if removed and database.path is not None:
        await _shrink(database)
    return removed


async def _prune(database: Database, before: int | None, max_bytes: int | None) -> Pruned:
    gone, rows = 0, await _clear(database)
    while before is not None:
        fids = await _doom(database, _FRAMEWORKS, before=before)
        if not fids:
            break
        gone += len(fids)
        rows += await _clear(database)
    if max_bytes is not None:
        excess = await used_bytes(database) - max_bytes
        while excess > 0:
            fids, freed = await _oldest(database, excess)
            fids = await _doom(database, _FRAMEWORKS, among=fids)
            if not fids:
                break
            gone += len(fids)
            rows += await _clear(database)
            # Counting is quick in SQLite, and takes long in PostgreSQL.
            excess = excess - freed if database.path is None else await used_bytes(database) - max_bytes
    if rows and database.path is not None:
        await _shrink(database)
    return Pruned(gone, rows)


async def used_bytes(database: Database) -> int:
    """Return the bytes of the content, without space to be reused. PostgreSQL: an estimate."""
    async with database.reading() as connection:
        if database.path is not None:
            pages, free, size = [
                int(await connection.scalar(text(f"PRAGMA {name}")))
                for name in ("page_count", "freelist_count", "page_size")
            ]
            return (pages - free) * size
        total = 0
        for table, _ in CHILDREN:
            total += int(await connection.scalar(select(_bytes_of(table)).select_from(table)) or 0)
        return total


def _bytes_of(table: Table) -> ColumnElement[int]:
    if table is logs:
        return func.coalesce(func.sum(logs.c.stored), 0) + func.count() * _ROW_BYTES
    return func.coalesce(func.sum(func.length(table.c.record)), 0) + func.count() * _ROW_BYTES


async def _doom(
    database: Database, count: int, *, before: int | None = None, among: Sequence[int] | None = None
) -> list[int]:
    """Make the oldest Frameworks invisible, so that each goes as a whole."""
    async with database.writing() as connection:
        query = select(frameworks.c.fid).order_by(frameworks.c.last, frameworks.c.fid).limit(count)
        if before is not None:
            query = query.where(frameworks.c.last < before * 1_000_000)
        if among is not None:
            query = query.where(frameworks.c.fid.in_(among))
        # One that a record is being stored for is not old.
        fids = list(await connection.scalars(query.with_for_update(skip_locked=True)))
        if fids:
            await connection.execute(insert(doomed), [{"fid": fid} for fid in fids])
            await connection.execute(delete(frameworks).where(frameworks.c.fid.in_(fids)))
        return fids


async def _clear(database: Database) -> int:
    """Remove the rows of Frameworks that are invisible already."""
    removed = 0
    while True:
        async with database.writing() as connection:
            some = select(doomed.c.fid).order_by(doomed.c.fid).limit(_FRAMEWORKS)
            # Two servers do not remove the same ones.
            fids = list(await connection.scalars(some.with_for_update(skip_locked=True)))
            if not fids:
                return removed
            left = _ROWS
            for table, key in CHILDREN:
                if left > 0:
                    rows = select(table.c[key]).where(table.c.fid.in_(fids)).limit(left)
                    done = await connection.execute(delete(table).where(table.c[key].in_(rows)))
                    left -= done.rowcount
            removed += _ROWS - left
            if left > 0:
                await connection.execute(delete(doomed).where(doomed.c.fid.in_(fids)))


async def _oldest(database: Database, wanted: int) -> tuple[list[int], int]:
    """Return the oldest Frameworks that take the wanted bytes together, at most a step's number; and their bytes."""
    async with database.reading() as connection:
        oldest = select(frameworks.c.fid).order_by(frameworks.c.last, frameworks.c.fid).limit(_FRAMEWORKS)
        fids = list(await connection.scalars(oldest))
        sizes = dict.fromkeys(fids, 0)
        for table, _ in CHILDREN:
            query = select(table.c.fid, _bytes_of(table)).where(table.c.fid.in_(fids)).group_by(table.c.fid)
            for fid, size in await connection.execute(query):
                sizes[fid] += int(size)
    some, total = [], 0
    for fid in fids:
        if total >= wanted:
            break
        some.append(fid)
        total += sizes[fid]
    return some, total


async def _shrink(database: Database) -> None:
    """Return free pages of SQLite's file to the file system."""
    while True:
        async with database.reading() as connection:
            if not await connection.scalar(text("PRAGMA freelist_count")):
                break
        # As a statement, the driver would stop it after one page.
        await database.run_script(f"PRAGMA incremental_vacuum({_PAGES if database.has_room else _FEW_PAGES})")
        if not database.has_room:
            await database.run_script(_CHECKPOINT)
    await database.run_script(_CHECKPOINT)
