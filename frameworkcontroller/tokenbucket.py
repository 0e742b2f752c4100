"""A limit of a rate that lets bursts pass. Pure: the caller has the clock."""

from __future__ import annotations


class TokenBucket:
    """``burst`` at once, ``per_sec`` a second on average."""

    __slots__ = ("_at", "_burst", "_per_sec", "left")

    def __init__(self, burst: int, per_sec: float) -> None:
        self._burst = self.left = float(burst)
        self._per_sec = per_sec
        self._at: float | None = None

    def refill(self, now: float) -> None:
        """Add the tokens of the time since the last call. ``now``: seconds. A clock may go back."""
        if self._at is not None and now > self._at:
            self.left = min(self._burst, self.left + (now - self._at) * self._per_sec)
        self._at = now

    def take(self, now: float) -> bool:
        """Take one. Return False if there is none."""
        self.refill(now)
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    def put_back(self) -> None:
        """Undo a `take`."""
        self.left = min(self._burst, self.left + 1.0)
