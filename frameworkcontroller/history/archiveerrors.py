"""Errors of the archive."""

from __future__ import annotations


class ArchiveError(Exception):
    """The database cannot be used now. The text says why; nothing of the call is stored.

    The archive recovers by itself once the cause is gone, so the caller may try again.
    """


class FolderError(Exception):
    """A folder of records cannot be read. The text names it and the reason."""


class RecordError(ValueError):
    """A record is invalid. Nothing of the call is stored, and trying again does not help.

    Attributes:
        line: the position of the record among the lines of the call, from 1.
        problem: the field, its value and the broken rule.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


class QueryError(ValueError):
    """A query is invalid.

    Attributes:
        field: the field of the query.
        problem: its value and the broken rule.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
