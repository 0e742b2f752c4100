"""Output of commands: consoles, tables, prefixes of lines, objects as JSON or YAML, and texts as people read them."""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import orjson
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from frameworkcontroller.commands import program

_UNLIMITED_WIDTH: Final = 100_000
_PREFIX_COLORS: Final = (
    "cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta",
)  # fmt: skip


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render printable text only: other users wrote much of it, and none of it may act on the terminal."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text), part.style)

    def on_broken_pipe(self) -> None:
        """Let the command end; rich would end the process."""
        raise  # noqa: PLE0704 - called where the error is handled


def console(file: Any) -> Console:
    """Return a console with colors on terminals only, subject to NO_COLOR, and unlimited lines elsewhere."""
    if isinstance(file, io.TextIOWrapper):
        # The terminal's encoding may lack characters.
        file.reconfigure(errors="replace")
    made = _Console(file=file, highlight=False, emoji=False, markup=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _UNLIMITED_WIDTH
    return made


def table(*titles: str) -> Table:
    """Return a table in kubectl's form, without borders."""
    return Table(*titles, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")


def print_table(out: Console, rows: Table) -> None:
    """Print a table in its full width, without blanks at the ends of lines."""
    width = max(out.width, _UNLIMITED_WIDTH)
    for line in out.render_lines(rows, out.options.update(width=width, max_width=width), pad=False):
        text = Text.assemble(*((part.text, part.style or "") for part in line if not part.control))
        text.rstrip()
        out.print(text, soft_wrap=True)


class LinePrefixes:
    """Makes prefixes that name the writer of a line, as wide as the widest one so far."""

    def __init__(self) -> None:
        self._wide = 0

    def make(self, label: str, writer: str) -> Text:
        """Return the label and a bar, in the color of ``writer``, which is the same in each run."""
        self._wide = max(self._wide, len(label))
        color = _PREFIX_COLORS[zlib.crc32(writer.encode()) % len(_PREFIX_COLORS)]
        return Text(f"{label.ljust(self._wide)} | ", color)


def encode(value: Any, output: str) -> str:
    """Encode an object as ``json`` or ``yaml``, with characters escaped on which a terminal may act.

    Raises:
        CommandError: it is nested too deeply.
    """
    try:
        return _as_json(value) if output == "json" else _as_yaml(value)
    except RecursionError:
        raise program.CommandError(f"an object is nested too deeply for -o {output}") from None


def _as_json(value: Any) -> str:
    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        # orjson reads deeper nesting than it writes.
        text = json.dumps(value, indent=2, ensure_ascii=False)
    if printable(text) != text:
        # All such characters are inside strings.
        text = "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)
    return text + "\n"


def _as_yaml(value: Any) -> str:
    import yaml

    dump = partial(yaml.dump, value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=120)
    text: str = dump(allow_unicode=True)  # type: ignore[assignment] # without a stream it is text
    return text if printable(text) == text else str(dump(allow_unicode=False))


def duration(seconds: float) -> str:
    """Format a duration in its two greatest units: ``45s``, ``3m12s``, ``2h5m``, ``4d3h``."""
    whole = max(0, int(seconds))
    for size, unit, smaller_size, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size}{unit}{f'{rest}{smaller}' if rest else ''}"
    return f"{whole}s"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Format a count: ``1 Task``, ``2 Tasks``, ``10,000 Tasks``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """Replace the characters on which a terminal may act with blanks, except ends of lines."""
    if all(map(str.isprintable, text.split("\n"))):
        return text
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def clean_line(text: str, most: int = 300) -> str:
    """Make a foreign text printable, put it on one line and shorten it."""
    cleaned = printable(" ".join(text.split()))
    return cleaned if len(cleaned) <= most else f"{cleaned[: most - 1]}…"
