"""Cuts a byte stream into lines of any length."""

from __future__ import annotations

from typing import Final

# etcd refuses objects above 1.5 MiB unless told otherwise, and 8 MiB is the most its operators are known to allow; an
# event holds one object. What is longer than this by far is no event stream, and must not eat all memory.
MAX_LINE_BYTES: Final = 64 * 2**20


class LineTooLong(ValueError):
    """A line went on for longer than allowed."""


class LineFramer:
    """Feed it chunks as they arrive; it returns the lines they complete, without their newline.

    A line that comes in many chunks is joined once, when it ends: the cost stays linear in its length.
    """

    __slots__ = ("_limit", "_parts", "_pending")

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._pending = 0

    @property
    def pending(self) -> int:
        """Bytes of the line that has begun and not ended. Not 0 at the end of a stream means that it was cut."""
        return self._pending

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ended in this chunk; empty ones are left out. Raises LineTooLong."""
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
