"""Exponential back-off. Pure: the generator of random numbers is an argument."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, TypeVar

Seconds = TypeVar("Seconds", int, float)

_MAX_DOUBLINGS: Final = 63


def exponential(base: Seconds, maximum: Seconds, failures: int) -> Seconds:
    """Return ``base`` after the first failure, doubled after each further one up to ``maximum``; 0 without failures."""
    if failures <= 0:
        return base * 0
    return min(maximum, base * (1 << min(failures - 1, _MAX_DOUBLINGS)))


@dataclass(frozen=True, slots=True)
class Backoff:
    """`exponential` with jitter, which keeps the clients of a restarted server from coming back all at once.

    A delay is shortened at random by up to the fraction ``jitter``.
    """

    base: float
    maximum: float
    jitter: float = 0.5

    def delay(self, failures: int, rng: random.Random) -> float:
        """Return the seconds to wait after ``failures`` failures in a row."""
        if failures <= 0:
            return 0.0
        return exponential(self.base, self.maximum, failures) * rng.uniform(1.0 - self.jitter, 1.0)
