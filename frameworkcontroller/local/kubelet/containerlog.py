"""Reads the logs that `spawner.logfile` writes: at most two files per instance of a container."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Final

from frameworkcontroller.api.timestamps import format_time

FOLLOW_SECONDS: Final = 0.1
"""Poll interval for followed logs, in seconds."""

_CHUNK: Final = 65536


def last_output(log: Path, *, lines: int, limit: int) -> bytes:
    """The last ``lines`` lines of the output, and of these at most the last ``limit`` bytes."""
    records = _last_records(log, lines)
    return b"".join(_Printer(timestamps=False).print(record) for record in records)[-limit:]


async def read_log(
    log: Path,
    ended: Callable[[], bool],
    *,
    follow: bool = False,
    tail_lines: int | None = None,
    since: float | None = None,
    limit_bytes: int | None = None,
    timestamps: bool = False,
) -> AsyncGenerator[bytes, None]:
    """Read the log as `PodLogs` does. ``since`` is in epoch seconds; following stops once ``ended`` is true."""
    printer = _Printer(timestamps=timestamps, since=since)
    left = limit_bytes
    async with aclosing(_print_all(log, ended, printer, follow, tail_lines)) as printed:
        async for data in printed:
            part = data if left is None else data[:left]
            if part:
                yield part
            if left is not None:
                left -= len(part)
                if left <= 0:
                    return


async def _print_all(
    log: Path, ended: Callable[[], bool], printer: _Printer, follow: bool, tail_lines: int | None
) -> AsyncGenerator[bytes, None]:
    with _Opened(log) as files:
        if tail_lines is not None:
            yield b"".join(printer.print(record) for record in files.skip_to_last(tail_lines))
        while True:
            # Check before reading: the text read afterwards is then complete.
            over = not follow or ended()
            while data := files.read():
                yield b"".join(map(printer.print, data))
            if over:
                return
            await asyncio.sleep(FOLLOW_SECONDS)


class _Opened:
    """The files of a log, oldest first, read record by record across rotation."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._rest = b""
        self._files: list[BinaryIO] = []
        # The newest first: if it is rotated in between, it is opened twice rather than missed.
        for path in (log, _older(log)):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue
            if any(os.path.sameopenfile(file.fileno(), other.fileno()) for other in self._files):
                file.close()
            else:
                self._files.insert(0, file)

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def read(self) -> list[bytes]:
        """The next complete records; none if there are no more now."""
        while self._files:
            data = self._files[0].read(_CHUNK)
            if data:
                *records, self._rest = (self._rest + data).split(b"\n")
                if records:
                    return records
            elif len(self._files) > 1:
                self._files.pop(0).close()
            elif not self._open_successor():
                break
        return []

    def skip_to_last(self, lines: int) -> list[bytes]:
        """The records of the last lines; `read` continues after them."""
        records = [record for file in self._files for record in _records(file, _tail_start(file, lines + 1))]
        for file in self._files[:-1]:
            file.close()
        del self._files[:-1]
        return _keep_last(records, lines)

    def _open_successor(self) -> bool:
        """Open the file that replaced a rotated one; False if there is none."""
        try:
            successor = self._log.open("rb")
        except FileNotFoundError:
            return False
        if os.path.sameopenfile(successor.fileno(), self._files[0].fileno()):
            successor.close()
            return False
        self._files.append(successor)
        return True


class _Printer:
    """Formats records for output."""

    def __init__(self, *, timestamps: bool, since: float | None = None) -> None:
        self._timestamps = timestamps
        self._since = b"" if since is None else format_time(int(since)).removesuffix("Z").encode()
        self._in_line = False

    def print(self, record: bytes) -> bytes:
        stamp, _, rest = record.partition(b" ")
        _, _, rest = rest.partition(b" ")
        flag, _, text = rest.partition(b" ")
        if stamp < self._since:
            return b""
        prefix = stamp + b" " if self._timestamps and not self._in_line else b""
        self._in_line = flag == b"P"
        return prefix + text if self._in_line else prefix + text + b"\n"


def _last_records(log: Path, lines: int) -> list[bytes]:
    with _Opened(log) as files:
        return files.skip_to_last(lines)


def _keep_last(records: list[bytes], lines: int) -> list[bytes]:
    """Drop the records before the last lines; a line may consist of several records."""
    if lines <= 0:
        return []
    ends = [index for index, record in enumerate(records) if _ends_line(record)]
    unfinished = bool(records) and not _ends_line(records[-1])
    keep = lines - unfinished
    return records[ends[-keep - 1] + 1 :] if len(ends) > keep else records


def _records(file: BinaryIO, start: int) -> Iterator[bytes]:
    file.seek(start)
    for line in file:
        if line.endswith(b"\n"):
            yield line[:-1]
        else:
            file.seek(-len(line), os.SEEK_CUR)
            return


def _tail_start(file: BinaryIO, lines: int) -> int:
    """The start of a record followed by at least ``lines`` lines, or 0."""
    end = file.seek(0, os.SEEK_END)
    start, data = end, b""
    while start > 0:
        step = min(_CHUNK, start)
        start -= step
        file.seek(start)
        data = file.read(step) + data
        # The first record may be incomplete.
        if sum(map(_ends_line, data.split(b"\n")[1:])) >= lines:
            return start + data.index(b"\n") + 1
    return 0


def _ends_line(record: bytes) -> bool:
    return record.split(b" ", 3)[2:3] == [b"F"]


def _older(log: Path) -> Path:
    return log.with_name(log.name + ".1")
