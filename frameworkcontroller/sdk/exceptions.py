"""The errors of the SDK. Each is a `FrameworkError`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frameworkcontroller.api.problems import Problem

if TYPE_CHECKING:
    from frameworkcontroller.sdk.runstatus import Result, Status, TaskFailure


class FrameworkError(Exception):
    """Base class of the errors of the SDK."""


class InvalidSpec(FrameworkError, ValueError):
    """The Framework breaks rules of the controller or of the API server. ``problems``: each with its path."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class NotFound(FrameworkError, LookupError):
    """There is no such Framework, or it was deleted meanwhile."""


class AlreadyExists(FrameworkError):
    """A Framework of that name exists already."""


class Forbidden(FrameworkError, PermissionError):
    """The API server refuses the credentials (401) or the action (403).

    ``verb``, ``resource``: as RBAC names them, "" if unknown. ``hint``: what to do.
    """

    def __init__(self, message: str, *, verb: str = "", resource: str = "", hint: str = "") -> None:
        super().__init__(f"{message}. {hint}" if hint else message)
        self.verb = verb
        self.resource = resource
        self.hint = hint


class Unreachable(FrameworkError, ConnectionError):
    """No cluster is configured, or its API server does not answer."""


class RequestRefused(FrameworkError):
    """The API server or the archive refuses a request for another reason; the text is its own."""


class LogUnavailable(FrameworkError, LookupError):
    """No log exists: nothing has run yet, or its Pods are gone and no archive has it. The text says which."""


class WaitTimeout(FrameworkError, TimeoutError):
    """The Framework was not in the awaited phase in time. ``last``: its last status."""

    def __init__(self, message: str, last: Status) -> None:
        super().__init__(message)
        self.last = last


class FrameworkFailed(FrameworkError):
    """The Framework has failed or was stopped. ``result``: how. ``first_failure``: the Task that failed first, or None.

    ``__cause__`` is a `RemoteError` if the failing Task has left a traceback. The notes of the error name the Task, its
    node, the attempt, the rule that decided, the retries, and the last lines of its log.
    """

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result

    @property
    def first_failure(self) -> TaskFailure | None:
        """The Task that failed first, with its container, code, node, time, and the last lines of its log."""
        return self.result.first_failure


class RemoteError(FrameworkError):
    """An exception that a function has raised in a Task. ``traceback``: its text there."""

    def __init__(self, type_name: str, message: str, traceback: str) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback
        if traceback:
            self.add_note(f"Traceback of the Task:\n{traceback.rstrip()}")
