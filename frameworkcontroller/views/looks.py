"""The looks of phases: their order, colors in a terminal, and cells in bars."""

from __future__ import annotations

from typing import Final, NamedTuple

from frameworkcontroller.api.status import Phase


class Look(NamedTuple):
    """The color of a phase, and its cell in bars."""

    color: str
    cell: str


LOOKS: Final = {
    Phase.FAILED: Look("red", "x"),
    Phase.PENDING: Look("yellow", "░"),
    Phase.QUEUED: Look("yellow", "░"),
    Phase.SUSPENDED: Look("dim", "░"),
    Phase.ENDING: Look("magenta", "▒"),
    Phase.RUNNING: Look("green", "▓"),
    Phase.STOPPED: Look("dim", "-"),
    Phase.SUCCEEDED: Look("cyan", "█"),
}
"""The most interesting phase first."""

OF_TASKS: Final = tuple(phase for phase in LOOKS if phase not in (Phase.QUEUED, Phase.SUSPENDED))
"""The phases of Tasks."""

BAR_ORDER: Final = (Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED, Phase.ENDING, Phase.RUNNING, Phase.PENDING)
"""The segments of a bar."""
