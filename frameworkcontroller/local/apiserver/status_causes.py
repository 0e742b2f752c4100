"""Validation errors of fields: the causes of a 422, with the real API server's texts.

A cause's ``message`` includes the kind of error ("Required value", "Invalid value: ..."), as in
``status.details.causes`` of a real answer; the answer's message prepends the field's path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of ``status.details.causes``."""

    reason: str
    """``FieldValueRequired``, ``FieldValueInvalid``, ... as metav1.CauseType."""
    message: str
    field: str
    """Path of the field: ``spec.containers[0].name``; empty for the object itself."""

    def body(self) -> dict[str, str]:
        """Its JSON form, without empty fields."""
        body = {"reason": self.reason, "message": self.message, "field": self.field}
        return {key: value for key, value in body.items() if value}

    def line(self) -> str:
        """Its text in an answer's message."""
        return f"{self.field}: {self.message}"


def required(field: str, detail: str = "") -> Cause:
    """The field must have a value."""
    return Cause("FieldValueRequired", _with_detail("Required value", detail), field)


def invalid(field: str, value: object, detail: str) -> Cause:
    """The field's value is malformed, out of range, or may not be changed."""
    return Cause("FieldValueInvalid", _with_detail(f"Invalid value: {shown(value)}", detail), field)


def type_invalid(field: str, value: object, detail: str) -> Cause:
    """The field's value is of the wrong JSON type."""
    return Cause("FieldValueTypeInvalid", _with_detail(f"Invalid value: {shown(value)}", detail), field)


def not_supported(field: str, value: object, supported: Sequence[str]) -> Cause:
    """The field's value is not in the enumeration ``supported``, which is listed in this order."""
    choices = ", ".join(quote(choice) for choice in supported)
    detail = f"supported values: {choices}" if choices else ""
    return Cause("FieldValueNotSupported", _with_detail(f"Unsupported value: {shown(value)}", detail), field)


def duplicate(field: str, value: object) -> Cause:
    """A list that is a set or a map has a duplicate item."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", field)


def forbidden(field: str, detail: str) -> Cause:
    """The field may not be set or changed."""
    return Cause("FieldValueForbidden", _with_detail("Forbidden", detail), field)


def not_found(field: str, value: object) -> Cause:
    """The field names something that does not exist."""
    return Cause("FieldValueNotFound", f"Not found: {shown(value)}", field)


def too_long(field: str, limit: int, unit: str = "bytes") -> Cause:
    """A string is longer than ``limit`` ``unit``."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} {unit}", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    """A list has more than ``limit`` items."""
    items = "item" if limit == 1 else "items"
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} {items}", field)


def summary(causes: Iterable[Cause]) -> str:
    """Join causes for an answer's message: one as it is, several in brackets, without duplicates."""
    texts = list(dict.fromkeys(cause.line() for cause in causes))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def shown(value: object) -> str:
    """Format a value for error messages: strings quoted as in Go, everything else as JSON."""
    if value is None:
        return '"null"'
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, Mapping | list | tuple):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return quote(str(value))


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quote(text: str) -> str:
    """Quote ``text``, with escapes as in Go's ``%q``."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _with_detail(text: str, detail: Any) -> str:
    return f"{text}: {detail}" if detail else text
