"""What stands in front of the lines of several writers: whose they are, in one column, each in a colour of its own."""

from __future__ import annotations

import zlib
from typing import Final

from rich.text import Text

_COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")


class Labels:
    """Makes them as wide as the widest so far."""

    def __init__(self) -> None:
        self._wide = 0

    def make(self, label: str, writer: str) -> Text:
        """The label, and a bar. The same ``writer`` has the same colour, in every run."""
        self._wide = max(self._wide, len(label))
        return Text(f"{label.ljust(self._wide)} | ", _COLOURS[zlib.crc32(writer.encode()) % len(_COLOURS)])
