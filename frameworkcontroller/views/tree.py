"""A Framework as a tree of roles and Tasks, with the reasons of waiting and failed ones; large roles in groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rich.text import Text
from rich.tree import Tree

from frameworkcontroller.api.causes import normalized
from frameworkcontroller.api.phases import phase_of_framework, phase_of_task
from frameworkcontroller.api.status import Phase, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.views.diagnosis import (
    NOT_SEEN,
    FrameworkView,
    diagnose_framework,
    diagnose_task,
    result,
)
from frameworkcontroller.views.looks import BAR_ORDER, LOOKS, OF_TASKS
from frameworkcontroller.views.shownprogress import progress_of
from frameworkcontroller.views.texts import clean_line, counted, duration

DEFAULT_NAMESPACE: Final = "default"

_BAR_CELLS: Final = 20
_LEAST_LINES: Final = 3
_MAX_NAME: Final = 63


@dataclass(frozen=True, slots=True)
class EqualTasks:
    """Tasks with the same text except for numbers, by index. ``text``: of the first one."""

    text: str
    tasks: list[TaskStatus]

    @property
    def indexes(self) -> str:
        return ranges([task.index for task in self.tasks])

    @property
    def lines(self) -> int:
        return 2 if self.text else 1


def framework_tree(view: FrameworkView, now: float, lines: float = math.inf) -> Tree:
    """Return the tree. To keep it within ``lines``, if possible, a role whose Tasks do not fit shows groups of them."""
    status = view.status
    phase = None if status is None else phase_of_framework(status)
    tree = Tree(_head(view, phase, now), guide_style="dim")
    about = diagnose_framework(view, now)
    color = LOOKS[phase].color if phase is not None and phase.is_final else "yellow"
    for text in about:
        tree.add(Text(text, color))
    reported = view.spec.progress
    progress = progress_of(status, 0 if reported is None else reported.interval_seconds)
    if progress is not None:
        tree.add(progress.line(now))
    roles = status.attempt.roles if status else []
    name_width = min(max((len(role.name) for role in roles), default=0), _MAX_NAME)
    left = lines - 1 - len(about) - len(roles) - (progress is not None)
    for position, role in enumerate(roles):
        node = tree.add(_role_head(role, name_width))
        left -= _add_tasks(node, view, role, now, max(_LEAST_LINES, left / (len(roles) - position)))
    return tree


def _head(view: FrameworkView, phase: Phase | None, now: float) -> Text:
    prefix = "" if view.namespace == DEFAULT_NAMESPACE else f"{view.namespace}/"
    text = Text.assemble(prefix, (view.name, "bold"), "  ")
    status = view.status
    if status is None or phase is None:
        return text.append("" if view.problem else f"{NOT_SEEN}: is one running?", "yellow")
    text.append(phase, f"bold {LOOKS[phase].color}" if phase.is_final else LOOKS[phase].color)
    text.append(f"  attempt {status.attempt.id}")
    if status.retry.total_retried_count:
        text.append(f" ({counted(status.retry.total_retried_count, 'retry', 'retries')})")
    if phase.is_final and status.completion_time is not None:
        time = f"took {duration(status.completion_time - status.start_time)}"
    elif status.attempt.completion_time is not None:
        time = f"ended {duration(now - status.attempt.completion_time)} ago"
    elif status.attempt.run_time is not None:
        time = f"running for {duration(now - status.attempt.run_time)}"
    else:
        time = f"waiting for {duration(now - status.attempt.start_time)}"
    return text.append(f"  {time}", "dim")


def _role_head(role: TaskRoleStatus, name_width: int) -> Text:
    counts = Counter(map(phase_of_task, role.tasks))
    text = Text.assemble((role.name.ljust(name_width), "bold"), "  ", bar(counts))
    text.append(f"  {counted(len(role.tasks), 'Task')}")
    if role.tasks:
        text.append(": ").append(_numbers(counts))
    if more := availability(role):
        text.append(f"; {more}")
    retries = sum(task.retry.total_retried_count for task in role.tasks)
    if retries:
        text.append(f"; {counted(retries, 'retry', 'retries')}")
    return text


def availability(role: TaskRoleStatus) -> str:
    """Return ``3 ready, 2 of 4 updated``: the counts that the role has; "" for none."""
    ready, updated = role.ready_task_count, role.updated_task_count
    total = sum(not task.is_leaving for task in role.tasks)
    found = [
        "" if ready is None else f"{ready:,} ready",
        "" if updated is None else f"{updated:,} of {total:,} updated",
    ]
    return ", ".join(filter(None, found))


def _numbers(counts: Counter[Phase]) -> Text:
    shown = [phase for phase in OF_TASKS if counts[phase]]
    return Text(", ").join(Text(f"{counts[phase]:,} {phase.lower()}", LOOKS[phase].color) for phase in shown)


def bar(counts: Counter[Phase]) -> Text:
    """Return a bar with the share of each phase, at least one cell wide; blank without Tasks."""
    if not counts.total():
        return Text(" " * _BAR_CELLS)
    wide = {phase: max(1, _BAR_CELLS * number // counts.total()) for phase, number in counts.items() if number}
    greatest = max(wide, key=wide.__getitem__)
    wide[greatest] += _BAR_CELLS - sum(wide.values())
    text = Text()
    for phase in BAR_ORDER:
        color, cell = LOOKS[phase]
        text.append(cell * wide.get(phase, 0), "dim" if phase is Phase.PENDING else color)
    return text


def _add_tasks(node: Tree, view: FrameworkView, role: TaskRoleStatus, now: float, lines: float) -> int:
    """Return the number of added lines, or slightly less: long lines wrap."""
    about = partial(diagnose_task, view, role.name)
    if lines == math.inf:
        entries = [EqualTasks(about(task), [task]) for task in role.tasks]
    else:
        groups = group((task, about(task)) for task in role.tasks)
        # Tasks with a common text stay together, the others get a line each.
        entries = [one for one in groups if one.text]
        entries += [EqualTasks("", [task]) for one in groups if not one.text for task in one.tasks]
        entries.sort(key=lambda one: one.tasks[0].index)
        if sum(one.lines for one in entries) > lines:
            entries = groups
    used = 0
    index_width = max((len(one.indexes) for one in entries), default=0)
    phase_width = max((len(phase_of_task(one.tasks[0])) for one in entries), default=0)
    for position, one in enumerate(entries):
        if used + one.lines > lines and position:
            rest = Counter(phase_of_task(task) for other in entries[position:] for task in other.tasks)
            node.add(Text("… and ", "dim").append(_numbers(rest)).append(" more", "dim"))
            return used + 1
        node.add(_entry_text(one, now, index_width, phase_width))
        used += one.lines
    return used


def group(tasks: Iterable[tuple[TaskStatus, str]]) -> list[EqualTasks]:
    """Group Tasks by phase, result and normalized text; sort by phase, then by size."""
    found: dict[tuple[Phase, str, str], EqualTasks] = {}
    for task, text in tasks:
        key = phase_of_task(task), result(task.attempt.completion_status), normalized(text)
        found.setdefault(key, EqualTasks(text, [])).tasks.append(task)
    order = list(LOOKS)
    ranked = sorted(
        found.items(), key=lambda item: (order.index(item[0][0]), -len(item[1].tasks), item[1].tasks[0].index)
    )
    return [one for _, one in ranked]


def ranges(indexes: Sequence[int], most: int = 6) -> str:
    """Format ascending numbers as ``0-3,7``, with ``…`` after ``most`` ranges."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:most]]
    return ",".join(shown + ["…"] * (len(runs) > most))


