"""Archives broken on purpose, each lacking one thing that keeps records or hides them: a test of the archive fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

import pytest
from sqlalchemy import true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from frameworkcontroller.api.completion import Outcome
from frameworkcontroller.history import archive, archiveapi, folderfollower, groupcommit, ingest, retention, upload
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveerrors import RecordError
from frameworkcontroller.history.database import KEYS, Database, frameworks
from frameworkcontroller.history.folderfollower import FilePlace, FolderFollower, LineBatch
from frameworkcontroller.history.groupcommit import Writer
from frameworkcontroller.history.reads import READS, ListFrameworks, Read
from tests.unit.history import test_archive, test_follower, test_retention, test_server

Story = Callable[[Path], Awaitable[object]]
Broken = Callable[[], AbstractContextManager[object]]

# --- stories: tests that a sound archive passes ----------------------------------------------------------------------


def _of_archive(test: Callable[..., Awaitable[object]], **parameters: Any) -> Story:
    async def story(folder: Path) -> None:
        url = f"sqlite:///{folder}/history.db"
        more = {"database_url": url} if "database_url" in test.__annotations__ else {}
        async with await HistoryArchive.open(url) as archive:
            await test(archive, **more, **parameters)

    return story


def _of_follower(test: Callable[[test_follower.World], Awaitable[object]]) -> Story:
    return lambda folder: test(test_follower.World(folder))


def _of_retention(test: Callable[[str], Awaitable[object]]) -> Story:
    return lambda folder: test(f"sqlite:///{folder}/history.db")


_IN_CALLS: Final = _of_archive(test_archive.test_clocks_of_controllers_may_differ, together=False, backwards=True)
_IN_ONE_CALL: Final = _of_archive(test_archive.test_clocks_of_controllers_may_differ, together=True, backwards=True)
_NAMESPACES: Final = _of_archive(test_archive.test_nothing_of_other_namespaces_is_seen_or_counted, count=2)
_PAGES: Final = _of_archive(test_archive.test_filters_and_pages_of_frameworks)
_ALL_OR_NOTHING: Final = _of_archive(test_archive.test_a_uid_of_another_framework_is_refused)
_DURABLE: Final = _of_archive(test_archive.test_acknowledged_records_are_committed_and_synced)
_OWN: Final = _of_archive(test_archive.test_a_record_of_its_own_wins_over_that_in_the_framework)

# --- how they are broken ---------------------------------------------------------------------------------------------


@contextmanager
def _any_wins() -> Iterator[None]:
    with patch.object(ingest, "_is_newer", lambda new, old: true()):
        upserts = [ingest._upsert(table, "sqlite") for table in KEYS]
    with patch.dict(ingest._STATEMENTS, sqlite=(ingest._touch("sqlite"), upserts)):
        yield


def _any_summary_wins() -> AbstractContextManager[object]:
    guarded: Any = ingest._SUMMARIZE
    always = update(frameworks).where(guarded._where_criteria[0]).values(guarded._values)
    return patch.object(ingest, "_SUMMARIZE", always)


def _later_wins_in_a_call() -> AbstractContextManager[object]:
    return patch.object(ingest, "_put", lambda rows, key, row, rank=None: rows.__setitem__(key, row))


def _not_limited(read: type[Read[Any]], unless: Callable[[Any], bool] = lambda _: False) -> Broken:
    """Answer a read for all namespaces, except the queries for which ``unless`` holds."""
    answer = archive._READS[read]

    async def unlimited(connection: Any, query: Any, readable: Any) -> Any:
        return await answer(connection, query, readable if unless(query) else None)

    return lambda: patch.dict(cast("dict[Any, Any]", archive._READS), {read: unlimited})


def _acknowledges_at_once() -> AbstractContextManager[object]:
    write = Writer.write
    running = []

    async def at_once(self: Writer, batch: ingest.RowBatch) -> None:
        running.append(asyncio.create_task(write(self, batch)))

    return patch.object(Writer, "write", at_once)


def _commits_afterwards() -> AbstractContextManager[object]:
    writing = Database.writing
    running = []

    async def end(opened: AbstractAsyncContextManager[AsyncConnection]) -> None:
        # Long enough for the acknowledgment to come first.
        await asyncio.sleep(0.2)
        await opened.__aexit__(None, None, None)

    @asynccontextmanager
    async def without_its_end(self: Database) -> AsyncIterator[AsyncConnection]:
        opened = writing(self)
        yield await opened.__aenter__()
        running.append(asyncio.create_task(end(opened)))

    return patch.object(Database, "writing", without_its_end)


def _stores_halves() -> AbstractContextManager[object]:
    write = ingest.write

    async def in_halves(connection: AsyncConnection, batch: ingest.RowBatch) -> None:
        for uid, row in batch.touched.items():
            some = ingest.RowBatch()
            some.touched[uid] = row
            await write(connection, some)
            await connection.exec_driver_sql("COMMIT")
            await connection.exec_driver_sql("BEGIN IMMEDIATE")
        await write(connection, batch)

    return patch.object(groupcommit, "write", in_halves)


def _stores_what_comes_before_the_bad_line() -> AbstractContextManager[object]:
    store, parse = HistoryArchive.store, ingest.parse

    async def partly(self: HistoryArchive, lines: Any) -> Any:
        try:
            parse(lines, time.time())
        except RecordError as error:
            await store(self, lines[: error.line - 1])
            raise
        return await store(self, lines)

    return patch.object(HistoryArchive, "store", partly)


def _syncs_nothing() -> AbstractContextManager[object]:
    writing = Database.writing

    @asynccontextmanager
    async def unsynced(self: Database) -> AsyncIterator[AsyncConnection]:
        async with writing(self) as connection:
            yield connection
        if self._connections is not None:
            async with self._connections.writers.connect() as connection:
                await connection.exec_driver_sql("COMMIT")
                await connection.exec_driver_sql("PRAGMA synchronous = OFF")
                await connection.exec_driver_sql("BEGIN")

    return patch.object(Database, "writing", unsynced)


def _skips_a_line(which: int) -> Broken:
    batches = folderfollower._batches

    def skipping(path: Path, known: Mapping[str, FilePlace]) -> Iterator[LineBatch]:
        for batch in batches(path, known):
            lines = list(batch.lines)
            if len(lines) > 1:
                del lines[which]
            yield batch._replace(lines=lines)

    return lambda: patch.object(folderfollower, "_batches", skipping)


def _is_done_before_it_has_stored() -> AbstractContextManager[object]:
    store = FolderFollower._store

    async def saves_first(self: FolderFollower, path: Path, file: Any, batch: LineBatch) -> None:
        self._known[batch.place.file] = batch.place
        await store(self, path, file, batch)

    return patch.object(FolderFollower, "_store", saves_first)


def _reads_a_torn_line() -> AbstractContextManager[object]:
    batches = folderfollower._batches

    def torn(path: Path, known: Mapping[str, FilePlace]) -> Iterator[LineBatch]:
        with path.open("ab") as file:
            file.write(b"\n")
        return batches(path, known)

    return patch.object(folderfollower, "_batches", torn)


def _removes_the_newest() -> AbstractContextManager[object]:
    doom = retention._doom

    async def whatever_its_age(database: Database, count: int, *, before: Any = None, among: Any = None) -> Any:
        return await doom(database, count, before=None if before is None else before + 3, among=among)

    return patch.object(retention, "_doom", whatever_its_age)


async def _everything(self: HistoryArchive, viewer: Any) -> HistoryArchive:
    return self


def _answers(change: Callable[[Any], object]) -> AbstractContextManager[object]:
    """Pages of Frameworks are changed on their way out."""
    read = HistoryArchive.read

    async def changed(self: HistoryArchive, query: Any, *more: Any) -> Any:
        page = await read(self, query, *more)
        if isinstance(query, ListFrameworks):
            change(page)
        return page

    return patch.object(HistoryArchive, "read", changed)


def _looks_at_the_first_record() -> AbstractContextManager[object]:
    outline = upload.outline
    return patch.object(archiveapi, "outline", lambda lines: (outline(lines[:1])[0], outline(lines)[1]))


@dataclass(frozen=True)
class Mutant:
    """An archive that does ``what``."""

    what: str
    broken: Broken
    story: Story


MUTANTS: Final = {
    "any-wins": Mutant("keeps the record that comes last", _any_wins, _IN_CALLS),
    "any-summary-wins": Mutant("shows the record that comes last", _any_summary_wins, _IN_CALLS),
    "later-wins-in-a-call": Mutant("keeps the last record of a call", _later_wins_in_a_call, _IN_ONE_CALL),
    "any-owner": Mutant("takes the Framework's word for a Task", _any_wins, _OWN),
    **{
        read.operation: Mutant(f"answers {read.operation} of any namespace", _not_limited(read), _NAMESPACES)
        for read in READS
    },
    "last-page": Mutant(
        "answers that the first page is the last", lambda: _answers(lambda page: page.update(next=None)), _PAGES
    ),
    "short-page": Mutant(
        "answers pages without their last item",
        lambda: _answers(lambda page: page.update(items=page["items"][:-1])),
        _PAGES,
    ),
    "list-of-a-namespace": Mutant(
        "lists any namespace that is named",
        _not_limited(ListFrameworks, unless=lambda query: not query.namespace),
        _NAMESPACES,
    ),
    "server-namespaces": Mutant(
        "does not ask what the viewer may read",
        lambda: patch.object(HistoryArchive, "for_viewer", _everything),
        lambda _: test_server.test_queries_are_limited_to_the_namespaces_of_the_viewer(),
    ),
    "writers": Mutant(
        "lets the first record of a call speak for all",
        _looks_at_the_first_record,
        lambda _: test_server.test_records_are_taken_for_the_namespaces_of_the_sender_only(),
    ),
    "acknowledges-at-once": Mutant("acknowledges before it has stored", _acknowledges_at_once, _DURABLE),
    "commits-afterwards": Mutant("acknowledges before the commit", _commits_afterwards, _DURABLE),
    "syncs-nothing": Mutant("leaves it to the kernel when it writes", _syncs_nothing, _DURABLE),
    "halves": Mutant("stores a call in several transactions", _stores_halves, _ALL_OR_NOTHING),
    "up-to-the-bad-line": Mutant(
        "stores what comes before a bad line",
        _stores_what_comes_before_the_bad_line,
        _of_archive(
            test_archive.test_an_invalid_record_is_named_and_nothing_is_stored, line=b"no json", problem="no JSON"
        ),
    ),
    "follower-first-line": Mutant(
        "skips a line", _skips_a_line(0), _of_follower(test_follower.test_a_growing_file_and_the_next_day)
    ),
    "follower-last-line": Mutant(
        "skips a line at the end of a batch",
        _skips_a_line(-1),
        _of_follower(test_follower.test_large_files_come_in_batches),
    ),
    "follower-done-too-early": Mutant(
        "saves its place before it has stored",
        _is_done_before_it_has_stored,
        _of_follower(test_follower.test_nothing_is_lost_while_the_database_is_away),
    ),
    "follower-torn-line": Mutant(
        "reads a line that is still written",
        _reads_a_torn_line,
        _of_follower(test_follower.test_a_torn_last_line_waits),
    ),
    "stopped-failed": Mutant(
        "counts stopped Tasks as failed",
        lambda: patch.object(ingest, "outcome_of", lambda code, *_: Outcome.FAILED if code else Outcome.SUCCEEDED),
        _of_archive(test_archive.test_stopped_tasks_have_not_failed),
    ),
    "young-failed": Mutant(
        "takes what has not ended for ended",
        lambda: patch.object(ingest, "RUNNING", Outcome.FAILED),
        _of_archive(
            test_archive.test_the_phase_of_a_framework,
            code=1,
            state="AttemptCompleted",
            trigger="OnFrameworkRetry",
            phase="running",
        ),
    ),
    "retention": Mutant(
        "removes what is not old yet",
        _removes_the_newest,
        _of_retention(test_retention.test_old_frameworks_are_deleted_as_a_whole),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_an_archive_that_lacks_a_guard_is_caught(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    for folder in ("sound", "broken"):
        (tmp_path / folder).mkdir()
    await mutant.story(tmp_path / "sound")
    with mutant.broken(), pytest.raises((AssertionError, pytest.fail.Exception)):
        await mutant.story(tmp_path / "broken")
