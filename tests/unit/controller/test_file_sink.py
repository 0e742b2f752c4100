"""Records in files: durable lines, one file a UTC day, and disks that fail."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller.controller import filesink
from frameworkcontroller.controller.filesink import FileDestination
from frameworkcontroller.controller.historysink import Unavailable

NOW = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""

FILE = "2026-01-01.ndjson"
OF_LOGS = "2026-01-01.logs.ndjson"


class Calls:
    """Records calls of `os` by name, and lets some fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.fail: dict[str, Callable[..., Any]] = {}
        for name in ("write", "fsync", "ftruncate"):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: int, *arguments: Any) -> Any:
            path = str(Path(f"/proc/self/fd/{file}").readlink())
            if "ndjson" in path or Path(path).is_dir():
                self.made.append(f"{name} {Path(path).name}")
                if name in self.fail:
                    return self.fail[name](original, file, *arguments)
            return original(file, *arguments)

        return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


async def test_lines_are_durable_before_they_are_acknowledged(tmp_path: Path, calls: Calls) -> None:
    destination = FileDestination(tmp_path, wall=lambda: NOW)
    await destination.send([b"one", b"two"])
    assert (tmp_path / FILE).read_bytes() == b"one\ntwo\n"
    assert calls.made == [f"write {FILE}", f"fsync {FILE}", f"fsync {tmp_path.name}"]
    calls.made.clear()
    await destination.send([b"three"])
    assert (tmp_path / FILE).read_bytes() == b"one\ntwo\nthree\n"
    assert calls.made == [f"write {FILE}", f"fsync {FILE}"]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o640


async def test_a_file_for_each_utc_day(tmp_path: Path) -> None:
    now = NOW + 86_399.9
    destination = FileDestination(tmp_path, wall=lambda: now)
    await destination.send([b"late"])
    now += 0.2
    await destination.send([b"early"])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        FILE: b"late\n",
        "2026-01-02.ndjson": b"early\n",
    }


@pytest.mark.parametrize(
    ("found", "kept"),
    [(b"", b""), (b"x", b""), (b"one\n", b"one\n"), (b"one\ntw", b"one\n"), (b"one\n" + b"x" * 200_000, b"one\n"),
     (b"x" * 200_000, b"")],
)  # fmt: skip
async def test_the_rest_of_a_line_after_a_crash_is_removed(tmp_path: Path, found: bytes, kept: bytes) -> None:
    (tmp_path / FILE).write_bytes(found)
    await FileDestination(tmp_path, wall=lambda: NOW).send([b"next"])
    assert (tmp_path / FILE).read_bytes() == kept + b"next\n"


async def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, calls: Calls) -> None:
    destination = FileDestination(tmp_path, wall=lambda: NOW)
    await destination.send([b"one"])

    def full(original: Callable[..., Any], file: int, content: bytes) -> int:
        if len(content) > 4:
            written: int = original(file, content[:4])
            return written
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    calls.fail["write"] = full
    with pytest.raises(Unavailable, match=rf"^{tmp_path}/{FILE}: No space left on device$"):
        await destination.send([b"second"])
    assert (tmp_path / FILE).read_bytes() == b"one\n"
    calls.fail.clear()
    await destination.send([b"second"])
    assert (tmp_path / FILE).read_bytes() == b"one\nsecond\n"


async def test_after_a_failed_fsync_the_lines_are_written_again(tmp_path: Path, calls: Calls) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    destination = FileDestination(tmp_path, wall=lambda: NOW)
    calls.fail["fsync"] = fail
    with pytest.raises(Unavailable, match="Input/output error"):
        await destination.send([b"one"])
    # Not even the repair works: the next batch does it.
    calls.fail["ftruncate"] = fail
    with pytest.raises(Unavailable, match="Input/output error"):
        await destination.send([b"one"])
    calls.fail.clear()
    await destination.send([b"two"])
    assert (tmp_path / FILE).read_bytes().endswith(b"\ntwo\n")


async def test_a_short_write_is_continued(tmp_path: Path, calls: Calls) -> None:
    calls.fail["write"] = lambda original, file, content: original(file, content[:3])
    await FileDestination(tmp_path, wall=lambda: NOW).send([b"a line of some length"])
    assert (tmp_path / FILE).read_bytes() == b"a line of some length\n"


