"""Splits a byte stream into lines."""

from __future__ import annotations

from typing import Final

# An event holds one object. etcd refuses objects above 1.5 MiB by default, and 8 MiB is the highest limit in use.
MAX_LINE_BYTES: Final = 64 * 2**20


class LineTooLong(ValueError):
    """A line exceeds the limit."""


class LineFramer:
    """Collects chunks and returns complete lines. The cost is linear in the length of a line."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self.pending = 0
        """The length of the incomplete line so far. It is 0 at the end of a complete stream."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in this chunk, without newlines and empty lines. Raises LineTooLong."""
        *lines, rest = chunk.split(b"\n")
        head = lines[0] if lines else rest
        if self.pending + len(head) > self._limit:
            raise LineTooLong(f"a line exceeds {self._limit} bytes")
        if lines:
            if self._parts:
                lines[0] = b"".join((*self._parts, head))
                self._parts.clear()
            self.pending = 0
        if rest:
            self._parts.append(rest)
            self.pending += len(rest)
        return [line for line in lines if line]
