"""Versions of the archive's schema."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveerrors import ArchiveError
from frameworkcontroller.history.database import MIGRATIONS, Database, metadata
from frameworkcontroller.history.migrations.runner import Migrations
from frameworkcontroller.history.reads import GetAttempt, ListFrameworks
from tests.support.archives import framework_record, task_record

NEXT: Final = '''
"""A later version, only for tests."""

from alembic import op
from sqlalchemy import BigInteger, Column, text

revision = "9999"
down_revision = "HEAD"


def upgrade() -> None:
    op.add_column("frameworks", Column("priority", BigInteger))
    op.execute(text("UPDATE frameworks SET priority = created + 1"))
FAULT
'''


def later(folder: Path, fault: str = "") -> Path:
    """A folder with the versions, and a later one."""
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    made = NEXT.replace("HEAD", Migrations(MIGRATIONS).head).replace("FAULT", fault)
    (folder / "versions" / "9999_next.py").write_text(made)
    return folder


async def open_with(url: str, folder: Path) -> HistoryArchive:
    database = Database(url, folder)
    await database.open()
    return HistoryArchive(database)


async def value(archive: HistoryArchive, query: str) -> Any:
    async with archive._database.reading() as connection:
        return await connection.scalar(text(query))


async def test_the_versions_give_the_tables_that_are_used(database_url: str) -> None:
    def differences(connection: Connection) -> list[Any]:
        return list(compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata))

    async with await HistoryArchive.open(database_url) as archive, archive._database.reading() as connection:
        assert await connection.run_sync(differences) == []


async def test_an_older_database_is_migrated_with_its_records(database_url: str, tmp_path: Path) -> None:
    async with await HistoryArchive.open(database_url) as archive:
        await archive.store([framework_record("u"), task_record("u", 0)])
    async with await open_with(database_url, later(tmp_path / "later")) as archive:
        assert [item["uid"] for item in (await archive.read(ListFrameworks()))["items"]] == ["u"]
        assert await value(archive, "SELECT priority - created FROM frameworks") == 1
        await archive.store([framework_record("v")])
        assert await value(archive, "SELECT count(*) FROM frameworks") == 2


async def test_a_newer_database_is_refused(database_url: str, tmp_path: Path) -> None:
    async with await open_with(database_url, later(tmp_path / "later")) as archive:
        await archive.store([framework_record("u")])
    with pytest.raises(ArchiveError, match="version 9999 of the schema, which a newer frameworkcontroller has made"):
        await HistoryArchive.open(database_url)


async def test_a_database_that_is_migrated_by_another_process_is_written_no_more(
    database_url: str, tmp_path: Path
) -> None:
    async with await HistoryArchive.open(database_url) as older:
        await older.store([framework_record("u")])
        async with await open_with(database_url, later(tmp_path / "later")) as newer:
            with pytest.raises(ArchiveError, match="version 9999"):
                await older.store([framework_record("v")])
            with pytest.raises(ArchiveError, match="version 9999"):
                await older.check()
            assert await value(newer, "SELECT count(*) FROM frameworks") == 1


async def test_a_migration_that_fails_changes_nothing(database_url: str, tmp_path: Path) -> None:
    async with await HistoryArchive.open(database_url) as archive:
        await archive.store([framework_record("u")])
    broken = later(tmp_path / "later", fault='    op.execute(text("SELECT x FROM nowhere"))')
    with pytest.raises(ArchiveError, match="nowhere"):
        await open_with(database_url, broken)
    async with await HistoryArchive.open(database_url) as archive:
        assert [item["uid"] for item in (await archive.read(ListFrameworks()))["items"]] == ["u"]
        with pytest.raises(ArchiveError, match="priority"):
            await value(archive, "SELECT priority FROM frameworks")


async def test_many_open_an_empty_database_at_once(database_url: str) -> None:
    """Each migrates, or waits for the one that does."""
    archives = await asyncio.gather(*(HistoryArchive.open(database_url) for _ in range(4)))
    await asyncio.gather(*(archive.store([framework_record(f"u-{n}")]) for n, archive in enumerate(archives)))
    for archive in archives:
        assert len((await archive.read(ListFrameworks()))["items"]) == 4
        await archive.close()


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"no database at all " * 1000)
    with pytest.raises(ArchiveError, match="file is not a database"):
        await HistoryArchive.open(f"sqlite:///{path}")
    assert path.read_bytes().startswith(b"no database")


async def test_a_database_with_foreign_tables_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE frameworks (x)")
    connection.close()
    with pytest.raises(ArchiveError, match="table frameworks already exists"):
        await HistoryArchive.open(f"sqlite:///{path}")


async def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no directory"):
        await HistoryArchive.open(f"sqlite:///{tmp_path}/nowhere/history.db")


async def test_stopped_tasks_are_recounted_and_phases_are_known_in_an_older_database(
    database_url: str, tmp_path: Path
) -> None:
    """The first version counted them as failed, and had no phases."""
    first = tmp_path / "first"
    shutil.copytree(MIGRATIONS, first, ignore=shutil.ignore_patterns("__pycache__", "000[2-9]_*"))
    database = Database(database_url, first)
    await database.open()
    ends: dict[int, tuple[Any, ...]] = {
        1: ("Completed", 0, "Succeeded", None, "succeeded"),
        2: ("Completed", 7, "Failed", None, "failed"),
        3: ("Completed", -210, "Failed", 5, "stopped"),
        4: ("AttemptCompleted", 7, "Failed", None, "running"),
        5: ("AttemptRunning", None, None, 5, "stopped"),
        6: ("Completed", None, None, None, "failed"),
        7: (None, None, None, None, "running"),
    }
    async with database.writing() as connection:
        for fid, (state, code, kind, deleted, _) in ends.items():
            await connection.execute(
                text(
                    "INSERT INTO frameworks (fid, uid, namespace, name, cluster, time, last, created, deleted, state,"
                    " code, type, attempts, tasks, failed_tasks)"
                    " VALUES (:fid, :uid, 'a', 'f', '', 1, 1, :fid, :deleted, :state, :code, :kind, 2, 4, 4)"
                ),
                {"fid": fid, "uid": f"u{fid}", "deleted": deleted, "state": state, "code": code, "kind": kind},
            )
        for attempt, diagnostics in ((0, "the first"), (1, "the last")):
            await connection.execute(
                text(
                    "INSERT INTO framework_attempts (fid, attempt, time, tasks, succeeded_tasks, failed_tasks,"
                    " diagnostics) VALUES (2, :attempt, 1, 6, 2, 4, :diagnostics)"
                ),
                {"attempt": attempt, "diagnostics": diagnostics},
            )
        for index, code in enumerate((7, -220, -220, -220, 0, 0, -230)):
            await connection.execute(
                text(
                    "INSERT INTO task_attempts (fid, attempt, role, idx, task_uid, task_attempt, own, time, code, type)"
                    " VALUES (2, 1, 'w', :index, 'u', 0, 0, 1, :code, :kind)"
                ),
                {"index": index, "code": code, "kind": "Failed" if code else "Succeeded"},
            )
    await database.close()
    async with await HistoryArchive.open(database_url) as archive:
        items = {int(item["uid"][1:]): item for item in (await archive.read(ListFrameworks()))["items"]}
        assert {fid: item["phase"] for fid, item in items.items()} == {fid: end[-1] for fid, end in ends.items()}
        assert [items[2]["failedTasks"], items[2]["succeededTasks"], items[2]["stoppedTasks"]] == [1, 2, 3]
        assert items[2]["diagnostics"] == "the last"
        newest = await archive.read(GetAttempt("u2", 1))
        assert newest is not None
        assert newest["tasks"] == {"total": 6, "running": None, "succeeded": 2, "stopped": 3, "failed": 1}
