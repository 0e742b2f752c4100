"""A client-wide request rate, shared fairly. (Signatures are final; the bodies follow.)"""

from __future__ import annotations


class Limiter:
    """Token bucket: ``qps`` requests a second on average, ``burst`` at once; waiting owners take turns."""

    def __init__(self, qps: float, burst: int) -> None:
        raise NotImplementedError

    async def acquire(self, owner: str = "") -> None:
        raise NotImplementedError
