"""Numbers of ready and updated Tasks, of roles that have them counted."""

import io
from typing import Any

import pytest
from rich.console import Console

from frameworkcontroller.api.status import State, TaskRoleStatus
from frameworkcontroller.dashboard.frameworkpage import RoleView
from frameworkcontroller.views.diagnosis import read_view
from frameworkcontroller.views.tree import framework_tree
from tests.unit.views.test_tree import NOW, framework, task

COUNTS: list[tuple[int | None, int | None, str]] = [
    (None, None, ""),
    (0, None, "0 ready"),
    (3, 2, "3 ready, 2 of 4 updated"),
]


def with_counts(ready: int | None, updated: int | None) -> dict[str, Any]:
    """A role of five Tasks, the last one leaving."""
    tasks = [task(index, State.RUNNING) for index in range(5)]
    tasks[4].is_leaving = True
    body = framework(State.RUNNING, ("web", tasks), spec={"taskRoles": [{"name": "web", "taskNumber": 4}]})
    role = body["status"]["attemptStatus"]["taskRoleStatuses"][0]
    counts = {"readyTaskCount": ready, "updatedTaskCount": updated}
    role |= {key: count for key, count in counts.items() if count is not None}
    return body


@pytest.mark.parametrize(("ready", "updated", "text"), COUNTS)
def test_in_the_terminal(ready: int | None, updated: int | None, text: str) -> None:
    console = Console(file=io.StringIO(), width=150)
    console.print(framework_tree(read_view(with_counts(ready, updated), {}), NOW))
    assert isinstance(console.file, io.StringIO)
    line = console.file.getvalue().splitlines()[1].rstrip()
    assert line.partition("5 Tasks: ")[2] == (f"5 running; {text}" if text else "5 running")


@pytest.mark.parametrize(("ready", "updated", "text"), COUNTS)
def test_on_the_page(ready: int | None, updated: int | None, text: str) -> None:
    view = read_view(with_counts(ready, updated), {})
    assert view.status is not None
    role: TaskRoleStatus = view.status.attempt.roles[0]
    assert RoleView(view, role, "").availability == text
