"""Progress of Frameworks: live trees on a terminal, a line per change elsewhere, and the result."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, TypeAlias

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from frameworkcontroller.api.causes import cause
from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.phases import phase_of_framework, phase_of_task
from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import FrameworkStatus, Phase, TaskRoleStatus, TaskStatus
from frameworkcontroller.commands import program
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.views.apiobjects import condition_of, is_suspended
from frameworkcontroller.views.diagnosis import (
    NOT_SEEN,
    FrameworkView,
    end_sentence,
    message_of,
    read_view,
    result,
    trigger,
)
from frameworkcontroller.views.frameworkfollower import FrameworkFollower
from frameworkcontroller.views.poddiagnosis import diagnose_pods
from frameworkcontroller.views.shownprogress import progress_of
from frameworkcontroller.views.texts import counted, duration
from frameworkcontroller.views.tree import DEFAULT_NAMESPACE, framework_tree

_DRAW_EVERY_SEC: Final = 0.125
_FINAL_STALLS: Final = frozenset({"InvalidSpec", "NamingConflict", "GangUnsupported", "QueueInvalid"})
"""Reasons of the condition Stalled that only a change of an object ends."""
_POD_INTERVAL_SEC: Final = 3.0
_PAUSE_FACTOR: Final = 9
"""Pauses are longer than drawing by this factor, to leave time for everything else."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of a Framework, for people. ``succeeded`` is also False before its end."""

    succeeded: bool
    text: str


