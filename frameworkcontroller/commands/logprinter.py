"""Prints lines of logs with prefixes, on terminals without their controls."""

from __future__ import annotations

import re
from typing import Final

from rich.console import Console

from frameworkcontroller.commands.output import LinePrefixes
from frameworkcontroller.views.loglines import Line, Source
from frameworkcontroller.views.texts import printable

_COLOR: Final = re.compile(r"(\x1b\[[0-9;]{0,32}m)")
"""The sequence for colors (SGR): it moves no cursor and asks for no answer."""
_RESET: Final = "\x1b[0m"


class LinePrinter:
    """Prints lines with their Task as prefix, in a color of its own."""

    def __init__(self, console: Console, *, label: bool, attempt: bool, container: bool, raw: bool) -> None:
        """``attempt``: whether prefixes have the attempt of the Framework. ``raw``: terminals get all controls."""
        self._console = console
        self._label = label
        self._attempt = attempt
        self._container = container
        self._shows = console.is_terminal and not raw
        self._labels = LinePrefixes()
        self._prefixes: dict[str, str] = {}

    def print(self, line: Line) -> None:
        """Print the line: on terminals without controls except colors, elsewhere the bytes that the container wrote."""
        prefix, file = self.prefix(line.source), self._console.file
        binary = None if self._shows else getattr(file, "buffer", None)
        if binary is not None:
            file.flush()
            binary.write(prefix.encode(errors="replace") + line.text + b"\n")
            binary.flush()
            return
        text = line.text.rstrip(b"\r").decode("utf-8", "replace")
        file.write(f"{prefix}{for_terminal(text) if self._shows else text}\n")
        file.flush()

    def prefix(self, source: Source) -> str:
        """Return the prefix of a source, as wide as the widest one so far; "" if all lines are of one container."""
        label = "/".join([source.label] * self._label + [source.container] * self._container)
        if self._attempt and source.framework_attempt is not None:
            label = f"{source.framework_attempt}: {label}"
        if not label:
            return ""
        # All attempts of a Task have the same color.
        made = self._labels.make(label, f"{source.role}/{source.index}")
        if made.plain not in self._prefixes:
            with self._console.capture() as captured:
                self._console.print(made, end="", soft_wrap=True)
            self._prefixes[made.plain] = captured.get()
        return self._prefixes[made.plain]


def for_terminal(text: str) -> str:
    """Return a line with blanks in place of the characters on which a terminal acts, except tabs and colors."""
    if text.isprintable():
        return text
    parts = _COLOR.split(text)
    shown = "".join(part if n % 2 else _printable(part) for n, part in enumerate(parts))
    return f"{shown}{_RESET}" if len(parts) > 1 else shown


def _printable(text: str) -> str:
    return "\t".join(map(printable, text.split("\t")))
