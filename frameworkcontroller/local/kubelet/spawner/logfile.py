"""Writes a container's output to a file, in the format of container runtimes:

    2026-01-31T12:00:00.123456789Z stdout F text of a line

``P`` in place of ``F`` marks a partial line that continues in the next record. A file that reaches its size limit
replaces the previous ``.1``, so a container keeps between one and two limits of its newest output.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Final

_MAX_PIECE: Final = 16 * 1024


class LogFile:
    """The log of one instance of a container. Failed writes (a full disk) only lose output."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._rest: dict[bytes, bytes] = {}
        self._file = -1
        self._size = 0
        self._append([])

    def write(self, stream: bytes, data: bytes) -> None:
        """Add output of ``stream``, ``b"stdout"`` or ``b"stderr"``; an incomplete line waits for its newline."""
        *lines, rest = (self._rest.pop(stream, b"") + data).split(b"\n")
        stamp = _stamp()
        records = [record for line in lines for record in _records(stamp, stream, line)]
        while len(rest) > _MAX_PIECE:
            records.append(b"%b %b P %b\n" % (stamp, stream, rest[:_MAX_PIECE]))
            rest = rest[_MAX_PIECE:]
        if rest:
            self._rest[stream] = rest
        self._append(records)

    def close(self) -> None:
        """Write the rest."""
        stamp = _stamp()
        self._append([b"%b %b F %b\n" % (stamp, stream, rest) for stream, rest in self._rest.items()])
        self._rest.clear()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._file).st_size

    def _append(self, records: list[bytes]) -> None:
        batch: list[bytes] = []
        size = self._size
        with contextlib.suppress(OSError):
            for record in records:
                if size and size + len(record) > self._limit:
                    self._flush(batch)
                    self._rotate()
                    batch, size = [], 0
                batch.append(record)
                size += len(record)
            self._flush(batch)

    def _flush(self, batch: list[bytes]) -> None:
        if self._file < 0:
            self._open()
        if batch:
            self._size += os.write(self._file, b"".join(batch))

    def _rotate(self) -> None:
        os.close(self._file)
        self._file = -1
        os.replace(self._path, self._path + ".1")


def _records(stamp: bytes, stream: bytes, line: bytes) -> list[bytes]:
    pieces = []
    while len(line) > _MAX_PIECE:
        pieces.append(b"%b %b P %b\n" % (stamp, stream, line[:_MAX_PIECE]))
        line = line[_MAX_PIECE:]
    pieces.append(b"%b %b F %b\n" % (stamp, stream, line))
    return pieces


def _stamp() -> bytes:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%09dZ" % nanoseconds
