"""Colored prefixes that name the writer of each line."""

from __future__ import annotations

import zlib
from typing import Final

from rich.text import Text

_COLORS: Final = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")


class LinePrefixes:
    """Makes prefixes as wide as the widest one so far."""

    def __init__(self) -> None:
        self._wide = 0

    def make(self, label: str, writer: str) -> Text:
        """Return the label and a bar, in the color of ``writer``, which is the same in each run."""
        self._wide = max(self._wide, len(label))
        return Text(f"{label.ljust(self._wide)} | ", _COLORS[zlib.crc32(writer.encode()) % len(_COLORS)])
