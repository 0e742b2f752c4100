"""Decodes built-in objects: checks types (400), drops unknown fields, normalizes scalars.

In contrast to schema validation, wrong types are reported before anything else, with the texts of Go's JSON decoder.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from frameworkcontroller.api.quantities import format_quantity, parse_quantity
from frameworkcontroller.local.apiserver import formats
from frameworkcontroller.local.apiserver.field_path import FieldPath, show_fields
from frameworkcontroller.local.apiserver.patches import json_type
from frameworkcontroller.local.apiserver.typegraph import Shape, Type

_BARE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_QUANTITY = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[0-9.][eE][+-]?[0-9]+$", re.ASCII)

_GO_MAPS = {"quantity": "v1.ResourceList", "byte": "map[string][]uint8"}
_GO_SCALARS = {
    ("string", ""): "string",
    ("string", "byte"): "[]uint8",
    ("string", "date-time"): "string",
    ("string", "micro-time"): "string",
    ("string", "int-or-string"): "int32",
    ("string", "uid"): "types.UID",
    ("boolean", ""): "bool",
    ("number", "double"): "float64",
}


class DecodeError(Exception):
    """A value of a wrong type; the text is Go's."""


def decode_object(
    value: Mapping[str, Any], of: Type, unknown: list[FieldPath], where: FieldPath = None
) -> dict[str, Any]:
    """Decode ``value`` as ``of`` into a new object, without nulls and unknown fields, with canonical scalars.

    Appends the paths of unknown fields to ``unknown``. Raises DecodeError for a wrong type.
    """
    result: dict[str, Any] = {}
    fields = of.fields
    for name, member in value.items():
        field = fields.get(name)
        if field is None:
            if of.open:
                result[name] = member
            else:
                unknown.append((where, name))
        elif member is not None:
            result[name] = _decode(member, field.type, unknown, (where, name), of)
    return result


def _decode(value: Any, of: Type, unknown: list[FieldPath], where: FieldPath, holder: Type) -> Any:
    shape = of.shape
    if shape is Shape.SCALAR:
        return _scalar(value, of, where, holder)
    if shape is Shape.OBJECT:
        if not isinstance(value, dict):
            raise _mismatch(value, where, holder, f"v1.{of.name}")
        return decode_object(value, of, unknown, where)
    if shape is Shape.LIST:
        if not isinstance(value, list):
            raise _mismatch(value, where, holder, _go_type(of))
        element = of.element
        assert element is not None  # noqa: S101 -- a list type has one
        return [
            _zero(element) if item is None else _decode(item, element, unknown, (where, index), holder)
            for index, item in enumerate(value)
        ]
    if shape is Shape.MAP:
        if not isinstance(value, dict):
            raise _mismatch(value, where, holder, _go_type(of))
        element = of.element
        assert element is not None  # noqa: S101 -- so has a map type
        return {
            key: _zero(element) if item is None else _map_item(item, element, unknown, (where, key), where, holder)
            for key, item in value.items()
        }
    return value


def _map_item(value: Any, of: Type, unknown: list[FieldPath], place: FieldPath, where: FieldPath, holder: Type) -> Any:
    # Go names the map, not its key.
    if of.shape is Shape.SCALAR:
        return _scalar(value, of, where, holder)
    return _decode(value, of, unknown, place, holder)


def _zero(of: Type) -> Any:
    if of.shape is Shape.OBJECT or of.shape is Shape.MAP:
        return {}
    if of.shape is Shape.LIST:
        return []
    return {"string": "", "boolean": False, "integer": 0, "number": 0}.get(of.kind)


def _scalar(value: Any, of: Type, where: FieldPath, holder: Type) -> Any:
    kind = of.kind
    if kind == "string":
        if not of.format:
            if type(value) is str:
                return value
        else:
            return _FORMATS[of.format](value, of, where, holder)
    elif kind == "boolean":
        if type(value) is bool:
            return value
    elif kind == "integer":
        if type(value) is int and formats.fits(value, of.format):
            return value
    elif type(value) is int or type(value) is float:
        return value
    raise _mismatch(value, where, holder, _go_type(of))


def _plain(value: Any, of: Type, where: FieldPath, holder: Type) -> str:
    if type(value) is not str:
        raise _mismatch(value, where, holder, _go_type(of))
    return value


def _bytes(value: Any, of: Type, where: FieldPath, holder: Type) -> str:
    text = _plain(value, of, where, holder)
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except binascii.Error:
        at = next((i for i, char in enumerate(text) if not (char.isalnum() or char in "+/=\r\n")), len(text) // 4 * 4)
        raise DecodeError(f"illegal base64 data at input byte {at}") from None
    return text


def _int_or_string(value: Any, of: Type, where: FieldPath, holder: Type) -> str | int:
    if type(value) is str or (type(value) is int and formats.fits(value, "int32")):
        return value
    raise _mismatch(value, where, holder, _go_type(of))


def _quantity(value: Any, of: Type, where: FieldPath, holder: Type) -> str:
    del of, where, holder
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    try:
        if not _QUANTITY.fullmatch(text):
            raise ValueError(text)
        amount = parse_quantity(text)
    except ValueError:
        raise DecodeError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None
    return text if _EXPONENT.search(text) else format_quantity(amount, text)


def _time(value: Any, of: Type, where: FieldPath, holder: Type) -> str:
    text = _plain(value, of, where, holder)
    if _BARE_TIME.fullmatch(text) is None:
        return f"{_moment(text).isoformat(timespec='seconds')}Z"
    _moment(text)
    return text


def _micro_time(value: Any, of: Type, where: FieldPath, holder: Type) -> str:
    return f"{_moment(_plain(value, of, where, holder)).isoformat(timespec='microseconds')}Z"


def _moment(text: str) -> datetime:
    """Parse a time; the result is UTC, without a zone."""
    try:
        if formats.is_date_time(text):
            # On 3.11, fromisoformat takes at most six fractional digits.
            return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).astimezone(UTC).replace(tzinfo=None)
    except ValueError:
        pass
    layout = "2006-01-02T15:04:05Z07:00"
    raise DecodeError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')


_FORMATS: Mapping[str, Callable[[Any, Type, FieldPath, Type], Any]] = {
    "byte": _bytes,
    "date-time": _time,
    "int-or-string": _int_or_string,
    "micro-time": _micro_time,
    "quantity": _quantity,
    "uid": _plain,
}


def _mismatch(value: Any, where: FieldPath, holder: Type, go_type: str) -> DecodeError:
    found = json_type(value)
    if found == "number" and go_type in ("int32", "int64"):
        # Go quotes the number only where its value is the fault.
        found = f"number {json.dumps(value)}"
    return DecodeError(
        f"json: cannot unmarshal {found} into Go struct field {holder.name}.{show_fields(where)} of type {go_type}"
    )


def _go_type(of: Type) -> str:
    if of.shape is Shape.OBJECT:
        return f"v1.{of.name}"
    if of.element is not None and of.shape is Shape.LIST:
        return f"[]{_go_type(of.element)}"
    if of.element is not None and of.shape is Shape.MAP:
        return _GO_MAPS.get(of.element.format) or f"map[string]{_go_type(of.element)}"
    if of.kind == "integer":
        return of.format
    return _GO_SCALARS.get((of.kind, of.format), "string")
