"""Following a folder: stored records, places in files, files that are read again."""

import gzip
import logging
from pathlib import Path

import orjson
import pytest

from frameworkcontroller.api.historyrecords import HistoryRecordError, decode_record
from frameworkcontroller.history.archiveerrors import ArchiveError, FolderError, RecordError
from frameworkcontroller.history.archivemetrics import ArchiveMetrics
from frameworkcontroller.history.folderfollower import BATCH_BYTES, FolderFollower


def record(number: int, *, padding: int = 0) -> bytes:
    """The line of one record, with its end."""
    body = {"kind": "Framework", "metadata": {"uid": f"u{number}", "padding": "x" * padding}}
    return orjson.dumps(
        {
            "id": f"u{number}/0",
            "trigger": "OnFrameworkDeletion",
            "time": "2026-01-31T12:00:00.000000Z",
            "cluster": "",
            "namespace": "default",
            "name": f"f{number}",
            "generation": 1,
            "controller": "test",
            "object": body,
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


class World:
    """A folder, a storage that may be away, and the follower."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.taken: list[str] = []
        self.away = False
        self.metrics = ArchiveMetrics()
        self.follower = FolderFollower(self.folder, self.store, self.metrics)

    async def store(self, lines: list[bytes]) -> None:
        if self.away:
            raise ArchiveError("away")
        found = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(decode_record(line).name)
            except HistoryRecordError as error:
                raise RecordError(number, str(error)) from None
            if b"refused" in line:
                raise RecordError(number, "the database refuses it")
        self.taken += found

    async def new(self) -> list[str]:
        """The records that are newly stored."""
        before = len(self.taken)
        await self.follower.catch_up()
        return self.taken[before:]

    def write(self, name: str, *lines: bytes) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(b"".join(lines))

    def refused(self) -> float:
        value = self.metrics.registry.get_sample_value(
            "frameworkcontroller_archive_refused_total", {"source": "file", "code": "400"}
        )
        assert value is not None
        return value


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_growing_file_and_the_next_day(world: World) -> None:
    assert await world.new() == []
    world.write("2026-01-30.ndjson", record(1), record(2))
    assert await world.new() == ["f1", "f2"]
    assert await world.new() == []
    world.write("2026-01-30.ndjson", record(3))
    world.write("2026-01-31.ndjson", record(4))
    assert await world.new() == ["f3", "f4"]


async def test_a_torn_last_line_waits(world: World) -> None:
    line = record(2)
    world.write("a.ndjson", record(1), line[:50])
    assert await world.new() == ["f1"]
    assert await world.new() == []
    world.write("a.ndjson", line[50:])
    assert await world.new() == ["f2"]


async def test_a_torn_first_line_waits(world: World) -> None:
    world.write("a.ndjson", record(1)[:-1])
    assert await world.new() == []
    world.write("a.ndjson", b"\n")
    assert await world.new() == ["f1"]


async def test_other_files_are_ignored(world: World) -> None:
    world.write("notes.txt", record(1))
    world.write("b.ndjson.tmp", record(2))
    (world.folder / "c.ndjson").mkdir()
    assert await world.new() == []


async def test_a_renamed_and_compressed_file_is_continued(world: World) -> None:
    world.write("a.ndjson", record(1), record(2))
    assert await world.new() == ["f1", "f2"]
    world.write("a.ndjson", record(3))
    (world.folder / "a.ndjson").rename(world.folder / "a.ndjson.1")
    world.write("a.ndjson", record(4))
    assert await world.new() == ["f4", "f3"]
    content = (world.folder / "a.ndjson.1").read_bytes() + record(5)
    (world.folder / "a.ndjson.1").unlink()
    (world.folder / "a.ndjson.1.gz").write_bytes(gzip.compress(content))
    assert await world.new() == ["f5"]
    assert await world.new() == []


async def test_a_compressed_file_needs_no_end_of_its_last_line(world: World) -> None:
    (world.folder / "a.ndjson.gz").write_bytes(gzip.compress(record(1) + record(2).rstrip()))
    assert await world.new() == ["f1", "f2"]


async def test_a_truncated_file_is_read_from_its_beginning(world: World) -> None:
    world.write("a.ndjson", record(1), record(2))
    await world.new()
    (world.folder / "a.ndjson").write_bytes(record(3))
    assert await world.new() == ["f3"]


async def test_a_file_with_another_content_after_the_same_first_line_is_read(world: World) -> None:
    world.write("a.ndjson", b"\n", record(1), record(2))
    assert await world.new() == ["f1", "f2"]
    world.write("b.ndjson", b"\n", record(3), record(4))
    assert await world.new() == ["f3", "f4"]


async def test_a_bad_line_is_logged_and_skipped(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.write("a.ndjson", record(1), b"no json\n", b"\n", record(2), b"{}\n", b" \n", record(3))
    with caplog.at_level(logging.WARNING):
        assert await world.new() == ["f1", "f2", "f3"]
    told = [one.getMessage() for one in caplog.records]
    assert [one.partition(" is no record")[0] for one in told] == [
        f"{world.folder}/a.ndjson, line 2",
        f"{world.folder}/a.ndjson, line 5",
    ]
    assert world.refused() == 2
    assert await world.new() == []


async def test_a_line_that_only_the_database_refuses_is_skipped(world: World) -> None:
    world.write("a.ndjson", record(1), record(2).replace(b'"test"', b'"refused"'), b"x\n", record(3))
    assert await world.new() == ["f1", "f3"]
    assert world.refused() == 2


async def test_thousands_of_bad_lines_do_not_flood_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.write("a.ndjson", *[b"x\n"] * 5000, record(1))
    with caplog.at_level(logging.WARNING):
        assert await world.new() == ["f1"]
    assert world.refused() == 5000
    assert len(caplog.records) == 21


async def test_nothing_is_lost_while_the_database_is_away(world: World) -> None:
    world.write("a.ndjson", record(1))
    world.away = True
    with pytest.raises(ArchiveError):
        await world.new()
    assert world.follower.unread_bytes == len(record(1))
    assert world.follower.lag_seconds >= 0
    world.write("a.ndjson", record(2))
    world.away = False
    assert await world.new() == ["f1", "f2"]
    assert world.follower.unread_bytes == 0
    assert world.follower.lag_seconds == 0


async def test_large_files_come_in_batches(world: World) -> None:
    lines = [record(number, padding=50_000) for number in range(3 * BATCH_BYTES // 50_000)]
    world.write("a.ndjson", *lines)
    assert await world.new() == [f"f{number}" for number in range(len(lines))]
    assert await world.new() == []


async def test_a_line_that_is_too_long_takes_no_memory_and_is_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frameworkcontroller.history.folderfollower.MAX_BODY_BYTES", 100_000)
    world.write("a.ndjson", record(1), b"x" * 5_000_000 + b"\n", record(2), b"y" * 100_001 + b"\n", record(3))
    assert await world.new() == ["f1", "f2", "f3"]
    assert world.refused() == 2
    world.write("a.ndjson", record(4))
    assert await world.new() == ["f4"]


async def test_a_broken_compressed_file_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    (world.folder / "a.ndjson.gz").write_bytes(gzip.compress(record(1) + record(3) * 100)[:-9])
    world.write("b.ndjson", record(2))
    with caplog.at_level(logging.WARNING):
        assert {"f1", "f2"} <= set(await world.new())
        assert await world.new() == []
    assert [one.getMessage().partition(" cannot")[0] for one in caplog.records] == [f"{world.folder}/a.ndjson.gz"]


async def test_a_missing_folder_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.folder.rename(world.folder.with_name("elsewhere"))
    with caplog.at_level(logging.WARNING):
        await world.new()
        await world.new()
    assert len(caplog.records) == 1
    world.folder.with_name("elsewhere").rename(world.folder)
    world.write("a.ndjson", record(1))
    assert await world.new() == ["f1"]


def test_a_folder_must_be_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    for path, reason in ((tmp_path / "none", "No such file"), (tmp_path / "file", "Not a directory")):
        if path.name == "file":
            path.touch()
        with pytest.raises(FolderError, match=reason):
            FolderFollower(path, world.store, world.metrics)
