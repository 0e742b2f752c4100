"""Reported progress in `list`, in the tree of `status` and in the lines of `wait`."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

from rich.console import Console

from frameworkcontroller.api.status import ProgressStatus, State
from frameworkcontroller.commands.list import _table
from frameworkcontroller.commands.output import print_table
from frameworkcontroller.commands.progress import LineProgress
from frameworkcontroller.views.diagnosis import read_view
from frameworkcontroller.views.summary import summarize
from frameworkcontroller.views.tree import framework_tree
from tests.support import pagesamples as samples
from tests.support.pagesamples import NOW, Json


def printed(work: Callable[[Console], object]) -> list[str]:
    """The lines that are printed on the console."""
    file = io.StringIO()
    work(Console(file=file, width=200))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def listed(*bodies: Json) -> list[list[str]]:
    """Name and progress of each row of `list`."""
    table = _table([summarize(body) for body in bodies], NOW, everywhere=False, wide=False)
    header, *rows = printed(lambda console: print_table(console, table))
    place, end = header.find("PROGRESS"), header.find("RETRIES")
    return [[row.split()[0], row[place:end].strip()] if place >= 0 else row.split()[:1] for row in rows]


def tree_of(body: Json, lines: float = 40) -> list[str]:
    return printed(lambda console: console.print(framework_tree(read_view(body, {}), NOW, lines)))


def followed(bodies: Sequence[Json], *, brief: bool = False) -> list[str]:
    """The lines about the Framework."""

    def follow(console: Console) -> None:
        progress = LineProgress(console, lambda: 1.0, brief=brief)
        for body in bodies:
            progress.show("default/f", body)

    return [text for line in printed(follow) for text in line.split(" f: ")[1:]]


def test_the_list_has_a_column_if_a_framework_has_progress() -> None:
    plain = samples.running("plain", None)
    assert listed(plain) == [["plain"]]
    assert listed(
        plain,
        samples.running("busy", samples.reported(0)),
        samples.running("old", samples.reported(0, age=200)),
        samples.running("again", samples.reported(0), retries=1),
        samples.running("saved", ProgressStatus(last_checkpoint_time=NOW)),
    ) == [
        ["plain", "-"],
        ["busy", "42%, 1h9m left"],
        ["old", "42%, last report 3m20s ago"],
        ["again", "42% (attempt 0)"],
        ["saved", "-"],
    ]


def test_the_tree_has_a_line_of_progress() -> None:
    facts = "42%, step 8,400 of 20,000, loss 0.2513, learning_rate 2.517e-05"
    bar = f"├── {'━' * 8}{'─' * 12}  "
    lines = tree_of(samples.running("f", samples.reported(0)))
    assert lines[1] == f"{bar}{facts}, 1h9m left, last checkpoint 5m20s ago"
    slow = samples.running("f", samples.reported(0, age=1000))
    assert tree_of(slow)[1].endswith("last report 16m40s ago")
    slow["spec"]["progress"] = {"intervalSeconds": 600}
    assert tree_of(slow)[1].endswith("left, last checkpoint 21m40s ago")
    assert not [line for line in tree_of(samples.running("f", None)) if "━" in line]


def test_the_line_of_progress_counts_as_a_line() -> None:
    tasks = [samples.task(index, State.RUNNING) for index in range(9)]
    for progress in (None, samples.reported(0)):
        body = samples.framework("f", {"worker": tasks}, progress=progress)
        for lines in (6, 9, 11, 12, 13):
            assert len(tree_of(body, lines)) <= lines


def test_a_line_for_each_new_progress_of_the_current_attempt() -> None:
    first, second = samples.reported(0), samples.reported(0, step=8600)
    bodies = [samples.running("f", one) for one in (None, first, samples.reported(0, age=10), second)]
    assert followed([*bodies, samples.running("f", second, retries=1)]) == [
        "Running (attempt 0)",
        "42%, step 8,400 of 20,000, loss 0.2513, learning_rate 2.517e-05",
        "43%, step 8,600 of 20,000, loss 0.2513, learning_rate 2.517e-05",
        "Running (attempt 1)",
    ]
    assert followed(bodies, brief=True) == ["Running (attempt 0)"]


def test_a_checkpoint_alone_makes_no_line() -> None:
    assert followed([samples.running("f", ProgressStatus(last_checkpoint_time=NOW))]) == ["Running (attempt 0)"]
