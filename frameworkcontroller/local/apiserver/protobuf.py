"""Decodes objects in Kubernetes' protobuf encoding to JSON.

Answers are never in protobuf: clients that send it also accept JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from frameworkcontroller.local.apiserver import api_errors, builtin_types
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.protobuf_numbers import fields_of
from frameworkcontroller.local.apiserver.typegraph import Shape, Type

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- UTC, written with a Z


class _Malformed(Exception):
    """The bytes are not a valid message."""


def is_message(body: bytes) -> bool:
    """Whether a body has the prefix of this encoding."""
    return body.startswith(_MAGIC)


def decode(body: bytes) -> dict[str, Any]:
    """Decode the object in a request body.

    Raises StatusError: 400 for invalid bytes, 415 for a kind that is not supported in this encoding.
    """
    if not is_message(body):
        raise api_errors.bad_request(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        about = dict(_fields(_bytes(envelope.get(1, b""))))
        version, kind = _text(about.get(1, b"")), _text(about.get(2, b""))
        if fields_of(kind) is None:
            raise _unreadable(version, kind)
        content = _object(_bytes(envelope.get(2, b"")), builtin_types.named_type(kind))
    except _Malformed as error:
        raise api_errors.bad_request(f"unable to decode protobuf: {error}") from None
    return {"apiVersion": version, "kind": kind, **content}


def _unreadable(version: str, kind: str) -> ApiStatusError:
    return ApiStatusError(
        415,
        "UnsupportedMediaType",
        f"{kind} in version {version} is read as JSON or YAML here, not as protobuf - accepted media types include: "
        "application/json, application/yaml",
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield a message's fields: number, and a varint or bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise _Malformed(f"wire type {wire}")
        if at + size > len(message):
            raise _Malformed("unexpected EOF")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Malformed("unexpected EOF")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Malformed("a number where bytes belong")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise _Malformed("text that is not UTF-8") from None


def _integer(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise _Malformed("bytes where a number belongs")
    # Negative numbers are in 64-bit two's complement.
    return value - (1 << 64) if value >> 63 else value


def _object(message: bytes, of: Type) -> dict[str, Any]:
    numbered = fields_of(of.name) or {}
    result: dict[str, Any] = {}
    for number, raw in _fields(message):
        # Skip unknown, newer fields, as an older server would.
        if number not in numbered:
            continue
        name, zero_is_meant = numbered[number]
        field = of.fields.get(name)
        if field is None:
            continue
        declared = field.type
        if declared.shape is Shape.LIST and declared.element is not None:
            result.setdefault(name, []).append(_value(raw, declared.element))
        elif declared.shape is Shape.MAP and declared.element is not None:
            entry = dict(_fields(_bytes(raw)))
            result.setdefault(name, {})[_text(entry.get(1, b""))] = _value(entry.get(2, b""), declared.element)
        else:
            value = _value(raw, declared)
            # Go writes non-pointer fields even if they are zero.
            if zero_is_meant or value not in ("", 0, False, None):
                result[name] = value
    return result


def _value(raw: int | bytes, of: Type) -> Any:
    if of.shape is Shape.OBJECT:
        return _object(_bytes(raw), of)
    if of.kind == "boolean":
        return bool(_integer(raw))
    if of.kind == "integer":
        return _integer(raw)
    match of.format:
        case "byte":
            return base64.b64encode(_bytes(raw)).decode()
        case "date-time":
            return _time(_bytes(raw), "seconds")
        case "micro-time":
            return _time(_bytes(raw), "microseconds")
        case "quantity":
            return _text(dict(_fields(_bytes(raw))).get(1, b""))
        case "int-or-string":
            parts = dict(_fields(_bytes(raw)))
            return _text(parts.get(3, b"")) if parts.get(1, 0) else _integer(parts.get(2, 0))
        case _:
            return _text(raw)


def _time(message: bytes, precision: str) -> str | None:
    parts = dict(_fields(message))
    if not parts:
        return None
    seconds, nanoseconds = _integer(parts.get(1, 0)), _integer(parts.get(2, 0))
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError:
        raise _Malformed("a time out of range") from None
    return f"{moment.isoformat(timespec=precision)}Z"
