"""Output of commands: consoles, tables and prefixes of lines."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from frameworkcontroller.views.texts import printable

T = TypeVar("T")

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
        """Print nothing more, and let the command end; rich would end the process."""
        self.quiet = True
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


def table_of(columns: Mapping[str, Callable[[T], str | Text]], items: Iterable[T]) -> Table:
    """Return a table with a row for each item. ``columns``: the text of an item by the title of the column."""
    made = table(*columns)
    for one in items:
        made.add_row(*(cell(one) for cell in columns.values()))
    return made


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
