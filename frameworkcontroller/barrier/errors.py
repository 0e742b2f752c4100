"""Exit codes, and the errors that lead to them."""

from __future__ import annotations

EXIT_PASSED = 0
EXIT_UNKNOWN = 1
EXIT_TIMED_OUT = 201
EXIT_REFUSED = 210


class BarrierError(Exception):
    """The barrier was not passed. ``code`` is the exit code."""

    code = EXIT_UNKNOWN


class SettingsError(BarrierError):
    """A setting is wrong; waiting does not help."""

    code = EXIT_REFUSED


class NoConnection(BarrierError):
    """No API server is configured, or its settings cannot be used."""


class FrameworkGone(BarrierError):
    """There is no such Framework, or another one has its name."""

    code = EXIT_REFUSED


class AttemptOver(BarrierError):
    """A later attempt of the Framework runs.

    The controller deletes this Pod and ignores its exit code. For any other reader, a retry is the harmless code.
    """

    code = EXIT_TIMED_OUT


class TimedOut(BarrierError):
    """Some Task still had no IP at the timeout."""

    code = EXIT_TIMED_OUT


class CheckFailed(BarrierError):
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
