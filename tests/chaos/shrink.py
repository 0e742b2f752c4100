"""Makes a failing story short: leaves steps out for as long as it still fails.

Delta debugging (Zeller): drop large parts first, then smaller ones, until no single step can be spared. What fails must
stay of one kind, by the first words of its error, lest a story be shortened into another one. On a virtual clock every
run of a story is the same, so what it shows is certain.
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
    """The shortest story found within so many runs that fails as ``story`` does, and how many runs that took.

    ``failure`` plays a story and names what is wrong, None if nothing is.
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
