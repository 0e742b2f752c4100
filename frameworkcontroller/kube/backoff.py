"""How long to wait after failures in a row."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

_NO_MORE_DOUBLINGS: Final = 63


@dataclass(frozen=True, slots=True)
class Backoff:
    """``first`` seconds after the first failure, doubling up to ``most``; of that, a random half to whole.

    The jitter keeps the clients of a restarted server from coming back all at once.
    """

    first: float
    most: float

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after the ``failures``-th failure in a row; 0 if there was none."""
        if failures <= 0:
            return 0.0
        whole = min(self.most, self.first * 2.0 ** min(failures - 1, _NO_MORE_DOUBLINGS))
        return whole * rng.uniform(0.5, 1.0)
