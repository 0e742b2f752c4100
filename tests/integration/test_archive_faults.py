"""The archive where processes are killed, disks full, files deleted, servers stopped: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from sqlalchemy import insert

from frameworkcontroller.history import database as database_module
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveerrors import ArchiveError
from frameworkcontroller.history.database import Database, frameworks
from frameworkcontroller.history.reads import ListFrameworks, ListTasks
from tests.support.archives import task_record
from tests.support.eventually import eventually
from tests.support.postgres import Postgres, running_postgres

TASKS = 40
"""Of each call of the writer below."""

WRITERS = f"""
import asyncio, os, sys
from frameworkcontroller.history.archive import HistoryArchive
from tests.support.archives import task_record

async def main(name: str) -> None:
    archive = await HistoryArchive.open(sys.argv[1])
    async def call(number: int) -> None:
        uid = f"{{name}}-{{number}}"
        await archive.store([task_record(uid, index, padding=1500) for index in range({TASKS})])
        # One write, also where PYTHONUNBUFFERED is set: both processes write into one pipe.
        print(f"{{uid}}\\n", end="", flush=True)
    for start in range(0, 100_000, 4):
        await asyncio.gather(*(call(number) for number in range(start, start + 4)))

for line in sys.stdin:
    if line.strip():
        if os.fork() == 0:
            print(f"pid {{os.getpid()}}", flush=True)
            asyncio.run(main(line.strip()))
    else:
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
        print("ended", flush=True)
"""


class Writers:
    """Processes that store into one database, forked from one: imports take longer than the test."""

    def __init__(self, url: str) -> None:
        self.acknowledged: set[str] = set()
        self._pids: list[int] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITERS, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        errors = self._process.communicate()[1]
        assert not errors

    async def start(self, name: str) -> None:
        """Start one that stores Frameworks of this name."""
        self._tell(name)
        count = len(self._pids)
        while len(self._pids) == count:
            await self._read()

    async def until(self, count: int) -> None:
        """Wait for this number of further acknowledgments."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            await self._read()

    async def kill(self) -> None:
        """Kill all of them. Return their acknowledgments."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        self._pids.clear()
        self._tell("")
        while await self._read() != "ended":
            pass

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    async def _read(self) -> str:
        assert self._process.stdout is not None
        line = (await asyncio.to_thread(self._process.stdout.readline)).strip()
        assert line, "it ended"
        if line.startswith("pid "):
            self._pids.append(int(line[4:]))
        elif line != "ended":
            self.acknowledged.add(line)
        return line


async def counts(archive: HistoryArchive) -> dict[str, int]:
    """The Tasks of all Frameworks."""
    found: dict[str, int] = {}
    after = ""
    while True:
        page = await archive.read(ListFrameworks(limit=1000, after=after))
        for item in page["items"]:
            tasks = await archive.read(ListTasks(item["uid"], 0, limit=1000))
            assert tasks is not None
            found[item["uid"]] = len(tasks["items"])
        if page["next"] is None:
            return found
        after = page["next"]


async def test_kill_in_the_middle_of_batches(database_url: str) -> None:
    rng = random.Random(16)
    with Writers(database_url) as writers:
        for turn in range(6):
            await writers.start(f"turn-{turn}")
            # At any place within a batch: after a number of answers, and some of the work for the next.
            await writers.until(rng.randrange(1, 30))
            for _ in range(rng.randrange(2000)):
                pass
            await writers.kill()
            async with await HistoryArchive.open(database_url) as archive:
                found = await counts(archive)
                assert writers.acknowledged <= set(found)
                assert set(found.values()) == {TASKS}, "half of a call is stored"
        assert len(writers.acknowledged) > 20


async def test_two_servers_on_one_database(database_url: str) -> None:
    with Writers(database_url) as writers:
        await writers.start("a")
        await writers.start("b")
        async with await HistoryArchive.open(database_url) as archive:
            for name in ("a", "b"):
                while not any(uid.startswith(name) for uid in writers.acknowledged):
                    await writers.until(1)
            await writers.until(20)
            # A third one, which also removes.
            await archive.store([task_record("third", 0)])
            await archive.prune(max_bytes=1 << 40)
            await writers.kill()
            found = await counts(archive)
    assert found.pop("third") == 1
    assert writers.acknowledged <= set(found)
    assert set(found.values()) == {TASKS}


async def test_two_servers_that_write_the_same_records_in_any_order(database_url: str) -> None:
    async with await HistoryArchive.open(database_url) as one, await HistoryArchive.open(database_url) as two:
        lines = [task_record(f"u-{number % 7}", number) for number in range(200)]
        for turn in range(10):
            await asyncio.gather(
                one.store([line.replace(b":00.000000Z", b":%02d.000000Z" % turn) for line in lines]),
                two.store([line.replace(b":00.000000Z", b":%02d.000000Z" % turn) for line in reversed(lines)]),
            )
        assert sum((await counts(one)).values()) == 200


# --- SQLite -----------------------------------------------------------------------------------------------------


async def test_other_users_cannot_read_the_files(tmp_path: Path) -> None:
    """The files of earlier versions are 0644."""
    umask = os.umask(0o022)
    try:
        for before in (False, True):
            path = tmp_path / f"{before}.db"
            if before:
                async with await HistoryArchive.open(f"sqlite:///{path}") as archive:
                    await archive.store([task_record("u", 0)])
                for each in tmp_path.glob(f"{path.name}*"):
                    each.chmod(0o644)
            async with await HistoryArchive.open(f"sqlite:///{path}") as archive:
                await archive.store([task_record("v", 0)])
                files = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.glob(f"{path.name}*")}
            assert files == dict.fromkeys((path.name, f"{path.name}-wal", f"{path.name}-shm"), 0o600)
    finally:
        os.umask(umask)


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Path]:
    """A file system of 96 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(folder)]
    if os.getuid() != 0 or (await _run(*mount))[0] != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    await _run("umount", str(folder))


