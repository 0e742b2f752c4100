"""The log of a container as an API server sends it, each line with the time of its writing."""

from __future__ import annotations

import re
from typing import Final

from frameworkcontroller.kube.errors import KubeError

STAMP: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")

_STAMPED: Final = re.compile(rb"\n" + STAMP.pattern + rb" ")
_LONGEST_STAMP: Final = 64
_MAX_ANSWER_BYTES: Final = 2000


class NotALog(KubeError):
    """A kubelet sent an error in place of the log: it answers 200 before it reads the log."""


class Tail:
    """The last ``size`` bytes of a log with times, without the times. Takes at most three times as much memory."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept = bytearray()
        self._rest = b""
        """The beginning of a line, which may be a part of a time."""
        self._inside = False
        """Whether the next bytes continue a line."""
        self._begun = False
        self._problem: bytes | None = None
        self.received = 0
        """Bytes with times."""
        self.text_bytes = 0
        """The same without times."""
        self.lines = 0
        """Lines that have begun."""
        self.cut = False
        """Whether bytes before the kept ones were dropped."""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.received += len(chunk)
        if self._problem is not None:
            self._problem += chunk[: _MAX_ANSWER_BYTES - len(self._problem)]
            return
        data = self._rest + chunk
        begin = data.rfind(b"\n") + 1
        is_line = begin > 0 or not self._inside
        # A line that begins, and whose time may be incomplete.
        whole = begin if is_line and len(data) - begin < _LONGEST_STAMP else len(data)
        self._rest = data[whole:]
        self._take(data[:whole])

    def end(self) -> None:
        """The log has ended.

        Raises:
            NotALog: it is an error of its node.
        """
        rest, self._rest = self._rest, b""
        if self._problem is None:
            self._take(rest)
        if self._problem is not None:
            text = self._problem.decode("utf-8", "replace")
            raise NotALog(f"its node answers: {' '.join(text.split())}")

    def data(self) -> bytes:
        """The last bytes."""
        return bytes(self._kept[-self._size :])

    @property
    def is_full(self) -> bool:
        return len(self._kept) >= self._size

    def _take(self, data: bytes) -> None:
        if not data:
            return
        if not self._begun:
            self._begun = True
            stamp = STAMP.match(data)
            if stamp is None or data[stamp.end() : stamp.end() + 1] != b" ":
                self._problem = data[:_MAX_ANSWER_BYTES]
                return
        self.lines += data.count(b"\n", 0, len(data) - 1) + (not self._inside)
        begins = b"" if self._inside else b"\n"
        text = _STAMPED.sub(b"\n", begins + data)
        self._inside = not data.endswith(b"\n")
        self._kept += memoryview(text)[len(begins) :]
        self.text_bytes += len(text) - len(begins)
        self.cut = self.cut or len(self._kept) > self._size
        if len(self._kept) > 2 * self._size:
            del self._kept[: -self._size]
