"""What a check found, and where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from frameworkcontroller.api.problems import KeyPath, Problem, path_text

__all__ = ["Finding", "KeyPath", "Problem", "Severity", "error", "path_text", "warning"]


class Severity(StrEnum):
    """An error: the API server or the controller would refuse it. A warning: it would not do what was likely meant."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. ``problem`` says where, and what."""

    severity: Severity
    problem: Problem


def error(path: KeyPath, text: str, **value: object) -> Finding:
    """An error; ``value=`` is what stands there, if that helps."""
    return Finding(Severity.ERROR, Problem(path, text, **value))


def warning(path: KeyPath, text: str, **value: object) -> Finding:
    """A warning; ``value=`` is what stands there, if that helps."""
    return Finding(Severity.WARNING, Problem(path, text, **value))