def fill(folder: Path, left: int = 0) -> None:
    """Leave this number of bytes on the disk."""
    found = os.statvfs(folder)
    with (folder / "others").open("ab") as file:
        size = found.f_bavail * found.f_frsize - left
        if size:
            os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
    found = os.statvfs(folder)
    assert found.f_bavail * found.f_frsize == left


def large(record: bytes) -> bytes:
    """The record with content that compression makes hardly smaller."""
    return record.replace(b'"padding":""', b'"padding":"' + os.urandom(30_000).hex().encode() + b'"')


async def store_until_full(archive: HistoryArchive, before: Sequence[str] = ()) -> list[str]:
    """Return the UIDs of the stored Frameworks, the oldest first. ``before``: Frameworks that are stored already."""
    stored = [*before]
    while True:
        uid = f"u-{len(stored):03}"
        records = [large(task_record(uid, index, time=len(stored) * 1_000_000)) for index in range(2)]
        try:
            await archive.store(records)
        except ArchiveError:
            return stored
        stored.append(uid)


@pytest.mark.parametrize("restarted", ["no", "stopped", "killed"])
async def test_on_a_full_disk_reads_and_retention_continue(disk: Path, tmp_path: Path, restarted: str) -> None:
    """Also after a restart, which finds no byte for the files that SQLite needs to open a database."""
    url = f"sqlite:///{disk}/history.db"
    archive = await HistoryArchive.open(url, reserve=True)
    fill(disk, left=36 << 20)
    stored = await store_until_full(archive)
    assert len(stored) > 100
    fill(disk)
    if restarted == "stopped":
        await archive.close()
    elif restarted == "killed":
        # As a kill leaves the files.
        for file in disk.glob("history.db*"):
            shutil.copy2(file, tmp_path)
        await archive.close()
        for file in tmp_path.glob("history.db*"):
            (disk / file.name).unlink(missing_ok=True)
        (disk / "others").unlink()
        for file in tmp_path.glob("history.db*"):
            shutil.copy2(file, disk)
    if restarted != "no":
        fill(disk)
        archive = await HistoryArchive.open(url, reserve=True)
    async with archive:
        # The files may have room inside.
        stored = await store_until_full(archive, stored)
        # Of a batch, all or nothing is stored.
        assert await counts(archive) == dict.fromkeys(stored, 2)
        with pytest.raises(ArchiveError, match="full"):
            await archive.store([large(task_record("refused", index)) for index in range(2)])
        await archive.check()
        assert set(await counts(archive)) == set(stored)
        # Retention gives space back, and then there is room for records.
        removed = await archive.prune(max_bytes=(await archive.usage()).bytes // 2)
        assert removed.frameworks > len(stored) // 3
        kept = set(stored[removed.frameworks :])
        assert set(await counts(archive)) == kept
        await archive.store([task_record("after", 0)])
        assert set(await counts(archive)) == {*kept, "after"}


async def test_a_corrupt_database_is_not_ready_until_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    async with await HistoryArchive.open(f"sqlite:///{path}") as archive:
        for number in range(200):
            await archive.store([task_record(f"u-{number}", index, padding=3000) for index in range(5)])
    good = path.read_bytes()
    async with await HistoryArchive.open(f"sqlite:///{path}") as archive:
        await archive.check()
        with path.open("r+b") as file:
            # Not the first pages, which have the schema.
            file.seek(16 * 4096)
            file.write(os.urandom(len(good) - 16 * 4096))
        answers = await asyncio.gather(
            *(archive.read(ListTasks(f"u-{number}", 0)) for number in range(200)), return_exceptions=True
        )
        assert any(isinstance(one, ArchiveError) and "malformed" in str(one) for one in answers)
        for _ in range(3):
            with pytest.raises(ArchiveError, match="malformed"):
                await archive.check()
        for each in tmp_path.glob("history.db-*"):
            each.unlink()
        (tmp_path / "copy").write_bytes(good)
        (tmp_path / "copy").rename(path)
        await archive.check()
        assert await archive.read(ListTasks("u-199", 0)) is not None


async def _run(*command: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parents[2]
    )
    return done.returncode, done.stdout, done.stderr


async def test_a_locked_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_SEC", 0.1)
    async with await HistoryArchive.open(f"sqlite:///{tmp_path}/history.db") as archive:
        await archive.store([task_record("u", 0)])
        other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ArchiveError, match="database is locked"):
            await archive.store([task_record("v", 0)])
        # Others may be read.
        assert await counts(archive) == {"u": 1}
        other.execute("ROLLBACK")
        other.close()
        await archive.store([task_record("v", 0)])
        assert await counts(archive) == {"u": 1, "v": 1}


