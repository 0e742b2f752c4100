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

from frameworkcontroller.history.archive import Archive, ArchiveError, FrameworkQuery
from frameworkcontroller.history.database import MIGRATIONS, Database, metadata
from frameworkcontroller.history.migrations.runner import Migrations
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


async def open_with(url: str, folder: Path) -> Archive:
    database = Database(url, folder)
    await database.open()
    return Archive(database)


async def value(archive: Archive, query: str) -> Any:
    async with archive._database.reading() as connection:
        return await connection.scalar(text(query))


async def test_the_versions_give_the_tables_that_are_used(database_url: str) -> None:
    def differences(connection: Connection) -> list[Any]:
        return list(compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata))

    async with await Archive.open(database_url) as archive, archive._database.reading() as connection:
        assert await connection.run_sync(differences) == []


async def test_an_older_database_is_migrated_with_its_records(database_url: str, tmp_path: Path) -> None:
    async with await Archive.open(database_url) as archive:
        await archive.store([framework_record("u"), task_record("u", 0)])
    async with await open_with(database_url, later(tmp_path / "later")) as archive:
        assert [item["uid"] for item in (await archive.frameworks(FrameworkQuery())).items] == ["u"]
        assert await value(archive, "SELECT priority - created FROM frameworks") == 1
        await archive.store([framework_record("v")])
        assert await value(archive, "SELECT count(*) FROM frameworks") == 2


async def test_a_newer_database_is_refused(database_url: str, tmp_path: Path) -> None:
    async with await open_with(database_url, later(tmp_path / "later")) as archive:
        await archive.store([framework_record("u")])
    with pytest.raises(ArchiveError, match="version 9999 of the schema, which a newer frameworkcontroller has made"):
        await Archive.open(database_url)


async def test_a_database_that_is_migrated_by_another_process_is_written_no_more(
    database_url: str, tmp_path: Path
) -> None:
    async with await Archive.open(database_url) as older:
        await older.store([framework_record("u")])
        async with await open_with(database_url, later(tmp_path / "later")) as newer:
            with pytest.raises(ArchiveError, match="version 9999"):
                await older.store([framework_record("v")])
            with pytest.raises(ArchiveError, match="version 9999"):
                await older.check()
            assert await value(newer, "SELECT count(*) FROM frameworks") == 1


async def test_a_migration_that_fails_changes_nothing(database_url: str, tmp_path: Path) -> None:
    async with await Archive.open(database_url) as archive:
        await archive.store([framework_record("u")])
    broken = later(tmp_path / "later", fault='    op.execute(text("SELECT x FROM nowhere"))')
    with pytest.raises(ArchiveError, match="nowhere"):
        await open_with(database_url, broken)
    async with await Archive.open(database_url) as archive:
        assert [item["uid"] for item in (await archive.frameworks(FrameworkQuery())).items] == ["u"]
        with pytest.raises(ArchiveError, match="priority"):
            await value(archive, "SELECT priority FROM frameworks")


async def test_many_open_an_empty_database_at_once(database_url: str) -> None:
    """Each migrates, or waits for the one that does."""
    archives = await asyncio.gather(*(Archive.open(database_url) for _ in range(4)))
    await asyncio.gather(*(archive.store([framework_record(f"u-{n}")]) for n, archive in enumerate(archives)))
    for archive in archives:
        assert len((await archive.frameworks(FrameworkQuery())).items) == 4
        await archive.close()


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"no database at all " * 1000)
    with pytest.raises(ArchiveError, match="file is not a database"):
        await Archive.open(f"sqlite:///{path}")
    assert path.read_bytes().startswith(b"no database")


async def test_a_database_with_tables_of_others_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE frameworks (x)")
    connection.close()
    with pytest.raises(ArchiveError, match="table frameworks already exists"):
        await Archive.open(f"sqlite:///{path}")


async def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no directory"):
        await Archive.open(f"sqlite:///{tmp_path}/nowhere/history.db")
