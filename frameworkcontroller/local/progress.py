"""Shows people how Frameworks get on: a live table on a terminal, a line per change elsewhere, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.completion import NEVER_RETRIED, CompletionStatus
from frameworkcontroller.api.status import FrameworkStatus, State, TaskRoleStatus, TaskStatus

_COLOURS: Final = {State.RUNNING: "green", State.COMPLETED: "dim", State.ATTEMPT_COMPLETED: "dim"}
_NOT_YET: Final = "not seen by the controller yet"
_MOST_OF_A_TEXT: Final = 300
_LINES_AROUND: Final = 4


@dataclass(frozen=True, slots=True)
class Ending:
    """How a Framework ended, in words for people. ``succeeded`` is False too for one that has not ended."""

    succeeded: bool
    text: str


class Progress(Protocol):
    """What is told of every change of a Framework, and draws now and then."""

    def show(self, key: str, framework: Mapping[str, Any]) -> None:
        """The Framework (``namespace/name``) is now as this API object says."""

    def draw(self) -> None:
        """Bring what is seen up to date."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def progress_on(console: Console, clock: Callable[[], float]) -> Progress:
    """A live table if the console is a terminal that can have one, else a line for each change."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, clock)
    return LineProgress(console, clock)


class LineProgress:
    """Prints a line whenever the state or attempt of a Framework or a Task changes. ``clock``: monotonic seconds."""

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
    """A table that is redrawn in place: each Task while they fit on the screen, else each role with its counts."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._frameworks: dict[str, FrameworkStatus | None] = {}
        self._live = Live(console=console, auto_refresh=False, get_renderable=self.table)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.draw()
        self._live.stop()

    def show(self, key: str, framework: Mapping[str, Any]) -> None:
        """Keep it for the next drawing."""
        self._frameworks[key] = _status(framework)

    def draw(self) -> None:
        """Redraw the table."""
        self._live.refresh()

    def table(self) -> Table:
        """The table as it is now."""
        tasks = sum(len(role.tasks) for status in self._frameworks.values() if status for role in status.attempt.roles)
        each_task = tasks + len(self._frameworks) + _LINES_AROUND <= self._console.height
        table = Table(title=f"{self._clock() - self._began:.0f} s", title_justify="left", box=None, pad_edge=False)
        for column in ("Framework", "Role", "Task" if each_task else "Tasks", "Attempt", "State", "Address", "Result"):
            # What may be long gives way, so that what is short can be read.
            table.add_column(column, no_wrap=column not in ("State", "Result"))
        for key, status in self._frameworks.items():
            if status is None:
                table.add_row(_plain(_name(key)), "", "", "", _NOT_YET)
                continue
            result = _completion_text(status.attempt.completion_status)
            table.add_row(
                Text(_name(key), "bold"), "", "", str(status.attempt.id), _state(status.state), "", _plain(result)
            )
            for role in status.attempt.roles:
                if each_task:
                    for task in role.tasks:
                        _add_task(table, role.name, task)
                else:
                    _add_role(table, role.name, role.tasks)
        return table


def ending(key: str, framework: Mapping[str, Any] | None) -> Ending:
    """How the Framework ended, and why; None: it is gone."""
    name = _name(key)
    if framework is None:
        return Ending(False, f"{name}: was deleted before it completed")
    status = _status(framework)
    if status is None:
        return Ending(False, f"{name}: {_NOT_YET}")
    completion = status.attempt.completion_status
    if status.state is State.COMPLETED and completion is not None:
        took = "" if status.completion_time is None else f" after {status.completion_time - status.start_time} s"
        retried = status.retry.total_retried_count
        retries = "" if retried == 0 else f", {_counted(retried, 'retry', 'retries')}"
        lines = [f"{name}: {completion.type_name}{took}{retries}: {_completion_text(completion)}"]
        if completion.trigger is not None and completion.trigger.task_role_name:
            trigger = completion.trigger
            lines[0] += f", by {trigger.task_role_name}[{trigger.task_index}]: {_tame(trigger.message)}"
    else:
        lines = [f"{name}: not completed, {_framework_text(status)}"]
        lines += [
            f"    {condition.reason}: {_tame(condition.message)}"
            for condition in status.conditions
            if condition.type == "Stalled" and condition.status == "True"
        ]
    for role in status.attempt.roles:
        lines.append(f"    {role.name}: {_counts_of_ended(role.tasks)}")
        lines += _first_failure(role)
    return Ending(status.state is State.COMPLETED and completion is not None and completion.succeeded, "\n".join(lines))


