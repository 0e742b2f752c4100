"""The lines of commands and pages on the first failure."""

from dataclasses import replace

import pytest

from frameworkcontroller.api.status import FirstFailure, FrameworkAttemptStatus, FrameworkStatus, Phase
from frameworkcontroller.dashboard.frameworkpage import FrameworkSource
from frameworkcontroller.dashboard.pagesources import _failing_task
from frameworkcontroller.views.diagnosis import first_failure

FIRST = FirstFailure(0, "worker", 3, 0, 1, 7, node_name="node-7", message="main exited with 7: bad batch", certain=True)
SENTENCE = "worker[3] on node-7: main exited with 7: bad batch"


@pytest.mark.parametrize(
    ("first", "attempt", "told", "lines"),
    [
        (None, 0, "", []),
        (FIRST, 0, f"2 of 2 Tasks failed; first: {SENTENCE}", []),
        (FIRST, 0, "no time is left", [f"first failure: {SENTENCE}"]),
        (FIRST, 1, "", [f"attempt 0 failed first in {SENTENCE}"]),
        (replace(FIRST, certain=False), 1, "", [f"attempt 0 failed first in {SENTENCE}"]),
        (replace(FIRST, certain=False), 0, SENTENCE, ["another Task may have failed earlier: within 2 s, or unseen"]),
        (
            replace(FIRST, certain=False, cascade=True),
            0,
            SENTENCE,
            ["this failure looks like a consequence of another one, which is not known"],
        ),
    ],
)
def test_lines(first: FirstFailure | None, attempt: int, told: str, lines: list[str]) -> None:
    status = FrameworkStatus(0, 0, FrameworkAttemptStatus(attempt, 0), first_failure=first, phase=Phase.FAILED)
    assert list(first_failure(status, told=told)) == lines


def test_a_success_has_no_line() -> None:
    status = FrameworkStatus(0, 0, FrameworkAttemptStatus(1, 0), first_failure=FIRST, phase=Phase.SUCCEEDED)
    assert list(first_failure(status, told="")) == []


@pytest.mark.parametrize(("attempt", "task"), [(0, ("worker", 3)), (1, ("ps", 0))])
def test_the_page_has_the_last_lines_of_the_task_that_failed_first(attempt: int, task: tuple[str, int]) -> None:
    first = {"frameworkAttemptID": 0, "taskRoleName": "worker", "taskIndex": 3}
    ended = {"type": {"name": "Failed"}, "trigger": {"taskRoleName": "ps", "taskIndex": 0}}
    shown = {"status": {"firstFailure": first, "attemptStatus": {"id": attempt, "completionStatus": ended}}}
    assert _failing_task(FrameworkSource(body={}, shown=shown, live=True)) == task
