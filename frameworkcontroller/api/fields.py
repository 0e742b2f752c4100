"""Reads the fields of JSON objects that others wrote. What has a wrong type is a TypeError that names field and value.

Absent and null both mean that there is no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_QUOTED = 80


def text(body: Mapping[str, Any], key: str) -> str:
    """A text, "" if there is none."""
    return maybe_text(body, key) or ""


def maybe_text(body: Mapping[str, Any], key: str) -> str | None:
    """A text, if there is one."""
    value = body.get(key)
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{key}: {_quoted(value)} is not text")


def needed_text(body: Mapping[str, Any], key: str) -> str:
    """A text that must be there.

    Raises:
        KeyError: it is not.
    """
    value = maybe_text(body, key)
    if value is None:
        raise KeyError(key)
    return value


def number(body: Mapping[str, Any], key: str) -> int:
    """A whole number, 0 if there is none."""
    return maybe_number(body, key) or 0


def maybe_number(body: Mapping[str, Any], key: str) -> int | None:
    """A whole number, if there is one."""
    value = body.get(key)
    if value is None or type(value) is int:
        return value
    raise TypeError(f"{key}: {_quoted(value)} is not a whole number")


def _quoted(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MAX_QUOTED else shown[: _MAX_QUOTED - 3] + "..."
