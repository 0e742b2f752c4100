"""The history's records in files: one a UTC day, appended, and one for logs, which may be removed earlier.

Source: docs/history-records.md.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from frameworkcontroller.api.historyrecords import is_log_line
from frameworkcontroller.controller.historysink import Unavailable

_ANSWER_SEC: Final = 30.0
_MODE: Final = 0o640
_TAIL_BYTES: Final = 2**16


class FileDestination:
    """Files ``<UTC date>.ndjson`` and ``<UTC date>.logs.ndjson`` in a directory that exists. Belongs to one event loop.

    A file is opened, locked and closed for each batch: it may be moved away, and a former leader may still write.
    """

    concurrency = 1

    def __init__(self, directory: Path, *, wall: Callable[[], float] = time.time) -> None:
        """``wall``: seconds since the epoch."""
        self.name = str(directory)
        self._directory = directory
        self._wall = wall
        self._writing: asyncio.Future[None] | None = None

    async def send(self, lines: Sequence[bytes]) -> None:
        """Append the lines.

        Raises:
            Unavailable: some may not be stored.
        """
        if self._writing is not None and not self._writing.done():
            raise Unavailable(f"{self.name}: an earlier write has not ended")
        today = datetime.fromtimestamp(self._wall(), UTC).date().isoformat()
        path = self._directory / f"{today}.ndjson"
        of_logs = self._directory / f"{today}.logs.ndjson"
        contents = {
            path: _content(line for line in lines if not is_log_line(line)),
            of_logs: _content(filter(is_log_line, lines)),
        }
        # In a thread, which nothing can end: a file system that hangs gets no second one.
        self._writing = asyncio.ensure_future(asyncio.to_thread(_append_all, contents))
        self._writing.add_done_callback(lambda writing: writing.cancelled() or writing.exception())
        try:
            async with asyncio.timeout(_ANSWER_SEC):
                await asyncio.shield(self._writing)
        except TimeoutError as error:
            raise Unavailable(f"{path}: not written in {_ANSWER_SEC:.0f} s") from error
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror or error}") from error

    async def close(self) -> None:
        """Do nothing: no file is open between two batches."""


def _content(lines: Iterable[bytes]) -> bytes:
    return b"".join(part for line in lines for part in (line, b"\n"))


def _append_all(contents: Mapping[Path, bytes]) -> None:
    for path, content in contents.items():
        if content:
            _append(path, content)


def _append(path: Path, content: bytes) -> None:
    """Append to a file durably, or not at all.

    Raises:
        OSError: it is not appended, or that is not certain.
    """
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = _cut_incomplete_line(file)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        except OSError:
            # After a full disk a part may be there; after a failed fsync the amount is unknown.
            os.ftruncate(file, end)
            raise
        if end == 0:
            _sync_directory(path.parent)
        if os.fstat(file).st_nlink == 0:
            raise OSError("was deleted meanwhile")
    finally:
        os.close(file)


def _cut_incomplete_line(file: int) -> int:
    """Truncate after the last line end: a crash left an unacknowledged rest. Return the size."""
    size = os.fstat(file).st_size
    end = size
    while end:
        start = max(0, end - _TAIL_BYTES)
        # All blocks except the first one read hold a part of the incomplete line.
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)
    return end


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
