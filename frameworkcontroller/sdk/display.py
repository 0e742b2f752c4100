"""Pictures of a status: HTML for notebooks, trees for terminals, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from html import escape
from typing import Final

from frameworkcontroller.api.status import Phase
from frameworkcontroller.sdk.runstatus import ProgressStatus, RoleStatus, Status

_COLORS: Final = {
    Phase.SUCCEEDED: "#3d7dca",
    Phase.RUNNING: "#4c9f70",
    Phase.FAILED: "#cf4a4a",
    Phase.STOPPED: "#9a9a9a",
    Phase.ENDING: "#b58bd0",
}
_OTHERS: Final = "#e6c35c"


def html(name: str, status: Status) -> str:
    """Return phase, reason, and a bar for each role."""
    color = _COLORS.get(status.phase, _OTHERS)
    head = f'<b>{escape(name)}</b> <b style="color:{color}">{status.phase}</b> {escape(status.message)}'
    bars = "".join(map(_bar, status.roles.values()))
    return f'<div style="font-family:sans-serif">{head}{_progress(status.progress)}{bars}</div>'


def _progress(progress: ProgressStatus | None) -> str:
    if progress is None:
        return ""
    percent = progress.percent
    bar = "" if percent is None else f'<progress max="100" value="{percent}" style="width:300px"></progress> '
    return f"<div>{bar}{escape(progress.text)}</div>"


def _bar(role: RoleStatus) -> str:
    total = max(1, len(role.tasks))
    counts = ", ".join(f"{number} {phase}" for phase, number in sorted(role.phases.items()))
    parts = "".join(
        f'<span style="display:inline-block;height:10px;width:{100 * number / total:.2f}%;'
        f'background:{_COLORS.get(phase, _OTHERS)}"></span>'
        for phase, number in sorted(role.phases.items())
    )
    bar = f'<div style="width:300px;line-height:0;background:#eee">{parts}</div>'
    return f"<div>{escape(role.name)}: {escape(counts)}{bar}</div>"


def show(name: str, changes: Iterable[Status]) -> None:
    """Show each status in place of the last one; without a notebook or a terminal, a line for each change."""
    if _in_notebook():
        from IPython.display import HTML, display

        handle = display(HTML(""), display_id=True)
        for status in changes:
            handle.update(HTML(html(name, status)))
    elif sys.stdout.isatty():
        from rich.live import Live

        from frameworkcontroller.views.diagnosis import read_view
        from frameworkcontroller.views.tree import framework_tree

        with Live(auto_refresh=False) as live:
            for status in changes:
                tree = framework_tree(read_view(status.object, {}), time.time(), live.console.height - 1)
                live.update(tree, refresh=True)
    else:
        last = ""
        for status in changes:
            text = f"{name}: {status}{f', {status.progress}' if status.progress else ''}"
            if text != last:
                print(text, flush=True)  # noqa: T201 - asked for
                last = text


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