def _first_failure(role: TaskRoleStatus) -> list[str]:
    """Why the first Task failed that was not stopped on purpose: the others most likely did for the same reason."""
    for task in role.tasks:
        completion = task.attempt.completion_status
        if completion is not None and completion.failed and completion.code not in NEVER_RETRIED:
            return [f"    {role.name}[{task.index}]: {_tame(completion.diagnostics)}"]
    return []


def _status(framework: Mapping[str, Any]) -> FrameworkStatus | None:
    try:
        return decode_status(framework.get("status"))
    except StatusError:
        # The controller says so; to people it is as if it had none.
        return None


def _add_task(table: Table, role: str, task: TaskStatus) -> None:
    table.add_row(
        "",
        _plain(role),
        str(task.index),
        str(task.attempt.id),
        _state(task.state),
        _plain(task.attempt.pod_ip or ""),
        _plain(_completion_text(task.attempt.completion_status)),
    )


def _add_role(table: Table, role: str, tasks: list[TaskStatus]) -> None:
    states = Counter(task.state for task in tasks)
    codes = Counter(_completion_text(task.attempt.completion_status) for task in tasks)
    del codes[""]
    table.add_row(
        "",
        _plain(role),
        str(len(tasks)),
        _retries(tasks),
        Text(", ".join(f"{states[state]} {state}" for state in State if states[state])),
        "",
        _plain(", ".join(f"{count} x {text}" for text, count in codes.most_common(3))),
    )


def _retries(tasks: list[TaskStatus]) -> str:
    return _counted(sum(task.retry.total_retried_count for task in tasks), "retry", "retries")


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _framework_text(status: FrameworkStatus) -> str:
    return f"{status.state} (attempt {status.attempt.id}){_colon(status.attempt.completion_status)}"


def _task_text(task: TaskStatus) -> str:
    leaving = ", to be deleted" if task.deletion_pending else ""
    return f"{task.state} (attempt {task.attempt.id}{leaving}){_colon(task.attempt.completion_status)}"


def _colon(completion: CompletionStatus | None) -> str:
    return "" if completion is None else f": {_completion_text(completion)}"


def _completion_text(completion: CompletionStatus | None) -> str:
    return "" if completion is None else f"{completion.code} {completion.phrase}".rstrip()


def _counts_of_ended(tasks: list[TaskStatus]) -> str:
    counts = Counter(
        _completion_text(task.attempt.completion_status) or f"not completed ({task.state})" for task in tasks
    )
    ends = ", ".join(f"{count} x {text}" for text, count in counts.most_common())
    return f"{_counted(len(tasks), 'Task', 'Tasks')}, {_retries(tasks)}{': ' if ends else ''}{ends}"


def _state(state: State) -> Text:
    return Text(state, _COLOURS.get(state, ""))


def _name(key: str) -> str:
    """The name alone for what is in the default namespace."""
    return key.removeprefix("default/")


def _plain(text: str) -> Text:
    return Text(_tame(text))


def _tame(text: str) -> str:
    """Text that a container wrote, on one line and without what terminals act upon."""
    tamed = "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
    return tamed if len(tamed) <= _MOST_OF_A_TEXT else f"{tamed[: _MOST_OF_A_TEXT - 1]}…"
