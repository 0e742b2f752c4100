"""Findings of lint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from frameworkcontroller.api.problems import KeyPath, Problem


@dataclass(frozen=True, slots=True)
class Finding:
    """An error would be refused by the API server or the controller. A warning is about a likely mistake."""

    severity: Literal["error", "warning"]
    problem: Problem

    def __str__(self) -> str:
        return f"{self.severity}: {self.problem}"


def error(path: KeyPath, text: str, **value: object) -> Finding:
    """Return an error; ``value=`` is the value there, if it helps."""
    return Finding("error", Problem(path, text, **value))


def warning(path: KeyPath, text: str, **value: object) -> Finding:
    """Return a warning; ``value=`` is the value there, if it helps."""
    return Finding("warning", Problem(path, text, **value))
