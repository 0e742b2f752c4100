"""JSON objects of users that are kept as text. Decoded, they take up to fifty times the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from pydantic import GetPydanticSchema
from pydantic_core import core_schema

from frameworkcontroller.api.codec import dumps_to_keep


class Packed:
    """A JSON object, immutable. ``text``: its JSON, which escapes only quotes, backslashes and control characters."""

    __slots__ = ("text",)

    def __init__(self, value: Mapping[str, Any]) -> None:
        """Raise ValueError if the object is nested too deeply, or is not JSON."""
        try:
            self.text = dumps_to_keep(value)
        except TypeError as error:
            raise ValueError(f"cannot be encoded as JSON: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Packed({self.text.decode()})"

    def decoded(self) -> dict[str, Any]:
        """Decode the object, at each call. Do not keep the result."""
        value: dict[str, Any] = orjson.loads(self.text)
        return value

    def has_key(self, key: str) -> bool:
        """Return False if no object in it has this key. Costs a search, not a decoding."""
        return b'"%s":' % key.encode() in self.text

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> core_schema.CoreSchema:
        return _schema(core_schema.any_schema())


def _schema(values: core_schema.CoreSchema) -> core_schema.CoreSchema:
    return core_schema.no_info_after_validator_function(
        Packed,
        core_schema.dict_schema(core_schema.str_schema(), values, strict=True),
        serialization=core_schema.plain_serializer_function_ser_schema(Packed.decoded),
    )


PackedTexts = Annotated[Packed, GetPydanticSchema(lambda *_: _schema(core_schema.str_schema(strict=True)))]
"""All values of the object are strings."""
