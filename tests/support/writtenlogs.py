"""Logs of simulated Pods, which a test writes line by line."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

from frameworkcontroller.api.timestamps import format_precise_time


class WrittenLogs:
    """The ``logs`` of an embedded API server. A container's log ends with `end`."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._lines: dict[str, list[tuple[float, bytes]]] = defaultdict(list)
        self._ended: set[str] = set()
        self._changed = asyncio.Event()
        self.reads: list[str] = []
        """The Pods whose logs were asked for."""

    def write(self, pod: str, *lines: str) -> None:
        """Append lines now."""
        self._lines[pod] += [(self._wall(), line.encode()) for line in lines]
        self._tell()

    def end(self, pod: str) -> None:
        """The container ends."""
        self._ended.add(pod)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(
        self,
        _namespace: str,
        name: str,
        _container: str,
        *,
        follow: bool,
        tail_lines: int | None,
        since_seconds: float | None,
        limit_bytes: int | None,
        timestamps: bool,
        previous: bool,
    ) -> AsyncIterator[bytes]:
        """Yield the lines."""
        self.reads.append(name)
        if not follow and name not in self._lines and name not in self._ended:
            raise LookupError(f'pod "{name}" has no log')
        since = 0.0 if since_seconds is None else self._wall() - since_seconds
        found = self._lines[name]
        at = 0 if tail_lines is None else max(0, len(found) - tail_lines)
        while True:
            while at < len(found):
                moment, text = found[at]
                at += 1
                if moment >= since:
                    stamp = f"{format_precise_time(moment)} " if timestamps else ""
                    yield stamp.encode() + text + b"\n"
            if not follow or name in self._ended:
                return
            await self._changed.wait()