def _entry_text(one: EqualTasks, now: float, index_width: int, phase_width: int) -> Text:
    first = one.tasks[0]
    phase = phase_of_task(first)
    color = LOOKS[phase].color
    indexes = f"[{one.indexes}]".ljust(index_width + 2)
    text = Text.assemble((indexes, "bold"), "  ", (phase.ljust(phase_width), color), "  ")
    text.append(_details(first, now) if len(one.tasks) == 1 else counted(len(one.tasks), "Task"), "dim")
    due = [time for time in map(_next_attempt, one.tasks) if time is not None]
    if due:
        text.append(f"  next attempt in {duration(min(due) - now)}", "dim")
    if one.text:
        text.append(f"\n{one.text}", color)
    return text


def _next_attempt(task: TaskStatus) -> int | None:
    ended, delay = task.attempt.completion_time, task.retry.retry_delay_sec
    return ended + delay if task.state is State.ATTEMPT_COMPLETED and delay and ended is not None else None


_NODES: Final = 3
"""Names of avoided nodes in a line."""


def _details(task: TaskStatus, now: float) -> str:
    attempt = task.attempt
    text = f"attempt {attempt.id}"
    if attempt.completion_time is not None:
        text += f"  took {duration(attempt.completion_time - (attempt.run_time or attempt.start_time))}"
    else:
        text += f"  {duration(now - task.transition_time)}"
    if attempt.pod_ip:
        text += f"  {clean_line(attempt.pod_ip)}"
    if attempt.pod_node_name:
        text += f" on {clean_line(attempt.pod_node_name)}"
    if task.avoided_nodes and attempt.completion_status is None:
        names = [clean_line(one.name) for one in reversed(task.avoided_nodes)]
        more = f" and {len(names) - _NODES} more" if len(names) > _NODES else ""
        text += f"  failed on {', '.join(names[:_NODES])}{more}"
    if task.is_leaving:
        text += "  (scaled down)"
    return text
