"""Exit codes, and the errors that lead to them."""

from __future__ import annotations

EXIT_PASSED = 0
EXIT_UNKNOWN = 1
EXIT_TIMED_OUT = 201
EXIT_REFUSED = 210


class BarrierError(Exception):
    """The barrier was not passed. ``code`` is the exit code."""

    def __init__(self, message: str, code: int = EXIT_UNKNOWN) -> None:
        super().__init__(message)
        self.code = code


class WrongFramework(BarrierError):
    """The Framework is not the one of this Pod, or does not satisfy the settings. A cache may be stale."""


class CheckFailed(Exception):
    """One read of the Framework failed; the next may succeed.

    ``retry_after``: seconds for which the server asked not to be called.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def reason(error: BaseException) -> str:
    """The text of an error, without the number and file name of an OSError."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return str(text) or type(error).__name__
