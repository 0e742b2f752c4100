"""The line of a Task that has failed on nodes."""

from __future__ import annotations

import pytest

from frameworkcontroller.api.completion import POD_SUCCEEDED, CompletionStatus
from frameworkcontroller.api.status import AvoidedNode, TaskAttemptStatus, TaskStatus
from frameworkcontroller.views.tree import _details


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], "attempt 2  10s"),
        (["n1", "n2"], "attempt 2  10s  failed on n2, n1"),
        (["n1", "n2", "n3", "n4", "n\x1b5"], "attempt 2  10s  failed on n 5, n4, n3 and 2 more"),
    ],
)
def test_the_last_nodes_are_shown_first(names: list[str], text: str) -> None:
    attempt = TaskAttemptStatus(id=2, start_time=0)
    task = TaskStatus(0, "uid", 0, 0, attempt, avoided_nodes=tuple(AvoidedNode(name) for name in names))
    assert _details(task, 10) == text
    attempt.completion_status = CompletionStatus.of(POD_SUCCEEDED, "")
    assert _details(task, 10) == "attempt 2  10s"
