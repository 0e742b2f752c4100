"""Splits a byte stream into lines."""

from __future__ import annotations

from typing import Final

# An event holds one object. etcd refuses objects above 1.5 MiB by default, and 8 MiB is the highest limit in use.
MAX_LINE_BYTES: Final = 64 * 2**20


class LineTooLong(ValueError):
    """A line exceeds the limit."""


class LineFramer:
    """Collects chunks and returns complete lines. The cost is linear in the length of a line."""

    __slots__ = ("_limit", "_parts", "_pending")

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._pending = 0

    @property
    def pending(self) -> int:
        """The length of the incomplete line so far. It is 0 at the end of a complete stream."""
        return self._pending

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in this chunk, without newlines and empty lines. Raises LineTooLong."""
        head, newline, _ = chunk.partition(b"\n")
        if self._pending + len(head) > self._limit:
            raise LineTooLong(f"a line exceeds {self._limit} bytes")
        if not newline:
            if chunk:
                self._parts.append(chunk)
                self._pending += len(chunk)
            return []
        lines = chunk.split(b"\n")
        if self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
        rest = lines.pop()
        if rest:
            self._parts.append(rest)
        self._pending = len(rest)
        return [line for line in lines if line]
