"""A Framework as a tree of roles and Tasks, with the reasons of those that wait or failed; large roles in groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from rich.text import Text
from rich.tree import Tree

from frameworkcontroller.api.status import FrameworkStatus, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.commands.diagnosis import NOT_SEEN, View, diagnose_framework, diagnose_task
from frameworkcontroller.commands.output import clean_line, counted, duration
from frameworkcontroller.commands.phases import COLORS, Group, Phase, completed_phase, count, group, phase_of

DEFAULT_NAMESPACE: Final = "default"

_BAR_CELLS: Final = 20
# In the order of the bar; distinguishable without colors. Waiting Tasks are the open rest.
_BAR: Final = {
    Phase.SUCCEEDED: "█",
    Phase.FAILED: "x",
    Phase.STOPPED: "-",
    Phase.ENDING: "▒",
    Phase.RUNNING: "▓",
}
_OPEN: Final = "░"
_LEAST_LINES: Final = 3


def framework_tree(view: View, now: float, lines: int | None = None) -> Tree:
    """Return the tree. To keep it within ``lines``, if possible, a role whose Tasks do not fit shows groups of them."""
    tree = Tree(_head(view, now), guide_style="dim")
    about = diagnose_framework(view, now)
    for text in about:
        tree.add(Text(text, _style_of_about(view)))
    if view.status is None:
        return tree
    roles = view.status.attempt.roles
    left = None if lines is None else lines - 1 - len(about) - len(roles)
    for position, role in enumerate(roles):
        node = tree.add(_role_head(role, max(len(other.name) for other in roles)))
        share = None if left is None else max(_LEAST_LINES, left // (len(roles) - position))
        used = _add_tasks(node, view, role, now, share)
        if left is not None:
            left -= used
    return tree


def _head(view: View, now: float) -> Text:
    prefix = "" if view.namespace == DEFAULT_NAMESPACE else f"{view.namespace}/"
    text = Text.assemble(prefix, (view.name, "bold"), "  ")
    status = view.status
    if status is None:
        return text.append(f"{NOT_SEEN}: is one running?" if not view.problem else "", "yellow")
    completion = status.attempt.completion_status
    if status.state is State.COMPLETED:
        end = completed_phase(completion)
        text.append(end.value.capitalize(), f"bold {COLORS[end]}")
    else:
        text.append(status.state, "green" if status.state is State.RUNNING else "yellow")
    text.append(f"  attempt {status.attempt.id}")
    if status.retry.total_retried_count:
        text.append(f" ({counted(status.retry.total_retried_count, 'retry', 'retries')})")
    return text.append(f"  {_took(status, now)}", "dim")


def _took(status: FrameworkStatus, now: float) -> str:
    if status.state is State.COMPLETED and status.completion_time is not None:
        return f"took {duration(status.completion_time - status.start_time)}"
    if status.attempt.run_time is not None:
        return f"running for {duration(now - status.attempt.run_time)}"
    return f"waiting for {duration(now - status.attempt.start_time)}"


def _style_of_about(view: View) -> str:
    status = view.status
    if status is not None and status.state is State.COMPLETED:
        return COLORS[completed_phase(status.attempt.completion_status)]
    return "yellow"


def _role_head(role: TaskRoleStatus, wide: int) -> Text:
    counts = count(role.tasks)
    text = Text.assemble((role.name.ljust(wide), "bold"), "  ", bar(counts), f"  {counted(len(role.tasks), 'Task')}")
    if role.tasks:
        text.append(": ").append(Text(", ").join(_count_texts(counts)))
    retries = sum(task.retry.total_retried_count for task in role.tasks)
    if retries:
        text.append(f"; {counted(retries, 'retry', 'retries')}")
    return text


def _count_texts(counts: Counter[Phase]) -> list[Text]:
    return [Text(f"{counts[kind]:,} {kind.value}", COLORS[kind]) for kind in Phase if counts[kind]]


def bar(counts: Counter[Phase], cells: int = _BAR_CELLS) -> Text:
    """Return a bar with the share of each phase, at least one cell wide; blank without Tasks."""
    if not counts.total():
        return Text(" " * cells)
    text = Text()
    wide = {kind: max(1, cells * number // counts.total()) for kind, number in counts.items() if number}
    greatest = max(wide, key=wide.__getitem__)
    wide[greatest] += cells - sum(wide.values())
    for kind, cell in _BAR.items():
        text.append(cell * wide.get(kind, 0), COLORS[kind])
    return text.append(_OPEN * (cells - len(text)), "dim")


def _add_tasks(node: Tree, view: View, role: TaskRoleStatus, now: float, lines: int | None) -> int:
    """Return the number of added lines, or slightly less: long lines wrap."""
    about = partial(diagnose_task, view, role.name)
    if lines is None:
        entries = [Group(about(task), [task]) for task in role.tasks]
    else:
        groups = group(role.tasks, about)
        # Tasks with a common text stay together, the others get a line each.
        entries = [one for one in groups if one.text]
        entries += [Group("", [task]) for one in groups if not one.text for task in one.tasks]
        entries.sort(key=lambda one: one.tasks[0].index)
        if sum(map(_lines_of, entries)) > lines:
            entries = groups
    used = 0
    index_width = max((len(one.indexes) for one in entries), default=0)
    state_width = max((len(one.tasks[0].state) for one in entries), default=0)
    for position, one in enumerate(entries):
        if lines is not None and used + _lines_of(one) > lines and position:
            node.add(_more(entries[position:]))
            return used + 1
        node.add(_entry(one, now, index_width, state_width))
        used += _lines_of(one)
    return used


def _lines_of(one: Group) -> int:
    return 2 if one.text else 1


def _more(rest: Sequence[Group]) -> Text:
    counts = count(task for one in rest for task in one.tasks)
    return Text("… and ", "dim").append(Text(", ").join(_count_texts(counts))).append(" more", "dim")


def _entry(one: Group, now: float, index_width: int, state_width: int) -> Text:
    first = one.tasks[0]
    color = COLORS[phase_of(first)]
    indexes = f"[{one.indexes}]".ljust(index_width + 2)
    text = Text.assemble((indexes, "bold"), "  ", (first.state.ljust(state_width), color), "  ")
    text.append(_details(first, now) if len(one.tasks) == 1 else counted(len(one.tasks), "Task"), "dim")
    text.append(_next_attempts(one.tasks, now), "dim")
    if one.text:
        text.append(f"\n{one.text}", color)
    return text


def _next_attempts(tasks: Sequence[TaskStatus], now: float) -> str:
    """Return when the next attempt of the waiting Tasks begins."""
    due = [
        task.attempt.completion_time + task.retry.retry_delay_sec
        for task in tasks
        if task.state is State.ATTEMPT_COMPLETED
        and task.retry.retry_delay_sec
        and task.attempt.completion_time is not None
    ]
    return f"  next attempt in {duration(max(0, min(due) - now))}" if due else ""


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
    if task.deletion_pending:
        text += "  (scaled down)"
    return text
