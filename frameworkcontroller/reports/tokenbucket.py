"""A limit of a rate that lets bursts pass. Pure: the caller has the clock."""

from __future__ import annotations


class TokenBucket:
    """``burst`` at once, ``per_sec`` a second on average."""

    __slots__ = ("_at", "_burst", "_left", "_per_sec")

    def __init__(self, burst: int, per_sec: float) -> None:
        self._burst = self._left = float(burst)
        self._per_sec = per_sec
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Take one. Return False if there is none."""
        if self._at is not None and now > self._at:
            self._left = min(self._burst, self._left + (now - self._at) * self._per_sec)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def put_back(self) -> None:
        """Undo a `take`."""
        self._left = min(self._burst, self._left + 1.0)