async def test_a_missing_directory_is_named_and_not_made(tmp_path: Path) -> None:
    directory = tmp_path / "absent"
    destination = FileDestination(directory, wall=lambda: NOW)
    with pytest.raises(Unavailable, match=rf"^{directory}/{FILE}: No such file or directory$"):
        await destination.send([b"one"])
    assert not directory.exists()
    directory.mkdir()
    await destination.send([b"one"])
    assert (directory / FILE).read_bytes() == b"one\n"


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
async def test_a_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    destination = FileDestination(tmp_path, wall=lambda: NOW)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(Unavailable, match=rf"^{tmp_path}/{FILE}: {os.strerror(code)}$"):
            await destination.send([b"one"])
    await destination.send([b"one"])
    assert (tmp_path / FILE).read_bytes() == b"one\n"


async def test_a_file_that_is_moved_away_is_made_again(tmp_path: Path) -> None:
    destination = FileDestination(tmp_path, wall=lambda: NOW)
    await destination.send([b"one"])
    (tmp_path / FILE).rename(tmp_path / "moved")
    await destination.send([b"two"])
    assert (tmp_path / "moved").read_bytes() == b"one\n"
    assert (tmp_path / FILE).read_bytes() == b"two\n"


async def test_a_file_that_is_deleted_while_it_is_written_is_no_success(tmp_path: Path, calls: Calls) -> None:
    def deleted(original: Callable[..., Any], file: int) -> None:
        original(file)
        (tmp_path / FILE).unlink(missing_ok=True)

    calls.fail["fsync"] = deleted
    with pytest.raises(Unavailable, match="was deleted meanwhile"):
        await FileDestination(tmp_path, wall=lambda: NOW).send([b"one"])


async def test_two_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    """A former leader may still write while the next one begins."""
    writers = [FileDestination(tmp_path, wall=lambda: NOW) for _ in range(2)]

    async def write(writer: FileDestination, mark: bytes) -> None:
        for _ in range(20):
            await writer.send([mark * 50_000, mark])

    await asyncio.gather(write(writers[0], b"a"), write(writers[1], b"b"))
    lines = (tmp_path / FILE).read_bytes().splitlines()
    assert sorted(lines) == sorted([b"a" * 50_000, b"a", b"b" * 50_000, b"b"] * 20)


async def test_a_file_system_that_hangs_does_not_stop_the_loop_and_gets_no_second_thread(
    tmp_path: Path, calls: Calls
) -> None:
    released = threading.Event()

    def hang(original: Callable[..., Any], file: int) -> None:
        released.wait()
        original(file)

    destination = FileDestination(tmp_path, wall=lambda: NOW)
    calls.fail["fsync"] = hang
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filesink, "_ANSWER_SEC", 0.05)
        with pytest.raises(Unavailable, match=rf"{FILE}: not written in"):
            await destination.send([b"one"])
    with pytest.raises(Unavailable, match=f"^{tmp_path}: an earlier write has not ended$"):
        await destination.send([b"one"])
    released.set()
    assert destination._writing is not None
    await destination._writing
    await destination.send([b"two"])
    assert (tmp_path / FILE).read_bytes() == b"one\ntwo\n"


async def test_a_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    destination = FileDestination(tmp_path, wall=lambda: NOW)
    await destination.send([b"one"])
    with (tmp_path / FILE).open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        sending = asyncio.create_task(destination.send([b"three"]))
        await asyncio.sleep(0)
        other.write(b"two\n")
        other.flush()
        assert not sending.done()
        fcntl.flock(other, fcntl.LOCK_UN)
        await sending
    assert (tmp_path / FILE).read_bytes() == b"one\ntwo\nthree\n"


async def test_logs_have_a_file_of_their_own(tmp_path: Path, calls: Calls) -> None:
    pod, log = (f'{{"id":"u/0/r/t/0/p","trigger":"{name}"}}'.encode() for name in ("OnPodDeletion", "OnPodLog"))
    destination = FileDestination(tmp_path, wall=lambda: NOW)
    await destination.send([log, pod, log])
    assert (tmp_path / FILE).read_bytes() == pod + b"\n"
    assert (tmp_path / OF_LOGS).read_bytes() == (log + b"\n") * 2
    assert [call for call in calls.made if call.startswith("fsync 2")] == [
        f"fsync {FILE}",
        "fsync 2026-01-01.logs.ndjson",
    ]
    calls.fail["fsync"] = lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken"))
    with pytest.raises(Unavailable, match=r"broken"):
        await destination.send([log])
    assert (tmp_path / OF_LOGS).read_bytes() == (log + b"\n") * 2
