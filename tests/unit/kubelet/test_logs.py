"""The output of containers, from the pipe to the file and back, and its end."""

import asyncio
from pathlib import Path

import pytest

from frameworkcontroller.local.kubelet.containerlog import last_output, read_log
from frameworkcontroller.local.kubelet.spawner.logfile import LogFile
from frameworkcontroller.local.kubelet.supervisor import Failed
from frameworkcontroller.local.kubelet.termination import exit_code, start_failure, termination_message

LARGE = 1 << 30


def write(path: Path, *chunks: bytes, limit: int = LARGE) -> None:
    log = LogFile(str(path), limit)
    for chunk in chunks:
        log.write(b"stdout", chunk)
    log.close()


async def output(path: Path, *, tail: int | None = None, limit: int | None = None, since: float | None = None) -> bytes:
    chunks = read_log(path, lambda: True, tail_lines=tail, limit_bytes=limit, since=since)
    return b"".join([chunk async for chunk in chunks])


async def test_output_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    write(path, b"a\nb", b"c\n\nlong", b"er", b"\nno newline")
    assert await output(path) == b"a\nbc\n\nlonger\nno newline\n"
    assert path.read_bytes().splitlines()[1].split(b" ", 1)[1] == b"stdout F bc"


async def test_long_lines_are_kept_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    line = bytes(65 + number % 26 for number in range(100_000))
    write(path, b"before\n" + line[:50_000], line[50_000:] + b"\nafter\n")
    assert await output(path) == b"before\n" + line + b"\nafter\n"
    assert await output(path, tail=2) == line + b"\nafter\n"
    assert path.read_bytes().count(b" stdout P ") == 6


async def test_two_streams_do_not_mix_lines(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path / "0.log"), LARGE)
    log.write(b"stdout", b"out ")
    log.write(b"stderr", b"err\n")
    log.write(b"stdout", b"put\n")
    log.close()
    assert await output(tmp_path / "0.log") == b"err\nout put\n"


@pytest.mark.parametrize("lines", [0, 1, 2, 99, 100, 101, 5000])
async def test_tail(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "0.log"
    text = [b"%d %b\n" % (number, b"x" * (number * 37 % 5000)) for number in range(100)]
    write(path, b"".join(text))
    assert await output(path, tail=lines) == b"".join(text[-lines:] if lines else [])


@pytest.mark.parametrize("limit", [500, 5_000])
async def test_a_file_at_its_limit_makes_place(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "0.log"
    text = [b"line %d\n" % number for number in range(1000)]
    write(path, b"".join(text[:300]), b"".join(text[300:]), limit=limit)
    sizes = [file.stat().st_size for file in (path, tmp_path / "0.log.1")]
    assert all(size <= limit for size in sizes)
    kept = await output(path)
    assert b"".join(text).endswith(kept)
    assert len(kept) > limit / 10
    assert await output(path, tail=3) == b"".join(text[-3:])
    assert last_output(path, lines=2, limit=9) == b"\nline 999\n"[1:]


async def test_limits_of_bytes_and_time(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(
        b"2026-01-01T00:00:00.000000001Z stdout F first\n"
        b"2026-01-01T00:00:10.500000000Z stdout F second\n"
        b"2026-01-01T00:00:20.000000000Z stderr F third\n"
    )
    assert await output(path, limit=8) == b"first\nse"
    assert await output(path, since=1_767_225_610.9) == b"second\nthird\n"
    assert await output(path, since=1_767_225_615) == b"third\n"
    stamped = read_log(path, lambda: True, timestamps=True, tail_lines=1)
    assert [chunk async for chunk in stamped] == [b"2026-01-01T00:00:20.000000000Z third\n"]


async def test_no_log_is_empty(tmp_path: Path) -> None:
    assert await output(tmp_path / "none") == b""
    assert last_output(tmp_path / "none", lines=80, limit=2048) == b""


async def test_following_across_rotation(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = LogFile(str(path), 2_000)
    wanted = 0
    caught_up = asyncio.Event()
    expected = b"".join(b"number %d\n" % number for number in range(200))
    ended = False
    seen: list[bytes] = []

    async def follow() -> None:
        async for chunk in read_log(path, lambda: ended, follow=True):
            seen.append(chunk)
            if sum(map(len, seen)) >= wanted:
                caught_up.set()

    task = asyncio.create_task(follow())
    for start in range(0, len(expected), 150):
        log.write(b"stdout", expected[start : start + 150])
        # Each rotation is seen before the next, as when a reader keeps up.
        wanted = expected.rfind(b"\n", 0, start + 150) + 1
        caught_up.clear()
        await caught_up.wait()
    log.close()
    ended = True
    await task
    assert b"".join(seen) == expected


def test_exit_codes() -> None:
    assert [exit_code(status) for status in (0, 1, 255, -9, -15, -11)] == [0, 1, 255, 137, 143, 139]


def test_messages(tmp_path: Path) -> None:
    message, log = tmp_path / "message", tmp_path / "0.log"
    write(log, b"".join(b"line %d\n" % number for number in range(100)))
    assert termination_message(message, log, fallback=False) == ""
    message.write_bytes(b"m\xff" * 3000)
    assert termination_message(message, log, fallback=True) == "m\ufffd" * 2048
    message.write_bytes(b"")
    assert termination_message(message, log, fallback=True) == "".join(f"line {number}\n" for number in range(20, 100))
    write(log, b"x" * 5000 + b"\n")
    assert termination_message(message, log, fallback=True) == "x" * 2047 + "\n"


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Failed("command", 2, "No such file or directory"), 'exec: "go": executable file not found in $PATH'),
        (Failed("command", 8, "Exec format error"), 'exec: "go": exec format error'),
        (Failed("directory", 2, "/w: No such file or directory"), "workingDir /w: No such file or directory"),
        (Failed("mount", 1, "/x: not a directory"), "mount: /x: not a directory"),
        (Failed("user", 1, "Operation not permitted"), "cannot become the user that securityContext names: "),
    ],
)
def test_why_a_container_does_not_start(failure: Failed, text: str) -> None:
    assert start_failure(failure, ["go"], "/w").startswith(text)
