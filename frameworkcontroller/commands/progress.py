"""Shows people how Frameworks get on: a live table on a terminal, a line per change elsewhere, and how it ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.completion import NEVER_RETRIED, CompletionStatus
from frameworkcontroller.api.status import FrameworkStatus, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.commands.diagnosis import NOT_SEEN, View, read_view, stalled
from frameworkcontroller.commands.humanize import by_policy, code_and_phrase, counted, tame, why
from frameworkcontroller.commands.tree import DEFAULT_NAMESPACE, framework_tree

_DRAW_EVERY_SEC: Final = 0.125
_PAUSES: Final = 9
"""So many times as long as drawing took is what is left to everything else."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a Framework ended, in words for people. ``succeeded`` is False too for one that has not ended."""

    succeeded: bool
    text: str


class Progress(Protocol):
    """What is told of every change of a Framework, and draws now and then."""

    def show(self, key: str, framework: Mapping[str, Any]) -> None:
        """The Framework (``namespace/name``) is now as this API object says."""

    def tell(self, line: Text) -> None:
        """Print a line beside it."""

    def draw(self) -> None:
        """Bring what is seen up to date."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def progress_on(console: Console, wall: Callable[[], float]) -> LiveProgress | LineProgress:
    """Live trees if the console is a terminal that can have them, else a line for each change."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, wall)
    return LineProgress(console, wall)


async def draw_for_ever(progress: Progress) -> None:
    """Bring what is seen up to date again and again, until cancelled; the less often, the longer it takes."""
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        progress.draw()
        await asyncio.sleep(max(_DRAW_EVERY_SEC, _PAUSES * (clock() - began)))


class LineProgress:
    """Prints a line whenever the state or attempt of a Framework or a Task changes. ``clock``: seconds."""

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
        """Print what changed."""
        status = _status(framework)
        if status is None:
            return
        self._line(key, "", -1, _framework_text(status))
        for role in status.attempt.roles:
            for task in role.tasks:
                self._line(key, role.name, task.index, _task_text(task))

    def tell(self, line: Text) -> None:
        """Print it."""
        self._console.print(line, soft_wrap=True)

    def draw(self) -> None:
        """Everything is printed already."""

    def _line(self, key: str, role: str, index: int, text: str) -> None:
        place = (key, role, index)
        if self._seen.get(place) != text:
            self._seen[place] = text
            task = f" {role}[{index}]" if role else ""
            line = f"{self._clock() - self._began:7.1f}s {_name(key)}{task}: {text}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveProgress:
    """Trees that are redrawn in place, as large as the screen allows. ``wall``: seconds since the epoch."""

    def __init__(self, console: Console, wall: Callable[[], float]) -> None:
        self._console = console
        self._wall = wall
        self._bodies: dict[str, Mapping[str, Any]] = {}
        self._views: dict[str, View] = {}
        self.pod_words: dict[str, str] = {}
        """What Pods say they wait for, by their names."""
        self._told: list[Text] = []
        self._live = Live(console=console, auto_refresh=False, get_renderable=self.picture)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.draw()
        self._live.stop()

    def show(self, key: str, framework: Mapping[str, Any]) -> None:
        """Keep it for the next drawing."""
        self._bodies[key] = framework
        # Reading a large one takes longer than it is worth for what nobody gets to see.
        self._views.pop(key, None)

    def tell(self, line: Text) -> None:
        """Print it above the trees at the next drawing: each time, the trees are drawn, too."""
        self._told.append(line)

    def draw(self) -> None:
        """Redraw it all."""
        if self._told:
            told, self._told = self._told, []
            self._console.print(Text("\n").join(told), soft_wrap=True)
        self._live.refresh()

    def picture(self) -> Group:
        """What is to be seen now."""
        left = self._console.height - 1
        trees = []
        for position, (key, body) in enumerate(self._bodies.items()):
            if key not in self._views:
                self._views[key] = read_view(body, self.pod_words)
            trees.append(framework_tree(self._views[key], self._wall(), left // (len(self._bodies) - position)))
            left -= len(self._console.render_lines(trees[-1], pad=False))
        return Group(*trees)


def ending(key: str, framework: Mapping[str, Any] | None) -> Ending:
    """How the Framework ended, and why; None: it is gone."""
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
        lines = [f"{name}: {completion.type_name}{took}{retries}: {code_and_phrase(completion)}"]
        lines[0] += tame(by_policy(completion))
    else:
        lines = [f"{name}: not completed, {_framework_text(status)}"]
        stall = stalled(status)
        if stall is not None:
            lines.append(f"    {stall.reason}: {tame(stall.message)}")
    for role in status.attempt.roles:
        lines.append(f"    {role.name}: {_counts_of_ended(role.tasks)}")
        lines += _first_failure(role)
    return Ending(status.state is State.COMPLETED and completion is not None and completion.succeeded, "\n".join(lines))


def _first_failure(role: TaskRoleStatus) -> list[str]:
    """Why the first Task failed that was not stopped on purpose: the others most likely did for the same reason."""
    for task in role.tasks:
        completion = task.attempt.completion_status
        if completion is not None and completion.failed and completion.code not in NEVER_RETRIED:
            return [f"    {role.name}[{task.index}]: {why(completion)}"]
    return []


def _status(framework: Mapping[str, Any]) -> FrameworkStatus | None:
    try:
        return decode_status(framework.get("status"))
    except StatusError:
        # The controller says so; to people it is as if it had none.
        return None


def _framework_text(status: FrameworkStatus) -> str:
    return f"{status.state} (attempt {status.attempt.id}){_colon(status.attempt.completion_status)}"


def _task_text(task: TaskStatus) -> str:
    leaving = ", to be deleted" if task.deletion_pending else ""
    return f"{task.state} (attempt {task.attempt.id}{leaving}){_colon(task.attempt.completion_status)}"


def _colon(completion: CompletionStatus | None) -> str:
    return "" if completion is None else f": {code_and_phrase(completion)}"


def _counts_of_ended(tasks: list[TaskStatus]) -> str:
    counts = Counter(
        code_and_phrase(task.attempt.completion_status) or f"not completed ({task.state})" for task in tasks
    )
    ends = ", ".join(f"{number} x {text}" for text, number in counts.most_common())
    retries = counted(sum(task.retry.total_retried_count for task in tasks), "retry", "retries")
    return f"{counted(len(tasks), 'Task')}, {retries}{': ' if ends else ''}{ends}"


def _name(key: str) -> str:
    """The name alone for what is in the default namespace."""
    return key.removeprefix(f"{DEFAULT_NAMESPACE}/")
