"""Completion policies of scaled roles."""

import pytest

from frameworkcontroller.commands.rescale import _change, adjusted


@pytest.mark.parametrize(
    ("minimum", "old", "new", "expected"),
    [
        (-1, 4, 8, -1),
        (0, 4, 8, 0),
        (1, 4, 8, 1),  # the first one
        (1, 1, 8, 1),
        (4, 4, 8, 8),  # all
        (4, 4, 1, 1),
        (2, 4, 8, 4),  # half
        (3, 4, 2, 2),
        (3, 5, 3, 2),
        (9, 10, 1, 1),
        (5, 4, 8, 5),  # never could
        (4, 4, 0, 4),
        (4, 0, 8, 4),
    ],
)
def test_minima(minimum: int, old: int, new: int, expected: int) -> None:
    assert adjusted(minimum, old, new) == expected


@pytest.mark.parametrize(
    ("minimum", "number", "adjust", "warned"),
    [
        (2, 5, False, ["minSucceededTaskCount 2 was all Tasks: the attempt now ends when 2 of 5 have succeeded"]),
        (2, 5, True, []),
        (2, 1, False, ["minSucceededTaskCount 2 can never be reached by 1 Task"]),
        (1, 5, False, []),  # the first one
        (-1, 5, False, []),
    ],
)
def test_a_minimum_that_was_all_tasks(minimum: int, number: int, adjust: bool, warned: list[str]) -> None:
    policy = {"minFailedTaskCount": 1, "minSucceededTaskCount": minimum}
    role = {"name": "worker", "taskNumber": 2, "frameworkAttemptCompletionPolicy": policy}
    framework = {"metadata": {"name": "f"}, "spec": {"taskRoles": [role]}}
    _, (_, warnings) = _change(framework, {"worker": number}, adjust=adjust)
    assert warnings == [f"worker: {text}; use --adjust-policy to adjust it" for text in warned]
