"""Read the fields of foreign JSON objects; errors name the path and the value.

Absent and null both mean that there is no value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from frameworkcontroller.api.timestamps import parse_time

_MAX_QUOTED = 80

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class FieldError(ValueError):
    """A field is invalid. ``path``: its path in the object, as in ``roles[0].name``."""

    def __init__(self, path: str, fault: str) -> None:
        super().__init__(f"{path}: {fault}")
        self.path = path
        self.fault = fault


def whole(value: Any) -> Any:
    """300 for 300.0, which is a whole number in YAML and JSON; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def text(body: Mapping[str, Any], key: str) -> str:
    """A text; default ""."""
    return maybe_text(body, key) or ""


def maybe_text(body: Mapping[str, Any], key: str) -> str | None:
    """An optional text."""
    value = body.get(key)
    if value is None or isinstance(value, str):
        return value
    raise FieldError(key, f"{quoted(value)} is not text")


def needed_text(body: Mapping[str, Any], key: str) -> str:
    """A required text."""
    needed(body, key)
    return text(body, key)


def number(body: Mapping[str, Any], key: str) -> int:
    """A whole number; default 0."""
    return maybe_number(body, key) or 0


def maybe_number(body: Mapping[str, Any], key: str) -> int | None:
    """An optional whole number."""
    value = body.get(key)
    if value is None or type(value) is int:
        return value
    raise FieldError(key, f"{quoted(value)} is not a whole number")


def needed_number(body: Mapping[str, Any], key: str) -> int:
    """A required whole number."""
    needed(body, key)
    return number(body, key)


def flag(body: Mapping[str, Any], key: str) -> bool:
    """A boolean; default False."""
    value = body.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise FieldError(key, f"{quoted(value)} is neither true nor false")


def maybe_time(body: Mapping[str, Any], key: str) -> int | None:
    """An optional time, in seconds since the epoch."""
    return None if body.get(key) is None else needed_time(body, key)


def needed_time(body: Mapping[str, Any], key: str) -> int:
    """A required time, in seconds since the epoch."""
    value = needed(body, key)
    try:
        return parse_time(value)
    except (TypeError, ValueError):
        raise FieldError(key, f"{quoted(value)} is not a time of RFC 3339 from year 1 to 9999") from None


def needed_choice(body: Mapping[str, Any], key: str, choices: type[E]) -> E:
    """A required member of ``choices``."""
    value = needed(body, key)
    try:
        return choices(value)
    except ValueError:
        raise FieldError(key, f"{quoted(value)} is not one of {', '.join(choices)}") from None


def maybe_part(body: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any]], T]) -> T | None:
    """An optional object, decoded by ``read``."""
    value = body.get(key)
    return None if value is None else _read(value, key, read)


def needed_part(body: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any]], T]) -> T:
    """A required object, decoded by ``read``."""
    return _read(needed(body, key), key, read)


def each(body: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any]], T]) -> list[T]:
    """A list of objects, decoded by ``read``; default empty."""
    value = body.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError(key, f"{quoted(value)} is not a list")
    return [_read(item, f"{key}[{index}]", read) for index, item in enumerate(value)]


def needed(body: Mapping[str, Any], key: str) -> Any:
    """The value of a required key."""
    value = body.get(key)
    if value is None:
        raise FieldError(key, "is missing")
    return value


def quoted(value: Any) -> str:
    """The value for an error message, shortened."""
    shown = repr(value)
    return shown if len(shown) <= _MAX_QUOTED else shown[: _MAX_QUOTED - 3] + "..."


def _read(value: Any, path: str, read: Callable[[Mapping[str, Any]], T]) -> T:
    if not isinstance(value, dict):
        raise FieldError(path, f"{quoted(value)} is not an object")
    try:
        return read(value)
    except FieldError as error:
        raise FieldError(f"{path}.{error.path}", error.fault) from None