@asynccontextmanager
async def progress_on(console: Console, wall: Callable[[], float]) -> AsyncIterator[Progress]:
    """Show Frameworks while inside: in live trees on a terminal that can show them, else in lines."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield LineProgress(console, wall)
        return
    progress = LiveProgress(console, wall)
    with progress.live:
        try:
            async with program.background(progress.keep_drawing()):
                yield progress
        finally:
            progress.draw()


class LineProgress:
    """Prints a line at each change of phase, message, attempt or progress of a Framework or Task. ``clock``: seconds.

    ``brief``: of Tasks, only failed attempts.
    """

    def __init__(self, console: Console, clock: Callable[[], float], *, brief: bool = False) -> None:
        self._console = console
        self._clock = clock
        self._brief = brief
        self._began = clock()
        self._seen: dict[str, str] = {}

    def show(self, key: str, framework: Mapping[str, Any]) -> None:
        """Print the changes."""
        status = _status(framework)
        if status is None:
            return
        self._line(_name(key), status)
        progress = None if self._brief else progress_of(status, 0)
        if progress is not None and progress.facts and not progress.is_over:
            self._once(f"{_name(key)} progress", _name(key), ", ".join(progress.facts))
        for role in status.attempt.roles:
            for task in role.tasks:
                end = task.attempt.completion_status
                if not self._brief or (end is not None and end.unexpected):
                    self._line(f"{_name(key)} {role.name}[{task.index}]", task)

    def forget(self, key: str) -> None:
        """Print that the Framework was deleted."""
        place = _name(key)
        self._seen = {one: text for one, text in self._seen.items() if one.partition(" ")[0] != place}
        self._say(place, "deleted")

    def print(self, line: Text) -> None:
        """Print the line."""
        self._console.print(line, soft_wrap=True)

    def _line(self, place: str, status: FrameworkStatus | TaskStatus) -> None:
        if isinstance(status, FrameworkStatus):
            text = _framework_text(status)
        else:
            text = _failed_text(status) if self._brief else _task_text(status)
        self._once(place, place, text)

    def _once(self, key: str, place: str, text: str) -> None:
        if self._seen.get(key) != text:
            self._seen[key] = text
            self._say(place, text)

    def _say(self, place: str, text: str) -> None:
        # A closed pipe ends the command elsewhere (program.run_command).
        with suppress(BrokenPipeError):
            self.print(Text(f"{self._clock() - self._began:7.1f}s {place}: {text}"))


class LiveProgress:
    """Redraws trees in place, as large as the screen allows. ``wall``: seconds since the epoch."""

    def __init__(self, console: Console, wall: Callable[[], float]) -> None:
        self._console = console
        self._wall = wall
        self._views: dict[str, Callable[[], FrameworkView]] = {}
        self.pods: dict[str, str] = {}
        """Diagnoses of Pods, by name."""
        self._lines: list[Text] = []
        self.live = Live(console=console, auto_refresh=False, get_renderable=self.picture)

    def show(self, key: str, framework: Mapping[str, Any]) -> None:
        """Keep the object for the next drawing."""
        # Not read yet: a large one takes long, and the next change may come before the next drawing.
        self._views[key] = cache(partial(read_view, framework, self.pods))

    def print(self, line: Text) -> None:
        """Print the line above the trees with the next drawing: each print redraws the trees."""
        self._lines.append(line)

    def draw(self) -> None:
        """Print the lines and redraw the trees."""
        if self._lines:
            self._console.print(Text("\n").join(self._lines), soft_wrap=True)
            self._lines = []
        self.live.refresh()

    async def keep_drawing(self) -> None:
        """Draw until cancelled: often, in a small share of the time."""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            self.draw()
            await asyncio.sleep(max(_DRAW_EVERY_SEC, _PAUSE_FACTOR * (clock() - began)))

    def picture(self) -> Group:
        """Return the trees."""
        left = self._console.height - 1
        trees: list[Tree] = []
        for view in self._views.values():
            trees.append(framework_tree(view(), self._wall(), left // (len(self._views) - len(trees))))
            left -= len(self._console.render_lines(trees[-1], pad=False))
        return Group(*trees)


Progress: TypeAlias = LiveProgress | LineProgress
"""A display of Frameworks."""


async def keep_diagnosing(
    client: KubeClient, follower: FrameworkFollower, progress: LiveProgress, wall: Callable[[], float]
) -> None:
    """Show why Pods of the followed Frameworks do not run, until cancelled."""
    while True:
        found: dict[str, str] = {}
        for framework in filter(None, tuple(follower.last.values())):
            found |= await diagnose_pods(client, framework, wall)
        progress.pods.clear()
        progress.pods.update(found)
        await asyncio.sleep(_POD_INTERVAL_SEC)


async def first_diagnosis(
    client: KubeClient, framework: Mapping[str, Any], wall: Callable[[], float]
) -> tuple[str, str]:
    """Return a Pod that does not run, and why; empty if all run."""
    return next(iter((await diagnose_pods(client, framework, wall)).items()), ("", ""))


def cannot_start(framework: Mapping[str, Any]) -> bool:
    """Return whether the Framework does not start until another client changes an object."""
    stall = condition_of(framework, "Stalled")
    stalled = stall.get("status") == "True" and stall.get("reason") in _FINAL_STALLS
    not_started = framework["spec"].get("executionType") == ExecutionType.CREATE or is_suspended(framework)
    return stalled or (not_started and condition_of(framework, "Running").get("status") == "False")


def ending(key: str, framework: Mapping[str, Any] | None) -> Ending:
    """Return the result of the Framework; of None: it was deleted."""
    name = _name(key)
    if framework is None:
        return Ending(False, f"{name}: was deleted before it completed")
    status = _status(framework)
    if status is None:
        return Ending(False, f"{name}: {NOT_SEEN}")
    phase, completion = phase_of_framework(status), status.attempt.completion_status
    end_time = status.completion_time
    took = f" after {duration(end_time - status.start_time)}" if phase.is_final and end_time is not None else ""
    retried = status.retry.total_retried_count
    retries = f", {counted(retried, 'retry', 'retries')}" if retried else ""
    message = message_of(status)
    lines = [f"{name}: {phase}{took}{retries}{f': {message}' if message else ''}"]
    if completion is not None and (completion.failed or trigger(completion)):
        lines.append(f"    {end_sentence(completion, told=message)}")
    lines += map(_role_line, status.attempt.roles)
    return Ending(phase is Phase.SUCCEEDED, "\n".join(lines))


def _role_line(role: TaskRoleStatus) -> str:
    ends = Counter(map(_end_of, role.tasks))
    numbers = ", ".join(f"{number} {text}" for text, number in ends.most_common())
    retries = counted(sum(task.retry.total_retried_count for task in role.tasks), "retry", "retries")
    return f"    {role.name}: {counted(len(role.tasks), 'Task')}, {retries}{': ' if numbers else ''}{numbers}"


def _end_of(task: TaskStatus) -> str:
    phase = phase_of_task(task)
    code = f" with {result(task.attempt.completion_status)}" if phase is Phase.FAILED else ""
    return f"{phase.lower()}{code}"


def _status(framework: Mapping[str, Any]) -> FrameworkStatus | None:
    try:
        return decode_status(framework.get("status"))
    except StatusError:
        # The controller reports it; here it counts as none.
        return None


def _framework_text(status: FrameworkStatus) -> str:
    message = message_of(status)
    return f"{phase_of_framework(status)} (attempt {status.attempt.id}){f': {message}' if message else ''}"


def _failed_text(task: TaskStatus) -> str:
    completion = task.attempt.completion_status
    return f"attempt {task.attempt.id}: {'' if completion is None else cause(completion)}"


def _task_text(task: TaskStatus) -> str:
    completion, end = task.attempt.completion_status, ""
    if completion is not None:
        end = f": {cause(completion)} ({result(completion)})" if completion.unexpected else f": {result(completion)}"
    leaving = ", to be deleted" if task.is_leaving else ""
    return f"{phase_of_task(task)} (attempt {task.attempt.id}{leaving}){end}"


def _name(key: str) -> str:
    """Return the name alone in the default namespace."""
    return key.removeprefix(f"{DEFAULT_NAMESPACE}/")
