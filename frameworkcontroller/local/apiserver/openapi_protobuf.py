"""The OpenAPI v2 document in protobuf, the only encoding that kubectl requests.

kubectl needs it to validate kinds that the server lacks, such as ``List``. It contains only definitions, because no
client reads paths from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""In requests."""
CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""In answers: a media type cannot contain "@"."""

# Field numbers of the messages of gnostic's OpenAPIv2.proto.
_DOCUMENT_SWAGGER, _DOCUMENT_INFO, _DOCUMENT_PATHS, _DOCUMENT_DEFINITIONS = 1, 2, 8, 9
_REF, _FORMAT, _DESCRIPTION, _REQUIRED, _ENUM = 1, 2, 4, 19, 20
_ADDITIONAL_PROPERTIES, _TYPE, _ITEMS, _PROPERTIES, _EXTENSION = 21, 22, 23, 25, 31
_ANY_YAML: Final = 2


def encode(document: Mapping[str, Any]) -> bytes:
    """An OpenAPI v2 document (see ``openapi.v2_document``) in protobuf."""
    info = document["info"]
    return (
        _field(_DOCUMENT_SWAGGER, document["swagger"].encode())
        + _field(_DOCUMENT_INFO, _field(1, info["title"].encode()) + _field(2, info["version"].encode()))
        + _field(_DOCUMENT_PATHS, b"")
        + _field(_DOCUMENT_DEFINITIONS, _named(document["definitions"]))
    )


def _named(schemas: Mapping[str, Any]) -> bytes:
    return b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _schema(schema))) for name, schema in schemas.items()
    )


def _schema(schema: Mapping[str, Any]) -> bytes:
    parts = [
        _field(number, schema[key].encode())
        for key, number in (("$ref", _REF), ("format", _FORMAT), ("description", _DESCRIPTION))
        if schema.get(key)
    ]
    parts += [_field(_REQUIRED, name.encode()) for name in schema.get("required") or ()]
    parts += [_field(_ENUM, _field(_ANY_YAML, orjson.dumps(value))) for value in schema.get("enum") or ()]
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        parts.append(_field(_ADDITIONAL_PROPERTIES, _field(1, _schema(additional))))
    if schema.get("type"):
        parts.append(_field(_TYPE, _field(1, schema["type"].encode())))
    if isinstance(schema.get("items"), Mapping):
        parts.append(_field(_ITEMS, _field(1, _schema(schema["items"]))))
    if schema.get("properties"):
        parts.append(_field(_PROPERTIES, _named(schema["properties"])))
    return b"".join([*parts, *_extensions(schema)])


def _extensions(schema: Mapping[str, Any]) -> Iterable[bytes]:
    for key, value in schema.items():
        if key.startswith("x-kubernetes-"):
            # The value is YAML, which includes JSON.
            content = _field(1, key.encode()) + _field(2, _field(_ANY_YAML, orjson.dumps(value)))
            yield _field(_EXTENSION, content)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
