"""Removing old Frameworks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from frameworkcontroller.history import retention
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.database import CHILDREN, doomed
from frameworkcontroller.history.reads import CountFailures, GetFramework, ListFrameworks
from tests.support.archives import EPOCH, framework_record, pod_record, task_record, task_status

SECOND = 1_000_000


async def fill(archive: HistoryArchive, count: int = 10, tasks: int = 5) -> None:
    """Frameworks with 2 + 2 * tasks rows each; the newest record of number N is from second N."""
    for number in range(count):
        uid, time = f"u-{number}", number * SECOND
        own = [task_record(uid, index, time=time, where=f"a/f-{number}", padding=500) for index in range(tasks)]
        held = {"ps": [task_status(index) for index in range(tasks)]}
        whole = framework_record(uid, time=time, where=f"a/f-{number}", roles=held)
        await archive.store([*own, whole, pod_record(uid, 0, time=time, where=f"a/f-{number}")])


async def uids(archive: HistoryArchive) -> list[str]:
    return sorted(item["uid"] for item in (await archive.read(ListFrameworks()))["items"])


async def rows(archive: HistoryArchive) -> int:
    async with archive._database.reading() as connection:
        counts = [
            await connection.scalar(select(func.count()).select_from(table))
            for table in (doomed, *(table for table, _ in CHILDREN))
        ]
    return sum(count or 0 for count in counts)


async def test_old_frameworks_are_deleted_as_a_whole(database_url: str) -> None:
    async with await HistoryArchive.open(database_url) as archive:
        await fill(archive)
        # Number 2 is old, but has got a Pod's record later.
        await archive.store([pod_record("u-2", 1, time=60 * SECOND, where="a/f-2")])
        assert await archive.prune(before=EPOCH + 5) == (4, 4 * 12)
        assert await uids(archive) == ["u-2", "u-5", "u-6", "u-7", "u-8", "u-9"]
        assert await archive.read(GetFramework("u-0")) is None
        assert await rows(archive) == 6 * 12 + 1
        assert await archive.prune(before=EPOCH + 5) == (0, 0)
        # It may come back.
        await archive.store([task_record("u-0", 0, where="a/f-0")])
        back = await archive.read(GetFramework("u-0"))
        assert back is not None
        assert [item["tasks"] for item in back["attempts"]] == [None]


async def test_excess_is_deleted_oldest_first(database_url: str) -> None:
    async with await HistoryArchive.open(database_url) as archive:
        await fill(archive, count=40, tasks=40)
        before = await archive.usage()
        pruned = await archive.prune(max_bytes=before.bytes // 2)
        left = await archive.usage()
        assert before.bytes // 4 < left.bytes <= before.bytes // 2
        assert 10 <= pruned.frameworks < 30
        assert await uids(archive) == sorted(f"u-{number}" for number in range(pruned.frameworks, 40))
        assert await archive.prune(max_bytes=left.bytes) == (0, 0)
        await archive.prune(max_bytes=0)
        assert await rows(archive) == 0


async def test_sqlite_gives_its_space_back(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    async with await HistoryArchive.open(f"sqlite:///{path}") as archive:
        await fill(archive, tasks=200)
        await archive.prune(before=EPOCH)  # Copies nothing, and removes nothing.
        await archive.prune(before=EPOCH + 9)
        async with archive._database.reading() as connection:
            assert (await connection.exec_driver_sql("PRAGMA freelist_count")).scalar() == 0
        small = path.stat().st_size
        await fill(archive, tasks=200)
        await archive.prune(before=EPOCH + 9)
        assert path.stat().st_size <= small * 1.1
    assert path.stat().st_size < 2_000_000


async def test_records_are_stored_between_the_steps(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a Framework that is being removed is not seen, nor is it mixed with one of its UID that comes again."""
    monkeypatch.setattr(retention, "_ROWS", 10)
    async with await HistoryArchive.open(database_url) as archive:
        await fill(archive, count=1, tasks=200)
        assert await retention._doom(archive._database, 1) == [1]
        removal = asyncio.create_task(archive.prune())
        between = 0
        while not removal.done():
            await archive.store([task_record("u-0", 1000 + between, time=99 * SECOND, where="a/f-0", code=77)])
            if not removal.done():
                between += 1
                found = {item["key"]: item["taskAttempts"] for item in (await archive.read(CountFailures()))["items"]}
                assert set(found) <= {"1", "77"}
                assert found.get("1", 0) in {0, 400}
        assert between > 3
        assert (await removal).attempts == 402
        assert await uids(archive) == ["u-0"]
        counts: list[Any] = (await archive.read(CountFailures()))["items"]
        assert [(item["key"], item["taskAttempts"] >= between) for item in counts] == [("77", True)]


async def test_a_removal_that_was_interrupted_is_finished(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await HistoryArchive.open(database_url) as archive:
        await fill(archive, count=2, tasks=3)

        assert await retention._doom(archive._database, 1) == [1]
        assert await uids(archive) == ["u-1"]
    async with await HistoryArchive.open(database_url) as archive:
        assert await archive.prune() == (0, 8)
        assert await rows(archive) == 8
