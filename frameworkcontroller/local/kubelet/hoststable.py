"""Lines of /etc/hosts that come and go while processes read them.

A process may look a name up at any moment, so no line ever moves: it is written once, and a ``#`` in its first column
hides it until its name returns. One table serves all files with the same lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ADDRESS_WIDTH: Final = 16
_GAP: Final = 512
"""Changes that are closer than this are written together."""

Edits = list[tuple[int, bytes]]
"""Positions in the table, and what to write there."""


class HostsTable:
    """The text of a table, and its changes since the last `take_edits`."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._lines: dict[str, dict[str, tuple[str, int]]] = {}
        """By owner and names: the address, and the place of the line."""
        self._hidden: dict[str, list[int]] = {}
        """By names: the places of hidden lines."""
        self._changed: list[tuple[int, int]] = []

    @property
    def text(self) -> bytes:
        """The whole table."""
        return bytes(self._text)

    def set(self, owner: str, lines: Mapping[str, str]) -> bool:
        """Give ``owner`` these lines: an IPv4 address for each text of names. Return whether anything changed."""
        present = self._lines.setdefault(owner, {})
        changed = False
        for names, (address, place) in list(present.items()):
            if lines.get(names) != address:
                self._write(place, b"#")
                self._hidden.setdefault(names, []).append(place)
                del present[names]
                changed = True
        for names, address in lines.items():
            if names not in present:
                present[names] = address, self._show(names, address)
                changed = True
        if not present:
            del self._lines[owner]
        return changed

    def take_edits(self) -> Edits:
        """The changes since the last call, in the order of their places."""
        merged: list[list[int]] = []
        for start, end in sorted(self._changed):
            if merged and start - merged[-1][1] < _GAP:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        self._changed.clear()
        return [(start, bytes(self._text[start:end])) for start, end in merged]

    def _show(self, names: str, address: str) -> int:
        shown = f"{address:<{_ADDRESS_WIDTH}}"
        places = self._hidden.get(names)
        if places:
            place = places.pop()
            self._write(place, shown.encode())
        else:
            place = len(self._text)
            self._write(place, f"{shown}{names}\n".encode())
        return place

    def _write(self, place: int, data: bytes) -> None:
        self._text[place : place + len(data)] = data
        self._changed.append((place, place + len(data)))


@dataclass(slots=True)
class HostsFile:
    """A file with ``length`` bytes of a table at ``offset``."""

    path: Path
    offset: int
    length: int


def write_edits(files: Iterable[HostsFile], edits: Edits) -> None:
    """Write the changes of a table into files. A file that is gone is skipped, and one that its Pod has replaced."""
    for file in files:
        try:
            descriptor = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            for place, data in edits:
                _write_edit(descriptor, file, place, data)
        finally:
            os.close(descriptor)


def _write_edit(descriptor: int, file: HostsFile, place: int, data: bytes) -> None:
    size, end = os.fstat(descriptor).st_size, file.offset + file.length
    if size < end:
        return
    if place + len(data) > file.length:
        file.length = place + len(data)
        # The Pod's own additions to its file stay behind the table.
        data += os.pread(descriptor, size - end, end)
    os.pwrite(descriptor, data, file.offset + place)
