"""Progress of Frameworks: live trees on a terminal, a line per change elsewhere, and the result."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.completion import NEVER_RETRIED, CompletionStatus
from frameworkcontroller.api.status import FrameworkStatus, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.commands.diagnosis import NOT_SEEN, View, cause, read_view, result, stalled, trigger
from frameworkcontroller.commands.output import clean_line, counted
from frameworkcontroller.commands.tree import DEFAULT_NAMESPACE, framework_tree

_DRAW_EVERY_SEC: Final = 0.125
_PAUSE_FACTOR: Final = 9
"""Pauses are longer than drawing by this factor, to leave time for everything else."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of a Framework, for people. ``succeeded`` is also False before its end."""

    succeeded: bool
    text: str


def progress_on(console: Console, wall: Callable[[], float]) -> Progress:
    """Return live trees for a terminal that can show them, else lines."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, wall)
    return LineProgress(console, wall)


async def keep_drawing(progress: Progress) -> None:
    """Update the display until cancelled: often, but for a small share of the time."""
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        progress.draw()
        await asyncio.sleep(max(_DRAW_EVERY_SEC, _PAUSE_FACTOR * (clock() - began)))


class LineProgress:
    """Prints a line at each change of the state or attempt of a Framework or Task. ``clock``: seconds."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._seen: dict[tuple[str, str, int], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def show(self, key: str, framework: Mapping[str, Any]) -> None:
        """Print the changes."""
        status = _status(framework)
        if status is None:
            return
        self._line(key, "", -1, _framework_text(status))
        for role in status.attempt.roles:
            for task in role.tasks:
                self._line(key, role.name, task.index, _task_text(task))

    def print(self, line: Text) -> None:
        """Print the line."""
        self._console.print(line, soft_wrap=True)

    def draw(self) -> None:
        """Do nothing: all is printed."""

    def _line(self, key: str, role: str, index: int, text: str) -> None:
        place = (key, role, index)
        if self._seen.get(place) != text:
            self._seen[place] = text
            task = f" {role}[{index}]" if role else ""
            line = f"{self._clock() - self._began:7.1f}s {_name(key)}{task}: {text}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveProgress:
    """Redraws trees in place, as large as the screen allows. ``wall``: seconds since the epoch."""

    def __init__(self, console: Console, wall: Callable[[], float]) -> None:
        self._console = console
        self._wall = wall
        self._bodies: dict[str, Mapping[str, Any]] = {}
        self._views: dict[str, View] = {}
        self.pods: dict[str, str] = {}
        """Diagnoses of Pods, by name."""
        self._lines: list[Text] = []
        self._live = Live(console=console, auto_refresh=False, get_renderable=self.picture)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.draw()
        self._live.stop()

    def show(self, key: str, framework: Mapping[str, Any]) -> None:
        """Keep the object for the next drawing."""
        self._bodies[key] = framework
        # Not read yet: a large one takes long, and the next change may come before the next drawing.
        self._views.pop(key, None)

    def print(self, line: Text) -> None:
        """Print the line above the trees with the next drawing: each print redraws the trees."""
        self._lines.append(line)

    def draw(self) -> None:
        """Print the lines and redraw the trees."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._console.print(Text("\n").join(lines), soft_wrap=True)
        self._live.refresh()

    def picture(self) -> Group:
        """Return the trees."""
        left = self._console.height - 1
        trees = []
        for position, (key, body) in enumerate(self._bodies.items()):
            if key not in self._views:
                self._views[key] = read_view(body, self.pods)
            trees.append(framework_tree(self._views[key], self._wall(), left // (len(self._bodies) - position)))
            left -= len(self._console.render_lines(trees[-1], pad=False))
        return Group(*trees)


Progress: TypeAlias = LiveProgress | LineProgress
"""A display of Frameworks."""


def ending(key: str, framework: Mapping[str, Any] | None) -> Ending:
    """Return the result of the Framework; of None: it was deleted."""
    name = _name(key)
    if framework is None:
        return Ending(False, f"{name}: was deleted before it completed")
    status = _status(framework)
    if status is None:
        return Ending(False, f"{name}: {NOT_SEEN}")
    completion = status.attempt.completion_status
    if status.state is State.COMPLETED and completion is not None:
        took = "" if status.completion_time is None else f" after {status.completion_time - status.start_time} s"
        retried = status.retry.total_retried_count
        retries = "" if retried == 0 else f", {counted(retried, 'retry', 'retries')}"
        lines = [f"{name}: {completion.type_name}{took}{retries}: {result(completion)}"]
        lines[0] += clean_line(trigger(completion))
    else:
        lines = [f"{name}: not completed, {_framework_text(status)}"]
        stall = stalled(status)
        if stall is not None:
            lines.append(f"    {stall.reason}: {clean_line(stall.message)}")
    for role in status.attempt.roles:
        lines.append(f"    {role.name}: {_counts_of_ended(role.tasks)}")
        lines += _first_failure(role)
    return Ending(status.state is State.COMPLETED and completion is not None and completion.succeeded, "\n".join(lines))


def _first_failure(role: TaskRoleStatus) -> list[str]:
    """Return why the first Task failed, not counting stopped ones: the others probably have the same reason."""
    for task in role.tasks:
        completion = task.attempt.completion_status
        if completion is not None and completion.failed and completion.code not in NEVER_RETRIED:
            return [f"    {role.name}[{task.index}]: {cause(completion)}"]
    return []


def _status(framework: Mapping[str, Any]) -> FrameworkStatus | None:
    try:
        return decode_status(framework.get("status"))
    except StatusError:
        # The controller reports it; here it counts as none.
        return None


def _framework_text(status: FrameworkStatus) -> str:
    return f"{status.state} (attempt {status.attempt.id}){_colon(status.attempt.completion_status)}"


def _task_text(task: TaskStatus) -> str:
    leaving = ", to be deleted" if task.deletion_pending else ""
    return f"{task.state} (attempt {task.attempt.id}{leaving}){_colon(task.attempt.completion_status)}"


def _colon(completion: CompletionStatus | None) -> str:
    return "" if completion is None else f": {result(completion)}"


def _counts_of_ended(tasks: list[TaskStatus]) -> str:
    counts = Counter(result(task.attempt.completion_status) or f"not completed ({task.state})" for task in tasks)
    ends = ", ".join(f"{number} x {text}" for text, number in counts.most_common())
    retries = counted(sum(task.retry.total_retried_count for task in tasks), "retry", "retries")
    return f"{counted(len(tasks), 'Task')}, {retries}{': ' if ends else ''}{ends}"


def _name(key: str) -> str:
    """Return the name alone in the default namespace."""
    return key.removeprefix(f"{DEFAULT_NAMESPACE}/")
