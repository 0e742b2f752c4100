"""What is written to: a terminal, with its colours and its width, or a file or pipe, which has neither."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from frameworkcontroller.commands.humanize import harmless

_UNLIMITED_WIDTH: Final = 100_000


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Of what is shown, other users wrote a good part: none of it may do anything to the terminal."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(harmless(part.text), part.style)

    def on_broken_pipe(self) -> None:
        """Leave it to the command to end; rich would end the process."""
        raise  # noqa: PLE0704 - called where the error is handled


def console(file: Any) -> Console:
    """A console that colours on terminals only, minds NO_COLOR, and cuts nothing off for a file or a pipe."""
    if isinstance(file, io.TextIOWrapper):
        # What the terminal has no character for is no reason to fail.
        file.reconfigure(errors="replace")
    made = _Console(file=file, highlight=False, emoji=False, markup=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _UNLIMITED_WIDTH
    return made


def print_whole(out: Console, table: Table) -> None:
    """Print a table as wide as it is, without blanks at the ends of its lines."""
    width = max(out.width, _UNLIMITED_WIDTH)
    for line in out.render_lines(table, out.options.update(width=width, max_width=width), pad=False):
        text = Text.assemble(*((part.text, part.style or "") for part in line if not part.control))
        text.rstrip()
        out.print(text, soft_wrap=True)
