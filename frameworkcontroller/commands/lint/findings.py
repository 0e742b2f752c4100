"""Findings of lint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from frameworkcontroller.api.problems import KeyPath, Problem


class Severity(StrEnum):
    """An error would be refused by the API server or the controller. A warning is about a likely mistake."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and its severity."""

    severity: Severity
    problem: Problem


def error(path: KeyPath, text: str, **value: object) -> Finding:
    """Return an error; ``value=`` is the value there, if it helps."""
    return Finding(Severity.ERROR, Problem(path, text, **value))


def warning(path: KeyPath, text: str, **value: object) -> Finding:
    """Return a warning; ``value=`` is the value there, if it helps."""
    return Finding(Severity.WARNING, Problem(path, text, **value))
