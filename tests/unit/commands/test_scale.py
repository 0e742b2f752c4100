"""Completion policies of scaled roles."""

import pytest

from frameworkcontroller.commands.rescale import adjusted


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