@pytest.mark.parametrize("with_wal", [False, True])
async def test_a_deleted_file(tmp_path: Path, with_wal: bool, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "history.db"
    async with await HistoryArchive.open(f"sqlite:///{path}") as archive:
        await archive.store([task_record("u", 0)])
        path.unlink()
        if with_wal:
            for end in ("-wal", "-shm"):
                path.with_name(path.name + end).unlink()
        # Into a new file: a file without a name would be lost.
        await archive.store([task_record("v", 0)])
        assert "deleted or replaced" in caplog.text
        assert await counts(archive) == {"v": 1}
        async with await HistoryArchive.open(f"sqlite:///{path}") as other:
            assert await counts(other) == {"v": 1}


async def test_a_replaced_file(tmp_path: Path) -> None:
    """As when a backup is put back."""
    path, backup = tmp_path / "history.db", tmp_path / "backup.db"
    async with await HistoryArchive.open(f"sqlite:///{backup}") as archive:
        await archive.store([task_record("old", 0)])
    async with await HistoryArchive.open(f"sqlite:///{path}") as archive:
        await archive.store([task_record("u", 0)])
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink()
        backup.replace(path)
        assert await counts(archive) == {"old": 1}
        await archive.store([task_record("v", 0)])
        async with await HistoryArchive.open(f"sqlite:///{path}") as other:
            assert await counts(other) == {"old": 1, "v": 1}


async def test_a_file_that_is_deleted_during_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.db"
    async with await HistoryArchive.open(f"sqlite:///{path}") as archive:
        await archive.store([task_record("u", 0)])
        looked: list[Any] = []
        look = archive._database._identity

        def delete_first() -> tuple[Any, ...]:
            looked.append(None)
            if len(looked) == 2:  # After the commit.
                path.unlink()
            return look()

        monkeypatch.setattr(archive._database, "_identity", delete_first)
        await archive.store([task_record("v", 0)])
        async with await HistoryArchive.open(f"sqlite:///{path}") as other:
            assert await counts(other) == {"v": 1}


# --- PostgreSQL -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_postgres(postgres: Postgres) -> Iterator[Postgres | None]:
    """Only for the tests here: to make one takes longer than to start it again."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def own_postgres(other_postgres: Postgres) -> Iterator[Postgres]:
    """One that a test may stop."""
    yield other_postgres
    other_postgres.kill()
    other_postgres.start()


async def test_postgresql_stops_and_starts_again(own_postgres: Postgres) -> None:
    async with await HistoryArchive.open(own_postgres.new_database()) as archive:
        await archive.store([task_record("u", 0)])
        for end in (own_postgres.stop, own_postgres.kill):
            end()
            for call in (archive.store([task_record("v", 0)]), archive.read(ListFrameworks()), archive.check()):
                with pytest.raises(ArchiveError):
                    await call
            own_postgres.start()
            await archive.check()
            await archive.store([task_record("v", 0), task_record("w", 0)])
            assert await counts(archive) == {"u": 1, "v": 1, "w": 1}


async def test_postgresql_is_killed_while_records_come(own_postgres: Postgres) -> None:
    acknowledged: set[str] = set()
    url = own_postgres.new_database()

    async def send(archive: HistoryArchive, number: int) -> None:
        uid = f"u-{number}"
        while uid not in acknowledged:
            try:
                await archive.store([task_record(uid, index) for index in range(TASKS)])
                acknowledged.add(uid)
            except ArchiveError:
                await asyncio.sleep(0.01)

    async with await HistoryArchive.open(url) as archive:
        sending = [asyncio.create_task(send(archive, number)) for number in range(60)]
        for enough in (5, 25):

            async def some(enough: int = enough) -> bool:
                return len(acknowledged) >= enough

            await eventually(some)
            own_postgres.kill()
            own_postgres.start()
        await asyncio.gather(*sending)
        assert await counts(archive) == {f"u-{number}": TASKS for number in range(60)}


async def test_postgresql_is_killed_while_rows_are_sent(own_postgres: Postgres) -> None:
    database = Database(own_postgres.new_database())
    row = {"namespace": "n", "name": "x" * 1000, "cluster": "", "time": 0, "last": 0, "created": 0}

    async def write() -> None:
        async with database.writing() as connection:
            # The driver prepares the statement for these, and waits for no answer before it sends the others.
            await connection.execute(insert(frameworks), [{**row, "uid": "a"}, {**row, "uid": "b"}])
            driver: Any = (await connection.get_raw_connection()).driver_connection
            own_postgres.pause()
            rows = [{**row, "uid": f"u-{number}"} for number in range(10_000)]
            sending = asyncio.create_task(connection.execute(insert(frameworks), rows))
            # Unread bytes fill the buffers of the kernel, then the driver's.
            await eventually(lambda: _waits(driver._transport))
            own_postgres.kill()
            await sending

    try:
        await database.open()
        with pytest.raises(ArchiveError, match="connection was closed in the middle of operation"):
            await write()
    finally:
        await database.close()


async def _waits(transport: asyncio.WriteTransport) -> bool:
    return transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]


async def test_postgresql_hangs(own_postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "_COMMAND_SEC", 0.5)
    monkeypatch.setattr(database_module, "_CONNECT_SEC", 0.5)
    async with await HistoryArchive.open(own_postgres.new_database()) as archive:
        await archive.store([task_record("u", 0)])
        own_postgres.pause()
        try:
            with pytest.raises(ArchiveError):
                await archive.store([task_record("v", 0)])
            with pytest.raises(ArchiveError):
                await archive.read(ListFrameworks())
        finally:
            own_postgres.resume()
        await eventually(lambda: _stores(archive))
        assert set(await counts(archive)) == {"u", "v"}


async def _stores(archive: HistoryArchive) -> bool:
    try:
        await archive.store([task_record("v", 0)])
    except ArchiveError:
        return False
    return True


async def test_a_database_that_is_dropped_and_made_again(own_postgres: Postgres) -> None:
    url = own_postgres.new_database()
    async with await HistoryArchive.open(url) as archive:
        await archive.store([task_record("u", 0)])
        own_postgres.drop_database(url)
        with pytest.raises(ArchiveError, match="does not exist"):
            await archive.store([task_record("v", 0)])
        name = url.partition("@/")[2].partition("?")[0]
        own_postgres._run("createdb", "--host", own_postgres._folder, "--username=test", name)
        await archive.store([task_record("v", 0)])
        assert await counts(archive) == {"v": 1}


async def test_no_postgresql(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="No such file or directory"):
        await HistoryArchive.open(f"postgresql://test@/postgres?host={tmp_path}")
