"""Shortens a failing story: drops steps as long as it still fails.

Delta debugging (Zeller): drop large parts first, then smaller ones, until every step is needed. The
error must stay of one kind, by its first words, to avoid shortening a story into another one. On a virtual clock every
run of a story is the same, so its result is certain.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self, TypeVar


class Story(Protocol):
    """A story of any kind."""

    @property
    def steps(self) -> Sequence[Any]:
        """What happens."""

    def without(self, dropped: Iterable[int]) -> Self:
        """The story without the steps at these positions."""


S = TypeVar("S", bound=Story)


def shrink(story: S, failure: Callable[[S], str | None], *, runs: int = 400) -> tuple[S, int]:
    """The shortest story found within ``runs`` that fails as ``story`` does, and the number of runs.

    ``failure`` plays a story and returns its kind of error, None without one.
    """
    kind = failure(story)
    if kind is None:
        raise ValueError("the story does not fail")
    taken = 1
    size = max(1, len(story.steps) // 2)
    while True:
        at = 0
        shortened = False
        while at < len(story.steps) and taken < runs:
            shorter = story.without(range(at, min(at + size, len(story.steps))))
            taken += 1
            if failure(shorter) == kind:
                story, shortened = shorter, True
            else:
                at += size
        if taken >= runs or (size == 1 and not shortened):
            return story, taken
        size = max(1, size // 2)
