"""The error that has a key retried."""

from __future__ import annotations


class RequeueError(Exception):
    """A reconcile cannot go on for a transient reason, given in the text. The key is retried after its back-off.

    ``retry_after_sec``: the least wait that the API server asked for.
    """

    def __init__(self, message: str, retry_after_sec: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_sec = retry_after_sec
